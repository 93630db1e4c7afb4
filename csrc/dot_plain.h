// Integer sums of one row and one panel, in plain C++ (see group_linear.h).
#pragma once
#include <cstdint>
#include <cstring>

#include "group_linear.h"
#include "kernels.h"
#include "vec.h"

namespace ISA {

// The four inputs of each output in one integer, as they lie in memory on a little-endian machine
struct FourBytes {
    Int32s part[Whole::parts];
};

struct PlainDot {
    Int32s sum[Whole::parts];

    [[gnu::always_inline]] void start(int32_t value) {
        for (int i = 0; i < Whole::parts; i++) sum[i] = Int32s{} + value;
    }
    [[gnu::always_inline]] static FourBytes load_block(const uint8_t* p) {
        FourBytes w;
        memcpy(&w, p, sizeof w);
        return w;
    }
    // `mask` leaves of each byte what belongs to this quad, after a shift by `by`
    [[gnu::always_inline]] void add_quad(const FourBytes& w, int by, int32_t mask, int32_t x) {
        int8_t four[4];
        memcpy(four, &x, sizeof four);
        for (int i = 0; i < Whole::parts; i++)
            for (int b = 0; b < 4; b++) sum[i] += ((w.part[i] >> (8 * b + by)) & mask) * four[b];
    }
    [[gnu::always_inline]] Whole total() const {
        Whole whole;
        memcpy(&whole, sum, sizeof whole);
        return whole;
    }
};

struct Int8Dot : PlainDot {
    static constexpr int steps = 8;
    typedef FourBytes Weights;
    [[gnu::always_inline]] void begin(int32_t x_sum) { start(128 * x_sum); }
    [[gnu::always_inline]] static Weights load(const uint8_t* p) { return load_block(p); }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int) {
        add_quad(w, 0, 255, *x);
    }
};

struct Int4Dot : PlainDot {
    static constexpr int steps = 4;
    typedef FourBytes Weights;
    [[gnu::always_inline]] void begin(int32_t x_sum) { start(8 * x_sum); }
    [[gnu::always_inline]] static Weights load(const uint8_t* p) { return load_block(p); }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int next) {
        add_quad(w, 0, 15, x[0]);
        add_quad(w, 4, 15, x[next]);
    }
};

}  // namespace ISA
