// The kernels of one instruction set. A file that includes this first switches the compiler to that
// instruction set and defines ISA, its `register_bytes` (see vec.h) and how it widens a Half.
#pragma once
#include "activations.h"
#include "attention.h"
#include "filter.h"
#include "kernels.h"
#include "linear.h"
#include "norm.h"
#include "residual.h"
#include "softmax.h"
#include "total.h"

namespace ISA {

template <class T>
constexpr Kernels<T> table() {
    return {
        linear_panels<T>,  tall<register_bytes>, attention_rows<T>, softmax_row<T>,
        filter_row<T>,     layer_norm_row<T>,    gelu_range<T>,     gelu_erf_range<T>,
        relu_range<T>,     silu_range<T>,        residual_of<T>,    total_of<T>,
    };
}

constexpr HalfKernels half_table() {
    return {linear_panels<float, Half>, linear_panels<float, Brain>};
}

}  // namespace ISA
