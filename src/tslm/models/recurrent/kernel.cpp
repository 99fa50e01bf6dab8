// Recurrences over a whole window, forward and backward, each in one call: Eq. 19, and the one that is affine in the
// state (affine.py); and the factors of the gated cell.
//
// The columns of a batch do not speak with each other, so each thread takes its share of them through all steps and
// never waits for another. W is copied once per call into panels that the products then read in order.
// Plain C++ with the vector extensions of GCC and Clang: no headers of PyTorch, so it compiles in seconds.

#include "elementary.hpp"

#include <cstddef>
#include <memory>

#ifdef __AVX512F__
constexpr int width = 64;     // bytes of a vector
constexpr int most_rows = 12; // 24 of 32 registers hold sums
#else
constexpr int width = 32;
constexpr int most_rows = 6; // 12 of 16
#endif
constexpr int vectors = 2; // per row of a tile

template <typename S> constexpr int lanes = width / sizeof(S);
template <typename S> constexpr int columns = vectors *lanes<S>;

// Of S, not of vectors, is the alignment: rows of any length follow each other without gaps.
typedef float vector_float __attribute__((vector_size(width), aligned(alignof(float)), may_alias));
typedef double vector_double __attribute__((vector_size(width), aligned(alignof(double)), may_alias));
template <typename S> struct vector_of;
template <> struct vector_of<float> { typedef vector_float type; };
template <> struct vector_of<double> { typedef vector_double type; };

// The matrix A (R × R, or its transpose) as panels of `columns` columns; the last is filled up with zeros.
template <typename S> std::unique_ptr<S[]> pack(long R, const S *A, bool transposed) {
    const long panels = (R + columns<S> - 1) / columns<S>;
    std::unique_ptr<S[]> packed(new S[panels * columns<S> * R]);
    for (long p = 0; p < panels; ++p)
        for (long k = 0; k < R; ++k)
            for (long j = 0; j < columns<S>; ++j) {
                const long n = p * columns<S> + j;
                packed[(p * R + k) * columns<S> + j] = n >= R ? S(0) : transposed ? A[n * R + k] : A[k * R + n];
            }
    return packed;
}

// out = start + a · panel for `rows` rows and the columns of one panel.
template <typename S, int rows>
inline void tile(long R, const S *a, const S *panel, const S *start, long start_stride, S *out, long present) {
    typedef typename vector_of<S>::type Vector;
    Vector sum[rows][vectors];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v)
            sum[r][v] = Vector{};
    for (long k = 0; k < R; ++k) {
        const Vector *row = reinterpret_cast<const Vector *>(panel + k * columns<S>);
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v)
                sum[r][v] += a[r * R + k] * row[v];
    }
    if (present == columns<S>) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v)
                reinterpret_cast<Vector *>(out + r * R)[v] =
                    sum[r][v] + reinterpret_cast<const Vector *>(start + r * start_stride)[v];
    } else {
        for (int r = 0; r < rows; ++r)
            for (long j = 0; j < present; ++j)
                out[r * R + j] = reinterpret_cast<const S *>(sum[r])[j] + start[r * start_stride + j];
    }
}

template <typename S, int rows, typename... Arguments> inline void tile_of(int wanted, Arguments... arguments) {
    if (wanted == rows)
        tile<S, rows>(arguments...);
    else if constexpr (rows > 1)
        tile_of<S, rows - 1>(wanted, arguments...);
}

// out = start + a · A for all rows; a stride of 0 gives every row the same start.
template <typename S>
void multiply(long rows, long R, const S *a, const S *packed, const S *start, long start_stride, S *out) {
    const long tiles = (rows + most_rows - 1) / most_rows;
    for (long n = 0; n < R; n += columns<S>) {
        const long present = R - n < columns<S> ? R - n : columns<S>;
        for (long i = 0; i < tiles; ++i) {
            const long begin = rows * i / tiles, end = rows * (i + 1) / tiles;
            tile_of<S, most_rows>(int(end - begin), R, a + begin * R, packed + n * R, start + begin * start_stride + n,
                                  start_stride, out + begin * R + n, present);
        }
    }
}

// scales is null where states are not rescaled.
template <typename S>
void forward(long T, long B, long R, int threads, const S *factors, const S *W, const S *b, S *states, S *transfers,
             S *scales) {
    const auto packed = pack(R, W, true);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int part = 0; part < threads; ++part) {
        const long begin = B * part / threads, end = B * (part + 1) / threads;
        for (long t = 0; t < T; ++t) {
            for (long row = t * B + begin; row < t * B + end; ++row) {
                const S *g = transfers + row * R, *f = factors + row * R;
                S *h = states + row * R, squares = 0;
#pragma omp simd reduction(+ : squares)
                for (long i = 0; i < R; ++i) {
                    h[i] = g[i] * f[i];
                    squares += h[i] * h[i];
                }
                if (scales) {
                    const S scale = scales[row] = 1 / std::sqrt(1 + squares / R);
#pragma omp simd
                    for (long i = 0; i < R; ++i)
                        h[i] *= scale;
                }
            }
            const long row = t * B + begin;
            multiply(end - begin, R, states + row * R, packed.get(), b, 0, transfers + (row + B) * R);
        }
    }
}

