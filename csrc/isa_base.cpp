// The kernels for every processor the compiler's defaults allow: NEON on 64-bit ARM, SSE2 on x86-64.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#define ISA base
#define VEC_BYTES 16
#include "table.h"

#if defined(__aarch64__)
extern const InstructionSet base_set = {"neon", ISA::table<float>(), ISA::table<double>()};
#else
extern const InstructionSet base_set = {"plain", ISA::table<float>(), ISA::table<double>()};
#endif
