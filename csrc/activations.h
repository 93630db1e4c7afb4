// The activations between the two products of a block: GELU.
#pragma once
#include <cstdint>

#include "vec.h"

namespace ISA {

// x (1 + tanh u) / 2 = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
template <class T>
void gelu_range(const T* x, int64_t size, T* y) {
    const Vec<T> one = Vec<T>::broadcast(1);
    const Vec<T> a = Vec<T>::broadcast(T(-2 * 0.79788456080286535588));
    const Vec<T> b = Vec<T>::broadcast(T(-2 * 0.79788456080286535588 * 0.044715));
    for (int64_t i = 0; i < size; i += lanes) {
        const Vec<T> v = Vec<T>::load(x + i, size - i, 0);
        const Vec<T> u = v * (a + b * (v * v));
        (v / (one + exp(u))).store(y + i, size - i);
    }
}

}  // namespace ISA
