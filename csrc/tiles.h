// Rows rearranged for the products: the numbers that meet one weight lie side by side.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "threads.h"

// x [n, n_in] as tiles of `tall` rows, the last of what is left, each [n_in, rows]
template <class T>
std::vector<T> in_tiles(const T* x, int64_t n, int64_t n_in, int64_t tall) {
    std::vector<T> tiles(n * n_in);
    parallel_for((n + tall - 1) / tall, chunks_for(n * n_in), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin * tall; row < end * tall && row < n; row += tall) {
            const int64_t rows = n - row < tall ? n - row : tall;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t i = 0; i < n_in; i++)
                    tiles[row * n_in + i * rows + r] = x[(row + r) * n_in + i];
        }
    });
    return tiles;
}

// x [n, n_in] as whole numbers, in the tiles of a GroupLinear
struct Rounded {
    std::vector<int32_t> quads, sums;
    std::vector<float> scales;

    Rounded(const float* x, int64_t n, int64_t n_in, const GroupKernels& kernels) {
        const int64_t groups = (n_in + group - 1) / group, tall = kernels.tall;
        quads.resize(n * groups * ::quads);
        sums.resize(n * groups);
        scales.resize(n * groups);
        parallel_for((n + tall - 1) / tall, chunks_for(n * n_in), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin * tall; row < end * tall && row < n; row += tall) {
                const int64_t rows = n - row < tall ? n - row : tall, at = row * groups;
                kernels.round(x + row * n_in, n_in, rows, quads.data() + at * ::quads,
                              scales.data() + at, sums.data() + at);
            }
        });
    }
};
