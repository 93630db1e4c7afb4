"""A draft with fewer ids than the target: the law is the target's, and drafting goes on after."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import (
    Dice,
    GumbelDice,
    ModelDraft,
    TableModel,
    Warp,
    exact,
    sample,
    speculative,
    speculative_many,
)

PLAIN = Warp()
TARGET = TableModel(
    lambda h: [[0.3, 0.2, 0.5], [0.1, 0.5, 0.4], [0.6, 0.1, 0.3]][(sum(h) + len(h)) % 3]
)
DRAFT = TableModel([[0.4, 0.6], [0.7, 0.3]])  # knows no id 2


def ids(steps):
    return list(exact.tokens_of(steps))


def table():
    """Knows the ids 0 to 2; each row depends on all that it reads."""
    return TableModel(lambda h: np.roll([0.7, 0.2, 0.1], sum(h) + len(h)))


@pytest.mark.parametrize(
    "history, behind",
    [([0, 1, 5], []), ([5], []), ([0, 5, 1], [1]), ([5, 1, 2, 7, 0, 0], [0, 0]), ([1, 0], [1, 0])],
)
def test_a_draft_goes_by_the_text_behind_what_it_cannot_read(history, behind):
    drafted, q = ModelDraft(table()).propose(history, 2, PLAIN, Dice(0))
    assert len(drafted) == (2 if behind else 0)
    if behind:
        assert q[0] == pytest.approx(table().row(behind))
        assert q[1] == pytest.approx(table().row([*behind, drafted[0]]))


def test_a_draft_resumes_when_it_can_read_again():
    draft, history = ModelDraft(table()), [0, 1]
    for more in ([], [2, 3], [1], [0, 4, 4], [2], [1, 1]):
        history += more
        drafted, q = draft.propose(history, 2, PLAIN, Dice(1))
        unknown = [i for i, x in enumerate(history) if x > 2]
        behind = history[unknown[-1] + 1 :] if unknown else history
        assert len(drafted) == (2 if behind else 0)
        if behind:
            assert q[0] == pytest.approx(table().row(behind))
        draft.rollback(len(history))
        assert draft.cache.length <= len(behind)
    draft.rollback(0)
    assert draft.propose([1], 1, PLAIN, Dice(0))[1][0] == pytest.approx(table().row([1]))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from(["token", "block"]),
    st.sampled_from(["constant", "heuristic"]),
    st.sampled_from([Warp(), Warp(repetition_penalty=2.0), Warp(no_repeat_ngram_size=2)]),
)
def test_the_law_is_the_targets(prompt, k, rule, schedule, warp):
    def decoder(target, prompt, **options):
        options |= {"num_draft_tokens": k, "verify": rule, "schedule": schedule}
        return speculative(target, ModelDraft(DRAFT), prompt, **options)

    report = exact.check(decoder, TARGET, prompt, warp=warp, max_new_tokens=4)
    assert report.distance < 1e-12, report.worst()


@pytest.mark.parametrize("seed", range(8))
def test_the_text_runs_to_its_end_and_drafts_are_made_again(seed):
    steps = list(speculative(TARGET, DRAFT, [0], chance=Dice(seed), max_new_tokens=40))
    text = [0]
    assert 2 in ids(steps)
    assert len(ids(steps)) == 40
    for step in steps:
        if 40 - (len(text) - 1) > 1:  # room for a draft
            assert (step.drafted == ()) == (text[-1] == 2)
        text += step.tokens


@pytest.mark.parametrize("seed", range(8))
def test_coupled_text_is_that_of_plain_sampling(seed):
    wanted = ids(sample(TARGET, [0, 2], chance=GumbelDice(seed), max_new_tokens=30))
    got = ids(speculative(TARGET, DRAFT, [0, 2], chance=GumbelDice(seed), max_new_tokens=30))
    assert got == wanted


def test_many_prompts_are_what_they_are_alone():
    prompts = [[0], [2], [1, 2, 0], [2, 2]]
    found = [[] for _ in prompts]
    chances = [Dice(i) for i in range(len(prompts))]
    for i, step in speculative_many(TARGET, DRAFT, prompts, chances=chances, max_new_tokens=20):
        found[i] += step.tokens
    for i, prompt in enumerate(prompts):
        alone = speculative(TARGET, DRAFT, prompt, chance=Dice(i), max_new_tokens=20)
        assert found[i] == ids(alone)


def test_a_draft_may_have_fewer_ids_and_fewer_positions():
    draft = TableModel([[0.4, 0.6], [0.7, 0.3]], n_positions=4)
    steps = list(speculative(TARGET, draft, [0], chance=Dice(3), max_new_tokens=60))
    text = [0, *ids(steps)]
    assert len(text) == 61
    first = text.index(2)
    position, later = 1, 0
    for step in steps:
        later += len(step.drafted) if position > first else 0
        position += len(step.tokens)
    assert later > 0  # what it cannot read gives it room again
