// Weights as they are stored, widened to the numbers that are computed with. A file for an
// instruction set chooses how it widens a Half: by an instruction, or by `widen_half`.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "vec.h"

namespace ISA {

typedef uint16_t Bits16 __attribute__((vector_size(register_bytes / 2)));
typedef uint32_t Bits32 __attribute__((vector_size(register_bytes)));

template <class T>
[[gnu::always_inline]] inline Vec<T> widen(const T* p) {
    return Vec<T>::load(p);
}

// The 16-bit numbers that make up part i of a Vec, each in 32 bits
[[gnu::always_inline]] inline Bits32 load_bits(const void* p, int i) {
    Bits16 narrow;
    memcpy(&narrow, static_cast<const char*>(p) + i * sizeof narrow, sizeof narrow);
    return __builtin_convertvector(narrow, Bits32);
}

[[gnu::always_inline]] inline Vec<float> widen(const Brain* p) {
    Vec<float> v;
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<float>::parts; i++) {
        const Bits32 bits = load_bits(p, i) << 16;
        memcpy(&v.part[i], &bits, sizeof bits);
    }
    return v;
}

// Exponent and fraction moved to where a float has them, then times 2^112, which also makes normal
// numbers of subnormal ones; infinity and NaN have all bits of the exponent set.
[[gnu::always_inline]] inline Vec<float> widen_half(const Half* p) {
    Vec<float> v;
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<float>::parts; i++) {
        const Bits32 half = load_bits(p, i), magnitude = (half & 0x7fff) << 13;
        Vec<float>::Native scaled;
        memcpy(&scaled, &magnitude, sizeof scaled);
        scaled = scaled * 0x1p112f;
        Bits32 bits;
        memcpy(&bits, &scaled, sizeof bits);
        bits |= (half & 0x8000) << 16;
        bits |= Bits32((half & 0x7c00) == 0x7c00) & 0x7f800000;
        memcpy(&v.part[i], &bits, sizeof bits);
    }
    return v;
}

}  // namespace ISA
