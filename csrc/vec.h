// Sixteen lanes of T in as many registers as they take: one AVX-512, two AVX2 or four SSE/NEON for
// float. A file that includes this first defines ISA, a namespace of its own, which says how many
// bytes a register has (`register_bytes`). Calls into the standard library are kept out of the
// loops: they run without these instructions.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels.h"

namespace ISA {

template <class T>
struct Vec {
    static constexpr int each = register_bytes / sizeof(T);
    static constexpr int parts = lanes / each;
    typedef T Native __attribute__((vector_size(register_bytes)));
    Native part[parts];  // loops over them are unrolled early, so that they live in registers

    [[gnu::always_inline]] static Vec broadcast(T s) {
        Vec v;
        #pragma GCC unroll 16
        for (int i = 0; i < parts; i++) v.part[i] = Native{} + s;
        return v;
    }
    [[gnu::always_inline]] static Vec load(const T* p) {
        Vec v;
        #pragma GCC unroll 16
        for (int i = 0; i < parts; i++) memcpy(&v.part[i], p + i * each, sizeof(Native));
        return v;
    }
    [[gnu::always_inline]] static Vec load(const T* p, int64_t m, T fill) {  // the first m lanes
        if (m >= lanes) return load(p);
        T a[lanes];
        for (int i = 0; i < lanes; i++) a[i] = i < m ? p[i] : fill;
        return load(a);
    }
    [[gnu::always_inline]] void store(T* p) const {
        #pragma GCC unroll 16
        for (int i = 0; i < parts; i++) memcpy(p + i * each, &part[i], sizeof(Native));
    }
    [[gnu::always_inline]] void store(T* p, int64_t m) const {
        if (m >= lanes) return store(p);
        T a[lanes];
        store(a);
        memcpy(p, a, m * sizeof(T));
    }
    // *this + a * b, rounded once where the processor can
    [[gnu::always_inline]] void add_product(const Vec& a, const Vec& b) {
        #pragma GCC unroll 16
        for (int i = 0; i < parts; i++) part[i] += a.part[i] * b.part[i];
    }
    [[gnu::always_inline]] void add_product(const Vec& a, T s) {
        #pragma GCC unroll 16
        for (int i = 0; i < parts; i++) part[i] += a.part[i] * s;
    }
    [[gnu::always_inline]] Vec below(T limit) const {  // other lanes become 0
        Vec v;
        #pragma GCC unroll 16
        for (int i = 0; i < parts; i++) v.part[i] = part[i] < Native{} + limit ? part[i] : Native{};
        return v;
    }
    // The lanes added in one fixed order, whatever the register size: halves onto each other.
    [[gnu::always_inline]] T sum() const {
        T a[lanes];
        store(a);
        return fold<lanes / 2>(a, [](T x, T y) { return x + y; });
    }
    [[gnu::always_inline]] T max() const {
        T a[lanes];
        store(a);
        return fold<lanes / 2>(a, [](T x, T y) { return x > y ? x : y; });
    }
    template <int half, class Two>
    [[gnu::always_inline]] static T fold(T* a, Two two) {
        for (int i = 0; i < half; i++) a[i] = two(a[i], a[i + half]);
        if constexpr (half == 1) return a[0];
        else return fold<half / 2>(a, two);
    }
};

template <class T>
[[gnu::always_inline]] inline Vec<T> operator+(Vec<T> a, const Vec<T>& b) {
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++) a.part[i] = a.part[i] + b.part[i];
    return a;
}
template <class T>
[[gnu::always_inline]] inline Vec<T> operator-(Vec<T> a, const Vec<T>& b) {
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++) a.part[i] = a.part[i] - b.part[i];
    return a;
}
template <class T>
[[gnu::always_inline]] inline Vec<T> operator*(Vec<T> a, const Vec<T>& b) {
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++) a.part[i] = a.part[i] * b.part[i];
    return a;
}
template <class T>
[[gnu::always_inline]] inline Vec<T> operator/(Vec<T> a, const Vec<T>& b) {
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++) a.part[i] = a.part[i] / b.part[i];
    return a;
}

template <class T>
[[gnu::always_inline]] inline Vec<T> max(const Vec<T>& a, const Vec<T>& b) {
    Vec<T> v;
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++)
        v.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
    return v;
}

// a and b side by side hold groups of 2 * half lanes: the second half of each added to its first.
template <int half, class Native, size_t... lane>
[[gnu::always_inline]] inline Native fold_registers(Native a, Native b,
                                                    std::index_sequence<lane...>) {
    constexpr auto at = [](int to) { return to / half * 2 * half + to % half; };
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, at(lane)...) +
           __builtin_shufflevector(a, b, (at(lane) + half)...);
#else  // GCC before 12
    typedef decltype(a < b) Lanes;
    return __builtin_shuffle(a, b, Lanes{at(lane)...}) +
           __builtin_shuffle(a, b, Lanes{(at(lane) + half)...});
#endif
}

template <int half, class T>
[[gnu::always_inline]] inline Vec<T> fold(const Vec<T>& a, const Vec<T>& b) {
    constexpr int parts = Vec<T>::parts, each = Vec<T>::each;
    typename Vec<T>::Native from[2 * parts];
    #pragma GCC unroll 16
    for (int i = 0; i < parts; i++) from[i] = a.part[i], from[parts + i] = b.part[i];
    Vec<T> v;
    #pragma GCC unroll 16
    for (int i = 0; i < parts; i++) {
        if constexpr (half >= each) {
            constexpr int far = half / each;  // registers
            const int at = i / far * 2 * far + i % far;
            v.part[i] = from[at] + from[at + far];
        } else {
            v.part[i] = fold_registers<half>(from[2 * i], from[2 * i + 1],
                                             std::make_index_sequence<each>());
        }
    }
    return v;
}

