// Checks arrays, releases the GIL and spreads the kernels' work over the threads.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "kernels.h"
#include "threads.h"
#include "tiles.h"
#include "without_gil.h"

namespace py = pybind11;

namespace {

template <class T>
const Kernels<T>& kernels() {
    return instruction_set().kernels<T>();
}

std::string text(py::handle object) { return py::str(object).cast<std::string>(); }

std::string shape_text(const py::array& a) { return text(a.attr("shape")); }

py::array as_array(const char* name, py::handle object) {
    if (py::isinstance<py::array>(object)) return py::reinterpret_borrow<py::array>(object);
    auto a = py::array::ensure(object);
    if (!a) throw py::type_error(std::string(name) + ": got what is no array");
    return a;
}

bool is_float32(const char* name, const py::array& a) {
    if (py::isinstance<py::array_t<float>>(a)) return true;
    if (py::isinstance<py::array_t<double>>(a)) return false;
    throw py::type_error(std::string(name) + ": got dtype " + text(a.dtype()) +
                         ", float32 or float64 was wanted");
}

// The array itself where it is contiguous and aligned, else a copy.
template <class T>
py::array_t<T> contiguous(const char* name, const py::array& a) {
    if (!py::isinstance<py::array_t<T>>(a))
        throw py::type_error(std::string(name) + ": got dtype " + text(a.dtype()) + ", " +
                             text(py::dtype::of<T>()) + " as in the first argument was wanted");
    constexpr int aligned = py::detail::npy_api::NPY_ARRAY_ALIGNED_;
    constexpr int as_it_is = aligned | py::array::c_style;
    if ((a.flags() & as_it_is) == as_it_is) return py::reinterpret_borrow<py::array_t<T>>(a);
    return or_sleep([&]() -> py::array_t<T> {
        if (!(a.flags() & aligned)) return a.attr("copy")("C");
        return py::array_t<T, py::array::c_style>::ensure(a);
    });
}

template <class T>
py::array_t<T> like(const py::array& a) {
    return py::array_t<T>(std::vector<py::ssize_t>(a.shape(), a.shape() + a.ndim()));
}

void check_vector(const char* name, const py::array& a, int64_t size) {
    if (a.ndim() != 1 || a.shape(0) != size)
        throw py::value_error(std::string(name) + ": got shape " + shape_text(a) + ", [" +
                              std::to_string(size) + "] was wanted");
}

void check_dimensions(const char* name, const py::array& a, int low, int high) {
    if (a.ndim() < low || a.ndim() > high)
        throw py::value_error(std::string(name) + ": got " + std::to_string(a.ndim()) +
                              " dimensions, " + std::to_string(low) +
                              (low == high ? "" : " or " + std::to_string(high)) + " was wanted");
}

template <class T>
[[noreturn]] void throw_no_distribution(const T* row, int64_t V) {
    for (int64_t i = 0; i < V; i++)
        if (!(row[i] < T(__builtin_inf())))
            throw py::value_error("logits: " + std::string(row[i] > 0 ? "inf" : "nan") + " at id " +
                                  std::to_string(i) + ", finite or -inf was wanted");
    throw py::value_error("logits: all are -inf, at least one finite was wanted");
}

// Calls row(logits, probs) -> bool for each row of [V] or [n, V]
template <class T, class Row>
py::array over_rows(const py::array& input, Row row) {
    check_dimensions("logits", input, 1, 2);
    const auto x = contiguous<T>("logits", input);
    auto y = like<T>(input);
    const int64_t V = x.shape(x.ndim() - 1), n = x.ndim() == 2 ? x.shape(0) : 1;
    const T* logits = x.data();
    T* probs = y.mutable_data();
    std::vector<char> sound(n);
    {
        const WithoutGil released;
        parallel_for(n, chunks_for(n * V), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++)
                sound[i] = V > 0 && row(logits + i * V, V, probs + i * V);
        });
    }
    for (int64_t i = 0; i < n; i++)
        if (!sound[i]) throw_no_distribution(logits + i * V, V);
    return y;
}

