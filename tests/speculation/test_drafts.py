"""Where drafts come from, and how many are asked for."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidecode import Dice, InputError, ModelDraft, PromptLookupDraft, TableModel, Warp
from minidecode.speculation.schedules import MAX_DRAFT, Auto, Constant, Heuristic, make_schedule

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


# Schedules


def observe(schedule, accepted, *, drafted=None, draft=1.0, target=10.0):
    k = schedule.next()
    drafted = k if drafted is None else drafted
    n = drafted + 1
    seconds = target(n) if callable(target) else target
    schedule.observe(k, drafted, min(accepted, drafted), (draft * drafted, seconds))
    return k


def test_heuristic_grows_by_two_and_shrinks_by_one_to_one():
    schedule = Heuristic(4)
    assert [observe(schedule, 99) for _ in range(3)] == [4, 6, 8]
    assert [observe(schedule, 0) for _ in range(50)][:3] == [10, 9, 8]
    assert schedule.next() == 1
    assert [observe(schedule, 99) for _ in range(50)][-1] == MAX_DRAFT


def test_heuristic_learns_nothing_from_a_draft_that_ended_early():
    schedule = Heuristic(4)
    observe(schedule, 2, drafted=2)
    assert schedule.next() == 4


def test_auto_drafts_much_where_all_is_accepted():
    schedule = Auto(4)
    lengths = [observe(schedule, 99, draft=0.1, target=10.0) for _ in range(80)]
    assert lengths[-1] >= MAX_DRAFT - 1


def test_auto_stops_drafting_where_nothing_is_accepted_and_comes_back():
    schedule = Auto(4)
    lengths = [observe(schedule, 0, draft=2.0) for _ in range(200)]
    assert sum(k > 0 for k in lengths[100:]) <= 5
    lengths = [observe(schedule, 99, draft=0.1) for _ in range(600)]
    assert min(lengths[-20:]) > 0


@pytest.mark.parametrize("draft", [1.0, 2.0, 5.0])
def test_auto_minds_what_longer_passes_cost(draft):
    dear = Auto(4)
    lengths = [observe(dear, 99, draft=draft, target=lambda n: 10.0 * n) for _ in range(120)]
    assert np.median(lengths[-40:]) <= 1


def test_auto_takes_no_time_from_the_round_that_reads_the_prompt():
    schedule = Auto(4)
    schedule.observe(schedule.next(), 4, 4, None)
    assert schedule.next() == 4
    assert not schedule.pass_cost
    assert schedule.accepted[0] / schedule.tested[0] > 0.75  # but what was accepted counts


def test_auto_tries_no_more_than_one_draft_beyond_what_it_knows():
    schedule = Auto(2)
    longest = 2
    for _ in range(60):
        k = observe(schedule, 99, draft=0.01)
        assert k <= longest + 2  # one beyond the longest pass, and one more to explore
        longest = max(longest, k)
    assert longest == MAX_DRAFT


@pytest.mark.parametrize("prompt_first", [False, True])
@pytest.mark.parametrize("accepted, draft, slope", [(2, 1.0, 0.1), (4, 0.1, 0.5), (1, 0.5, 0.02)])
def test_auto_tries_longer_and_shorter_drafts_in_turn(prompt_first, accepted, draft, slope):
    schedule, differences = Auto(4), []
    if prompt_first:
        schedule.observe(schedule.next(), 4, accepted, None)
    for i in range(400):
        best = schedule.best() if i > 40 else None  # by then it is known
        k = observe(schedule, accepted, draft=draft, target=lambda n: 10 * (1 + slope * n))
        if best is not None:
            differences.append(k - best)
    probes = [d for d in differences if d]
    assert set(probes) == {-1, 1}
    assert all(a == -b for a, b in itertools.pairwise(probes))
    assert len(probes) >= 40


def test_auto_tries_drafts_more_and_more_rarely_where_none_pays():
    schedule = Auto(4)
    tries = [i for i in range(1600) if observe(schedule, 0, draft=2.0)]
    waits = np.diff([i for i in tries if i >= 8]).tolist()
    assert waits == [16, 32, 64, 128, 256, 256, 256, 256, 256]


def test_auto_never_goes_beyond_the_longest_draft_that_it_may():
    schedule = Auto(4)
    lengths = [observe(schedule, 99, draft=0.01) for _ in range(400)]
    assert max(lengths) == MAX_DRAFT
    assert set(lengths[50:]) == {MAX_DRAFT, MAX_DRAFT - 1}


def test_one_slow_pass_does_not_end_drafting():
    """Of plain decoding, or of drafts: what a single round took proves little."""
    for slow in (1, 5, 6):
        schedule = Auto(4)
        for i in range(40):
            pace = 3.0 if i == slow else 1.0
            observe(schedule, 3, draft=0.2, target=lambda n, pace=pace: pace * (10 + 0.1 * n))
        assert schedule.best() >= 3


PAIRS = {  # seconds of a draft step, of a pass over n tokens: as measured, the draft's as 1
    "the pair as it is": (1.0, lambda n: 4.7 + 0.25 * n),
    "GPT-2 small": (1.0, lambda n: 60 * (1 + 0.015 * n)),
    "GPT-2 large": (1.0, lambda n: 200 * (1 + 0.015 * n)),
    "rows that cost much": (1.0, lambda n: 20 * (1 + 0.2 * n)),
}


def simulated_seconds(schedule, rng, acceptance, draft, target, tokens):
    """What a text takes; times are told with noise, and the text is paid without."""
    written = seconds = 0
    while written < tokens:
        k = schedule.next()
        accepted = next((i for i in range(k) if rng.random() >= acceptance), k)
        noise = np.exp(0.1 * rng.standard_normal(2))
        costs = (draft * k, target(k + 1))
        schedule.observe(k, k, accepted, None if written == 0 else tuple(costs * noise))
        written += accepted + 1
        seconds += sum(costs)
    return seconds / written


@pytest.mark.parametrize("acceptance", [0.72, 0.83])  # of the pair, at temperatures 1 and 0
@pytest.mark.parametrize("pair", PAIRS)
def test_auto_comes_near_the_best_constant_length_in_a_short_text(pair, acceptance):
    def mean(make):
        rngs = [np.random.default_rng(seed) for seed in range(40)]
        return np.mean([simulated_seconds(make(), r, acceptance, *PAIRS[pair], 96) for r in rngs])

    best = min(mean(lambda k=k: Constant(k)) for k in (0, 1, 2, 4, 6, 8))
    assert mean(lambda: Auto(4)) < 1.07 * best


def test_auto_finds_the_length_that_the_formula_names():
    a, draft, target = 0.7, 1.0, lambda n: 10.0 + 0.2 * n
    rng = np.random.default_rng(0)
    schedule = Auto(1)
    lengths = []
    for _ in range(600):
        k = schedule.next()
        accepted = next((i for i in range(k) if rng.random() >= a), k)
        schedule.observe(k, k, accepted, (draft * k, target(k + 1)))
        lengths.append(k)
    rate = [sum(a**i for i in range(k + 1)) / (k * draft + target(k + 1)) for k in range(17)]
    chosen = np.array(rate)[lengths[100:]]
    assert np.mean(chosen) > 0.97 * max(rate)


@pytest.mark.parametrize("times", [1, 2, 9])
@pytest.mark.parametrize("accepted", [2, 3, 4])
def test_auto_names_the_best_length_for_known_times(times, accepted):
    schedule = Auto(4)
    for n, seconds in {1: 10, 2: 10, 3: 10, 4: 10, 5: 100}.items():
        for _ in range(times):
            schedule.observe(n - 1, n - 1, min(accepted, n - 1), (1e-9 * (n - 1), seconds))
    assert schedule.best() == 3 if accepted > 2 else schedule.best() < 4


@pytest.mark.parametrize("k", [True, -1, 2.0, "4"])
def test_num_draft_tokens_is_a_whole_number(k):
    with pytest.raises(InputError, match="num_draft_tokens"):
        make_schedule("constant", k)


def test_schedules_go_by_name():
    assert isinstance(make_schedule("constant", 0), Constant)
    assert make_schedule("heuristic", 0).next() == 1
    with pytest.raises(InputError, match="got 'best', one of constant, heuristic, auto"):
        make_schedule("best", 4)
