// Layer norm of one row.
#pragma once
#include <cstdint>

#include "vec.h"

namespace ISA {

template <class T>
void layer_norm_row(const T* x, int64_t d, const T* weight, const T* bias, T epsilon, T* y) {
    Vec<T> sum = Vec<T>::broadcast(0);
    for (int64_t i = 0; i < d; i += lanes) sum = sum + Vec<T>::load(x + i, d - i, 0);
    const T mean = sum.sum() / T(d);
    const Vec<T> centre = Vec<T>::broadcast(mean);
    Vec<T> squares = Vec<T>::broadcast(0);
    for (int64_t i = 0; i < d; i += lanes) {
        const Vec<T> c = Vec<T>::load(x + i, d - i, mean) - centre;
        squares.add_product(c, c);
    }
    const T deviation = T(__builtin_sqrt(squares.sum() / T(d) + epsilon));
    const Vec<T> scale = Vec<T>::broadcast(T(1) / deviation);
    for (int64_t i = 0; i < d; i += lanes) {
        Vec<T> out = Vec<T>::load(bias + i, d - i, 0);
        const Vec<T> c = Vec<T>::load(x + i, d - i, mean) - centre;
        out.add_product(c * scale, Vec<T>::load(weight + i, d - i, 0));
        out.store(y + i, d - i);
    }
}

}  // namespace ISA
