// Some queries of one head against their visible keys: scores, softmax, weighted sum of values.
//
// The queries share the read of a block of keys or values: it stays in the nearest cache for all of
// them. Each has sums of its own, added in position order, so neighbours never change its result.
#pragma once
#include <cstdint>

#include "kernels.h"
#include "softmax.h"
#include "vec.h"

namespace ISA {

constexpr int64_t block_size = 32;  // positions: with 64 numbers each, a quarter of that cache

// q times `count` keys, each product in lanes / count lanes (see `fold_all`). Keys past the last
// are not read, the last one takes their place.
template <int count, class T>
[[gnu::always_inline]] inline Vec<T> products(const T* q, const T* keys, int64_t last,
                                              int64_t head_dim) {
    constexpr int at_once = Vec<T>::parts < 8 ? 8 / Vec<T>::parts : 1;  // what the registers hold
    if constexpr (count > at_once) {
        constexpr int half = count / 2;
        const int64_t left = last - half;
        const T* rest = keys + (left < 0 ? last : half) * head_dim;
        return fold<lanes / count>(products<half>(q, keys, last, head_dim),
                                   products<half>(q, rest, left < 0 ? 0 : left, head_dim));
    } else {
        Vec<T> sum[count];
        const T* key[count];
        #pragma GCC unroll 16
        for (int c = 0; c < count; c++) {
            sum[c] = Vec<T>::broadcast(0);
            key[c] = keys + (c < last ? c : last) * head_dim;
        }
        int64_t i = 0;
        for (; i + lanes <= head_dim; i += lanes) {
            const Vec<T> part = Vec<T>::load(q + i);
            #pragma GCC unroll 16
            for (int c = 0; c < count; c++) sum[c].add_product(Vec<T>::load(key[c] + i), part);
        }
        if (i < head_dim) {
            const Vec<T> part = Vec<T>::load(q + i, head_dim - i, 0);
            #pragma GCC unroll 16
            for (int c = 0; c < count; c++)
                sum[c].add_product(Vec<T>::load(key[c] + i, head_dim - i, 0), part);
        }
        return fold_all<count>(sum);
    }
}

// scores[0..n) = scale * (q times each of n keys)
template <class T>
[[gnu::always_inline]] inline void score(const T* q, const T* keys, int64_t n, int64_t head_dim,
                                         T scale, T* scores) {
    const Vec<T> factor = Vec<T>::broadcast(scale);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
        (products<lanes>(q, keys + i * head_dim, lanes - 1, head_dim) * factor).store(scores + i);
    if (i < n)
        (products<lanes>(q, keys + i * head_dim, n - i - 1, head_dim) * factor)
            .store(scores + i, n - i);
}

// sums[query][0..m) += weights[query][position] * values[position][0..m) for n positions; m is
// C vectors or, with C = 1, less than one
template <int Q, int C, class T>
[[gnu::always_inline]] inline void weigh_columns(const T* values, int64_t head_dim, int64_t n,
                                                 int64_t m, const T* weights, int64_t weights_row,
                                                 T* sums, int64_t sums_row) {
    Vec<T> sum[Q][C];
    #pragma GCC unroll 16
    for (int query = 0; query < Q; query++)
        #pragma GCC unroll 16
        for (int c = 0; c < C; c++)
            sum[query][c] = Vec<T>::load(sums + query * sums_row + c * lanes);
    for (int64_t position = 0; position < n; position++, values += head_dim) {
        #pragma GCC unroll 16
        for (int c = 0; c < C; c++) {
            const Vec<T> v = Vec<T>::load(values + c * lanes, m - c * lanes, 0);
            #pragma GCC unroll 16
            for (int query = 0; query < Q; query++)
                sum[query][c].add_product(v, weights[query * weights_row + position]);
        }
    }
    #pragma GCC unroll 16
    for (int query = 0; query < Q; query++)
        #pragma GCC unroll 16
        for (int c = 0; c < C; c++) sum[query][c].store(sums + query * sums_row + c * lanes);
}

template <int Q, class T>
[[gnu::always_inline]] inline void weigh(const T* values, int64_t head_dim, int64_t n,
                                         const T* weights, int64_t weights_row, T* sums,
                                         int64_t sums_row) {
    constexpr int C = Vec<T>::parts < 4 ? 4 / Vec<T>::parts : 1;
    int64_t column = 0;
    for (; column + C * lanes <= head_dim; column += C * lanes)
        weigh_columns<Q, C>(values + column, head_dim, n, C * lanes, weights, weights_row,
                            sums + column, sums_row);
    if constexpr (C > 1)
        for (; column + lanes <= head_dim; column += lanes)
            weigh_columns<Q, 1>(values + column, head_dim, n, lanes, weights, weights_row,
                                sums + column, sums_row);
    if (column < head_dim)
        weigh_columns<Q, 1>(values + column, head_dim, n, head_dim - column, weights, weights_row,
                            sums + column, sums_row);
}

// Asks for `n` numbers, which are soon read.
template <class T>
[[gnu::always_inline]] inline void expect(const T* numbers, int64_t n) {
    constexpr int64_t line = 64 / sizeof(T);
    for (int64_t i = 0; i < n; i += line) __builtin_prefetch(numbers + i);
}

// f(first position, positions, rows) for each block of one head before `end`; the rows [positions,
// head_dim] begin `offset` heads after the keys of head 0: those are keys or values. While f works
// on a block the one after it is fetched; after the last that is the first at `offset_after`.
template <class T, class F>
[[gnu::always_inline]] inline void over_blocks(const Attention<T>& a, int64_t offset,
                                               int64_t offset_after, int64_t end, F f) {
    const auto start_of = [&](int64_t page, int64_t heads) {
        const int64_t size = a.page_ends[page] - (page ? a.page_ends[page - 1] : 0);
        return a.keys[page] + heads * size * a.head_dim;
    };
    int64_t position = 0;
    for (int64_t page = 0; position < end; page++) {
        const int64_t last = a.page_ends[page] < end ? a.page_ends[page] : end;
        const T* rows = start_of(page, offset);
        while (position < last) {
            const int64_t n = last - position < block_size ? last - position : block_size;
            const T* next = rows + n * a.head_dim;
            const T* soon = position + n < last ? next
                          : last < end          ? start_of(page + 1, offset)
                                                : start_of(0, offset_after);
            expect(soon, block_size * a.head_dim);
            f(position, n, rows);
            rows = next;
            position += n;
        }
    }
}

template <class T>
void attention_rows(const Attention<T>& a, int64_t head, int64_t begin, int64_t end, T* scratch) {
    constexpr int together = register_bytes == 64 ? 4 : 2;  // queries that the registers hold
    const int64_t visible = a.start + end, width = a.head_dim_in_lanes();
    T* scores = scratch;                        // [queries, visible]
    T* sums = scores + (end - begin) * visible; // [queries, width]
    T* totals = sums + (end - begin) * width;   // [queries]
    const auto seen = [&](int64_t query, int64_t position, int64_t n) {
        const int64_t before = a.start + query + 1 - position;
        return before < n ? before : n;
    };
    const int64_t values_of_head = a.heads + head;
    over_blocks(a, head, values_of_head, visible, [&](int64_t position, int64_t n, const T* keys) {
        for (int64_t query = begin; query < end; query++)
            score(a.q + query * a.q_row + head * a.q_head, keys, seen(query, position, n),
                  a.head_dim, a.scale, scores + (query - begin) * visible + position);
    });
    for (int64_t query = begin; query < end; query++) {
        T* row = scores + (query - begin) * visible;
        totals[query - begin] = exponentials(row, a.start + query + 1, row);
    }
    for (int64_t i = 0; i < (end - begin) * width; i++) sums[i] = 0;
    const auto add_values = [&](int64_t position, int64_t n, const T* values) {
        int64_t query = begin;
        while (query < end) {
            const T* weights = scores + (query - begin) * visible + position;
            T* sum = sums + (query - begin) * width;
            const int64_t least = seen(query, position, n);
            if (query + together <= end && least == n) {
                weigh<together>(values, a.head_dim, n, weights, visible, sum, width);
                query += together;
            } else {
                weigh<1>(values, a.head_dim, least, weights, visible, sum, width);
                query++;
            }
        }
    };
    over_blocks(a, values_of_head, head + 1, visible, add_values);
    for (int64_t query = begin; query < end; query++) {
        const Vec<T> norm = Vec<T>::broadcast(1 / totals[query - begin]);
        T* out = a.out + (query * a.heads + head) * a.head_dim;
        for (int64_t i = 0; i < a.head_dim; i += lanes)
            (Vec<T>::load(sums + (query - begin) * width + i) * norm)
                .store(out + i, a.head_dim - i);
    }
}

}  // namespace ISA
