// One query of one head against its visible keys: scores, softmax, weighted sum of values.
// Each (query, head) is computed alone and in position order: neighbours never change its result.
#pragma once
#include <cstdint>

#include "kernels.h"
#include "softmax.h"
#include "vec.h"

namespace ISA {

template <class T>
[[gnu::always_inline]] inline T dot(const T* a, const T* b, int64_t n) {
    Vec<T> sum = Vec<T>::broadcast(0);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) sum.add_product(Vec<T>::load(a + i), Vec<T>::load(b + i));
    if (i < n) sum.add_product(Vec<T>::load(a + i, n - i, 0), Vec<T>::load(b + i, n - i, 0));
    return sum.sum();
}

// out[0..m) = sum over positions of weight * value[0..m), C vectors at a time
template <class T, int C>
[[gnu::always_inline]] inline void weigh(const Attention<T>& a, int64_t head, int64_t column,
                                         int64_t m, int64_t visible, const T* weights, T norm,
                                         T* out) {
    Vec<T> sum[C];
    for (int c = 0; c < C; c++) sum[c] = Vec<T>::broadcast(0);
    int64_t position = 0;
    for (int64_t page = 0; position < visible; page++) {
        const int64_t first = page ? a.page_ends[page - 1] : 0, size = a.page_ends[page] - first;
        const int64_t last = a.page_ends[page] < visible ? a.page_ends[page] : visible;
        const T* v = a.keys[page] + a.values_after * size + head * size * a.head_dim + column;
        for (; position < last; position++, v += a.head_dim)
            for (int c = 0; c < C; c++)
                sum[c].add_product(Vec<T>::load(v + c * lanes, m - c * lanes, 0),
                                   weights[position]);
    }
    for (int c = 0; c < C; c++)
        (sum[c] * Vec<T>::broadcast(norm)).store(out + c * lanes, m - c * lanes);
}

template <class T>
void attention_one(const Attention<T>& a, int64_t index, T* scores) {
    const int64_t head = index / a.n, query = index % a.n, visible = a.start + query + 1;
    const T* q = a.q + query * a.q_row + head * a.q_head;
    int64_t position = 0;
    for (int64_t page = 0; position < visible; page++) {
        const int64_t first = page ? a.page_ends[page - 1] : 0, size = a.page_ends[page] - first;
        const int64_t last = a.page_ends[page] < visible ? a.page_ends[page] : visible;
        const T* k = a.keys[page] + head * size * a.head_dim;
        for (; position < last; position++, k += a.head_dim)
            scores[position] = dot(q, k, a.head_dim) * a.scale;
    }
    const T total = exponentials(scores, visible, scores);
    const T norm = 1 / total;
    T* out = a.out + (query * a.heads + head) * a.head_dim;
    constexpr int64_t wide = 4 * lanes;
    int64_t column = 0;
    for (; column + wide <= a.head_dim; column += wide)
        weigh<T, 4>(a, head, column, wide, visible, scores, norm, out + column);
    for (; column < a.head_dim; column += lanes)
        weigh<T, 1>(a, head, column, a.head_dim - column, visible, scores, norm, out + column);
}

}  // namespace ISA
