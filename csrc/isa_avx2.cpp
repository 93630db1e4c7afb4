// The kernels for x86 processors with AVX2. Only what comes after the pragma may use it.
// What the kernels use of the standard library is included before it: the linker keeps one copy of
// each template, and every processor must be able to run that one.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#define ISA avx2
namespace ISA {
constexpr int register_bytes = 32;
}
#include "group_linear.h"
#include "vec.h"

namespace ISA {

typedef int16_t Words __attribute__((vector_size(register_bytes)));

[[gnu::always_inline]] inline Int32s multiply_words(Words a, Words b) {
    return Int32s(_mm256_madd_epi16(__m256i(a), __m256i(b)));
}
template <class Bytes, class Signed>
[[gnu::always_inline]] inline Words multiply_bytes(Bytes a, Signed b) {
    return Words(_mm256_maddubs_epi16(__m256i(a), __m256i(b)));
}

[[gnu::always_inline]] inline Vec<float> widen(const Half* p) {
    Vec<float> v;
    for (int i = 0; i < Vec<float>::parts; i++)
        v.part[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i));
    return v;
}

}  // namespace ISA

#include "dot_x86.h"
#include "group_table.h"
#include "kernel_table.h"

extern const InstructionSet avx2_set = {"avx2", ISA::table<float>(), ISA::table<double>(),
                                        ISA::half_table(), ISA::group_table()};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
