"""Every kernel against its twin and arithmetic by hand: shapes, strides, dtypes, limits."""

import hashlib
import inspect
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minidecode.kernels import pack, packing, reference

try:
    from minidecode.kernels import native
except ImportError:
    native = None

compiled = pytest.mark.skipif(native is None, reason="the compiled kernels are not built")
BOTH = [pytest.param(reference, id="numpy"), pytest.param(native, id="native", marks=compiled)]
both = pytest.mark.parametrize("kernels", BOTH)
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

SIZES = (1, 2, 15, 16, 17, 255, 257, 1023, 1025, 4096, 50_257, 70_000)
LAYOUTS = ("plain", "reversed", "strided", "transposed", "broadcast", "unaligned", "read-only")
FLOATS = (np.float32, np.float64)


def search(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True)


def laid_out(x, layout):
    """`x` in another place of memory; "broadcast" repeats its first row with a stride of 0."""
    if layout == "reversed":
        backwards = (slice(None, None, -1),) * x.ndim
        return x[backwards].copy()[backwards]
    if layout == "strided":
        spread = np.full([3 * size for size in x.shape], np.nan, x.dtype)
        spread[(slice(1, None, 3),) * x.ndim] = x
        return spread[(slice(1, None, 3),) * x.ndim]
    if layout == "transposed":
        return x.T.copy().T
    if layout == "broadcast":
        return np.broadcast_to(x[:1], x.shape)
    if layout == "unaligned":
        y = np.ndarray(x.shape, x.dtype, bytearray(x.nbytes + 1), offset=1)
        y[...] = x
        return y
    x = x.copy()
    x.flags.writeable = layout != "read-only"
    return x


@st.composite
def logits(draw, most=70_000, rows=False):
    """Logits [V] or [n, V]: wide or narrow, with ties and -inf, never without a finite one."""
    V = draw(st.integers(1, 40) | st.sampled_from([size for size in SIZES if size <= most]))
    n = draw(st.integers(0, 3)) if rows and V < 5000 else None
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal(V if n is None else (n, V)) * draw(st.sampled_from([0, 0.01, 3, 50]))
    if draw(st.booleans()):
        x = np.round(x * 2) / 2  # many ties
    layout = draw(st.sampled_from(LAYOUTS))
    if draw(st.booleans()):
        x = np.where(rng.random(x.shape) < draw(st.sampled_from([0.1, 0.9])), -np.inf, x)
        x[..., 0 if layout == "broadcast" else rng.integers(V)] = rng.standard_normal()
    return laid_out(x.astype(draw(st.sampled_from(FLOATS))), layout)


# Softmax


@both
@search(120)
@given(x=logits(rows=True))
def test_softmax_is_the_exponential_over_its_sum(kernels, x):
    before = x.copy()
    probs = kernels.softmax(x)
    wide = x.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
    single = x.dtype == np.float32
    right = weights / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        probs, right, rtol=3e-5 if single else 1e-12, atol=2e-38 if single else 1e-300
    )
    np.testing.assert_allclose(probs.sum(axis=-1, dtype=np.float64), 1, atol=1e-5)
    assert probs.dtype == x.dtype and probs.shape == x.shape
    assert (probs[x == -np.inf] == 0).all()
    assert np.array_equal(x, before)


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("x", "right"),
    [
        ([1000, 1000], [0.5, 0.5]),
        ([-1000, -1000], [0.5, 0.5]),
        ([90, 2, -2], [1, 0, 0]),
        ([378.1, -249.9, -424.1], [1, 0, 0]),
        ([3e38, -3e38], [1, 0]),
        ([-np.inf, -np.inf, 0, -np.inf], [0, 0, 1, 0]),
        ([7], [1]),
    ],
)
def test_softmax_neither_overflows_nor_warns(kernels, dtype, x, right):
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        assert kernels.softmax(np.array(x, dtype)) == pytest.approx(right, abs=1e-37)


@both
def test_the_widest_float64_logits_overflow_in_silence(kernels):
    x = np.array([1.7e308, -1.7e308])
    assert kernels.softmax(x).tolist() == [1, 0]
    assert kernels.sampling_filter(x).tolist() == [1, 0]


