"""Softmax on both kernels, and what is no distribution."""

import numpy as np
import pytest
from hypothesis import given
from kernels.cases import FLOATS, both, compiled, logits, native, no_warnings, reference, search

pytestmark = no_warnings


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


@compiled
@pytest.mark.parametrize(
    ("dtype", "least"), [(np.float32, -103.9), (np.float64, -745.1)], ids=["float32", "float64"]
)
def test_subnormal_weights_are_kept_on_both(dtype, least):
    x = np.append(0, np.linspace(least, least / 1.3, 400)).astype(dtype)
    for ours, theirs in [
        (native.softmax(x), reference.softmax(x)),
        (native.sampling_filter(x), reference.sampling_filter(x)),
    ]:
        assert (ours > 0).all()
        np.testing.assert_array_max_ulp(ours, theirs, 3)
    beyond = np.array([0, 1.01 * least], dtype)
    assert native.softmax(beyond).tolist() == reference.softmax(beyond).tolist() == [1, 0]
