// The softmax of a training step over its candidates, one row for each token and expert: first its partition function,
// then its gradient in the place of the logits, so that each row is read twice from the cache and nothing lies between.
//
// A row has C logits, in bfloat16 or as wide as all else; `offset` is added to each. The target has a logit of its own,
// and where it is among the candidates too, in `column`, it is left out there; a column of -1 is none.

#include "elementary.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

struct bfloat16 {
    std::uint16_t bits;
};

inline double widen(double x) { return x; }
inline float widen(float x) { return x; }
inline float widen(bfloat16 x) {
    const std::uint32_t bits = std::uint32_t(x.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

inline void store(double x, double &place) { place = x; }
inline void store(float x, float &place) { place = x; }
inline void store(float x, bfloat16 &place) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    // To the nearest, and halfway to the even one.
    place.bits = std::uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Both stretches of a row that the target's column leaves.
template <typename Stretch> inline void around(long C, long column, Stretch stretch) {
    if (column < 0) {
        stretch(0, C);
    } else {
        stretch(0, column);
        stretch(column + 1, C);
    }
}

template <typename L, typename S>
void partition(long, long rows, long C, int threads, const L *logits, const S *offset, const S *target,
               const std::int64_t *column, S *log_sum) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long row = 0; row < rows; ++row) {
        const L *x = logits + row * C;
        S largest = target[row];
        around(C, column[row], [&](long begin, long end) {
            S most = largest;
#pragma omp simd reduction(max : most)
            for (long i = begin; i < end; ++i) {
                const S y = widen(x[i]) + offset[i];
                most = y > most ? y : most;
            }
            largest = most;
        });
        S sum = exponential(target[row] - largest);
        around(C, column[row], [&](long begin, long end) {
            S part = 0;
#pragma omp simd reduction(+ : part)
            for (long i = begin; i < end; ++i)
                part += exponential(widen(x[i]) + offset[i] - largest);
            sum += part;
        });
        log_sum[row] = largest + std::log(sum);
    }
}

// Each logit becomes scale · probability, and the sums over all rows are added to `total`.
template <typename L, typename S>
void spread(long, long rows, long C, int threads, L *logits, const S *offset, const S *log_sum, const S *scale,
            const std::int64_t *column, S *total) {
    // Summed in the order of the threads, so that results repeat.
    std::vector<S> sums(std::size_t(threads) * C);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int part = 0; part < threads; ++part) {
        S *own = sums.data() + std::size_t(part) * C;
        for (long row = rows * part / threads; row < rows * (part + 1) / threads; ++row) {
            L *x = logits + row * C;
            const S shift = log_sum[row], size = scale[row];
            around(C, column[row], [&](long begin, long end) {
#pragma omp simd
                for (long i = begin; i < end; ++i) {
                    const S gradient = size * exponential(widen(x[i]) + offset[i] - shift);
                    store(gradient, x[i]);
                    own[i] += gradient;
                }
            });
            if (column[row] >= 0)
                store(S(0), x[column[row]]);
        }
    }
    for (int part = 0; part < threads; ++part)
        for (long i = 0; i < C; ++i)
            total[i] += sums[std::size_t(part) * C + i];
}

#define EXPORT(L, S)                                                                                                   \
    extern "C" void partition_##L(long one, long rows, long C, int threads, const L *logits, const S *offset,         \
                                  const S *target, const std::int64_t *column, S *log_sum) {                          \
        partition(one, rows, C, threads, logits, offset, target, column, log_sum);                                    \
    }                                                                                                                  \
    extern "C" void spread_##L(long one, long rows, long C, int threads, L *logits, const S *offset, const S *log_sum, \
                               const S *scale, const std::int64_t *column, S *total) {                                \
        spread(one, rows, C, threads, logits, offset, log_sum, scale, column, total);                                 \
    }

EXPORT(float, float)
EXPORT(double, double)
EXPORT(bfloat16, float)