NO_DISTRIBUTIONS = [
    [-np.inf] * 4,
    [0, np.nan, 1],
    [np.nan] * 17,
    [np.inf, 0],
    [-np.inf, np.nan],
    [np.inf] * 2,
    [],
    [[0, 1], [-np.inf, -np.inf]],
    [[0, 1], [np.nan, 1]],
    [[], []],
]


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("x", NO_DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("name", ["softmax", "sampling_filter"])
def test_what_is_no_distribution_is_refused(kernels, name, x, dtype):
    with pytest.raises(ValueError):
        getattr(kernels, name)(np.array(x, dtype))


@compiled
@pytest.mark.parametrize("x", NO_DISTRIBUTIONS[:6], ids=str)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"top_k": 1}, {"top_p": 0.5}])
def test_twins_refuse_in_the_same_words(x, settings):
    def words(kernels):
        with pytest.raises(ValueError) as caught:
            kernels.sampling_filter(np.array(x), **settings)
        return str(caught.value)

    assert words(native) == words(reference)


# The sampling filter


def filter_by_hand(x, temperature, top_k, top_p, epsilon):
    """The distributions [V] that may come out, in float64: more than one only at a limit.

    A running mass, or a share, within rounding of its limit may fall on either side of it.
    """
    wide = x.astype(np.float64)
    if temperature == 0:
        return [np.eye(1, len(x), np.argmax(wide))[0]]
    with np.errstate(over="ignore"):
        keys = (wide.max() - wide) / temperature
    order = np.lexsort((np.arange(len(x)), keys))
    weights = np.exp(-keys[order].astype(np.longdouble))
    if top_k:
        weights = weights[:top_k]
    counts = {len(weights)}
    if top_p < 1:
        mass = np.cumsum(weights)
        limits = top_p * mass[-1] * np.array([1 - 1e-11, 1 + 1e-11], np.longdouble)
        low, high = np.searchsorted(mass, limits)
        counts = range(low + 1, min(high + 1, len(mass)) + 1)
    if epsilon > 0:
        counts = {
            max(1, kept)
            for count in counts
            for limit in (epsilon * (1 - 1e-11), epsilon * (1 + 1e-11))
            for kept in [int((weights[:count] / weights[:count].sum() >= limit).sum())]
        }
    results = []
    for count in counts:
        probs = np.zeros(len(x))
        probs[order[:count]] = weights[:count] / weights[:count].sum()
        results.append(probs)
    return results


def is_one_of(probs, candidates):
    single = probs.dtype == np.float32
    rtol, atol = (1e-6, 1e-44) if single else (1e-11, 1e-300)
    return any(
        np.allclose(probs, right, rtol=rtol, atol=atol) and not probs[right == 0].any()
        for right in candidates
    )


temperatures = st.sampled_from([1.0, 0.0, 0.3, 2.5, 1e-4, 2.0**-126, 5e-324, 1e300])
top_ks = st.sampled_from([0, 0, 1, 2, 5, 50, 1000, 10**6, 2**62])
top_ps = st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.25, 0.999999, 1e-8, 5e-324]) | st.floats(
    0, 1, exclude_min=True
)
epsilons = st.sampled_from([0.0, 0.0, 3e-4, 0.02, 0.25, 0.999999]) | st.floats(
    0, 1, exclude_max=True
)


@both
@search(300)
@given(x=logits(), t=temperatures, k=top_ks, p=top_ps, e=epsilons)
@example(x=np.zeros(4), t=1.0, k=0, p=0.5, e=0.0)
def test_filter_keeps_what_the_settings_say(kernels, x, t, k, p, e):
    before = x.copy()
    probs = kernels.sampling_filter(x, t, k, p, e)
    assert is_one_of(probs, filter_by_hand(x, t, k, p, e))
    assert abs(probs.sum(dtype=np.float64) - 1) < 1e-6
    assert probs.dtype == x.dtype and probs.shape == x.shape
    assert np.array_equal(x, before)


@compiled
@search(150)
@given(x=logits(), t=temperatures, k=top_ks, p=top_ps, e=epsilons)
def test_filter_twins_agree(x, t, k, p, e):
    if len(filter_by_hand(x, t, k, p, e)) == 1:
        ours = native.sampling_filter(x, t, k, p, e)
        assert is_one_of(ours, [reference.sampling_filter(x, t, k, p, e)])


