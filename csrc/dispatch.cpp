// The choice of instruction set, once in the life of a process.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels.h"

extern const InstructionSet base_set;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>

extern const InstructionSet avx2_set, avx512_set;
extern const GroupKernels vnni_groups, avxvnni_groups;

static bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

static bool has_avxvnni() {  // not every compiler knows this one by name
    unsigned a = 0, b = 0, c = 0, d = 0;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

extern const GroupKernels neondot_groups;

static bool has_dot_products() {
    constexpr unsigned long asimddp = 1ul << 20;  // as Linux numbers what a processor has
    return getauxval(AT_HWCAP) & asimddp;
}
#endif

// `set` with other products of whole numbers
[[maybe_unused]] static InstructionSet with(const char* name, InstructionSet set,
                                            const GroupKernels& groups) {
    set.name = name;
    set.groups = groups;
    return set;
}

const std::vector<InstructionSet>& instruction_sets() {
    // never destroyed: when a process ends, its other threads may still be in a kernel
    static const auto& found = *[] {
        auto* list = new std::vector<InstructionSet>;
        auto& sets = *list;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
        if (has_avx512() && __builtin_cpu_supports("avx512vnni"))
            sets.push_back(with("vnni", avx512_set, vnni_groups));
        if (has_avx512()) sets.push_back(avx512_set);
        if (has_avxvnni()) sets.push_back(with("avxvnni", avx2_set, avxvnni_groups));
        if (has_avx2()) sets.push_back(avx2_set);
#elif defined(__aarch64__) && defined(__linux__)
        if (has_dot_products()) sets.push_back(with("neondot", base_set, neondot_groups));
#endif
        sets.push_back(base_set);
        return list;
    }();
    return found;
}

const InstructionSet& instruction_set() {
    static const InstructionSet& chosen = []() -> const InstructionSet& {
        const char* wanted = std::getenv("MINIDECODE_ISA");
        for (const InstructionSet& set : instruction_sets())
            if (wanted && !std::strcmp(wanted, set.name)) return set;
        return instruction_sets().front();
    }();
    return chosen;
}