// On entry transfers_gradient ends with the gradient of the last transfer; on return factors_gradient is whole.
template <typename S>
void backward(long T, long B, long R, int threads, const S *factors, const S *W, const S *states, const S *transfers,
              const S *scales, const S *states_gradient, S *factors_gradient, S *transfers_gradient) {
    const auto packed = pack(R, W, false);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int part = 0; part < threads; ++part) {
        const long begin = B * part / threads, end = B * (part + 1) / threads;
        for (long t = T - 1; t >= 0; --t) {
            const long first = (t * B + begin) * R;
            multiply(end - begin, R, transfers_gradient + first + B * R, packed.get(), states_gradient + first, R,
                     factors_gradient + first);
            for (long row = t * B + begin; row < t * B + end; ++row) {
                const S *f = factors + row * R, *h = states + row * R, *g = transfers + row * R;
                S *raw = factors_gradient + row * R, *inner = transfers_gradient + row * R;
                if (scales) {
                    S along = 0;
#pragma omp simd reduction(+ : along)
                    for (long i = 0; i < R; ++i)
                        along += raw[i] * h[i];
                    along /= R;
                    const S scale = scales[row];
#pragma omp simd
                    for (long i = 0; i < R; ++i)
                        raw[i] = (raw[i] - along * h[i]) * scale;
                }
#pragma omp simd
                for (long i = 0; i < R; ++i) {
                    inner[i] = raw[i] * f[i];
                    raw[i] *= g[i];
                }
            }
        }
    }
}

// h' = hold ⊙ h + add + mix ⊙ W(keep ⊙ h). On entry states begins with the one before the window. keep and seen are null
// where W sees the whole state.
template <typename S>
void affine_forward(long T, long B, long R, int threads, const S *hold, const S *mix, const S *add, const S *W,
                    const S *keep, S *states, S *seen, S *mixed) {
    const auto packed = pack(R, W, true);
    const std::unique_ptr<S[]> nothing(new S[R]());
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int part = 0; part < threads; ++part) {
        const long begin = B * part / threads, end = B * (part + 1) / threads;
        for (long t = 0; t < T; ++t) {
            const long first = (t * B + begin) * R, count = (end - begin) * R;
            const S *h = states + first, *x = h;
            if (keep) {
                const S *k = keep + first;
                S *kept = seen + first;
#pragma omp simd
                for (long i = 0; i < count; ++i)
                    kept[i] = k[i] * h[i];
                x = kept;
            }
            S *m = mixed + first;
            multiply(end - begin, R, x, packed.get(), nothing.get(), 0, m);
            const S *a = hold + first, *b = mix + first, *c = add + first;
            S *next = states + first + B * R;
#pragma omp simd
            for (long i = 0; i < count; ++i)
                next[i] = a[i] * h[i] + (c[i] + b[i] * m[i]);
        }
    }
}

// On entry inner, the gradient of every state, ends with that of the last; product is the gradient of the product with
// W, and outer that of the states after the first, as others use them.
template <typename S>
void affine_backward(long T, long B, long R, int threads, const S *hold, const S *mix, const S *W, const S *keep,
                     const S *states, const S *mixed, const S *outer, S *inner, S *product, S *hold_gradient,
                     S *mix_gradient, S *keep_gradient) {
    const auto packed = pack(R, W, false);
    const std::unique_ptr<S[]> nothing(new S[R]());
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int part = 0; part < threads; ++part) {
        const long begin = B * part / threads, end = B * (part + 1) / threads;
        for (long t = T - 1; t >= 0; --t) {
            const long first = (t * B + begin) * R, count = (end - begin) * R;
            const S *a = hold + first, *b = mix + first, *h = states + first, *m = mixed + first;
            const S *next = inner + first + B * R;
            S *own = inner + first, *p = product + first, *a_gradient = hold_gradient + first;
            S *b_gradient = mix_gradient + first;
#pragma omp simd
            for (long i = 0; i < count; ++i) {
                p[i] = b[i] * next[i];
                a_gradient[i] = h[i] * next[i];
                b_gradient[i] = m[i] * next[i];
                own[i] = a[i] * next[i];
            }
            if (t > 0) {
                const S *given = outer + first - B * R;
#pragma omp simd
                for (long i = 0; i < count; ++i)
                    own[i] += given[i];
            }
            if (keep) {
                const S *k = keep + first;
                S *k_gradient = keep_gradient + first;
                multiply(end - begin, R, p, packed.get(), nothing.get(), 0, k_gradient);
#pragma omp simd
                for (long i = 0; i < count; ++i) {
                    own[i] += k[i] * k_gradient[i];
                    k_gradient[i] *= h[i];
                }
            } else {
                multiply(end - begin, R, p, packed.get(), own, R, own);
            }
        }
    }
}

