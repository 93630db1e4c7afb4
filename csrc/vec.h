// Sixteen lanes of T in as many registers as they take: one AVX-512, two AVX2 or four SSE/NEON for float.
// Included once an instruction set, after ISA (a namespace) and VEC_BYTES (a register's size) are
// defined. Calls into the standard library are kept out of the loops: they run without these instructions.
#include <cstdint>
#include <cstring>

#define INLINE inline __attribute__((always_inline))
// Unrolled early, so that the parts live in registers and not in memory.
#define EACH_PART_OF(V) _Pragma("GCC unroll 16") for (int i = 0; i < V::parts; i++)
#define EACH_PART EACH_PART_OF(Vec)

namespace ISA {

template <class T>
struct Vec {
    static constexpr int lanes = 16;
    static constexpr int each = VEC_BYTES / sizeof(T);
    static constexpr int parts = lanes / each;
    typedef T Native __attribute__((vector_size(VEC_BYTES)));
    Native part[parts];

    static INLINE Vec broadcast(T s) {
        Vec v;
        EACH_PART v.part[i] = Native{} + s;
        return v;
    }
    static INLINE Vec load(const T* p) {
        Vec v;
        EACH_PART memcpy(&v.part[i], p + i * each, sizeof(Native));
        return v;
    }
    static INLINE Vec load(const T* p, int64_t m, T fill) {  // the first m lanes
        if (m >= lanes) return load(p);
        T a[lanes];
        for (int i = 0; i < lanes; i++) a[i] = i < m ? p[i] : fill;
        return load(a);
    }
    INLINE void store(T* p) const {
        EACH_PART memcpy(p + i * each, &part[i], sizeof(Native));
    }
    INLINE void store(T* p, int64_t m) const {
        if (m >= lanes) return store(p);
        T a[lanes];
        store(a);
        memcpy(p, a, m * sizeof(T));
    }
    // *this + a * b, rounded once where the processor can
    INLINE void add_product(const Vec& a, const Vec& b) {
        EACH_PART part[i] += a.part[i] * b.part[i];
    }
    INLINE void add_product(const Vec& a, T s) {
        EACH_PART part[i] += a.part[i] * s;
    }
    INLINE Vec below(T limit) const {  // other lanes become 0
        Vec v;
        EACH_PART v.part[i] = part[i] < Native{} + limit ? part[i] : Native{};
        return v;
    }
    // The lanes added in one fixed order, whatever the register size: halves onto each other.
    INLINE T sum() const {
        T a[lanes];
        store(a);
        return fold<lanes / 2>(a, [](T x, T y) { return x + y; });
    }
    INLINE T max() const {
        T a[lanes];
        store(a);
        return fold<lanes / 2>(a, [](T x, T y) { return x > y ? x : y; });
    }
    template <int half, class Two>
    static INLINE T fold(T* a, Two two) {
        for (int i = 0; i < half; i++) a[i] = two(a[i], a[i + half]);
        if constexpr (half == 1) return a[0];
        else return fold<half / 2>(a, two);
    }
};

#define LANEWISE(op)                                              \
    template <class T>                                            \
    INLINE Vec<T> operator op(Vec<T> a, const Vec<T>& b) {        \
        EACH_PART_OF(Vec<T>) a.part[i] = a.part[i] op b.part[i]; \
        return a;                                                 \
    }
LANEWISE(+)
LANEWISE(-)
LANEWISE(*)
LANEWISE(/)
#undef LANEWISE

template <class T>
INLINE Vec<T> max(const Vec<T>& a, const Vec<T>& b) {
    Vec<T> v;
    EACH_PART_OF(Vec<T>) v.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
    return v;
}

// Constants of exp: x = n ln 2 + r, exp(x) = 2^n exp(r), |r| <= ln(2) / 2, exp(r) by its Taylor series.
// Adding `round` leaves n in the low bits of the sum, so no conversion to integers is needed.
template <class T>
struct Exp;
template <>
struct Exp<float> {
    typedef int32_t Int;
    static constexpr float low = -87.3f, high = 88.3f, round = 12582912.0f;  // 1.5 * 2^23
    static constexpr float ln2_high = 0.693145752f, ln2_low = 1.42860677e-6f;
    static constexpr int mantissa = 23, bias = 127, terms = 7;
};
template <>
struct Exp<double> {
    typedef int64_t Int;
    static constexpr double low = -708.3, high = 709.4, round = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr double ln2_high = 0.693147180369123816490, ln2_low = 1.90821492927058770002e-10;
    static constexpr int mantissa = 52, bias = 1023, terms = 13;
};

// exp of every lane to about one unit in the last place. Below `low` it is 0, above `high` inf; NaN stays NaN.
template <class T>
INLINE Vec<T> exp(const Vec<T>& x) {
    typedef Exp<T> E;
    typedef typename Vec<T>::Native Native;
    typedef typename E::Int Ints __attribute__((vector_size(VEC_BYTES)));
    Vec<T> v;
    EACH_PART_OF(Vec<T>) {
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
        bits = (bits << E::mantissa) + (typename E::Int(E::bias) << E::mantissa);  // 2^n
        Native power;
        memcpy(&power, &bits, sizeof power);
        const Native result = sum * power;
        v.part[i] = x.part[i] < low ? Native{} : result;
        v.part[i] = x.part[i] > high ? Native{} + T(__builtin_inf()) : v.part[i];
    }
    return v;
}

}  // namespace ISA
