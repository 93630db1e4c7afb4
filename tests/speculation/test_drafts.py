"""Where drafts come from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidecode import Dice, InputError, ModelDraft, PromptLookupDraft, TableModel, Warp

PLAIN = Warp()


# Prompt lookup


@pytest.mark.parametrize(
    "history, k, wanted",
    [
        ([1, 2, 3, 1, 2], 4, [3, 1, 2]),  # what followed the last time
        ([1, 2, 3, 9, 1, 2, 4, 1, 2], 1, [4]),  # the latest occurrence wins
        ([5, 1, 2, 7, 9, 2, 8, 5, 1, 2], 2, [7, 9]),  # but a longer match before it
        ([1, 2, 3], 4, []),  # nothing recurs
        ([7], 4, []),
        ([7, 7], 4, [7]),
        ([1, 2, 1, 2], 0, []),
    ],
)
def test_lookup_drafts_what_followed_the_longest_suffix(history, k, wanted):
    drafted, q = PromptLookupDraft().propose(history, k, PLAIN, Dice(0))
    assert drafted == wanted
    for token, row in zip(drafted, q, strict=True):
        assert row[token] == row.sum() == 1


@given(st.lists(st.integers(0, 3), max_size=14), st.integers(0, 5), st.integers(1, 4))
def test_lookup_agrees_with_the_definition(history, k, max_ngram):
    best = None  # (length, end) of the longest, then latest, earlier occurrence of a suffix
    for n in range(1, max_ngram + 1):
        for end in range(n, len(history)):
            if history[end - n : end] == history[len(history) - n :]:
                best = max(best or (0, 0), (n, end))
    wanted = history[best[1] :][:k] if best else []
    assert PromptLookupDraft(max_ngram).propose(history, k, PLAIN, Dice(0))[0] == wanted


@given(st.lists(st.integers(0, 1), max_size=40), st.sampled_from([1, 2, 5, 100, 10**9]))
def test_lookup_of_any_length_agrees_with_the_definition(history, max_ngram):
    found = [
        (n, end)
        for n in range(1, min(max_ngram, len(history)) + 1)
        for end in range(n, len(history))
        if history[end - n : end] == history[len(history) - n :]
    ]
    wanted = history[max(found)[1] :][:3] if found else []
    assert PromptLookupDraft(max_ngram).propose(history, 3, PLAIN, Dice(0))[0] == wanted


@pytest.mark.parametrize(
    "options, wanted", [({"max_ngram": 1}, [8]), ({"max_ngram": 2}, [9]), ({}, [9])]
)
def test_a_longer_suffix_counts_only_up_to_max_ngram(options, wanted):
    history = [1, 2, 9, 3, 2, 8, 1, 2]
    assert PromptLookupDraft(**options).propose(history, 1, PLAIN, Dice(0))[0] == wanted


def test_lookup_goes_by_four_tokens_unless_told_otherwise():
    suffix = [1, 2, 3, 4, 5]
    history = [0, *suffix, 9, 8, *suffix[1:], 7, 6, *suffix]  # five tokens recur before the 9
    assert PromptLookupDraft().propose(history, 1, PLAIN, Dice(0))[0] == [7]
    assert PromptLookupDraft(max_ngram=5).propose(history, 1, PLAIN, Dice(0))[0] == [9]


class Counted(int):
    """An id that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


@pytest.mark.parametrize("pattern", [[0], [0, 1], [0, 0, 1], [0, 1, 0, 0, 1, 0, 1, 2]])
@pytest.mark.parametrize("max_ngram", [4, 50, 10**6])
def test_lookup_takes_steps_in_proportion_to_the_text(pattern, max_ngram):
    size = 3000
    history = [Counted(x) for x in (pattern * size)[:size]]
    Counted.compared = 0
    PromptLookupDraft(max_ngram).propose(history, 4, PLAIN, Dice(0))
    assert Counted.compared <= 3 * size


@pytest.mark.parametrize("max_ngram", [0, -1, 2.5, 2.0, True, "4", None])
def test_lookup_needs_a_whole_number_of_tokens(max_ngram):
    with pytest.raises(InputError, match=r"max_ngram: got .*, a whole number of at least 1"):
        PromptLookupDraft(max_ngram)


def test_lookup_takes_numpys_integers():
    drafted, _ = PromptLookupDraft(np.int64(2)).propose([1, 2, 1], 1, PLAIN, Dice(0))
    assert drafted == [2]


# A model as the draft


def test_the_draft_reports_the_rows_it_drew_from():
    table = TableModel([[0.25, 0.75], [0.5, 0.5]])
    drafted, q = ModelDraft(table).propose([0], 3, PLAIN, Dice(3))
    assert len(drafted) == len(q) == 3
    for before, row in zip([0, *drafted], q):
        assert row == pytest.approx(table.row([before]))


def test_an_unsure_token_is_the_last_and_stays():
    table = TableModel([[0.1, 0.9], [0.9, 0.1]])
    for seed in range(40):
        drafted, q = ModelDraft(table, stop_below=0.5).propose([0], 6, PLAIN, Dice(seed))
        sure = [row[x] >= 0.5 for x, row in zip(drafted, q)]
        assert all(sure[:-1])
        assert len(drafted) == 6 or not sure[-1]


def test_a_blocked_draft_ends_early():
    warp = Warp(no_repeat_ngram_size=1)
    drafted, _ = ModelDraft(TableModel(np.full((3, 3), 1 / 3))).propose([0], 5, warp, Dice(0))
    assert sorted(drafted) == [1, 2]


@pytest.mark.parametrize("length, wanted", [(1, 5), (6, 3), (8, 1), (9, 0), (12, 0)])
def test_a_draft_uses_all_of_its_positions_and_no_more(length, wanted):
    draft = ModelDraft(TableModel(np.full((2, 2), 0.5), n_positions=8))
    assert len(draft.propose([0] * length, 5, PLAIN, Dice(0))[0]) == wanted


def test_rollback_lets_the_draft_go_on_from_what_was_committed():
    table = TableModel(lambda h: np.roll([0.7, 0.2, 0.1], sum(h)))
    draft = ModelDraft(table)
    draft.propose([0, 1], 3, PLAIN, Dice(0))
    draft.rollback(2)
    assert draft.cache.length == 2
    _, q = draft.propose([0, 1, 2], 2, PLAIN, Dice(1))
    assert q[0] == pytest.approx(table.row([0, 1, 2]))


def test_a_q_equal_to_stop_below_does_not_stop():
    table = TableModel([[0.5, 0.5], [0.5, 0.5]])
    drafted, _ = ModelDraft(table, stop_below=0.5).propose([0], 4, PLAIN, Dice(0))
    assert len(drafted) == 4


@pytest.mark.parametrize("value", [-0.1, 1, float("nan"), "0.5", None, 10**400])
def test_stop_below_is_a_probability(value):
    with pytest.raises(InputError, match="stop_below"):
        ModelDraft(TableModel([[1.0]]), stop_below=value)
