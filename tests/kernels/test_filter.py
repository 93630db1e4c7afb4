"""Temperature, top-k, top-p and epsilon against a filter by hand."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kernels.cases import FLOATS, both, compiled, logits, native, no_warnings, reference, search

pytestmark = no_warnings


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
