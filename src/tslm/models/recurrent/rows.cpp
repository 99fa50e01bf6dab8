// A step of the optimiser on matrices that have a row of M numbers for each word, in two passes: moments first, then the
// move. A bag is a set of rows with a weight each; bag n has the members from starts[n] to starts[n + 1].

#include <cstdint>
#include <vector>

template <typename S> S follow(long M, S own, const S *gradient, S *mean) {
    S sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < M; ++i) {
        sum += gradient[i] * gradient[i];
        mean[i] += own * (gradient[i] - mean[i]);
    }
    return sum;
}

// Moves the mean gradients of N rows and the means of their squares by the shares of a new one. Without bags the rows
// are the gradient's own, and their sums of squares are left in `sizes`; with bags each is a weighted sum of some of them,
// those left out whose size is zero, as it is for nearly all words in any step.
template <typename S>
void row_moments(long, long N, long M, int threads, const S *gradient, S *sizes, const std::int64_t *starts,
                 const std::int64_t *members, const S *weight, const S *shares, S *mean, S *square) {
#pragma omp parallel num_threads(threads)
    {
        std::vector<S> sum(starts ? M : 0);
#pragma omp for schedule(dynamic, 64)
        for (long n = 0; n < N; ++n) {
            const S *row = gradient + n * M;
            if (starts) {
                sum.assign(M, 0);
                for (auto e = starts[n]; e < starts[n + 1]; ++e) {
                    if (sizes[members[e]] == 0)
                        continue;
                    const S *member = gradient + members[e] * M;
#pragma omp simd
                    for (long i = 0; i < M; ++i)
                        sum[i] += weight[e] * member[i];
                }
                row = sum.data();
            }
            const S size = follow(M, shares[0], row, mean + n * M);
            square[n] += shares[1] * (size / M - square[n]);
            if (!starts)
                sizes[n] = size;
        }
    }
}

// Takes from each row of a matrix its step along its mean gradient, and, with bags, those of what it shares.
template <typename S>
void row_move(long, long N, long M, int threads, const S *mean, const S *step, const std::int64_t *starts,
              const std::int64_t *members, const S *weight, const S *shared_mean, const S *shared_step, S *matrix) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 64)
    for (long n = 0; n < N; ++n) {
        S *row = matrix + n * M;
        const S *own = mean + n * M;
#pragma omp simd
        for (long i = 0; i < M; ++i)
            row[i] -= step[n] * own[i];
        if (!starts)
            continue;
        for (auto e = starts[n]; e < starts[n + 1]; ++e) {
            const S *shared = shared_mean + members[e] * M;
            const S size = weight[e] * shared_step[members[e]];
#pragma omp simd
            for (long i = 0; i < M; ++i)
                row[i] -= size * shared[i];
        }
    }
}

#define EXPORT(S)                                                                                                      \
    extern "C" void row_moments_##S(long one, long N, long M, int threads, const S *gradient, S *sizes,                \
                                    const std::int64_t *starts, const std::int64_t *members, const S *weight,          \
                                    const S *shares, S *mean, S *square) {                                             \
        row_moments(one, N, M, threads, gradient, sizes, starts, members, weight, shares, mean, square);               \
    }                                                                                                                  \
    extern "C" void row_move_##S(long one, long N, long M, int threads, const S *mean, const S *step,                  \
                                 const std::int64_t *starts, const std::int64_t *members, const S *weight,             \
                                 const S *shared_mean, const S *shared_step, S *matrix) {                              \
        row_move(one, N, M, threads, mean, step, starts, members, weight, shared_mean, shared_step, matrix);           \
    }

EXPORT(float)
EXPORT(double)