@both
@search(40)
@given(x=logits(most=1025, rows=True), t=temperatures, k=top_ks, p=top_ps, e=epsilons)
def test_filter_takes_each_row_alone(kernels, x, t, k, p, e):
    probs = kernels.sampling_filter(x, t, k, p, e)
    assert probs.shape == x.shape
    for row, alone in zip(np.atleast_2d(probs), np.atleast_2d(x)):
        assert row.tolist() == kernels.sampling_filter(alone, t, k, p, e).tolist()


def kept(kernels, x, **settings):
    return np.flatnonzero(kernels.sampling_filter(np.array(x, np.float32), **settings)).tolist()


@both
@search(100)
@given(x=logits(), k=st.integers(1, 80_000))
def test_top_k_keeps_exactly_k_with_ties_to_the_lower_id(kernels, x, k):
    probs = kernels.sampling_filter(x, 1000.0, k)  # so warm that nothing finite rounds to 0
    order = np.lexsort((np.arange(len(x)), -x.astype(np.float64)))
    right = [i for i in order[:k] if x[i] > -np.inf]
    assert np.flatnonzero(probs).tolist() == sorted(right)


@both
def test_top_k_cuts_ties(kernels):
    assert kept(kernels, [1, 2, 2, 2, 3], top_k=3) == [1, 2, 4]
    assert kept(kernels, [5, 5, 0], top_k=1) == [0]
    assert [kept(kernels, [0.2, 1.5, -1, 0.7], top_k=k) for k in (1, 2, 3)] == [
        [1],
        [1, 3],
        [0, 1, 3],
    ]


@both
@pytest.mark.parametrize("k", [5, 6, 10**6, 2**63 - 1, 0])
def test_top_k_of_the_vocabulary_or_more_changes_nothing(kernels, k):
    x = np.arange(5.0)
    assert kernels.sampling_filter(x, 1.0, k).tolist() == kernels.sampling_filter(x).tolist()


@both
@pytest.mark.parametrize(("top_p", "count"), [(0.25, 1), (0.5, 2), (0.75, 3), (1.0, 4)])
def test_top_p_stops_where_the_mass_reaches_it(kernels, top_p, count):
    assert kept(kernels, [0, 0, 0, 0], top_p=top_p) == list(range(count))


@both
@pytest.mark.parametrize(
    ("probs", "top_p", "right"),
    [
        ([0.5, 0.41, 0.09], 0.9, [0, 1]),
        ([0.5, 0.3, 0.15, 0.05], 0.6, [0, 1]),
        ([0.5, 0.3, 0.15, 0.05], 0.85, [0, 1, 2]),
        ([0.1, 0.2, 0.7], 0.8, [1, 2]),
        ([0.5, 0.25, 0.125, 0.125], 1e-300, [0]),
    ],
)
def test_top_p_keeps_the_token_that_crosses_it(kernels, probs, top_p, right):
    probs = np.array(probs)
    out = kernels.sampling_filter(np.log(probs), top_p=top_p)
    assert np.flatnonzero(out).tolist() == right
    assert out[right] == pytest.approx(probs[right] / probs[right].sum(), rel=1e-14)


@both
@pytest.mark.parametrize(
    ("probs", "epsilon", "right"),
    [
        ([0.19, 0.18, 0.17, 0.16, 0.15, 0.15], 0.2, [1, 0, 0, 0, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], 0.1, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ([0.25] * 4, 0.25, [0.25] * 4),  # equal to epsilon is not below it
        ([0.5, 0.5], 0.0, [0.5, 0.5]),
    ],
)
def test_epsilon_drops_what_is_below_it_but_never_all(kernels, probs, epsilon, right):
    out = kernels.sampling_filter(np.log(probs), epsilon=epsilon)
    assert out == pytest.approx(right, rel=1e-14)


@both
def test_filters_apply_in_the_order_of_their_arguments(kernels):
    x = np.log([0.5, 0.3, 0.2])
    out = kernels.sampling_filter
    assert out(x, 0.5) == pytest.approx([0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38])
    assert out(x, 2.0) == pytest.approx([0.41544, 0.32180, 0.26275], abs=1e-5)
    assert out(x, 0.5, 0, 0.6).tolist() == [1, 0, 0]  # 0.658 after the temperature
    assert out(np.log([0.4, 0.3, 0.2, 0.1]), 1.0, 2, 0.5).tolist() == [1, 0, 0, 0]  # 0.571
    # 0.2 / 0.9 is not below 0.21 once the third is gone; of the whole, 0.2 would be
    assert out(np.log([0.7, 0.2, 0.1]), 1.0, 2, 1.0, 0.21) == pytest.approx([7 / 9, 2 / 9, 0])


@both
@pytest.mark.parametrize("temperature", [0, 1e-4, 1e-30, 2.0**-126, 5e-324])
@pytest.mark.parametrize("dtype", FLOATS)
def test_tiny_temperature_is_one_hot(kernels, temperature, dtype):
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        x = np.array([2, 4, 3], dtype)
        assert kernels.sampling_filter(x, temperature).tolist() == [0, 1, 0]
        x = np.array([-3e38, 3e38, 0], dtype)
        assert kernels.sampling_filter(x, temperature or 1.0).tolist() == [0, 1, 0]


@both
def test_temperature_0_ignores_the_filters_and_takes_the_lowest_maximum(kernels):
    x = np.array([1, 5, 5, -np.inf], np.float32)
    assert kernels.sampling_filter(x, 0.0, 3, 0.99, 0.001).tolist() == [0, 1, 0, 0]
    assert kernels.sampling_filter(np.array([-0.0, 0.0]), 0.0).tolist() == [1, 0]


@both
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": -0.1},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"epsilon": -0.1},
        {"epsilon": 1.0},
        {"epsilon": math.nan},
    ],
    ids=str,
)
def test_filter_refuses_settings_out_of_range(kernels, settings):
    name = next(iter(settings))
    with pytest.raises(ValueError, match=f"{name}: got .* wanted"):
        kernels.sampling_filter(np.zeros(3), **settings)


