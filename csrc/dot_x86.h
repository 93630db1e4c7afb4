// Integer sums of one row and one panel with AVX2 or AVX-512BW, which have no instruction for four
// products (see group_linear.h). A file that includes this first defines in ISA, for its registers,
//     multiply_words(a, b)       16-bit products, neighbours added: 32 bits
//     multiply_bytes(a, b)       unsigned times signed bytes, neighbours added: 16 bits
#pragma once
#include <cstdint>
#include <cstring>

#include "group_linear.h"
#include "kernels.h"
#include "vec.h"

namespace ISA {

typedef int16_t Int16s __attribute__((vector_size(register_bytes)));
typedef uint32_t UInt32s __attribute__((vector_size(register_bytes)));

// 8 bits through 16: 255 * 127 * 2 does not fit what `multiply_bytes` adds into.
struct Int8Dot {
    static constexpr int steps = 8;
    struct Weights {
        Int16s even[Whole::parts], odd[Whole::parts];  // inputs 0 and 2, 1 and 3
    };
    Int32s sum[Whole::parts];

    [[gnu::always_inline]] void begin(int32_t x_sum) {
        for (int i = 0; i < Whole::parts; i++) sum[i] = (Int32s{} + x_sum) << 7;
    }
    [[gnu::always_inline]] static Weights load(const uint8_t* p) {
        Weights w;
        for (int i = 0; i < Whole::parts; i++) {
            UInt32s bytes;
            memcpy(&bytes, p + i * register_bytes, sizeof bytes);
            w.even[i] = Int16s(bytes & 0x00ff00ff);
            w.odd[i] = Int16s((bytes >> 8) & 0x00ff00ff);
        }
        return w;
    }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int) {
        const Int16s both = Int16s(Int32s{} + *x), even = (both << 8) >> 8, odd = both >> 8;
        for (int i = 0; i < Whole::parts; i++)
            sum[i] += multiply_words(w.even[i], even) + multiply_words(w.odd[i], odd);
    }
    [[gnu::always_inline]] Whole total() const {
        Whole whole;
        memcpy(&whole, sum, sizeof whole);
        return whole;
    }
};

// 4 bits in 16: a whole group's 15 * 127 * 2 * 8 fits.
struct Int4Dot {
    static constexpr int steps = 4;
    struct Weights {
        UInt32s low[Whole::parts], high[Whole::parts];
    };
    Int16s sum[Whole::parts];
    int32_t start;

    [[gnu::always_inline]] void begin(int32_t x_sum) {
        for (int i = 0; i < Whole::parts; i++) sum[i] = Int16s{};
        start = 8 * x_sum;
    }
    [[gnu::always_inline]] static Weights load(const uint8_t* p) {
        Weights w;
        for (int i = 0; i < Whole::parts; i++) {
            UInt32s bytes;
            memcpy(&bytes, p + i * register_bytes, sizeof bytes);
            w.low[i] = bytes & 0x0f0f0f0f;
            w.high[i] = (bytes >> 4) & 0x0f0f0f0f;
        }
        return w;
    }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int next) {
        const Int32s low = Int32s{} + x[0], high = Int32s{} + x[next];
        for (int i = 0; i < Whole::parts; i++)
            sum[i] += multiply_bytes(w.low[i], low) + multiply_bytes(w.high[i], high);
    }
    [[gnu::always_inline]] Whole total() const {
        Whole whole;
        for (int i = 0; i < Whole::parts; i++)
            whole.part[i] = multiply_words(sum[i], Int16s{} + 1) + start;
        return whole;
    }
};

}  // namespace ISA
