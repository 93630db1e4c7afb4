"""Log-probabilities of every decoder: the model's own, those of the distribution drawn from."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import Dice, InputError, TableModel, Warp, generate, speculative_many
from minidecode.decoding.contrastive import Contrast
from minidecode.decoding.logprobs import TokenLogprobs

WARP = Warp(temperature=0.7, top_k=3, repetition_penalty=1.3)


def table(seed, V=5):
    return TableModel(np.random.default_rng(seed).dirichlet(np.ones(V), size=V))


TARGET, OTHER = table(0), table(1)
EVERY = {
    "sampling": {"warp": WARP},
    "greedy": {"temperature": 0},
    "speculative": {"warp": WARP, "draft": OTHER, "num_draft_tokens": 3},
    "contrastive": {"warp": WARP, "amateur": OTHER},
    "both": {"warp": WARP, "amateur": OTHER, "draft": OTHER},
    "beams": {"num_beams": 3, "repetition_penalty": 1.3},
    "contrastive beams": {"num_beams": 3, "amateur": OTHER},
}


def drawn_from(name, history):
    """The logarithm of the distribution [V] after history, worked out from the two tables."""
    logits, other = np.log(TARGET.row(history)), np.log(OTHER.row(history))
    with np.errstate(divide="ignore"):
        if name == "beams":
            penalised = Warp(repetition_penalty=1.3)(logits, history)
            return np.log(penalised)
        if name == "contrastive beams":
            return Contrast()(logits, other)
        if name in ("contrastive", "both"):
            return np.log(Contrast().probs(logits, other, WARP, history))
        return np.log((Warp(temperature=0) if name == "greedy" else WARP)(logits, history))


@pytest.mark.parametrize("name", EVERY)
@given(seed=st.integers(0, 1000), n=st.integers(0, 7))
@settings(max_examples=15, deadline=None)
def test_every_token_has_its_log_probabilities_before_and_after_the_settings(name, seed, n):
    options = {"max_new_tokens": 7, "logprobs": n, **EVERY[name]}
    if "num_beams" not in options:
        options["chance"] = Dice(seed)
    steps = []
    result = generate(TARGET, [seed % 5], on_step=steps.append, **options)
    assert result.logprobs == tuple(x for step in steps for x in step.logprobs)
    assert [x.token for x in result.logprobs] == result.tokens
    history = [seed % 5]
    for found in result.logprobs:
        own, warped = np.log(TARGET.row(history)), drawn_from(name, history)
        assert found.logprob == pytest.approx(own[found.token])
        assert found.warped == pytest.approx(warped[found.token], abs=1e-12)
        for row, top in ((own, found.top), (warped, found.warped_top)):
            assert len(top) == min(n, np.isfinite(row).sum())
            ids = np.argsort(-row, kind="stable")[: len(top)]
            assert [value for _, value in top] == pytest.approx(row[ids], abs=1e-12)
        history.append(found.token)


@pytest.mark.parametrize("name", EVERY)
def test_the_text_is_that_without_log_probabilities(name):
    options = {"max_new_tokens": 9, **EVERY[name]}
    texts = []
    for logprobs in (None, 0, 2):
        if "num_beams" not in options:
            options["chance"] = Dice(3)
        result = generate(TARGET, [0], logprobs=logprobs, **options)
        texts.append(result.tokens)
        assert (result.logprobs == ()) == (logprobs is None)
    assert texts[0] == texts[1] == texts[2]


def test_ties_fall_to_the_lower_id_and_the_impossible_is_left_out():
    model = TableModel([[0.0, 0.25, 0.25, 0.5], *np.eye(4)[1:]])
    [found] = generate(model, [0], temperature=0, logprobs=9, max_new_tokens=1).logprobs
    assert found == TokenLogprobs(
        3,
        math.log(0.5),
        0.0,
        top=((3, math.log(0.5)), (1, math.log(0.25)), (2, math.log(0.25))),
        warped_top=((3, 0.0),),
    )


def test_several_sequences_have_their_own():
    rounds = {0: [], 1: []}
    chances = [Dice(1), Dice(2)]
    for i, step in speculative_many(
        TARGET, OTHER, [[0], [1]], chances=chances, logprobs=1, max_new_tokens=6
    ):
        rounds[i] += step.logprobs
    for i in (0, 1):
        alone = generate(TARGET, [i], draft=OTHER, chance=Dice(i + 1), logprobs=1, max_new_tokens=6)
        assert tuple(rounds[i]) == alone.logprobs


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1", 10**400])
def test_a_number_of_alternatives_that_cannot_be_is_refused(wrong):
    for options in EVERY.values():
        with pytest.raises(InputError, match=r"^logprobs: got .* a whole number of at least 0"):
            generate(TARGET, [0], logprobs=wrong, max_new_tokens=1, **options)