template <class T>
py::array softmax(const py::array& logits) {
    return over_rows<T>(logits, kernels<T>().softmax);
}

template <class T>
py::array sampling_filter(const py::array& logits, const Filter& f) {
    return over_rows<T>(logits, [&](const T* x, int64_t V, T* probs) {
        thread_local std::vector<double> scratch;
        thread_local std::vector<FilterEntry> entries;
        if (int64_t(entries.size()) < V) {
            scratch.resize(3 * V);
            entries.resize(V);
        }
        return kernels<T>().filter(x, V, f, scratch.data(), entries.data(), probs);
    });
}

void check_filter(const Filter& f) {
    const auto refuse = [](const char* name, const std::string& got, const char* wanted) {
        throw py::value_error(std::string(name) + ": got " + got + ", " + wanted + " was wanted");
    };
    if (!(f.temperature >= 0 && f.temperature < __builtin_inf()))
        refuse("temperature", text(py::float_(f.temperature)), "a finite number of at least 0");
    if (f.top_k < 0) refuse("top_k", std::to_string(f.top_k), "a number of at least 0");
    if (!(f.top_p > 0 && f.top_p <= 1))
        refuse("top_p", text(py::float_(f.top_p)), "a number above 0 and at most 1");
    if (!(f.epsilon >= 0 && f.epsilon < 1))
        refuse("epsilon", text(py::float_(f.epsilon)), "a number of at least 0 and below 1");
}

template <class T>
using Elementwise = void (*)(const T*, int64_t, T*);

template <class T>
Elementwise<T> activation_of(const py::object& name) {
    if (name.is_none()) return nullptr;
    const std::string wanted = text(name);
    if (wanted == "gelu") return kernels<T>().gelu;
    if (wanted == "gelu_erf") return kernels<T>().gelu_erf;
    if (wanted == "relu") return kernels<T>().relu;
    if (wanted == "silu") return kernels<T>().silu;
    throw py::value_error("activation: got " + wanted +
                          ", gelu, gelu_erf, relu or silu was wanted");
}

// y [n, d]: each row of x to mean 0 and variance 1, times weight plus bias
template <class T>
void layer_norm_rows(const T* x, int64_t n, int64_t d, const T* weight, const T* bias, T epsilon,
                     T* y) {
    parallel_for(n, chunks_for(n * d), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++)
            kernels<T>().layer_norm(x + i * d, d, weight, bias, epsilon, y + i * d);
    });
}

// What Python gives `linear` beside the weight
struct Around {
    const py::object &bias, &norm, &activation, &added;
};

// What x [n, n_in] and a weight of n_out columns are multiplied into, and what goes on before and
// after
template <class T>
struct LinearArguments {
    py::array_t<T> x, bias, norm_weight, norm_bias, added;
    T epsilon = 0;
    Elementwise<T> activation;
    int64_t n, n_in, n_out, panels;

    LinearArguments(const py::array& x_in, int64_t n_in, int64_t n_out, const Around& around)
        : activation(activation_of<T>(around.activation)),
          n_in(n_in),
          n_out(n_out),
          panels((n_out + lanes - 1) / lanes) {
        check_dimensions("x", x_in, 2, 2);
        x = contiguous<T>("x", x_in);
        n = x.shape(0);
        if (x.shape(1) != n_in)
            throw py::value_error("x: got shape " + shape_text(x) + ", [n, " +
                                  std::to_string(n_in) + "] was wanted");
        if (!around.bias.is_none()) bias = vector("bias", around.bias, n_out);
        if (!around.norm.is_none()) {
            const auto [weight, shift, eps] = norm_parts(around.norm);
            norm_weight = vector("norm's weight", weight, n_in);
            norm_bias = vector("norm's bias", shift, n_in);
            epsilon = T(eps);
        }
        if (!around.added.is_none()) {
            added = contiguous<T>("added", as_array("added", around.added));
            if (added.ndim() != 2 || added.shape(0) != n || added.shape(1) != n_out)
                throw py::value_error("added: got shape " + shape_text(added) + ", [" +
                                      std::to_string(n) + ", " + std::to_string(n_out) +
                                      "] was wanted");
        }
    }
    static py::array_t<T> vector(const char* name, const py::object& object, int64_t size) {
        auto a = contiguous<T>(name, as_array(name, object));
        check_vector(name, a, size);
        return a;
    }
    static std::tuple<py::object, py::object, double> norm_parts(const py::object& norm) {
        try {
            return norm.cast<std::tuple<py::object, py::object, double>>();
        } catch (const py::cast_error&) {
            throw py::type_error("norm: got " + text(norm) +
                                 ", (weight, bias, epsilon) was wanted");
        }
    }
    const T* bias_data() const { return bias.size() ? bias.data() : nullptr; }

