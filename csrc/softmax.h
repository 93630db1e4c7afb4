// Softmax of one row: subtract the maximum, exponentiate, divide by the sum.
#pragma once
#include <cstdint>

#include "vec.h"

namespace ISA {

template <class T>
[[gnu::always_inline]] inline T largest(const T* x, int64_t n) {  // NaN entries may be passed over
    Vec<T> best = Vec<T>::broadcast(-__builtin_inf());
    for (int64_t i = 0; i < n; i += lanes)
        best = max(Vec<T>::load(x + i, n - i, -__builtin_inf()), best);
    return best.max();
}

// y = exp(x - max x); returns the sum: one partial sum for each lane, added in a fixed order.
// x and y may be the same.
// A NaN, a +inf or nothing but -inf in x makes the sum NaN.
template <class T>
[[gnu::always_inline]] inline T exponentials(const T* x, int64_t n, T* y) {
    const Vec<T> top = Vec<T>::broadcast(largest(x, n));
    Vec<T> sum = Vec<T>::broadcast(0);
    for (int64_t i = 0; i < n; i += lanes) {
        const Vec<T> e = exp(Vec<T>::load(x + i, n - i, -__builtin_inf()) - top);
        sum = sum + e;
        e.store(y + i, n - i);
    }
    return sum.sum();
}

template <class T>
bool softmax_row(const T* logits, int64_t V, T* probs) {
    const T total = exponentials(logits, V, probs);
    if (!(total > 0 && total < T(__builtin_inf()))) return false;
    const Vec<T> norm = Vec<T>::broadcast(total);
    for (int64_t i = 0; i < V; i += lanes)
        (Vec<T>::load(probs + i, V - i, 0) / norm).store(probs + i, V - i);
    return true;
}

}  // namespace ISA
