// y = x W + b on packed panels of floating-point numbers. Each output element is one running sum
// over the inner dimension, in order, whatever the number of rows, panels or threads: so results do
// not depend on them.
#pragma once
#include <cstdint>

#include "kernels.h"
#include "vec.h"
#include "widen.h"

namespace ISA {

// R rows times P panels; the weights stream through registers once for all R rows.
// Not inlined: in one large function the compiler would keep some of the sums in memory.
template <class T, class W, int R, int P>
[[gnu::noinline]] void linear_tile(const Linear<T, W>& a, int64_t row, int64_t panel) {
    // Elements: so many bytes in the stream of weights. They are asked for as what is read once, so
    // that they do not push out of the caches what the next call needs.
    constexpr int64_t ahead = 4096 / sizeof(W);
    Vec<T> sum[R][P];
    #pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        #pragma GCC unroll 16
        for (int p = 0; p < P; p++) sum[r][p] = Vec<T>::broadcast(0);
    const T* x = a.tiles + row * a.n_in;
    const W* w = a.panels + panel * a.n_in * lanes;
    for (int64_t i = 0; i < a.n_in; i++) {
        Vec<T> column[P];
        #pragma GCC unroll 16
        for (int p = 0; p < P; p++) {
            column[p] = widen(w + (p * a.n_in + i) * lanes);
            __builtin_prefetch(w + (p * a.n_in + i) * lanes + ahead, 0, 0);
        }
        #pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const T s = x[i * R + r];
            #pragma GCC unroll 16
            for (int p = 0; p < P; p++) sum[r][p].add_product(column[p], s);
        }
    }
    #pragma GCC unroll 16
    for (int p = 0; p < P; p++) {
        const int64_t at = (panel + p) * lanes, m = a.n_out - at;
        #pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            if (a.bias) sum[r][p] = sum[r][p] + Vec<T>::load(a.bias + at, m, 0);
            sum[r][p].store(a.y + (row + r) * a.n_out + at, m);
        }
    }
}

template <int bytes>
constexpr int tall = bytes >= 64 ? 8 : 6;  // rows per tile: 32 registers of 16 floats, or 16 of 8

// All rows of P panels: full tiles of `Tall` rows, then one of what is left.
template <class T, class W, int Tall, int P>
void linear_rows(const Linear<T, W>& a, int64_t panel) {
    int64_t row = 0;
    for (; row + Tall <= a.n; row += Tall) linear_tile<T, W, Tall, P>(a, row, panel);
    switch (a.n - row) {
        case 7: if constexpr (Tall > 7) linear_tile<T, W, 7, P>(a, row, panel); break;
        case 6: if constexpr (Tall > 6) linear_tile<T, W, 6, P>(a, row, panel); break;
        case 5: if constexpr (Tall > 5) linear_tile<T, W, 5, P>(a, row, panel); break;
        case 4: linear_tile<T, W, 4, P>(a, row, panel); break;
        case 3: linear_tile<T, W, 3, P>(a, row, panel); break;
        case 2: linear_tile<T, W, 2, P>(a, row, panel); break;
        case 1: linear_tile<T, W, 1, P>(a, row, panel); break;
    }
}

// Panels begin .. end. Few rows: one panel after the other, a single stream of memory.
// Many rows: several panels at once, so that a loaded x serves more than one of them.
template <class T, class W = T>
void linear_panels(const Linear<T, W>& a, int64_t begin, int64_t end) {
    constexpr int Tall = tall<register_bytes>, Across = Tall == 8 ? 3 : 1;
    int64_t panel = begin;
    if (a.n > Tall)
        for (; panel + Across <= end; panel += Across) linear_rows<T, W, Tall, Across>(a, panel);
    for (; panel < end; panel++) linear_rows<T, W, Tall, 1>(a, panel);
}

}  // namespace ISA