    // What is multiplied: x, or its layer norm, which is put into `room`
    const T* rows(std::vector<T>& room) const {
        if (!norm_weight.size()) return x.data();
        room.resize(n * n_in);
        layer_norm_rows(x.data(), n, n_in, norm_weight.data(), norm_bias.data(), epsilon,
                        room.data());
        return room.data();
    }
    // What follows the product, on the panels begin .. end of y, while they are in the cache
    void finish(T* y, int64_t begin, int64_t end) const {
        const int64_t first = begin * lanes, m = std::min(end * lanes, n_out) - first;
        for (int64_t i = 0; i < n; i++) {
            T* part = y + i * n_out + first;
            if (activation) activation(part, m, part);
            if (!added.size()) continue;
            const T* more = added.data() + i * n_out + first;
            for (int64_t j = 0; j < m; j++) part[j] += more[j];
        }
    }
};

// The array that holds a part of a weight, of the shape that belongs to the weight's size
template <class E>
py::array_t<E> part(const char* name, const py::object& object, std::vector<int64_t> shape) {
    const py::array a = as_array(name, object);
    const bool fits = a.ndim() == int64_t(shape.size()) &&
                      std::equal(shape.begin(), shape.end(), a.shape());
    if (!fits) {
        std::string wanted;
        for (int64_t size : shape) wanted += (wanted.empty() ? "" : ", ") + std::to_string(size);
        throw py::value_error(std::string(name) + ": got shape " + shape_text(a) + ", [" + wanted +
                              "] was wanted");
    }
    return contiguous<E>(name, a);
}

// `kernel` is one of those over panels; E is the type of the array that holds the W.
template <class T, class W, class E>
py::array linear(const py::array& x_in, const py::object& panels_in, int64_t n_in, int64_t n_out,
                 const Around& around,
                 void (*kernel)(const Linear<T, W>&, int64_t, int64_t)) {
    const LinearArguments<T> given(x_in, n_in, n_out, around);
    const auto panels = part<E>("panels", panels_in, {given.panels, n_in, lanes});
    Linear<T, W> a = {};
    a.n = given.n, a.n_in = n_in, a.n_out = n_out, a.bias = given.bias_data();
    a.panels = reinterpret_cast<const W*>(panels.data());
    py::array_t<T> y({given.n, n_out});
    a.y = y.mutable_data();
    const WithoutGil released;
    std::vector<T> normed;
    const std::vector<T> tiles = in_tiles(given.rows(normed), a.n, a.n_in, kernels<T>().tall);
    a.tiles = tiles.data();
    parallel_for(given.panels, chunks_for(a.n * a.n_in * n_out), [&](int64_t begin, int64_t end) {
        kernel(a, begin, end);
        given.finish(a.y, begin, end);
    });
    return y;
}

