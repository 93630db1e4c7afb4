// What the bindings know of the kernels: their arguments, and one table for each instruction set.
#pragma once
#include <cstdint>
#include <vector>

constexpr int lanes = 16;  // output columns of one panel, and numbers of one `Vec`

// Numbers of two bytes, widened to float where they are used.
struct Half {  // IEEE binary16
    uint16_t bits;
};
struct Brain {  // bfloat16, the upper half of a float
    uint16_t bits;
};

template <class T, class W = T>
struct Linear {  // y [n, n_out] = x [n, n_in] W + bias; panels [ceil(n_out / lanes), n_in, lanes]
    // x in tiles of up to `tall` rows, each [n_in, rows of the tile]: one weight meets neighbours
    const T* tiles;
    const W* panels;
    const T* bias;  // may be null
    T* y;
    int64_t n, n_in, n_out;
};

constexpr int group = 32;         // inputs that share one scale
constexpr int quads = group / 4;  // of inputs in a group; four bytes each

// y [n, n_out] = x [n, n_in] W + bias, with x and W as whole numbers and scales for each group
struct GroupLinear {
    // x in tiles of up to `tall` rows
    const int32_t* x;       // for each tile [groups, quads, rows of the tile], four inputs each
    const float* x_scales;  // [groups, rows of the tile]
    const int32_t* x_sums;  // [groups, rows of the tile]: minus the sum of the whole numbers
    const uint8_t* panels;  // [panels, groups, bytes of a group], as packing.py says
    const Brain* scales;    // [panels, groups, lanes]
    const float* bias;      // may be null
    float* y;
    int64_t n, groups, n_out;
};

template <class T>
struct Attention {  // out [n, heads, head_dim]; query i of n sees positions 0 .. start + i
    const T* q;
    int64_t q_row, q_head;     // strides of q in elements
    const T* const* keys;      // for each page: keys [heads, page, head_dim] of this layer
    const int64_t* page_ends;  // positions up to and with each page
    int64_t pages, heads, head_dim;
    int64_t n, start;
    T scale;
    T* out;

    int64_t head_dim_in_lanes() const { return (head_dim + lanes - 1) / lanes * lanes; }
    int64_t scratch(int64_t queries) const {  // numbers
        return queries * (start + n + head_dim_in_lanes() + 1);
    }
};

struct Filter {
    double temperature;
    int64_t top_k;
    double top_p, epsilon;
};

struct FilterEntry {
    double key, weight;
    int64_t id;
    bool operator<(const FilterEntry& o) const {
        return key < o.key || (key == o.key && id < o.id);
    }
};

template <class T>
struct Kernels {
    void (*linear)(const Linear<T>&, int64_t begin, int64_t end);  // over panels
    int tall;
    // the queries begin .. end of one head; scratch as `Attention::scratch` says
    void (*attention)(const Attention<T>&, int64_t head, int64_t begin, int64_t end, T* scratch);
    bool (*softmax)(const T* logits, int64_t V, T* probs);  // false: no distribution
    // scratch: 3 V doubles, V entries; false: no distribution
    bool (*filter)(const T* logits, int64_t V, const Filter&, double* scratch, FilterEntry*,
                   T* probs);
    void (*layer_norm)(const T* x, int64_t d, const T* weight, const T* bias, T epsilon, T* y);
    void (*gelu)(const T* x, int64_t size, T* y);
    void (*gelu_erf)(const T* x, int64_t size, T* y);
    void (*relu)(const T* x, int64_t size, T* y);
    void (*silu)(const T* x, int64_t size, T* y);
    double (*residual)(const T* p, const T* q, double scale, int64_t V, double* left);
    T (*total)(const T* x, int64_t size);
};

// Products with weights of two bytes, over panels
struct HalfKernels {
    void (*float16)(const Linear<float, Half>&, int64_t begin, int64_t end);
    void (*bfloat16)(const Linear<float, Brain>&, int64_t begin, int64_t end);
};

// Products with whole numbers
struct GroupKernels {
    // `rows` rows of x become one tile of a GroupLinear
    void (*round)(const float* x, int64_t n_in, int64_t rows, int32_t* quads, float* scales,
                  int32_t* sums);
    void (*int8)(const GroupLinear&, int64_t begin, int64_t end);  // over panels
    void (*int4)(const GroupLinear&, int64_t begin, int64_t end);
    int tall;
};

struct InstructionSet {
    const char* name;
    Kernels<float> f32;
    Kernels<double> f64;
    HalfKernels halves;
    GroupKernels groups;
    template <class T>
    const Kernels<T>& kernels() const {
        if constexpr (sizeof(T) == 4) return f32;
        else return f64;
    }
};

// All that this processor has, the best first.
const std::vector<InstructionSet>& instruction_sets();

// The one that MINIDECODE_ISA names, else the best. (Python refuses names that are not there.)
const InstructionSet& instruction_set();
