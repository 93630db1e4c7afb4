// Layer norm of one row, GELU, and the plain sum that memory is timed with.

namespace ISA {

template <class T>
void layer_norm_row(const T* x, int64_t d, const T* weight, const T* bias, T epsilon, T* y) {
    Vec<T> sum = Vec<T>::broadcast(0);
    for (int64_t i = 0; i < d; i += 16) sum = sum + Vec<T>::load(x + i, d - i, 0);
    const T mean = sum.sum() / T(d);
    const Vec<T> centre = Vec<T>::broadcast(mean);
    Vec<T> squares = Vec<T>::broadcast(0);
    for (int64_t i = 0; i < d; i += 16) {
        const Vec<T> c = Vec<T>::load(x + i, d - i, mean) - centre;
        squares.add_product(c, c);
    }
    const T deviation = T(__builtin_sqrt(squares.sum() / T(d) + epsilon));
    const Vec<T> scale = Vec<T>::broadcast(T(1) / deviation);
    for (int64_t i = 0; i < d; i += 16) {
        Vec<T> out = Vec<T>::load(bias + i, d - i, 0);
        const Vec<T> c = Vec<T>::load(x + i, d - i, mean) - centre;
        out.add_product(c * scale, Vec<T>::load(weight + i, d - i, 0));
        out.store(y + i, d - i);
    }
}

template <class T>
T total_of(const T* x, int64_t size) {
    constexpr int streams = 8;  // running sums, so that no addition waits for the one before it
    Vec<T> sum[streams];
    for (int s = 0; s < streams; s++) sum[s] = Vec<T>::broadcast(0);
    int64_t i = 0;
    for (; i + 16 * streams <= size; i += 16 * streams)
        for (int s = 0; s < streams; s++) sum[s] = sum[s] + Vec<T>::load(x + i + 16 * s);
    for (; i < size; i += 16) sum[0] = sum[0] + Vec<T>::load(x + i, size - i, 0);
    for (int s = 1; s < streams; s++) sum[0] = sum[0] + sum[s];
    return sum[0].sum();
}

// x (1 + tanh u) / 2 = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
template <class T>
void gelu_range(const T* x, int64_t size, T* y) {
    const Vec<T> one = Vec<T>::broadcast(1);
    const Vec<T> a = Vec<T>::broadcast(T(-2 * 0.79788456080286535588));
    const Vec<T> b = Vec<T>::broadcast(T(-2 * 0.79788456080286535588 * 0.044715));
    for (int64_t i = 0; i < size; i += 16) {
        const Vec<T> v = Vec<T>::load(x + i, size - i, 0);
        const Vec<T> u = v * (a + b * (v * v));
        (v / (one + exp(u))).store(y + i, size - i);
    }
}

}  // namespace ISA
