// The products with whole numbers for 64-bit ARM processors with dot products.
#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#define ISA neondot
namespace ISA {
constexpr int register_bytes = 16;
}
#include "group_linear.h"

namespace ISA {

[[gnu::always_inline]] inline int32x4_t add_products(int32x4_t sum, int8x16_t w, int8x16_t x) {
    return vdotq_s32(sum, w, x);
}

}  // namespace ISA

#include "dot_neon.h"
#include "group_table.h"

extern const GroupKernels neondot_groups = ISA::group_table();
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
