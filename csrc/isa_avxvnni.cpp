// The products with whole numbers for x86 processors with AVX2 and its VNNI. Only what comes after
// the pragma may use it.
// What the kernels use of the standard library is included before it: the linker keeps one copy of
// each template, and every processor must be able to run that one.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avxvnni,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avxvnni,avx2,fma,f16c")
#endif
#define ISA avxvnni
namespace ISA {
constexpr int register_bytes = 32;
}
#include "group_linear.h"

namespace ISA {

[[gnu::always_inline]] inline Int32s add_products(Int32s sum, Int32s w, Int32s x) {
    return Int32s(_mm256_dpbusd_avx_epi32(__m256i(sum), __m256i(w), __m256i(x)));
}

}  // namespace ISA

#include "dot_vnni.h"
#include "group_table.h"

extern const GroupKernels avxvnni_groups = ISA::group_table();
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
