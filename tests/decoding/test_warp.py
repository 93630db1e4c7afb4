"""From logits to the distribution that is sampled, on both sets of kernels."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from builders import PENALTY_LOGITS
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import InputError, LogitsError, Warp
from minidecode.decoding.filters import no_repeat_ngram_size as banned_tokens
from minidecode.decoding.warp import Blocked
from minidecode.kernels import reference

try:
    from minidecode.kernels import native
except ImportError:
    native = None

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "warp.json").read_text())


@pytest.fixture(params=["numpy", "native"], autouse=True)
def kernels(request, monkeypatch):
    """Every test runs on both, whichever is in use."""
    if request.param == "native" and native is None:
        pytest.skip("the compiled kernels are not built")
    twin = native if request.param == "native" else reference
    monkeypatch.setattr("minidecode.kernels.sampling_filter", twin.sampling_filter)


def kept(probs):
    return np.flatnonzero(probs).tolist()


# Against transformers


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: str(case["settings"]))
def test_distributions_are_those_of_transformers(case):
    logits = np.array(GOLDEN["logits"], np.float32)
    probs = Warp(**case["settings"])(logits, GOLDEN["history"])
    assert np.count_nonzero(probs) == case["kept"]
    ids, right = zip(*case["probabilities"])
    np.testing.assert_allclose(probs[list(ids)], right, rtol=1e-4, atol=1e-7)
    assert sorted(probs, reverse=True)[: len(ids)] == pytest.approx(right, rel=1e-4, abs=1e-7)


# Penalties


def penalised(logits, history, penalty):
    return Warp(repetition_penalty=penalty).penalise(np.array(logits, float), history).tolist()


def test_repetition_penalty_divides_what_is_positive_and_multiplies_what_is_not():
    assert penalised([2, -2, 1], [0, 1], 2) == [1, -4, 1]
    assert penalised([0, 0, 1], [0, 1], 2) == [0, 0, 1]
    assert penalised([2, -2, 1], [0, 1], 0.5) == [4, -1, 1]  # below 1 it invites
    assert penalised([2, -2, 1], [0, 1, 2], 1) == [2, -2, 1]
    assert penalised([2, -2, 1], [], 2) == [2, -2, 1]
    assert penalised([-math.inf, 3], [0], 2) == [-math.inf, 3]


def test_repetition_penalty_counts_each_id_once():
    assert penalised([2, -2, 1], [0, 0, 0, 1], 2) == [1, -4, 1]


def test_repetition_penalty_is_read_off_before_the_temperature():
    probs = Warp(repetition_penalty=2, temperature=0.5)(np.array([2.0, 1.0]), [0])
    assert probs.tolist() == [0.5, 0.5]
    assert Warp(repetition_penalty=2, temperature=0)(np.array([2, 1.5]), [0]).tolist() == [0, 1]


@pytest.mark.parametrize("penalty", [1e300, 1e-300, 1e38, 1e-38])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_penalties_give_a_distribution_or_an_error_but_no_warning(penalty, dtype):
    warp = Warp(repetition_penalty=penalty)
    try:
        probs = warp(np.array([2, -2, 0, 1], dtype), [0, 1, 2])
    except LogitsError:
        return
    assert probs.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("history", "n", "right"),
    [
        ([5, 6, 7, 5, 6], 3, [7]),
        ([5], 3, []),
        ([], 3, []),
        ([1, 2], 3, []),
        ([5, 6, 5], 1, [5, 6]),
        ([], 1, []),
        ([1, 1], 2, [1]),
        ([1, 2], 2, []),
        ([1, 1, 1], 3, [1]),
        ([1, 2, 3, 1, 2, 4, 1, 2], 3, [3, 4]),
        ([1, 2, 1], 0, []),
        ([1, 2, 3], 4, []),
        ([1, 2, 3, 4], 4, []),
        ([1, 2, 3, 4, 1, 2, 3], 4, [4]),
    ],
)
def test_banned_is_what_would_complete_an_ngram_seen(history, n, right):
    for kind in (list, tuple, lambda h: np.array(h, np.int64)):
        assert list(banned_tokens(kind(history), n)) == right


@settings(deadline=None, derandomize=True)
@given(history=st.lists(st.integers(0, 3), max_size=12), n=st.integers(1, 5))
def test_banned_by_trying_every_token(history, n):
    def grams(tokens):
        return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]

    seen = set(grams(history))
    right = [t for t in range(4) if len(history) >= n - 1 and (*history, t)[-n:] in seen]
    assert list(banned_tokens(history, n)) == right


def test_banned_tokens_have_no_probability_and_the_others_share_it():
    probs = Warp(no_repeat_ngram_size=2)(np.zeros(5), [1, 2, 1, 3, 1])
    assert probs == pytest.approx([1 / 3, 1 / 3, 0, 0, 1 / 3])


def test_banning_comes_before_the_filters():
    """Of the two likeliest that are left, not of the two likeliest."""
    probs = Warp(no_repeat_ngram_size=1, top_k=2)(np.log([0.6, 0.2, 0.15, 0.05]), [0])
    assert probs == pytest.approx([0, 0.2 / 0.35, 0.15 / 0.35, 0])


def test_when_all_is_banned_that_is_said_and_nothing_chosen():
    for temperature in (0, 1):
        warp = Warp(temperature=temperature, no_repeat_ngram_size=1)
        with pytest.raises(Blocked):
            warp(np.zeros(3, np.float32), [0, 1, 2])
        with pytest.raises(Blocked):  # what is left had no probability before
            warp(np.array([1, -np.inf, 2]), [0, 2])


# What is no distribution


@pytest.mark.parametrize(
    "logits",
    [[0, math.nan, 1], [math.inf, 0, 1], [-math.inf] * 3, [math.nan] * 3, [-math.inf, math.nan, 0]],
    ids=str,
)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0},
        {"top_k": 1},
        {"top_p": 0.5},
        {"repetition_penalty": 2.0},
        {"no_repeat_ngram_size": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_broken_logits_are_refused_with_the_step(logits, fields, dtype):
    with pytest.raises(LogitsError, match=r"^step 2 .*(nan|inf)"):
        Warp(**fields)(np.array(logits, dtype), [0, 1])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_ban_does_not_hide_broken_logits(bad):
    with pytest.raises(LogitsError):
        Warp(no_repeat_ngram_size=1)(np.array([bad, 1, 2]), [0])


# Settings


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("temperature", bad) for bad in (-1, -1e-9, math.nan, math.inf, "1", None, True, 1j)),
        *(("top_k", bad) for bad in (-1, 1.0, 2.5, math.nan, "1", None, True)),
        *(("top_p", bad) for bad in (0, -0.1, 1.0001, math.nan, math.inf, "1", None, True)),
        *(("epsilon", bad) for bad in (-0.1, 1, 1.5, math.nan, "0", None, False)),
        *(("repetition_penalty", bad) for bad in (0, -1, math.nan, math.inf, "1", None, True)),
        *(("no_repeat_ngram_size", bad) for bad in (-1, 2.0, math.nan, "2", None, True)),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name, bad):
    with pytest.raises(InputError, match=f"^{name}: got .* wanted$") as caught:
        Warp(**{name: bad})
    assert isinstance(caught.value, ValueError)


def test_settings_may_be_numbers_of_numpy():
    warp = Warp(np.float32(0.5), np.int32(2), np.float64(0.9), np.float32(0.0))
    assert warp(np.log([0.5, 0.3, 0.2]), []) == pytest.approx([0.25 / 0.34, 0.09 / 0.34, 0])


def test_a_warp_is_a_value():
    assert Warp(top_k=3) == Warp(top_k=3) != Warp(top_k=4)
    assert len({Warp(), Warp(), Warp(top_p=0.5)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Warp().top_k = 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unset_settings_are_off(dtype):
    logits = np.random.default_rng(0).standard_normal(200).astype(dtype)
    weights = np.exp(logits.astype(np.float64))
    probs = Warp()(logits, range(200))
    np.testing.assert_allclose(probs, weights / weights.sum(), rtol=1e-6)
    assert probs.dtype == dtype


@pytest.mark.parametrize("off", ["top_k", "top_p", "epsilon", "repetition_penalty"])
def test_off_is_what_is_off_by_itself(off):
    logits = np.random.default_rng(1).standard_normal(50)
    value = {"top_k": 0, "top_p": 1, "epsilon": 0, "repetition_penalty": 1}[off]
    assert Warp(**{off: value})(logits, [3]).tolist() == Warp()(logits, [3]).tolist()


def test_temperature_0_is_the_lowest_of_the_likeliest_whatever_else_is_set():
    logits = np.array([1, 5, 5, 0], np.float32)
    for fields in ({}, {"top_k": 3}, {"top_p": 0.1}, {"epsilon": 0.9}):
        assert Warp(temperature=0, **fields)(logits, []).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("top_p", [1e-8, 1e-4])
def test_a_tiny_top_p_leaves_the_likeliest(top_p):
    logits = np.random.default_rng(2).standard_normal(4096).astype(np.float32)
    assert kept(Warp(top_p=top_p)(logits, [])) == [int(logits.argmax())]


@pytest.mark.parametrize("top_k", [5, 6, 10**6, 2**62])
def test_top_k_beyond_the_vocabulary_changes_nothing(top_k):
    logits = np.arange(5.0)
    assert Warp(top_k=top_k)(logits, []).tolist() == Warp()(logits, []).tolist()


def test_temperature_is_applied_once():
    probs = Warp(temperature=0.5)(np.log([0.5, 0.3, 0.2]), [])
    assert probs == pytest.approx([0.6579, 0.2368, 0.1053], abs=1e-4)  # twice: 0.8657 ...


fields = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0, 0.5, 1.0, 3.0]),
        "top_k": st.integers(0, 9),
        "top_p": st.sampled_from([0.05, 0.4, 0.8, 1.0]),
        "epsilon": st.sampled_from([0, 0.01, 0.2]),
        "repetition_penalty": st.sampled_from([0.7, 1.0, 1.5]),
        "no_repeat_ngram_size": st.integers(0, 3),
    }
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    fields=fields,
    history=st.lists(st.integers(0, 7), max_size=10),
    seed=st.integers(0, 999),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_warp_is_its_parts_in_order_and_leaves_its_input(fields, history, seed, dtype):
    logits = np.random.default_rng(seed).standard_normal(8).astype(dtype)
    logits.flags.writeable = False
    before, told = logits.copy(), list(history)
    warp = Warp(**fields)

    by_hand = logits.copy()
    for token in set(history):
        by = dtype(fields["repetition_penalty"])
        by_hand[token] = by_hand[token] / by if by_hand[token] > 0 else by_hand[token] * by
    by_hand[list(banned_tokens(history, fields["no_repeat_ngram_size"]))] = -np.inf
    numbers = [fields[name] for name in ("temperature", "top_k", "top_p", "epsilon")]
    try:
        probs = warp(logits, history)
    except Blocked:
        assert (by_hand == -np.inf).all()
    else:
        right = reference.sampling_filter(by_hand, *numbers)
        np.testing.assert_allclose(probs, right, rtol=1e-6)
        assert probs.dtype == dtype
        assert warp(logits, history).tolist() == probs.tolist()
    assert logits.tolist() == before.tolist() and history == told


def test_the_penalty_table_is_penalised_as_written_down():
    """Prompt [0], then greedy: the second step penalises 0 and 1, each once."""
    warp, history = Warp(temperature=0, repetition_penalty=3.5), [0]
    for _ in range(12):
        history.append(int(warp(PENALTY_LOGITS[history[-1]], history).argmax()))
    assert history[1:] == [1, 2, 3, 1, 2, 0, 1, 2, 0, 1, 2, 0]
