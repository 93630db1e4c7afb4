// The kernels for x86 processors with AVX-512. Only what comes after the pragma may use it.
// What the kernels use of the standard library is included before it: the linker keeps one copy of
// each template, and every processor must be able to run that one.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")
#endif
#define ISA avx512
namespace ISA {
constexpr int register_bytes = 64;
}
#include "group_linear.h"

namespace ISA {

typedef int16_t Words __attribute__((vector_size(register_bytes)));

[[gnu::always_inline]] inline Int32s multiply_words(Words a, Words b) {
    return Int32s(_mm512_madd_epi16(__m512i(a), __m512i(b)));
}
template <class Bytes, class Signed>
[[gnu::always_inline]] inline Words multiply_bytes(Bytes a, Signed b) {
    return Words(_mm512_maddubs_epi16(__m512i(a), __m512i(b)));
}

[[gnu::always_inline]] inline Vec<float> widen(const Half* p) {
    Vec<float> v;
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    v.part[0] = _mm512_maskz_cvtph_ps(0xffff, bits);  // without a mask GCC 12 warns for nothing
    return v;
}

}  // namespace ISA

#include "dot_x86.h"
#include "group_table.h"
#include "kernel_table.h"

extern const InstructionSet avx512_set = {"avx512", ISA::table<float>(), ISA::table<double>(),
                                        ISA::half_table(), ISA::group_table()};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
