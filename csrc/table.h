// The kernels of one instruction set. A file that includes this first defines ISA and VEC_BYTES and
// switches the compiler to that instruction set.
#include "vec.h"

#include "softmax.h"

#include "attention.h"
#include "elementwise.h"
#include "filter.h"
#include "linear.h"

namespace ISA {

template <class T>
constexpr Kernels<T> table() {
    return {linear_panels<T>, tall<VEC_BYTES>,   attention_one<T>, softmax_row<T>,
            filter_row<T>,    layer_norm_row<T>, gelu_range<T>, total_of<T>};
}

}  // namespace ISA
