// The plain sum that memory is timed with.
#pragma once
#include <cstdint>

#include "vec.h"

namespace ISA {

template <class T>
T total_of(const T* x, int64_t size) {
    constexpr int streams = 8;  // running sums, so that no addition waits for the one before it
    Vec<T> sum[streams];
    for (int s = 0; s < streams; s++) sum[s] = Vec<T>::broadcast(0);
    int64_t i = 0;
    for (; i + lanes * streams <= size; i += lanes * streams)
        for (int s = 0; s < streams; s++) sum[s] = sum[s] + Vec<T>::load(x + i + lanes * s);
    for (; i < size; i += lanes) sum[0] = sum[0] + Vec<T>::load(x + i, size - i, 0);
    for (int s = 1; s < streams; s++) sum[0] = sum[0] + sum[s];
    return sum[0].sum();
}

}  // namespace ISA
