// The kernels for x86 processors with AVX512. Only what comes after the pragma may use it.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif
#define ISA avx512
#define VEC_BYTES 64
#include "table.h"

extern const InstructionSet avx512_set = {"avx512", ISA::table<float>(), ISA::table<double>()};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
