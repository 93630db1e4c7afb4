// Temperature, top-k, top-p and epsilon without sorting the vocabulary.
//
// Tokens are ordered by key = (max - logit) / temperature, then by id, and have weight exp(-key).
// Every filter keeps a beginning of that order. top-k first finds a key that at least k tokens do
// not exceed, top-p sums the weights in buckets of the key; only the few tokens at the limit are
// looked at one by one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "softmax.h"
#include "vec.h"

namespace ISA {

// The smallest m such that the first m entries in order reach `mass`; they are moved to the front.
static inline int64_t first_to_reach(double mass, FilterEntry* entries, int64_t n) {
    int64_t low = 0, high = n;  // low < m <= high
    double before = 0;          // weight of entries[0 .. low)
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        std::nth_element(entries + low, entries + middle, entries + high);
        double half = 0;
        for (int64_t i = low; i < middle; i++) half += entries[i].weight;
        if (before + half >= mass) {
            high = middle;
        } else {
            before += half;
            low = middle;
        }
    }
    return high;
}

[[gnu::always_inline]] inline void weigh_keys(const double* keys, int64_t n, double* weights) {
    const Vec<double> zero = Vec<double>::broadcast(0);
    for (int64_t i = 0; i < n; i += lanes)
        exp(zero - Vec<double>::load(keys + i, n - i, __builtin_inf())).store(weights + i, n - i);
}

[[gnu::always_inline]] inline double sum_of(const double* x, int64_t n) {
    Vec<double> sum = Vec<double>::broadcast(0);
    for (int64_t i = 0; i < n; i += lanes) sum = sum + Vec<double>::load(x + i, n - i, 0);
    return sum.sum();
}

// Puts the k first tokens in order into entries. k < V.
static inline void take_top_k(const double* keys, int64_t V, int64_t k, double* least,
                              FilterEntry* entries) {
    // The k-th smallest of the blocks' least keys: no fewer than k tokens are at or below it.
    constexpr int64_t least_block = 16, largest_block = 256;  // tokens; shorter ones save nothing
    const int64_t quarter = V / (4 * k);  // so that there are four blocks for each of the k
    const int64_t block = quarter < least_block ? 1 : std::min(quarter, largest_block);
    double bound = __builtin_inf();
    if (block > 1) {
        int64_t blocks = 0;
        for (int64_t i = 0; i + block <= V; i += block) {
            double best = keys[i];
            for (int64_t j = 1; j < block; j++) best = keys[i + j] < best ? keys[i + j] : best;
            least[blocks++] = best;
        }
        std::nth_element(least, least + (k - 1), least + blocks);
        bound = least[k - 1];
    }
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++)
        if (keys[i] <= bound) entries[n++] = {keys[i], 0, i};
    std::nth_element(entries, entries + (k - 1), entries + n);
    for (int64_t i = 0; i < k; i++) least[i] = entries[i].key;
    weigh_keys(least, k, least);
    for (int64_t i = 0; i < k; i++) entries[i].weight = least[i];
}

constexpr int BUCKETS = 1024;

// Sets to 0 the weight of every token after the first to reach `mass`. buckets: room for V numbers.
static inline void cut_at_mass(double mass, const double* keys, double* weights, int64_t V,
                               int32_t* buckets, FilterEntry* entries) {
    constexpr double negligible = 64;  // a key whose weight, exp(-64), no sum of weights will show
    Vec<double> reach = Vec<double>::broadcast(0);  // the largest key below that
    for (int64_t i = 0; i < V; i += lanes)
        reach = max(reach, Vec<double>::load(keys + i, V - i, 0).below(negligible));
    const double scale = (BUCKETS - 1) / (reach.max() + 1e-300), last = BUCKETS - 1;
    for (int64_t i = 0; i < V; i++) {  // grows with the key
        const double bucket = keys[i] * scale;
        buckets[i] = int32_t(bucket < last ? bucket : last);
    }
    double held[2][BUCKETS] = {};  // two, so that neighbours in one bucket need not wait
    for (int64_t i = 0; i < V; i++) held[i % 2][buckets[i]] += weights[i];
    int32_t limit = 0;
    double before = 0;
    while (limit < BUCKETS - 1 && before + held[0][limit] + held[1][limit] < mass) {
        before += held[0][limit] + held[1][limit];
        limit++;
    }
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++)
        if (buckets[i] == limit) entries[n++] = {keys[i], weights[i], i};
    for (int64_t i = 0; i < V; i++) weights[i] = buckets[i] > limit ? 0 : weights[i];
    const int64_t kept = first_to_reach(mass - before, entries, n);
    for (int64_t i = kept; i < n; i++) weights[entries[i].id] = 0;
}

// Without +inf and NaN, and not all -inf
template <class T>
[[gnu::always_inline]] inline bool is_sound(const T* logits, int64_t V, T top) {
    int64_t bad = 0;
    for (int64_t i = 0; i < V; i++) bad += !(logits[i] < T(__builtin_inf()));
    return bad == 0 && top > T(-__builtin_inf());
}

template <class T>
bool filter_row(const T* logits, int64_t V, const Filter& f, double* scratch, FilterEntry* entries,
                T* probs) {
    const T top = largest(logits, V);
    if (!is_sound(logits, V, top)) return false;
    int64_t best = 0;
    while (logits[best] != top) best++;
    if (f.temperature == 0) {
        memset(probs, 0, V * sizeof(T));
        probs[best] = 1;
        return true;
    }
    double *keys = scratch, *weights = scratch + V;
    int32_t* buckets = reinterpret_cast<int32_t*>(scratch + 2 * V);
    for (int64_t i = 0; i < V; i++) keys[i] = (double(top) - double(logits[i])) / f.temperature;

    int64_t kept = V;
    const bool listed = f.top_k > 0 && f.top_k < V;  // the kept ones are entries[0 .. kept)
    if (listed) {
        kept = f.top_k;
        take_top_k(keys, V, kept, weights, entries);
        if (f.top_p < 1) {
            double mass = 0;
            for (int64_t i = 0; i < kept; i++) mass += entries[i].weight;
            kept = first_to_reach(f.top_p * mass, entries, kept);
        }
        for (int64_t i = 0; i < kept; i++) weights[i] = entries[i].weight;
    } else {
        weigh_keys(keys, V, weights);
        if (f.top_p < 1) cut_at_mass(f.top_p * sum_of(weights, V), keys, weights, V, buckets,
                                     entries);
    }
    double total = sum_of(weights, kept);
    if (f.epsilon > 0) {
        for (int64_t i = 0; i < kept; i++)
            weights[i] = weights[i] / total < f.epsilon ? 0 : weights[i];
        total = sum_of(weights, kept);
    }
    if (listed) {
        memset(probs, 0, V * sizeof(T));
        for (int64_t i = 0; i < kept; i++)
            probs[entries[i].id] = total > 0 ? weights[i] / total : 0;
    } else {
        for (int64_t i = 0; i < V; i++) probs[i] = T(weights[i] / total);
    }
    if (!(total > 0)) {  // epsilon dropped all: the most likely stays
        memset(probs, 0, V * sizeof(T));
        probs[best] = 1;
    }
    return true;
}

}  // namespace ISA
