// The kernels for every processor that the compiler's defaults allow: NEON on 64-bit ARM, SSE2 on
// x86-64.
#include "kernels.h"

#define ISA base
namespace ISA {
constexpr int register_bytes = 16;
}
#include "kernel_table.h"

#if defined(__aarch64__)
extern const InstructionSet base_set = {"neon", ISA::table<float>(), ISA::table<double>()};
#else
extern const InstructionSet base_set = {"plain", ISA::table<float>(), ISA::table<double>()};
#endif
