// The kernels for x86 processors with AVX-512. Only what comes after the pragma may use it.
// What the kernels use of the standard library is included before it: the linker keeps one copy of
// each template, and every processor must be able to run that one.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif
#define ISA avx512
namespace ISA {
constexpr int register_bytes = 64;
}
#include "kernel_table.h"

extern const InstructionSet avx512_set = {"avx512", ISA::table<float>(), ISA::table<double>()};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
