// x rounded to whole numbers of one byte, with one scale for each row and group of inputs.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels.h"

namespace ISA {

// scale = max |x| / 127, and x / scale to the nearest whole number, ties to even. A group counts as
// zero if its scale is no normal number (all of it is below 1.5e-36); if a number in it is not
// finite, its scale is NaN. `sum` becomes minus the sum of the whole numbers: weights are stored
// with something added, and their products begin with what that is too much.
[[gnu::always_inline]] inline float round_group(const float* x, int8_t* whole, int32_t* sum) {
    uint32_t bits[group], top = 0;
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < group; i++) {  // non-negative floats are in the order of their bits
        const uint32_t magnitude = bits[i] & 0x7fffffff;
        top = magnitude > top ? magnitude : top;
    }
    float largest;
    memcpy(&largest, &top, sizeof largest);
    const float scale = largest / 127;
    const bool finite = largest < __builtin_inff();
    *sum = 0;
    if (!finite || scale < 0x1p-126f) {
        memset(whole, 0, group);
        return finite ? 0 : __builtin_nanf("");
    }
    constexpr float shift = 12582912;  // 1.5 * 2^23: leaves the whole number in the low bits
    float shifted[group];
    for (int i = 0; i < group; i++) shifted[i] = x[i] / scale + shift;
    memcpy(bits, shifted, sizeof bits);
    int32_t total = 0;
    for (int i = 0; i < group; i++) {
        const int32_t w = int32_t(bits[i]) - 0x4b400000;  // the bits of `shift`
        whole[i] = int8_t(w);
        total -= w;
    }
    *sum = total;
    return scale;
}

inline void round_rows(const float* x, int64_t n_in, int64_t rows, int32_t* tile, float* scales,
                       int32_t* sums) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g * group < n_in; g++) {
            const int64_t left = n_in - g * group;
            const float* from = x + r * n_in + g * group;
            float padded[group] = {};
            if (left < group) {
                memcpy(padded, from, left * sizeof(float));
                from = padded;
            }
            int8_t whole[group];
            scales[g * rows + r] = round_group(from, whole, &sums[g * rows + r]);
            for (int q = 0; q < quads; q++)
                memcpy(&tile[(g * quads + q) * rows + r], whole + 4 * q, 4);
        }
}

}  // namespace ISA