py::array group_linear(const py::array& x_in, const py::object& panels_in,
                       const py::object& scales_in, int64_t n_in, int64_t n_out,
                       const Around& around, int64_t steps,
                       void (*kernel)(const GroupLinear&, int64_t, int64_t)) {
    const LinearArguments<float> given(x_in, n_in, n_out, around);
    GroupLinear a = {};
    a.n = given.n, a.groups = (n_in + group - 1) / group, a.n_out = n_out;
    a.bias = given.bias_data();
    const auto panels =
        part<uint8_t>("panels", panels_in, {given.panels, a.groups, steps, lanes, 4});
    const auto scales = part<uint16_t>("scales", scales_in, {given.panels, a.groups, lanes});
    a.panels = panels.data(), a.scales = reinterpret_cast<const Brain*>(scales.data());
    py::array_t<float> y({given.n, n_out});
    a.y = y.mutable_data();
    const WithoutGil released;
    std::vector<float> normed;
    const Rounded x(given.rows(normed), a.n, n_in, instruction_set().groups);
    a.x = x.quads.data(), a.x_scales = x.scales.data(), a.x_sums = x.sums.data();
    parallel_for(given.panels, chunks_for(a.n * n_in * n_out), [&](int64_t begin, int64_t end) {
        kernel(a, begin, end);
        given.finish(a.y, begin, end);
    });
    return y;
}

// A weight is its storage type and the arrays of `packing.py`; only whole numbers have scales.
py::array linear_by_dtype(const py::array& x, const std::string& dtype, const py::object& panels,
                          const py::object& scales, int64_t n_in, int64_t n_out,
                          const py::object& bias, const py::object& norm,
                          const py::object& activation, const py::object& added) {
    const InstructionSet& set = instruction_set();
    const Around around = {bias, norm, activation, added};
    constexpr int64_t most = int64_t(1) << 40;  // so that no size overflows
    if (n_in < 0 || n_out < 0 || n_in > most || n_out > most)
        throw py::value_error("weight: got n_in " + std::to_string(n_in) + " and n_out " +
                              std::to_string(n_out) + ", 0 to 2**40 was wanted");
    if (is_float32("x", x) == (dtype == "float64"))
        throw py::type_error("x: got dtype " + text(x.dtype()) + ", " +
                             (dtype == "float64" ? dtype : "float32") +
                             " was wanted for a weight in " + dtype);
    if (dtype == "float64")
        return linear<double, double, double>(x, panels, n_in, n_out, around, set.f64.linear);
    if (dtype == "float32")
        return linear<float, float, float>(x, panels, n_in, n_out, around, set.f32.linear);
    if (dtype == "float16")
        return linear<float, Half, uint16_t>(x, panels, n_in, n_out, around, set.halves.float16);
    if (dtype == "bfloat16")
        return linear<float, Brain, uint16_t>(x, panels, n_in, n_out, around, set.halves.bfloat16);
    if (dtype == "int8")
        return group_linear(x, panels, scales, n_in, n_out, around, quads, set.groups.int8);
    if (dtype == "int4")
        return group_linear(x, panels, scales, n_in, n_out, around, quads / 2, set.groups.int4);
    throw py::value_error("weight: got dtype " + dtype + ", which has no kernel");
}

