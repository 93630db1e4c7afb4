// The kernels for every processor that the compiler's defaults allow: NEON on 64-bit ARM, SSE2 on
// x86-64.
#include "kernels.h"

#define ISA base
namespace ISA {
constexpr int register_bytes = 16;
}
#include "vec.h"
#include "widen.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "group_linear.h"

namespace ISA {

// Two products of bytes fit into 16 bits: 127 * 128 * 2.
[[gnu::always_inline]] inline int32x4_t add_products(int32x4_t sum, int8x16_t w, int8x16_t x) {
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}

[[gnu::always_inline]] inline Vec<float> widen(const Half* p) {
    Vec<float> v;
    for (int i = 0; i < Vec<float>::parts; i++) {
        const uint16x4_t bits = vld1_u16(reinterpret_cast<const uint16_t*>(p) + 4 * i);
        v.part[i] = vcvt_f32_f16(vreinterpret_f16_u16(bits));
    }
    return v;
}

}  // namespace ISA

#include "dot_neon.h"
#else
namespace ISA {

[[gnu::always_inline]] inline Vec<float> widen(const Half* p) { return widen_half(p); }

}  // namespace ISA

#include "dot_plain.h"
#endif

#include "group_table.h"
#include "kernel_table.h"

#if defined(__aarch64__)
extern const InstructionSet base_set = {"neon", ISA::table<float>(), ISA::table<double>(),
                                        ISA::half_table(), ISA::group_table()};
#else
extern const InstructionSet base_set = {"plain", ISA::table<float>(), ISA::table<double>(),
                                        ISA::half_table(), ISA::group_table()};
#endif