// `count` vectors folded into one: groups of lanes / count lanes, one for each. With 16 of them,
// lane i is v[i].sum(), added in the same order.
template <int count, class T>
[[gnu::always_inline]] inline Vec<T> fold_all(const Vec<T>* v) {
    if constexpr (count == 1) return v[0];
    else return fold<lanes / count>(fold_all<count / 2>(v), fold_all<count / 2>(v + count / 2));
}

// Rounds v here: a compiler that may contract cannot see past this, and costs nothing.
template <class T>
[[gnu::always_inline]] inline void keep(Vec<T>& v) {
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++) {
#if defined(__x86_64__)
        asm("" : "+v"(v.part[i]));
#elif defined(__aarch64__)
        asm("" : "+w"(v.part[i]));
#else
        asm("" : "+m"(v.part[i]));
#endif
    }
}

template <class T>
[[gnu::always_inline]] inline Vec<double> in_double(const Vec<T>& v) {
    if constexpr (sizeof(T) == sizeof(double)) return v;
    T narrow[lanes];
    double wide[lanes];
    v.store(narrow);
    for (int i = 0; i < lanes; i++) wide[i] = narrow[i];
    return Vec<double>::load(wide);
}
template <class T>
[[gnu::always_inline]] inline Vec<T> from_double(const Vec<double>& v) {
    if constexpr (sizeof(T) == sizeof(double)) return v;
    double wide[lanes];
    T narrow[lanes];
    v.store(wide);
    for (int i = 0; i < lanes; i++) narrow[i] = T(wide[i]);
    return Vec<T>::load(narrow);
}

template <class T>
[[gnu::always_inline]] inline Vec<T> magnitude(const Vec<T>& x) {  // NaN stays NaN
    return max(x, Vec<T>::broadcast(0) - x);
}

// In each lane `a` where x is below 0, else `b`
template <class T>
[[gnu::always_inline]] inline Vec<T> where_negative(const Vec<T>& x, const Vec<T>& a,
                                                    const Vec<T>& b) {
    Vec<T> v;
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++)
        v.part[i] = x.part[i] < typename Vec<T>::Native{} ? a.part[i] : b.part[i];
    return v;
}

// Constants of exp: x = n ln 2 + r, exp(x) = 2^n exp(r), |r| <= ln(2) / 2, exp(r) by its Taylor
// series. Adding `round` leaves n in the low bits of the sum: no conversion to integers is needed.
// Below `deep` 2^n may be too small for a normal number: it is taken `lift` powers higher, and the
// product is multiplied by `drop`, so that it is rounded once, to a subnormal number.
template <class T>
struct Exp;
template <>
struct Exp<float> {
    typedef int32_t Int;
    static constexpr float low = -104, deep = -87, high = 88.3f;
    static constexpr float round = 12582912;  // 1.5 * 2^23
    static constexpr int lift = 64;
    static constexpr float drop = 0x1p-64f;
    static constexpr float ln2_high = 0.693145752f, ln2_low = 1.42860677e-6f;
    static constexpr int mantissa = 23, bias = 127, terms = 7;
};
template <>
struct Exp<double> {
    typedef int64_t Int;
    static constexpr double low = -745.2, deep = -708, high = 709.4;
    static constexpr double round = 6755399441055744;  // 1.5 * 2^52
    static constexpr int lift = 128;
    static constexpr double drop = 0x1p-128;
    static constexpr double ln2_high = 0.693147180369123816490;
    static constexpr double ln2_low = 1.90821492927058770002e-10;
    static constexpr int mantissa = 52, bias = 1023, terms = 13;
};

// exp of every lane to about one unit in the last place, subnormal or not. Below `low` it is 0,
// above `high` inf; NaN stays NaN.
template <class T>
[[gnu::always_inline]] inline Vec<T> exp(const Vec<T>& x) {
    typedef Exp<T> E;
    typedef typename Vec<T>::Native Native;
    typedef typename E::Int Ints __attribute__((vector_size(register_bytes)));
    Vec<T> v;
    #pragma GCC unroll 16
    for (int i = 0; i < Vec<T>::parts; i++) {
        const Native low = Native{} + E::low, high = Native{} + E::high;
        Native c = x.part[i];
        c = c < low ? low : c;  // in this order a NaN passes
        c = c > high ? high : c;
        const Native shifted = c * T(1.44269504088896340736) + E::round;
        const Native n = shifted - E::round;
        const Native r = (c - n * E::ln2_high) - n * E::ln2_low;
        T factor = 1;  // 1 / k!
        T inverse[E::terms + 1];
        for (int k = 0; k <= E::terms; k++) {
            inverse[k] = factor;
            factor /= T(k + 1);
        }
        Native sum = Native{} + inverse[E::terms];
        for (int k = E::terms - 1; k >= 0; k--) sum = sum * r + inverse[k];
        Ints bits;
        memcpy(&bits, &shifted, sizeof bits);
        const Ints is_deep = c < Native{} + E::deep;  // all bits set, or none
        bits += (is_deep & E::lift) + typename E::Int(E::bias);
        bits <<= E::mantissa;
        Native power;  // 2^n, or 2^(n + lift)
        memcpy(&power, &bits, sizeof power);
        const Native result = sum * power * (is_deep ? Native{} + E::drop : Native{} + T(1));
        v.part[i] = x.part[i] < low ? Native{} : result;
        v.part[i] = x.part[i] > high ? Native{} + T(__builtin_inf()) : v.part[i];
    }
    return v;
}

}  // namespace ISA