// The factors of the gated cell's words from U x + c, whose rows are (hold, content, mix). keep is null without split.
template <typename S, bool split>
void gates_forward(long T, long B, long R, int threads, const S *raw, S *hold, S *mix, S *add, S *keep) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long row = 0; row < T * B; ++row) {
        const S *x = raw + row * 3 * R;
        S *a = hold + row * R, *s = mix + row * R, *g = add + row * R, *k = split ? keep + row * R : nullptr;
#pragma omp simd
        for (long i = 0; i < R; ++i) {
            const S e = exponential(-x[i]), closed = e / (1 + e);
            const S free = split ? std::sqrt(closed) : closed;
            a[i] = 1 / (1 + e);
            s[i] = free * hyperbolic_tangent(x[2 * R + i]);
            g[i] = free * hyperbolic_tangent(x[R + i]);
            if constexpr (split)
                k[i] = free;
        }
    }
}

// Forms the gates once more: that takes less than to keep them and read them back.
template <typename S, bool split>
void gates_backward(long T, long B, long R, int threads, const S *raw, const S *hold_gradient, const S *mix_gradient,
                    const S *add_gradient, const S *keep_gradient, S *raw_gradient) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long row = 0; row < T * B; ++row) {
        const S *x = raw + row * 3 * R, *a = hold_gradient + row * R, *s = mix_gradient + row * R;
        const S *g = add_gradient + row * R, *k = split ? keep_gradient + row * R : nullptr;
        S *out = raw_gradient + row * 3 * R;
#pragma omp simd
        for (long i = 0; i < R; ++i) {
            const S e = exponential(-x[i]), open = 1 / (1 + e), closed = e / (1 + e);
            const S mixing = hyperbolic_tangent(x[2 * R + i]), content = hyperbolic_tangent(x[R + i]);
            const S free = split ? std::sqrt(closed) : closed;
            const S freed = s[i] * mixing + g[i] * content + (split ? k[i] : S(0));
            // d closed / dx = − closed open; the root's is half of it, divided by the root.
            out[i] = a[i] * open * closed - freed * open * (split ? free / 2 : closed);
            out[R + i] = g[i] * free * (1 - content * content);
            out[2 * R + i] = s[i] * free * (1 - mixing * mixing);
        }
    }
}

#define EXPORT(S)                                                                                                      \
    extern "C" void forward_##S(long T, long B, long R, int threads, const S *factors, const S *W, const S *b,         \
                                S *states, S *transfers, S *scales) {                                                  \
        forward(T, B, R, threads, factors, W, b, states, transfers, scales);                                           \
    }                                                                                                                  \
    extern "C" void backward_##S(long T, long B, long R, int threads, const S *factors, const S *W, const S *states,   \
                                 const S *transfers, const S *scales, const S *states_gradient, S *factors_gradient,   \
                                 S *transfers_gradient) {                                                              \
        backward(T, B, R, threads, factors, W, states, transfers, scales, states_gradient, factors_gradient,           \
                 transfers_gradient);                                                                                  \
    }                                                                                                                  \
    extern "C" void affine_forward_##S(long T, long B, long R, int threads, const S *hold, const S *mix, const S *add, \
                                       const S *W, const S *keep, S *states, S *seen, S *mixed) {                      \
        affine_forward(T, B, R, threads, hold, mix, add, W, keep, states, seen, mixed);                                \
    }                                                                                                                  \
    extern "C" void affine_backward_##S(long T, long B, long R, int threads, const S *hold, const S *mix, const S *W,  \
                                        const S *keep, const S *states, const S *mixed, const S *outer, S *inner,      \
                                        S *product, S *hold_gradient, S *mix_gradient, S *keep_gradient) {             \
        affine_backward(T, B, R, threads, hold, mix, W, keep, states, mixed, outer, inner, product, hold_gradient,     \
                        mix_gradient, keep_gradient);                                                                  \
    }                                                                                                                  \
    extern "C" void gates_forward_##S(long T, long B, long R, int threads, const S *raw, S *hold, S *mix, S *add,      \
                                      S *keep) {                                                                       \
        (keep ? gates_forward<S, true> : gates_forward<S, false>)(T, B, R, threads, raw, hold, mix, add, keep);        \
    }                                                                                                                  \
    extern "C" void gates_backward_##S(long T, long B, long R, int threads, const S *raw, const S *hold_gradient,      \
                                       const S *mix_gradient, const S *add_gradient, const S *keep_gradient,           \
                                       S *raw_gradient) {                                                              \
        const auto run = keep_gradient ? gates_backward<S, true> : gates_backward<S, false>;                           \
        run(T, B, R, threads, raw, hold_gradient, mix_gradient, add_gradient, keep_gradient, raw_gradient);            \
    }

EXPORT(float)
EXPORT(double)
