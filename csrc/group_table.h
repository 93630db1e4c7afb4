// The products with whole numbers of one instruction set. A file that includes this first defines
// Int8Dot and Int4Dot (see group_linear.h) in ISA.
#pragma once
#include "group_linear.h"
#include "kernels.h"
#include "round.h"
#include "vec.h"

namespace ISA {

// Rows a tile: two sums of each fit into 32 registers of 64 bytes, or 16 of 32 but a few.
constexpr int tall_groups = register_bytes >= 64 ? 8 : 4;

constexpr GroupKernels group_table() {
    return {round_rows, group_panels<Int8Dot, tall_groups>, group_panels<Int4Dot, tall_groups>,
            tall_groups};
}

}  // namespace ISA
