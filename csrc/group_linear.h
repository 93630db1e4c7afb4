// y = x W + b with x and W as whole numbers and one scale for each group of 32 inputs. A group's
// products are summed as integers, which is exact in any order; then follows one step in float, the
// groups in order, each product and each sum rounded. So the result is the same bits on every
// instruction set, whatever the number of rows, panels or threads.
//
// `Dot` is what a file for an instruction set provides: the integer sums of one row and one panel.
//     Dot::steps              blocks of 64 bytes that hold one group of a panel
//     Dot::load(p)            one such block: four inputs, or eight, of each output
//     begin(sum)              starts a group of x; sum is minus that of its whole numbers
//     add(weights, x, next)   the block's products with the quad at x, and the one `next` further
//     total()                 the sums of the group
#pragma once
#include <cstdint>

#include "kernels.h"
#include "vec.h"
#include "widen.h"

namespace ISA {

typedef int32_t Int32s __attribute__((vector_size(register_bytes)));

struct Whole {  // sixteen integers, one for each output of a panel
    static constexpr int parts = Vec<float>::parts;
    Int32s part[parts];
};

[[gnu::always_inline]] inline Vec<float> to_float(const Whole& sums) {
    Vec<float> v;
    #pragma GCC unroll 16
    for (int i = 0; i < Whole::parts; i++)
        v.part[i] = __builtin_convertvector(sums.part[i], Vec<float>::Native);
    return v;
}

// R rows times one panel: the weights stream through registers once for all R rows. (Several panels
// at once would save loads of x, but are several streams of memory, which is slower.)
template <class Dot, int R>
[[gnu::noinline]] void group_tile(const GroupLinear& a, int64_t row, int64_t panel) {
    constexpr int64_t block = 4 * lanes;  // bytes
    constexpr int64_t ahead = 4096;       // bytes in the stream of weights, which is read once
    Vec<float> y[R];
    #pragma GCC unroll 16
    for (int r = 0; r < R; r++) y[r] = Vec<float>::broadcast(0);
    const uint8_t* w = a.panels + panel * a.groups * Dot::steps * block;
    const Brain* scales = a.scales + panel * a.groups * lanes;
    const int32_t* x = a.x + row * a.groups * quads;
    const float* x_scales = a.x_scales + row * a.groups;
    const int32_t* x_sums = a.x_sums + row * a.groups;
    for (int64_t g = 0; g < a.groups; g++) {
        Dot dot[R];
        #pragma GCC unroll 16
        for (int r = 0; r < R; r++) dot[r].begin(x_sums[r]);
        #pragma GCC unroll 16
        for (int s = 0; s < Dot::steps; s++) {
            const typename Dot::Weights weights = Dot::load(w + s * block);
            __builtin_prefetch(w + s * block + ahead, 0, 0);
            #pragma GCC unroll 16
            for (int r = 0; r < R; r++) dot[r].add(weights, x + s * R + r, Dot::steps * R);
        }
        const Vec<float> scale = widen(scales);
        #pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Vec<float> both = scale * Vec<float>::broadcast(x_scales[r]);
            Vec<float> product = both * to_float(dot[r].total());
            keep(product);
            y[r] = y[r] + product;
        }
        w += Dot::steps * block, scales += lanes;
        x += quads * R, x_scales += R, x_sums += R;
    }
    const int64_t at = panel * lanes, m = a.n_out - at;
    #pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        if (a.bias) y[r] = y[r] + Vec<float>::load(a.bias + at, m, 0);
        y[r].store(a.y + (row + r) * a.n_out + at, m);
    }
}

// The last tile of a panel: the a.n - row <= R rows that are left.
template <class Dot, int R>
void group_rest(const GroupLinear& a, int64_t row, int64_t panel) {
    if constexpr (R > 0) {
        if (a.n - row == R) return group_tile<Dot, R>(a, row, panel);
        group_rest<Dot, R - 1>(a, row, panel);
    }
}

// All rows of panels begin .. end: full tiles of Tall rows, then one of what is left.
template <class Dot, int Tall>
void group_panels(const GroupLinear& a, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; panel++) {
        int64_t row = 0;
        for (; row + Tall <= a.n; row += Tall) group_tile<Dot, Tall>(a, row, panel);
        group_rest<Dot, Tall - 1>(a, row, panel);
    }
}

}  // namespace ISA
