// What a target has left of its distribution where a draft was judged.
#pragma once
#include <cstdint>

#include "vec.h"

namespace ISA {

// left = max(0, scale p - q) in double, every product and difference rounded; returns the sum of
// left: one partial sum for each lane, the lanes added in halves
template <class T>
double residual_of(const T* p, const T* q, double scale, int64_t V, double* left) {
    const Vec<double> factor = Vec<double>::broadcast(scale), zero = Vec<double>::broadcast(0);
    Vec<double> sum = zero;
    for (int64_t i = 0; i < V; i += lanes) {
        Vec<double> product = in_double(Vec<T>::load(p + i, V - i, 0)) * factor;
        keep(product);
        const Vec<double> rest = product - in_double(Vec<T>::load(q + i, V - i, 0));
        const Vec<double> positive = where_negative(rest, zero, rest);  // NaN stays NaN
        positive.store(left + i, V - i);
        sum = sum + positive;
    }
    return sum.sum();
}

}  // namespace ISA