template <class T>
py::array attention(const py::array& q_in, const py::list& page_list, int64_t layer, int64_t start,
                    double scale) {
    check_dimensions("q", q_in, 3, 3);
    py::array_t<T> q = py::reinterpret_borrow<py::array_t<T>>(q_in);
    constexpr int64_t size = sizeof(T);
    const bool aligned = q.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_;
    if (!aligned || (q.shape(2) > 1 && q.strides(2) != size)) q = contiguous<T>("q", q_in);
    if (q.strides(0) % size || q.strides(1) % size) q = contiguous<T>("q", q_in);
    Attention<T> a = {};
    a.q = q.data(), a.q_row = q.strides(0) / size, a.q_head = q.strides(1) / size;
    a.n = q.shape(0), a.heads = q.shape(1), a.head_dim = q.shape(2);
    a.start = start, a.scale = T(scale);

    std::vector<const T*> keys;
    std::vector<int64_t> ends;
    std::vector<py::array_t<T>> held;
    int64_t positions = 0;
    for (const py::handle& item : page_list) {
        held.push_back(contiguous<T>("pages", as_array("pages", item)));
        const auto& page = held.back();
        if (page.ndim() != 5 || page.shape(1) != 2 || page.shape(2) != a.heads ||
            page.shape(4) != a.head_dim)
            throw py::value_error("pages: got shape " + shape_text(page) + ", [n_layer, 2, " +
                                  std::to_string(a.heads) + ", page, " +
                                  std::to_string(a.head_dim) + "] was wanted");
        if (layer < 0 || layer >= page.shape(0))
            throw py::value_error("layer: got " + std::to_string(layer) + ", 0 to " +
                                  std::to_string(page.shape(0) - 1) + " was wanted");
        positions += page.shape(3);
        keys.push_back(page.data() + layer * 2 * page.shape(3) * a.heads * a.head_dim);
        ends.push_back(positions);
    }
    // written so that no sum can overflow, whatever the caller passes
    if (start < 0 || a.n == 0 || a.n > positions || start > positions - a.n)
        throw py::value_error("start: got " + std::to_string(start) + " with " +
                              std::to_string(a.n) + " queries, pages of " +
                              std::to_string(positions) + " positions were given");
    a.keys = keys.data(), a.page_ends = ends.data(), a.pages = int64_t(keys.size());
    py::array_t<T> out({a.n, a.heads, a.head_dim});
    a.out = out.mutable_data();
    const int64_t visible = start + a.n, pairs = a.n * a.heads;
    // Queries that share the read of keys and values; fewer where that leaves a thread without any
    const int64_t share = std::clamp<int64_t>(pairs / (2 * num_threads()), 1, 16);
    const int64_t tiles = (a.n + share - 1) / share;
    const int64_t bytes = 2 * size * pairs * visible * a.head_dim;  // of keys and values
    const WithoutGil released;
    parallel_for(a.heads * tiles, chunks_for(bytes),
                 [&](int64_t begin, int64_t end) {
        thread_local std::vector<T> scratch;
        const size_t room = a.scratch(share);
        if (scratch.size() < room) scratch.resize(room);
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = i % tiles * share, last = std::min(first + share, a.n);
            kernels<T>().attention(a, i / tiles, first, last, scratch.data());
        }
    });
    return out;
}

template <class T>
py::array layer_norm(const py::array& x_in, const py::array& weight_in, const py::array& bias_in,
                     double epsilon) {
    check_dimensions("x", x_in, 2, 2);
    const auto x = contiguous<T>("x", x_in);
    const auto weight = contiguous<T>("weight", weight_in), bias = contiguous<T>("bias", bias_in);
    const int64_t n = x.shape(0), d = x.shape(1);
    check_vector("weight", weight, d);
    check_vector("bias", bias, d);
    auto y = like<T>(x);
    T* out = y.mutable_data();
    const WithoutGil released;
    layer_norm_rows(x.data(), n, d, weight.data(), bias.data(), T(epsilon), out);
    return y;
}

// An activation: each number by itself
template <class T>
py::array elementwise(const py::array& x_in, Elementwise<T> kernel) {
    const auto x = contiguous<T>("x", x_in);
    auto y = like<T>(x);
    T* out = y.mutable_data();
    const WithoutGil released;
    parallel_for(x.size(), chunks_for(x.size()), [&](int64_t begin, int64_t end) {
        kernel(x.data() + begin, end - begin, out + begin);
    });
    return y;
}

template <class T>
py::tuple residual(const py::array& p_in, const py::array& q_in, double scale) {
    check_dimensions("p", p_in, 1, 1);
    const auto p = contiguous<T>("p", p_in), q = contiguous<T>("q", q_in);
    check_vector("q", q, p.size());
    py::array_t<double> left(p.size());
    double *out = left.mutable_data(), mass;
    {
        const WithoutGil released;
        mass = kernels<T>().residual(p.data(), q.data(), scale, p.size(), out);
    }
    return py::make_tuple(left, mass);
}

