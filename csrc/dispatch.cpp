// The choice of instruction set, once in the life of a process.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels.h"

extern const InstructionSet base_set;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
extern const InstructionSet avx2_set, avx512_set;

static bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

const std::vector<const InstructionSet*>& instruction_sets() {
    static const auto found = [] {
        std::vector<const InstructionSet*> sets;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
        if (has_avx512()) sets.push_back(&avx512_set);
        if (has_avx2()) sets.push_back(&avx2_set);
#endif
        sets.push_back(&base_set);
        return sets;
    }();
    return found;
}

const InstructionSet& instruction_set() {
    static const InstructionSet& chosen = []() -> const InstructionSet& {
        const char* wanted = std::getenv("MINIDECODE_ISA");
        for (const InstructionSet* set : instruction_sets())
            if (wanted && !std::strcmp(wanted, set->name)) return *set;
        return *instruction_sets().front();
    }();
    return chosen;
}
