// Integer sums of one row and one panel with NEON (see group_linear.h). A file that includes this
// first defines in ISA
//     add_products(sum, w, x)    sum plus signed bytes times signed bytes, four neighbours added
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "group_linear.h"
#include "kernels.h"
#include "vec.h"

namespace ISA {

struct SignedDot {
    int32x4_t sum[Whole::parts];

    [[gnu::always_inline]] void begin(int32_t) {
        for (int i = 0; i < Whole::parts; i++) sum[i] = vdupq_n_s32(0);
    }
    [[gnu::always_inline]] void add_quad(const int8x16_t* w, int32_t x) {
        const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(x));
        for (int i = 0; i < Whole::parts; i++) sum[i] = add_products(sum[i], w[i], four);
    }
    [[gnu::always_inline]] Whole total() const {
        Whole whole;
        memcpy(&whole, sum, sizeof whole);
        return whole;
    }
};

struct Int8Dot : SignedDot {
    static constexpr int steps = 8;
    struct Weights {
        int8x16_t bytes[Whole::parts];
    };
    [[gnu::always_inline]] static Weights load(const uint8_t* p) {
        Weights w;
        for (int i = 0; i < Whole::parts; i++)  // 128 less: the highest bit turned
            w.bytes[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p + i * 16), vdupq_n_u8(128)));
        return w;
    }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int) {
        add_quad(w.bytes, *x);
    }
};

struct Int4Dot : SignedDot {
    static constexpr int steps = 4;
    struct Weights {
        int8x16_t low[Whole::parts], high[Whole::parts];
    };
    [[gnu::always_inline]] static int8x16_t less_8(uint8x16_t nibbles) {
        return vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8));
    }
    [[gnu::always_inline]] static Weights load(const uint8_t* p) {
        Weights w;
        for (int i = 0; i < Whole::parts; i++) {
            const uint8x16_t bytes = vld1q_u8(p + i * 16);
            w.low[i] = less_8(vandq_u8(bytes, vdupq_n_u8(15)));
            w.high[i] = less_8(vshrq_n_u8(bytes, 4));
        }
        return w;
    }
    [[gnu::always_inline]] void add(const Weights& w, const int32_t* x, int next) {
        add_quad(w.low, x[0]);
        add_quad(w.high, x[next]);
    }
};

}  // namespace ISA
