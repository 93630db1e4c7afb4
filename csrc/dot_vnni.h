// Integer sums of one row and one panel where one instruction adds four products of bytes to each
// integer of a register (see group_linear.h). A file that includes this first defines in ISA
//     add_products(sum, w, x)    sum plus unsigned times signed bytes, four neighbours added
// The weights are stored plus 128 or 8, so that they are unsigned; the sums begin with what is too
// much.
#pragma once
#include <cstdint>
#include <cstring>

#include "group_linear.h"
#include "kernels.h"
#include "vec.h"

namespace ISA {

template <int bits>  // the weights are stored plus 1 << bits
struct FourDot {
    Int32s sum[Whole::parts];

    [[gnu::always_inline]] void begin(int32_t x_sum) {
        for (int i = 0; i < Whole::parts; i++) sum[i] = (Int32s{} + x_sum) << bits;
    }
    [[gnu::always_inline]] void add_quad(const Int32s* w, int32_t x) {
        for (int i = 0; i < Whole::parts; i++)
            sum[i] = add_products(sum[i], w[i], Int32s{} + x);
    }
    [[gnu::always_inline]] Whole total() const {
        Whole whole;
        memcpy(&whole, sum, sizeof whole);
        return whole;
    }
};

struct Int8Dot : FourDot<7> {
    static constexpr int steps = 8;
    struct Weights {
        Int32s bytes[Whole::parts];
    };
    [[gnu::always_inline]] static Weights load(const uint8_t* p) {
        Weights w;
        memcpy(&w, p, sizeof w);
        return w;
    }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int) {
        add_quad(w.bytes, *x);
    }
};

struct Int4Dot : FourDot<3> {
    static constexpr int steps = 4;
    struct Weights {
        Int32s low[Whole::parts], high[Whole::parts];
    };
    [[gnu::always_inline]] static Weights load(const uint8_t* p) {
        Weights w;
        for (int i = 0; i < Whole::parts; i++) {
            Int32s bytes;
            memcpy(&bytes, p + i * register_bytes, sizeof bytes);
            w.low[i] = bytes & 0x0f0f0f0f;
            w.high[i] = (bytes >> 4) & 0x0f0f0f0f;
        }
        return w;
    }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int next) {
        add_quad(w.low, x[0]);
        add_quad(w.high, x[next]);
    }
};

}  // namespace ISA
