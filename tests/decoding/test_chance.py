"""The dice: exact where numbers are put in, statistical where they are drawn."""

import itertools
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import Dice, GumbelDice, InputError, MinidecodeError
from minidecode.decoding.chance import inverse_cdf

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
both_dice = pytest.mark.parametrize("kind", [Dice, GumbelDice])


def draws(chance, probs, n):
    probs = np.asarray(probs)
    return [chance.choose(probs, position) for position in range(n)]


def chi_square_is_likely(counts, probs):
    """Within four sigma of its mean, which is the number of outcomes less one."""
    expected = np.asarray(probs, np.float64) * sum(counts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    return statistic < freedom + 4 * (2 * freedom) ** 0.5


# The inverse of the cumulative distribution


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_whose_cumulative_sum_exceeds_u(dtype):
    probs = np.array([0, 0.5, 0, 0.5, 0], dtype)
    us = (0.0, 0.25, 0.5, 0.75, 0.99999994)
    assert [inverse_cdf(probs, u) for u in us] == [1, 1, 3, 3, 3]


weights = st.lists(st.integers(0, 8), min_size=1, max_size=12).filter(any)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(weights=weights, u=st.integers(0, 2**20 - 1))
def test_inverse_cdf_in_exact_fractions(weights, u):
    """Sums and products of these are exact in floating point as well, scaled to one or not."""
    u = Fraction(u, 2**20)
    right = next(
        token
        for token, total in enumerate(itertools.accumulate(weights))
        if Fraction(total) > u * sum(weights)
    )
    assert inverse_cdf(np.array(weights, np.float32), float(u)) == right


def test_equal_steps_of_u_give_each_token_its_share():
    probs = np.array([5, 0, 1, 2], np.float32) / 8
    counts = np.bincount([inverse_cdf(probs, i / 64) for i in range(64)])
    assert counts.tolist() == [40, 0, 8, 16]


@pytest.mark.parametrize("V", [1, 3, 50_257, 70_000])
def test_the_largest_u_gives_a_token_that_there_is(V):
    probs = np.random.default_rng(V).random(V).astype(np.float32)
    probs[V // 2 + 1 :] = 0
    probs /= probs.sum()
    last = np.flatnonzero(probs)[-1]
    assert probs[inverse_cdf(probs, 1 - 2**-53)] > 0
    assert last - 5 <= inverse_cdf(probs, 1 - 2**-53) <= last


def test_the_last_tokens_of_a_large_vocabulary_can_be_reached():
    """A running float32 sum passes 1 early and would never give the last 18."""
    probs = np.full(50_257, 1 / 50_257, np.float32)
    for token in (0, 1, 25_000, 50_238, 50_255, 50_256):
        assert inverse_cdf(probs, (token + 0.5) / 50_257) == token


@pytest.mark.parametrize("total", [1e-30, 0.5, 0.999999, 1.000001, 7.0, 1e30])
def test_u_is_scaled_by_the_total(total):
    probs = np.array([1, 0, 1, 2]) / 4 * total
    assert [inverse_cdf(probs, u) for u in (0, 0.2499, 0.2501, 0.4999, 0.5001, 0.9999)] == [
        0, 0, 2, 2, 3, 3,
    ]  # fmt: skip


# What holds for both


@both_dice
def test_a_token_without_probability_is_never_drawn(kind):
    probs = np.zeros(1000, np.float32)
    probs[[7, 500, 993]] = [1e-30, 0.5, 0.5]
    assert set(draws(kind(0), probs, 500)) == {500, 993}
    assert set(draws(kind(0), np.eye(1, 50, 33)[0], 50)) == {33}


@both_dice
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_frequencies_are_the_probabilities(kind, dtype):
    probs = np.array([0.4, 0.05, 0.0, 0.25, 0.2, 0.1], dtype)
    counts = np.bincount(draws(kind(11), probs, 20_000), minlength=6)
    assert counts[2] == 0
    assert np.abs(counts / 20_000 - probs).max() < 0.015
    assert chi_square_is_likely(np.delete(counts, 2), np.delete(probs, 2))


@both_dice
def test_no_token_of_a_uniform_vocabulary_is_left_out(kind):
    counts = np.bincount(draws(kind(3), np.full(200, 1 / 200), 20_000), minlength=200)
    assert counts.all()
    assert chi_square_is_likely(counts, np.full(200, 1 / 200))


@both_dice
def test_one_seed_one_sequence_of_draws(kind):
    probs = np.full(1000, 1 / 1000)
    first = draws(kind(42), probs, 20)
    assert draws(kind(42), probs, 20) == first
    assert draws(kind(43), probs, 20) != first
    assert len(set(first)) >= 15  # 19.8 are expected
    code = f"""
import numpy as np
from minidecode import {kind.__name__} as kind
dice = kind(42)
print([dice.choose(np.full(1000, 1 / 1000), i) for i in range(20)])
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == str(first)


@both_dice
def test_without_a_seed_there_is_a_new_one_that_can_be_read(kind):
    probs = np.full(1000, 1 / 1000)
    dice, other = kind(), kind()
    assert isinstance(dice.seed, int) and 0 <= dice.seed < 2**32
    assert dice.seed != other.seed
    assert draws(kind(dice.seed), probs, 10) == draws(dice, probs, 10)


@both_dice
@pytest.mark.parametrize("seed", [0, 2**32, 2**64 - 1, 2**200, np.int32(5), np.uint64(2**63)])
def test_any_whole_number_is_a_seed(kind, seed):
    dice = kind(seed)
    assert dice.seed == seed and type(dice.seed) is int
    assert draws(dice, np.full(9, 1 / 9), 5) == draws(kind(int(seed)), np.full(9, 1 / 9), 5)


@both_dice
@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, np.True_, (1, 2), b"1"])
def test_what_is_no_seed_is_refused(kind, seed):
    with pytest.raises(InputError, match="seed: got"):
        kind(seed)


@both_dice
def test_seeds_beyond_32_bits_are_not_cut(kind):
    probs = np.full(1000, 1 / 1000)
    assert draws(kind(1), probs, 9) != draws(kind(1 + 2**32), probs, 9)
    assert draws(kind(2**64), probs, 9) != draws(kind(0), probs, 9)


@both_dice
@pytest.mark.parametrize("bad", [[0, 0, 0], [np.nan, 0.5, 0.5], [np.inf, 1, 0], [np.nan] * 3, []])
def test_what_is_no_distribution_is_refused(kind, bad):
    with pytest.raises(InputError, match="finite positive sum"):
        kind(0).choose(np.array(bad, float), 0)


@both_dice
def test_draws_are_ints_and_probabilities_stay_as_they_are(kind):
    probs = np.array([0.25, 0.75], np.float32)
    probs.flags.writeable = False
    assert {type(token) for token in draws(kind(0), probs, 20)} == {int}
    assert probs.tolist() == [0.25, 0.75]


@both_dice
def test_the_shared_state_of_numpy_is_neither_read_nor_written(kind):
    probs = np.full(1000, 1 / 1000)
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()
    first = draws(kind(5), probs, 5)
    assert np.random.get_state()[1].tolist() == before
    np.random.seed(1)
    assert draws(kind(5), probs, 5) == first
    dice, other = kind(5), kind(6)  # nor do two share any
    mixed = [(dice.choose(probs, i), other.choose(probs, i))[0] for i in range(5)]
    assert mixed == first


# Dice


def test_dice_accept_as_often_as_they_should():
    dice = Dice(0)
    for probability in (0.1, 0.5, 0.97):
        often = np.mean([dice.accept(probability) for _ in range(20_000)])
        assert abs(often - probability) < 0.015


@pytest.mark.parametrize("u", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
def test_probability_0_is_never_accepted_and_1_always(u):
    class Fixed:
        def random(self):
            return u

    dice = Dice(0)
    dice._generator = Fixed()
    assert not dice.accept(0.0) and dice.accept(1.0)
    assert bool(dice.accept(0.5)) == (u < 0.5)


def test_dice_do_not_look_at_the_position():
    probs = np.full(1000, 1 / 1000)
    dice = Dice(5)
    assert [dice.choose(probs, 7) for _ in range(9)] == draws(Dice(5), probs, 9)


# GumbelDice


def test_gumbel_draws_depend_on_the_position_and_on_nothing_before():
    probs = np.full(1000, 1 / 1000)
    in_order = draws(GumbelDice(5), probs, 9)
    dice = GumbelDice(5)
    backwards = [dice.choose(probs, position) for position in reversed(range(9))]
    assert backwards[::-1] == in_order
    assert dice.choose(probs, 4) == dice.choose(probs, 4) == in_order[4]
    assert len(set(in_order)) > 1


def test_a_longer_vocabulary_appends_noise():
    dice = GumbelDice(9)
    for position in (0, 1, 50_000):
        noise = dice.noise(position, 50_304)
        assert np.array_equal(dice.noise(position, 50_257), noise[:50_257])
        assert np.array_equal(dice.noise(position, 1), noise[:1])
    padded = np.zeros(64)
    padded[:50] = 1 / 50
    assert draws(dice, padded, 50) == draws(dice, padded[:50], 50)


def test_noise_is_standard_gumbel():
    noise = GumbelDice(1).noise(3, 100_000)
    assert noise.mean() == pytest.approx(np.euler_gamma, abs=0.02)
    assert noise.var() == pytest.approx(np.pi**2 / 6, abs=0.04)
    for x in (-1.0, 0.0, 1.0, 3.0):
        assert (noise < x).mean() == pytest.approx(np.exp(-np.exp(-x)), abs=0.008)


def test_noise_of_neighbours_in_seed_or_position_is_unrelated():
    noises = [GumbelDice(s).noise(i, 20_000) for s, i in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 256))]
    correlations = np.corrcoef(noises) - np.eye(5)
    assert np.abs(correlations).max() < 0.035  # 5 / sqrt(20,000)


def test_the_least_u_makes_noise_without_a_warning(monkeypatch):
    class Zeros:
        def __init__(self, bits):
            pass

        def random(self, size):
            return np.zeros(size)

    monkeypatch.setattr(np.random, "Generator", Zeros)
    assert GumbelDice(0).noise(0, 2).tolist() == [-np.inf] * 2
    assert GumbelDice(0).choose(np.array([0, 0.5, 0.5]), 0) == 1


def test_like_distributions_meet_in_most_draws():
    """Agreement is at least (1 - d) / (1 + d) at a total variation distance of d, here 0.1."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.3])
    dice = GumbelDice(2)
    meetings = np.mean([a == b for a, b in zip(draws(dice, p, 4000), draws(dice, q, 4000))])
    assert 0.9 / 1.1 - 0.02 < meetings <= 0.9 + 0.02


def test_gumbel_dice_have_no_ratio_test():
    with pytest.raises(MinidecodeError, match="no ratio test"):
        GumbelDice(0).accept(0.5)
    assert GumbelDice.coupled and not Dice.coupled


# (seed, position) pairs that a list of 32-bit words, or a sum, would confuse
PAIRS = [(1 + 5 * 2**32, 0), (1, 5), (1 + 5 * 2**64, 0), (1 + 5 * 2**96, 0), (5, 1), (6, 0), (0, 6)]
PAIRS += [(0, 0), (0, 2**32), (2**32, 0), (0, 2**63), (2**63, 0), (2**64, 0), (2**127, 0)]
PAIRS += [(2**128 - 1, 0), (2**128, 0), (2**128 + 1, 0), (2**192, 0), (2**256, 0), (2**256 + 1, 0)]
PAIRS += [(2**400, 1), (2**400 + 1, 0), (2**400 + 1, 1)]


def test_no_two_pairs_of_seed_and_position_share_their_noise():
    noises = [GumbelDice(seed).noise(position, 64) for seed, position in PAIRS]
    numbers = np.concatenate(noises)
    assert len(np.unique(numbers)) == numbers.size  # nor does one begin inside another


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**140), st.integers(0, 2**40), st.integers(0, 96))
def test_a_seed_moved_into_the_position_is_another_stream(seed, position, shift):
    """What the position takes from the seed, or gives it, does not cancel."""
    if position:
        here = GumbelDice(seed).noise(position, 8)
        for other in (seed + (position << shift), abs(seed - position), seed ^ (position << shift)):
            assert not np.isin(GumbelDice(other).noise(0, 8), here).any()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 2**600), st.integers(0, 2**64 - 1))
def test_any_seed_and_position_has_noise_that_a_longer_vocabulary_appends_to(seed, position):
    dice = GumbelDice(seed)
    noise = dice.noise(position, 50)
    assert np.isfinite(noise).all()
    assert np.array_equal(dice.noise(position, 9), noise[:9])


def test_the_smallest_number_of_all_is_reached():
    assert inverse_cdf([0, 5e-324], 0.9) == 1
    assert inverse_cdf([5e-324, 0], 0.9) == 0
