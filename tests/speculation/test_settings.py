"""Each setting of `Warp` is exact under speculation: the law enumerated, the text under noise."""

import numpy as np
import pytest

from minidecode import (
    GumbelDice,
    InputError,
    TableModel,
    Warp,
    contrastive,
    exact,
    sample,
    speculative,
    speculative_contrastive,
)
from minidecode.decoding.warp import SETTINGS
from minidecode.proof.mistakes import DRAFT, TARGET, target_row


def disliked(logits, history):
    """A processor that looks at the whole history."""
    logits[sum(history) % len(logits)] -= 1.5
    return logits


BITING = {  # values that change the tables of three tokens
    "temperature": 0.5,
    "top_k": 2,
    "top_p": 0.7,
    "min_p": 0.5,
    "typical_p": 0.6,
    "epsilon": 0.25,
    "eta": 0.5,
    "top_n_sigma": 1.2,
    "logit_bias": {1: -0.8, 2: 0.4},
    "repetition_penalty": 1.7,
    "presence_penalty": 0.9,
    "frequency_penalty": 0.6,
    "no_repeat_ngram_size": 2,
    "bad_words": [[0, 1], [2, 2]],
    "suppress": [1],
    "processors": [disliked],
}
TOGETHER = {
    "most at once": Warp(
        processors=[disliked],
        logit_bias={0: 0.3},
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        bad_words=[[2, 0, 1]],
        top_n_sigma=1.9,
        temperature=1.3,
        min_p=0.1,
        typical_p=0.95,
        epsilon=0.02,
        eta=0.1,
    )
}
WARPS = {name: Warp(**{name: value}) for name, value in BITING.items()} | TOGETHER
EVERY = pytest.mark.parametrize("name", WARPS)
PROMPT, LENGTH = [0, 1, 0], 3
ENDING = TableModel(target_row, eos=2)


def test_every_setting_is_among_them():
    assert BITING.keys() == SETTINGS.keys()


def law_of(decode, *models, **options):
    def run(chance):
        steps = decode(*models, PROMPT, chance=chance, max_new_tokens=LENGTH, **options)
        return exact.tokens_of(steps)

    return exact.law(run)


@EVERY
def test_speculation_keeps_the_law(name):
    warp = WARPS[name]
    plain = law_of(sample, TARGET, warp=warp)
    assert exact.total_variation(plain, law_of(sample, TARGET)) > 0.01  # the setting does something
    found = law_of(speculative, TARGET, DRAFT, warp=warp, num_draft_tokens=2)
    assert exact.total_variation(found, plain) < 1e-12


@EVERY
def test_contrastive_speculation_keeps_the_law(name):
    warp, options = WARPS[name], {"alpha": 0.05}
    plain = law_of(contrastive, TARGET, DRAFT, warp=warp, **options)
    options |= {"num_draft_tokens": 2}
    found = law_of(speculative_contrastive, TARGET, DRAFT, warp=warp, **options)
    assert exact.total_variation(found, plain) < 1e-12


@EVERY
def test_under_shared_noise_the_text_is_that_of_plain_sampling(name):
    for seed in range(5):
        options = {"warp": WARPS[name], "max_new_tokens": 12}
        plain = exact.tokens_of(sample(TARGET, PROMPT, chance=GumbelDice(seed), **options))
        rounds = speculative(TARGET, DRAFT, PROMPT, chance=GumbelDice(seed), **options)
        assert exact.tokens_of(rounds) == plain


# min_new_tokens


@pytest.mark.parametrize("least", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2])
def test_no_end_before_min_new_tokens_and_the_law_of_plain_sampling(least, k):
    options = {"min_new_tokens": least}
    plain = law_of(sample, ENDING, **options)
    assert {len(tokens) for tokens in plain} == set(range(min(least + 1, LENGTH), LENGTH + 1))
    assert all(2 not in tokens[:least] for tokens in plain)
    found = law_of(speculative, ENDING, DRAFT, num_draft_tokens=k, **options)
    assert exact.total_variation(found, plain) < 1e-12


def test_the_law_with_min_new_tokens_by_hand():
    """Rows renormalised without the end id 2 for two tokens, whole after them."""
    plain = law_of(sample, ENDING, min_new_tokens=2)
    for tokens, share in plain.items():
        right = 1.0
        for i, token in enumerate(tokens):
            row = target_row([*PROMPT, *tokens[:i]])
            right *= row[token] / (row[:2].sum() if i < 2 else 1)
        assert share == pytest.approx(right, rel=1e-12)


def test_contrastive_speculation_with_min_new_tokens_keeps_the_law():
    options = {"warp": Warp(), "min_new_tokens": 1, "alpha": 0.05}
    plain = law_of(contrastive, ENDING, DRAFT, **options)
    assert min(map(len, plain)) == 2
    found = law_of(speculative_contrastive, ENDING, DRAFT, num_draft_tokens=2, **options)
    assert exact.total_variation(found, plain) < 1e-12


def test_a_text_of_end_ids_alone_is_blocked_until_it_may_end():
    only_end = TableModel([[0.0, 0.0, 1.0]] * 3, eos=2)
    for decode in (sample, lambda *rest, **options: speculative(only_end, *rest, **options)):
        [step] = decode(only_end, [0], min_new_tokens=1, max_new_tokens=3)
        assert (step.tokens, step.finish_reason) == ((), "blocked")


def test_a_draft_with_fewer_ids_takes_the_settings_that_concern_it():
    draft = TableModel([[0.6, 0.4], [0.3, 0.7]])
    for settings in ({"suppress": [2]}, {"logit_bias": {2: -np.inf}}, {"bad_words": [[2]]}):
        warp = Warp(**settings)
        plain = law_of(sample, TARGET, warp=warp)
        found = law_of(speculative, TARGET, draft, warp=warp, num_draft_tokens=2)
        assert exact.total_variation(found, plain) < 1e-12


@pytest.mark.parametrize("least", [-1, 1.5, True, "1", None, 10**400])
def test_what_min_new_tokens_is_not(least):
    with pytest.raises(InputError, match=r"^min_new_tokens: got .* was wanted"):
        sample(ENDING, [0], min_new_tokens=least)


def test_min_new_tokens_needs_room_and_an_end():
    with pytest.raises(InputError, match=r"^min_new_tokens: got 4, at most max_new_tokens \(3\) "):
        sample(ENDING, [0], min_new_tokens=4, max_new_tokens=3)
    with pytest.raises(InputError, match=r"^min_new_tokens: has no effect without an end id"):
        sample(ENDING, [0], min_new_tokens=4, eos=None)
    steps = list(sample(ENDING, np.array([0, 1]), min_new_tokens=3, max_new_tokens=3, eos=[1, 2]))
    assert [step.tokens for step in steps] == [(0,)] * 3
