// Functions of one number, such that a compiler makes vectors of them.

#pragma once

#include <cmath>
#include <cstring>

// e^x. In single precision written out, so that the compiler makes vectors of it; to a rounding or two.
inline double exponential(double x) { return std::exp(x); }
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float shift = 12582912.0f; // 1.5 · 2^23: what is added to it is rounded to a whole number
    const float whole = (x * 1.44269504f + shift) - shift;
    const float rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float sum = 1.0f / 5040;
    sum = sum * rest + 1.0f / 720;
    sum = sum * rest + 1.0f / 120;
    sum = sum * rest + 1.0f / 24;
    sum = sum * rest + 1.0f / 6;
    sum = sum * rest + 0.5f;
    sum = sum * rest + 1.0f;
    sum = sum * rest + 1.0f;
    const int bits = (int(whole) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return sum * power;
}

template <typename S> inline S hyperbolic_tangent(S x) {
    const S e = exponential(-2 * std::abs(x));
    return std::copysign((1 - e) / (1 + e), x);
}