# Attention


def attention_by_hand(q, pages, layer, start, scale):
    """One query and head after the other, in float64."""
    keys, values = np.concatenate([page[layer] for page in pages], axis=2).astype(np.float64)
    out = np.empty(q.shape)
    for i, h in np.ndindex(q.shape[:2]):
        scores = keys[h, : start + i + 1] @ q[i, h].astype(np.float64) * scale
        weights = np.exp(scores - scores.max())
        out[i, h] = weights / weights.sum() @ values[h, : start + i + 1]
    return out


@st.composite
def attention_arguments(draw):
    n, h = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    head_dim = draw(st.integers(1, 20) | st.sampled_from([31, 32, 33, 64, 65, 80, 128, 130]))
    start = draw(st.integers(0, 70))
    sizes = draw(st.lists(st.integers(0, 33), max_size=3))
    sizes.append(max(0, start + n - sum(sizes)) + draw(st.integers(0, 3)))
    dtype = draw(st.sampled_from(FLOATS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_layer = draw(st.integers(1, 2))
    shape = (n_layer, 2, h, sum(sizes), head_dim)
    held = rng.standard_normal(shape).astype(dtype) * draw(st.sampled_from([0, 1, 5]))
    held[:, :, :, start + n :] = np.nan  # past the end: never read
    cuts = np.cumsum(sizes)[:-1]
    pages = [
        laid_out(page, draw(st.sampled_from(["plain", "strided", "unaligned", "read-only"])))
        for page in np.split(held, cuts, axis=3)
    ]
    q = rng.standard_normal((n, h, head_dim)).astype(dtype)
    q = laid_out(q, draw(st.sampled_from(LAYOUTS)))
    layer = draw(st.integers(0, n_layer - 1))
    return q, pages, layer, start, draw(st.sampled_from([head_dim**-0.5, 1.0, 0.0]))


def inside_qkv(q):
    """q as it lies beside k and v in one product: rows three times as far apart."""
    qkv = np.full((len(q), 3, *q.shape[1:]), np.nan, q.dtype)
    qkv[:, 0] = q
    return qkv[:, 0]


@both
@search(150)
@given(arguments=attention_arguments())
def test_attention_sees_what_came_before_and_nothing_else(kernels, arguments):
    q, pages, layer, start, scale = arguments
    before = q.copy()
    out = kernels.attention(q, pages, layer, start, scale)
    tolerance = 2e-4 if q.dtype == np.float32 else 1e-11
    right = attention_by_hand(*arguments)
    np.testing.assert_allclose(out, right, rtol=tolerance, atol=tolerance)
    assert out.dtype == q.dtype and out.shape == q.shape
    assert np.array_equal(q, before)
    again = kernels.attention(inside_qkv(q), pages, layer, start, scale)
    np.testing.assert_allclose(again, out, rtol=tolerance, atol=tolerance)


@compiled
@search(60)
@given(arguments=attention_arguments())
def test_attention_of_a_query_is_the_same_bits_alone(arguments):
    q, pages, layer, start, scale = arguments
    together = native.attention(q, pages, layer, start, scale)
    for i in range(len(q)):
        alone = native.attention(q[i : i + 1], pages, layer, start + i, scale)
        assert np.array_equal(alone[0], together[i])


@both
def test_attention_does_not_overflow_the_exponential(kernels):
    q = np.full((1, 1, 2), 100, np.float32)
    pages = [np.array([[[[[100, 100], [99, 100]]], [[[1, 2], [3, 4]]]]] * 1, np.float32)]
    pages = [pages[0].reshape(1, 2, 1, 2, 2)]
    assert kernels.attention(q, pages, 0, 1, 1.0).tolist() == [[[1, 2]]]


# Products


@st.composite
def linear_arguments(draw):
    n, n_in = draw(st.integers(1, 20)), draw(st.integers(1, 70))
    n_out = draw(st.integers(1, 100) | st.sampled_from([160, 257]))
    dtype = draw(st.sampled_from(FLOATS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = laid_out(rng.standard_normal((n, n_in)).astype(dtype), draw(st.sampled_from(LAYOUTS)))
    w = rng.standard_normal((n_in, n_out)).astype(dtype)
    w = laid_out(w, draw(st.sampled_from(LAYOUTS)))
    bias = laid_out(rng.standard_normal(n_out).astype(dtype), draw(st.sampled_from(LAYOUTS)))
    return x, w, draw(st.sampled_from([None, bias]))


@both
@search(150)
@given(arguments=linear_arguments())
def test_linear_is_the_product_plus_bias(kernels, arguments):
    x, w, bias = arguments
    copies = x.copy(), w.copy()
    out = kernels.linear(x, pack(w), bias)
    wide = x.astype(np.float64), w.astype(np.float64)
    right = wide[0] @ wide[1] + (0 if bias is None else bias.astype(np.float64))
    tolerance = 2e-5 if x.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(out, right, rtol=tolerance, atol=tolerance * (1 + x.shape[1]))
    assert out.dtype == x.dtype and out.shape == (len(x), w.shape[1])
    assert np.array_equal(x, copies[0]) and np.array_equal(w, copies[1])


@both
def test_linear_reads_its_weights_as_in_by_out(kernels):
    w = pack(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert kernels.linear(np.array([[1.0, 0.0]]), w).tolist() == [[1, 2]]


@both
@pytest.mark.parametrize("bias", [None, np.zeros(5)])
def test_linear_of_no_rows_is_no_rows(kernels, bias):
    assert kernels.linear(np.zeros((0, 3)), pack(np.zeros((3, 5))), bias).shape == (0, 5)


@compiled
@search(60)
@given(arguments=linear_arguments())
def test_linear_of_a_row_is_the_same_bits_alone(arguments):
    x, w, bias = arguments
    together = native.linear(x, pack(w), bias)
    for i in range(len(x)):
        assert np.array_equal(native.linear(x[i : i + 1], pack(w), bias)[0], together[i])


@search(60)
@given(arguments=linear_arguments(), chunk=st.sampled_from([1, 100, 1 << 22]))
def test_packed_columns_are_those_of_the_matrix(arguments, chunk):
    w = arguments[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_CHUNK", chunk)
        packed = pack(w)
    assert packed.panels.shape == (-(-w.shape[1] // 16), w.shape[0], 16)
    assert packed.panels.dtype == w.dtype and packed.n_in == w.shape[0]
    columns = packed.columns(np.arange(w.shape[1]))
    assert np.array_equal(columns, w.T)
    flat = packed.panels.swapaxes(0, 1).reshape(w.shape[0], 16 * len(packed.panels))
    assert not flat[:, w.shape[1] :].any()


# Elementwise


@st.composite
def rows_of_numbers(draw):
    n, d = draw(st.integers(0, 6)), draw(st.integers(1, 70) | st.sampled_from([768, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((n, d)) * draw(st.sampled_from([0, 1e-3, 1, 8])) + rng.normal()
    x = x.astype(draw(st.sampled_from(FLOATS)))
    weight, bias = rng.standard_normal((2, d)).astype(x.dtype)
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in range(3)]
    return [laid_out(a, layout) for a, layout in zip((x, weight, bias), layouts)]


@both
@search(120)
@given(arguments=rows_of_numbers(), epsilon=st.sampled_from([1e-5, 1e-3]))
def test_layer_norm_has_mean_0_and_variance_1(kernels, arguments, epsilon):
    x, weight, bias = arguments
    before = x.copy()
    out = kernels.layer_norm(x, weight, bias, epsilon)
    wide = x.astype(np.longdouble)
    centred = wide - wide.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
    right = centred / deviation * weight + bias
    # A sum of d numbers is off by d roundings at most; weight / deviation magnifies what it leaves.
    rounding = (16 + len(weight)) * np.finfo(x.dtype).eps
    room = np.abs(wide).max(axis=1, keepdims=True) / deviation * (1 + np.abs(weight).max()) + 1
    assert (np.abs(out - right) <= rounding * (room + np.abs(right))).all()
    assert out.dtype == x.dtype and out.shape == x.shape
    assert np.array_equal(x, before)


@both
@search(80)
@given(arguments=rows_of_numbers())
def test_gelu_is_the_tanh_form(kernels, arguments):
    x = arguments[0]
    before = x.copy()
    out = kernels.gelu(x)
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    tolerance = 1e-6 if x.dtype == np.float32 else 1e-14
    right = wide * (1 + np.tanh(inner)) / 2
    np.testing.assert_allclose(out, right, rtol=tolerance, atol=8 * tolerance)
    assert out.dtype == x.dtype and out.shape == x.shape
    assert np.array_equal(x, before)


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_is_not_the_erf_form(kernels, dtype):
    out = kernels.gelu(np.array([1, -1, -2, 3], dtype))
    assert out == pytest.approx([0.8411920, -0.1588080, -0.0454023, 2.9963626], abs=2e-7)


@both
@pytest.mark.parametrize(("dtype", "big"), [(np.float32, 1e12), (np.float64, 1e100)])
def test_gelu_far_out_is_x_or_0(kernels, dtype, big):
    out = kernels.gelu(np.array([big, -big, 60, -60], dtype))
    assert out.tolist() == pytest.approx([dtype(big), 0, 60, 0], rel=1e-6, abs=1e-20)


@compiled
@pytest.mark.parametrize(("dtype", "big"), [(np.float32, 3e38), (np.float64, 1e308)])
def test_gelu_of_the_most_negative_numbers_is_0(dtype, big):
    assert native.gelu(np.array([-big], dtype))[0] == 0


@both
@search(60)
@given(arguments=rows_of_numbers())
def test_total_is_the_sum(kernels, arguments):
    x = arguments[0]
    right = math.fsum(x.astype(np.float64).ravel())
    room = 1e-5 if x.dtype == np.float32 else 1e-13
    assert kernels.total(x) == pytest.approx(right, abs=room * float(1 + np.abs(x).sum()))


# What is no argument


def calls():
    """(name, arguments) that no kernel may take, for both dtypes that it would take otherwise."""
    x = np.zeros((2, 4))
    q, page = np.zeros((2, 3, 4)), np.zeros((1, 2, 3, 8, 4))
    w, v = pack(np.zeros((4, 5))), np.zeros(4)
    single = np.float32
    for odd in (">f4", ">f8", np.float16, np.int64, bool, complex, object, "U1"):
        yield "softmax", (np.zeros(4, odd),)
        yield "sampling_filter", (np.zeros(4, odd),)
        yield "linear", (x.astype(odd), w)
        yield "linear", (x, w, np.zeros(5, odd))
        yield "layer_norm", (x.astype(odd), v, v, 1e-5)
        yield "layer_norm", (x, v.astype(odd), v, 1e-5)
        yield "gelu", (x.astype(odd),)
        yield "total", (x.astype(odd),)
        yield "attention", (q.astype(odd), [page], 0, 0, 1.0)
        yield "attention", (q, [page.astype(odd)], 0, 0, 1.0)
    yield "linear", (x.astype(single), w)
    yield "linear", (x, w, np.zeros(5, single))
    yield "layer_norm", (x, v.astype(single), v, 1e-5)
    yield "layer_norm", (x, v, v.astype(single), 1e-5)
    yield "attention", (q.astype(single), [page], 0, 0, 1.0)
    yield "attention", (q, [page, page.astype(single)], 0, 0, 1.0)
    for shape in ((), (1, 1, 4)):
        yield "softmax", (np.zeros(shape),)
        yield "sampling_filter", (np.zeros(shape),)
        yield "linear", (np.zeros(shape), w)
        yield "layer_norm", (np.zeros(shape), v, v, 1e-5)
    yield "linear", (v, w)
    yield "linear", (np.zeros((2, 3)), w)
    yield "linear", (np.zeros((2, 5)), w)
    for shape in ((), (4,), (6,), (1, 5), (5, 1)):
        yield "linear", (x, w, np.zeros(shape))
    for shape in ((), (1,), (3,), (5,), (1, 4)):
        yield "layer_norm", (x, np.zeros(shape), v, 1e-5)
        yield "layer_norm", (x, v, np.zeros(shape), 1e-5)
    for shape in ((4,), (3, 4), (1, 2, 3, 4), (2, 2, 4), (2, 3, 5), (0, 3, 4)):
        yield "attention", (np.zeros(shape), [page], 0, 0, 1.0)
    for shape in ((2, 3, 8, 4), (1, 1, 3, 8, 4), (1, 2, 4, 8, 4), (1, 2, 3, 8, 5), (0, 2, 3, 8, 4)):
        yield "attention", (q, [np.zeros(shape)], 0, 0, 1.0)
    yield "attention", (q, [], 0, 0, 1.0)
    for layer in (-1, 1, 2**40, -(2**63)):
        yield "attention", (q, [page], layer, 0, 1.0)
    for start in (-1, 7, 8, 2**63 - 1, -(2**63)):
        yield "attention", (q, [page], 0, start, 1.0)


@both
@pytest.mark.parametrize("name", ["attention", "gelu", "layer_norm", "linear", "softmax", "total"])
def test_wrong_arguments_are_refused(kernels, name):
    for kernel, arguments in calls():
        if kernel == name:
            with pytest.raises((TypeError, ValueError)):
                getattr(kernels, name)(*arguments)
                pytest.fail(f"{name} took {arguments}")


@both
def test_filter_refuses_wrong_arguments(kernels):
    for kernel, arguments in calls():
        if kernel == "sampling_filter":
            with pytest.raises((TypeError, ValueError)):
                kernels.sampling_filter(*arguments)
    for wrong in ((None,), (1.0, 2.5), (1.0, "3"), (1.0, 0, None)):
        with pytest.raises((TypeError, ValueError)):
            kernels.sampling_filter(np.zeros(3), *wrong)


@pytest.mark.parametrize("odd", [">f4", np.float16, np.int64, object])
def test_pack_refuses_other_types(odd):
    with pytest.raises(TypeError, match="float32 or float64"):
        pack(np.zeros((2, 3), odd))
    with pytest.raises(ValueError, match=r"\[n_in, n_out\]"):
        pack(np.zeros(3))


RAGGED = [[1.0], [1.0, 2.0]]


@compiled
@pytest.mark.parametrize(
    "call",
    [
        f"native.linear(np.ones((1, 3)), pack(np.zeros((3, 2))), {RAGGED})",
        f"native.attention(np.ones((1, 2, 4)), [{RAGGED}], 0, 0, 1.0)",
    ],
)
def test_what_cannot_become_an_array_does_not_crash(call):
    code = f"import numpy as np\nfrom minidecode.kernels import native, pack\n{call}\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "Error" in done.stderr


@compiled
@pytest.mark.parametrize("name", reference.__all__)
def test_twins_have_one_signature(name):
    """Whoever calls one by the names of its parameters can call the other so."""
    arguments = {
        "softmax": {"logits": np.zeros(3)},
        "sampling_filter": {"logits": np.zeros(3), "top_k": 2},
        "attention": {
            "q": np.zeros((1, 1, 2)),
            "pages": [np.zeros((1, 2, 1, 1, 2))],
            "layer": 0,
            "start": 0,
            "scale": 1.0,
        },
        "linear": {"x": np.zeros((1, 2)), "weight": pack(np.zeros((2, 3))), "bias": np.zeros(3)},
        "layer_norm": {
            "x": np.zeros((1, 2)),
            "weight": np.zeros(2),
            "bias": np.zeros(2),
            "epsilon": 1e-5,
        },
        "gelu": {"x": np.zeros(2)},
        "total": {"x": np.zeros(2)},
        "pack": {"matrix": np.zeros((2, 3))},
    }[name]
    assert arguments.keys() <= inspect.signature(getattr(reference, name)).parameters.keys()
    for kernels in (reference, native):
        getattr(kernels, name)(**arguments)


# The same bits


def large_calls():
    """Calls large enough for several threads to share, some with a ragged end."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    rows = numbers(7, 50_257)
    yield "softmax", (rows,)
    yield "sampling_filter", (rows, 0.8, 50, 0.9, 1e-4)
    yield "sampling_filter", (rows, 0.8, 0, 0.9)
    yield "linear", (numbers(1, 300), pack(numbers(300, 1001)), numbers(1001))
    yield "linear", (numbers(29, 300), pack(numbers(300, 1001)))
    yield "linear", (numbers(29, 300).astype(float), pack(numbers(300, 1001).astype(float)))
    yield "attention", (numbers(65, 3, 40), [numbers(1, 2, 3, 100, 40)], 0, 30, 0.1)
    yield "layer_norm", (numbers(300, 768), numbers(768), numbers(768), 1e-5)
    yield "gelu", (numbers(3, 33_333),)
    yield "total", (numbers(3, 300_000),)


def digests(kernels):
    """A line for each call: its name and a digest of its result."""
    results = [(name, getattr(kernels, name)(*arguments)) for name, arguments in large_calls()]
    return [
        f"{name} {hashlib.sha256(np.asarray(result).tobytes()).hexdigest()}"
        for name, result in results
    ]


@compiled
def test_bits_do_not_depend_on_the_number_of_threads():
    old = native.num_threads()
    try:
        seen = []
        for n in (1, 2, 3, 4):
            native.set_num_threads(n)
            assert native.num_threads() == n
            seen.append(digests(native))
    finally:
        native.set_num_threads(old)
    assert seen[0] == seen[1] == seen[2] == seen[3]


def digests_with(instruction_set):
    """`digests` of a process of its own that uses `instruction_set`, or a skipped test."""
    code = (
        "from minidecode.kernels import native\nimport test_kernels\n"
        "print(native.instruction_set(), *test_kernels.digests(native), sep='\\n')"
    )
    paths = [os.path.dirname(__file__), *filter(None, sys.path)]
    env = os.environ | {"MINIDECODE_ISA": instruction_set, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    used, *lines = done.stdout.splitlines()
    if used != instruction_set:
        pytest.skip(f"this processor has no {instruction_set}, {used} is in use")
    return lines


@compiled
def test_bits_do_not_depend_on_the_width_of_the_registers():
    assert digests_with("avx512") == digests_with("avx2")


@compiled
def test_plain_code_computes_the_same_numbers():
    """Not the same bits: without FMA a product is rounded before it is added."""
    code = (
        "import numpy as np, test_kernels as t\n"
        "if t.native.instruction_set() != 'plain': raise SystemExit('other code in use')\n"
        "for name, arguments in t.large_calls():\n"
        "    ours = getattr(t.native, name)(*arguments)\n"
        "    theirs = getattr(t.reference, name)(*arguments)\n"
        "    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)\n"
    )
    if native.instruction_set() == "neon":
        pytest.skip("64-bit ARM has no plain code, NEON is its least")
    paths = [os.path.dirname(__file__), *filter(None, sys.path)]
    env = os.environ | {"MINIDECODE_ISA": "plain", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@both
def test_offsets_go_beyond_32_bits(kernels, tmp_path):
    """The second row of q begins 2**31 + 10 numbers after the first, in a file with a hole."""
    far = 2**31 + 10
    held = np.memmap(tmp_path / "q", np.float32, "w+", shape=far + 2)
    held[:2], held[far:] = [1, 2], [3, 4]
    q = np.lib.stride_tricks.as_strided(held, (2, 1, 2), (4 * far, 8, 4))
    page = np.array([[[1, 0], [0, 1]], [[5, 6], [7, 8]]], np.float32).reshape(1, 2, 1, 2, 2)
    out = kernels.attention(q, [page], 0, 0, 1.0)
    right = attention_by_hand(np.array([[[1, 2]], [[3, 4]]]), [page], 0, 0, 1.0)
    assert out == pytest.approx(right, rel=1e-6)


@both
def test_a_column_far_behind_is_not_lost(kernels):
    """The widest vocabulary in use, its last column in a panel of its own."""
    w = np.zeros((1, 70_001), np.float32)
    w[0, -1] = 3
    out = kernels.linear(np.ones((1, 1), np.float32), pack(w))
    assert out[0, -1] == 3 and not out[0, :-1].any()
