// The activations between the two products of a block.
#pragma once
#include <cstdint>

#include "vec.h"

namespace ISA {

// x (1 + tanh u) / 2 = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
template <class T>
void gelu_range(const T* x, int64_t size, T* y) {
    const Vec<T> one = Vec<T>::broadcast(1);
    const Vec<T> a = Vec<T>::broadcast(T(-2 * 0.79788456080286535588));
    const Vec<T> b = Vec<T>::broadcast(T(-2 * 0.79788456080286535588 * 0.044715));
    for (int64_t i = 0; i < size; i += lanes) {
        const Vec<T> v = Vec<T>::load(x + i, size - i, 0);
        const Vec<T> u = v * (a + b * (v * v));
        (v / (one + exp(u))).store(y + i, size - i);
    }
}

template <class T>
void relu_range(const T* x, int64_t size, T* y) {
    for (int64_t i = 0; i < size; i++) y[i] = x[i] < 0 ? 0 : x[i];  // NaN stays NaN
}

// x / (1 + exp(-x)), with an exponential that cannot overflow, in double whatever T is: there is
// nothing left to round for float
template <class T>
void silu_range(const T* x, int64_t size, T* y) {
    const Vec<double> zero = Vec<double>::broadcast(0), one = Vec<double>::broadcast(1);
    for (int64_t i = 0; i < size; i += lanes) {
        const Vec<double> v = in_double(Vec<T>::load(x + i, size - i, 0));
        const Vec<double> e = exp(zero - magnitude(v));
        from_double<T>(where_negative(v, v * e, v) / (one + e)).store(y + i, size - i);
    }
}

// exp(a^2 / 2) (a + 4) P(N > a), N normal, is a polynomial of (a - 4) / (a + 4), to 1e-16 for
// a = 0 .. 40: the interpolation in 25 Chebyshev points, as powers.
constexpr double upper_tail[] = {
    0.7552851304157515, -0.6078966419718921, 0.3871374007422147, -0.1865218579596591,
    0.060396574890926744, -0.00754018896667011, -0.00347969236717287, 0.0016308184568070217,
    0.00013334430982456515, -0.00023109492938839244, -1.9082406078452036e-06,
    3.514466140039819e-05, 7.165886646833504e-07, -5.920112714140749e-06, -6.294788408439732e-07,
    1.0214789020416029e-06, 2.7141218191472956e-07, -1.5495755932412737e-07,
    -8.497175540808365e-08, 1.3383416712902124e-08, 1.9350538253064024e-08,
    1.7976553520531679e-09, -2.4572428492071976e-09, -6.809187779313362e-10,
    4.897040659413906e-12,
};

// P(N > a) for a = 0 .. 40, to some units in the last place however small it is
[[gnu::always_inline]] inline Vec<double> normal_tail(const Vec<double>& a) {
    const auto number = [](double x) { return Vec<double>::broadcast(x); };
    const Vec<double> sum = a + number(4), at = (a - number(4)) / sum;
    constexpr int terms = sizeof upper_tail / sizeof *upper_tail;
    Vec<double> polynomial = number(upper_tail[terms - 1]);
    for (int k = terms - 2; k >= 0; k--) polynomial = polynomial * at + number(upper_tail[k]);
    // a^2 / 2 with more bits than a double has: `high` is a to 20 bits behind the point
    const Vec<double> high = (a + number(0x1.8p32)) - number(0x1.8p32);
    const Vec<double> rest = (a - high) * (a + high) * number(-0.5);  // below 2e-5
    const Vec<double> small =
        number(1) + rest * (number(1) + rest * (number(0.5) + rest * number(1.0 / 6)));
    return exp(high * high * number(-0.5)) * (small * (polynomial / sum));
}

// x P(N < x), in double as well
template <class T>
void gelu_erf_range(const T* x, int64_t size, T* y) {
    const Vec<double> one = Vec<double>::broadcast(1), most = Vec<double>::broadcast(40);
    for (int64_t i = 0; i < size; i += lanes) {
        const Vec<double> v = in_double(Vec<T>::load(x + i, size - i, 0)), a = magnitude(v);
        const Vec<double> tail = normal_tail(where_negative(most - a, most, a));
        from_double<T>(v * where_negative(v, tail, one - tail)).store(y + i, size - i);
    }
}

}  // namespace ISA