template <class T>
double total(const py::array& x_in) {
    const auto x = contiguous<T>("x", x_in);
    constexpr int64_t run = 1 << 18;  // each sums a run of fixed size: the same total always
    const int64_t runs = (x.size() + run - 1) / run;
    std::vector<double> sums(runs);
    {
        const WithoutGil released;
        parallel_for(runs, chunks_for(x.size()), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                const int64_t left = x.size() - i * run;
                sums[i] = kernels<T>().total(x.data() + i * run, left < run ? left : run);
            }
        });
    }
    double sum = 0;
    for (double s : sums) sum += s;
    return sum;
}

// f(T()) with T float or double, as the first argument's dtype says.
template <class F>
auto by_dtype(const char* name, const py::array& x, F f) {
    return is_float32(name, x) ? f(float()) : f(double());
}

}  // namespace

PYBIND11_MODULE(_native, m) {
    using py::arg;
    instruction_set();  // chosen now: a fork while it is chosen would find it locked in the child
    m.doc() = "The compiled kernels; minidecode.kernels.reference is their specification.";
    m.def("softmax",
          [](const py::array& logits) {
              return by_dtype("logits", logits, [&]<class T>(T) { return softmax<T>(logits); });
          },
          arg("logits"));
    m.def("sampling_filter",
          [](const py::array& logits, double temperature, int64_t top_k, double top_p,
             double epsilon) {
              const Filter f = {temperature, top_k, top_p, epsilon};
              is_float32("logits", logits);
              check_filter(f);
              return by_dtype("logits", logits,
                              [&]<class T>(T) { return sampling_filter<T>(logits, f); });
          },
          arg("logits"), arg("temperature"), arg("top_k"), arg("top_p"), arg("epsilon"));
    m.def("linear", &linear_by_dtype, arg("x"), arg("dtype"), arg("panels"), arg("scales"),
          arg("n_in"), arg("n_out"), arg("bias"), arg("norm"), arg("activation"), arg("added"));
    m.def("attention",
          [](const py::array& q, const py::list& pages, int64_t layer, int64_t start,
             double scale) {
              return by_dtype("q", q, [&]<class T>(T) {
                  return attention<T>(q, pages, layer, start, scale);
              });
          },
          arg("q"), arg("pages"), arg("layer"), arg("start"), arg("scale"));
    m.def("layer_norm",
          [](const py::array& x, const py::array& weight, const py::array& bias, double epsilon) {
              return by_dtype("x", x, [&]<class T>(T) {
                  return layer_norm<T>(x, weight, bias, epsilon);
              });
          },
          arg("x"), arg("weight"), arg("bias"), arg("epsilon"));
    m.def("gelu",
          [](const py::array& x) {
              return by_dtype("x", x, [&]<class T>(T) {
                  return elementwise<T>(x, kernels<T>().gelu);
              });
          },
          arg("x"));
    m.def("gelu_erf",
          [](const py::array& x) {
              return by_dtype("x", x, [&]<class T>(T) {
                  return elementwise<T>(x, kernels<T>().gelu_erf);
              });
          },
          arg("x"));
    m.def("relu",
          [](const py::array& x) {
              return by_dtype("x", x, [&]<class T>(T) {
                  return elementwise<T>(x, kernels<T>().relu);
              });
          },
          arg("x"));
    m.def("silu",
          [](const py::array& x) {
              return by_dtype("x", x, [&]<class T>(T) {
                  return elementwise<T>(x, kernels<T>().silu);
              });
          },
          arg("x"));
    m.def("residual",
          [](const py::array& p, const py::array& q, double scale) {
              return by_dtype("p", p, [&]<class T>(T) { return residual<T>(p, q, scale); });
          },
          arg("p"), arg("q"), arg("scale") = 1.0);
    m.def("total",
          [](const py::array& x) {
              return by_dtype("x", x, [&]<class T>(T) { return total<T>(x); });
          },
          arg("x"));
    m.def("num_threads", &num_threads);
    m.def("set_num_threads", &set_num_threads, arg("n"));
    m.def("instruction_set", [] { return instruction_set().name; });
    m.def("instruction_sets", [] {
        py::list names;
        for (const InstructionSet& set : instruction_sets()) names.append(set.name);
        return names;
    });
}
