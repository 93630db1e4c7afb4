"""The proof machinery itself: laws of programs known by hand, and what it must refuse."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidecode import InputError, MinidecodeError, TableModel, exact, sample
from minidecode.proof import mistakes
from minidecode.speculation.loop import speculative, verify


def test_a_single_choice_has_the_law_of_its_probabilities():
    assert exact.law(lambda chance: chance.choose([0.0, 0.25, 0.75], 0)) == {1: 0.25, 2: 0.75}


def test_unnormalised_weights_are_drawn_in_proportion():
    assert exact.law(lambda chance: chance.choose([1, 3], 0)) == {0: 0.25, 1: 0.75}


def test_paths_multiply_and_equal_outcomes_add():
    def program(chance):
        return chance.accept(0.25) + chance.accept(0.25)

    assert exact.law(program) == {2: 0.0625, 1: 0.375, 0: 0.5625}


def test_choices_that_depend_on_earlier_choices_are_followed():
    def program(chance):
        return ["stay" if chance.accept(0.5) else chance.choose([0.2, 0.8], 0)]

    assert exact.law(program) == pytest.approx({("stay",): 0.5, (0,): 0.1, (1,): 0.4})


@pytest.mark.parametrize("probability, wanted", [(0, False), (1, True), (-0.5, False), (7, True)])
def test_certain_decisions_are_no_branches(probability, wanted):
    assert exact.law(lambda chance: chance.accept(probability)) == {wanted: 1.0}


@given(st.lists(st.floats(1e-3, 1), min_size=2, max_size=5), st.integers(1, 3))
def test_a_law_sums_to_one(weights, depth):
    law = exact.law(lambda chance: [chance.choose(weights, i) for i in range(depth)])
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)
    assert len(law) == len(weights) ** depth


def test_plain_sampling_has_the_law_of_the_chain():
    P = np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5], [0.25, 0.5, 0.25]])
    law = exact.law(
        lambda chance: exact.tokens_of(
            sample(TableModel(P), [0], chance=chance, max_new_tokens=3, eos=None)
        )
    )
    for path in itertools.product(range(3), repeat=3):
        chain = np.prod([P[a, b] for a, b in itertools.pairwise((0, *path))])
        assert law.get(path, 0.0) == pytest.approx(chain, abs=1e-15)


def test_total_variation_is_half_the_absolute_difference():
    assert exact.total_variation({"a": 0.5, "b": 0.5}, {"b": 0.25, "c": 0.75}) == 0.75
    assert exact.total_variation({"a": 1.0}, {"a": 1.0}) == 0


def test_a_program_with_its_own_randomness_is_refused():
    state = []

    def program(chance):
        state.append(None)
        return chance.choose([1] * (1 + len(state)), 0)

    with pytest.raises(MinidecodeError, match="keeps state"):
        exact.law(program)


def test_a_program_that_draws_from_a_generator_made_before_is_refused():
    draws = np.random.default_rng(0)
    with pytest.raises(MinidecodeError, match="randomness of its own"):
        exact.law(lambda chance: draws.integers(2))
    assert exact.law(lambda chance: 1) == {1: 1.0}


def test_too_many_paths_are_refused():
    with pytest.raises(MinidecodeError, match="more than 10 paths"):
        exact.law(lambda chance: [chance.accept(0.5) for _ in range(4)], max_paths=10)


@pytest.mark.parametrize("probs", [[0, 0], [0.5, -0.5], [np.nan, 1], [np.inf, 1]])
def test_weights_that_are_no_distribution_are_refused(probs):
    with pytest.raises(InputError):
        exact.law(lambda chance: chance.choose(probs, 0))


def test_check_reports_the_outcome_that_is_furthest_off():
    target = TableModel([[0.5, 0.5], [0.5, 0.5]])
    report = exact.check(lambda *_, chance, **__: [0], target, max_new_tokens=1)
    assert not report.passed
    assert report.distance == 0.5
    outcome, got, wanted = report.worst()
    assert (outcome, got, wanted) in {((0,), 1.0, 0.5), ((1,), 0.0, 0.5)}


def test_check_takes_a_verification_of_ones_own():
    def mine(p, q, drafted, chance, position=0):
        return verify(p, q, drafted, chance, position)

    def decoder(target, prompt, **options):
        return speculative(target, mistakes.DRAFT, prompt, verify=mine, **options)

    assert exact.check(decoder, mistakes.TARGET, max_new_tokens=3).passed


@pytest.mark.parametrize("mistake", mistakes.WRONG)
def test_every_wrong_decoder_is_rejected(mistake):
    report = mistakes.report(mistake)
    assert not report.passed
    assert report.distance > 0.05  # far from rounding, and visible to a user
    assert sum(report.law.values()) == pytest.approx(1)


def test_the_right_decoder_passes_in_the_places_of_the_wrong_ones():
    def coarse(target, prompt, *, chance, **options):
        chance = mistakes.CoarseChance(chance)
        return speculative(target, mistakes.QUARTERS_DRAFT, prompt, chance=chance, **options)

    def history(target, prompt, **options):
        return speculative(target, mistakes.DRAFT, prompt, **options)

    assert exact.check(coarse, mistakes.QUARTERS_TARGET, max_new_tokens=3).passed
    assert exact.check(history, mistakes.TARGET, max_new_tokens=3).passed


def test_shared_noise_keeps_the_law_under_the_rule_of_equality():
    def coupled(target, prompt, *, chance, **options):
        chance = mistakes.CoarseChance(chance, shared=True)
        chance.coupled = True
        return speculative(target, mistakes.QUARTERS_DRAFT, prompt, chance=chance, **options)

    assert exact.check(coupled, mistakes.QUARTERS_TARGET, max_new_tokens=3).passed


def test_whoever_writes_into_a_row_harms_nobody_else():
    def careless(target, prompt, *, chance, warp, max_new_tokens, eos):
        tokens, cache = list(prompt), target.new_cache()
        for _ in range(max_new_tokens):
            logits = target.forward(tokens[cache.length :], cache)
            row = warp(logits[-1], tokens)
            logits[:] = 0
            tokens.append(chance.choose(row, len(tokens)))
            row[:] = 1
        return tokens[len(prompt) :]

    assert exact.check(careless, mistakes.TARGET, max_new_tokens=3, eos=None).passed
