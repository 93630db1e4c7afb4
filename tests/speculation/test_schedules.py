"""Schedules: how many tokens to draft next, and what `auto` makes of what the rounds cost."""

import itertools

import numpy as np
import pytest

from minidecode.errors import InputError
from minidecode.speculation.costs import Costs
from minidecode.speculation.schedules import MAX_DRAFT, Auto, Constant, Heuristic, make_schedule


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
    assert not schedule.passes.longest
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


# What n tokens cost


def test_costs_seen_once_lie_on_the_usual_line():
    costs = Costs(fixed=0.8)
    costs.add(5, 10.0)
    assert costs.longest == 5
    assert costs.up_to(10) == pytest.approx([8.4 + 0.4 * i for i in range(10)])


def test_costs_seen_often_are_their_medians():
    costs = Costs(fixed=0.9)
    for n, seconds in {1: 4.0, 2: 5.0, 3: 9.0}.items():
        for one in [seconds] * 8 + [100 * seconds]:
            costs.add(n, one)
    assert costs.up_to(3) == pytest.approx([4.0, 5.0, 9.0], rel=0.1)


def test_costs_forget_what_is_long_ago():
    costs = Costs(fixed=0.9)
    for seconds in [50.0] * 100 + [1.0] * 9:
        costs.add(2, seconds)
    assert costs.up_to(2)[1] == pytest.approx(1.0)


@pytest.mark.parametrize("fixed", [0.0, 0.5, 1.0])
def test_costs_find_the_line_that_the_times_lie_on(fixed):
    costs = Costs(fixed)
    for n in (1, 4, 8, 16) * 9:
        costs.add(n, 3.0 + 0.5 * n)
    assert costs.up_to(20) == pytest.approx([3.0 + 0.5 * n for n in range(1, 21)], rel=0.05)


def test_more_tokens_never_cost_less_on_the_line_and_half_of_them_at_least_half():
    costs = Costs(fixed=0.9)
    costs.add(2, 9.0)
    costs.add(8, 1.0)  # a falling line is noise
    seconds = costs.up_to(16)
    assert seconds[8:] == sorted(seconds[8:])
    costs = Costs(fixed=0.0)
    for n, one in ((4, 1.0), (8, 10.0)):
        costs.add(n, one)
    assert min(costs.up_to(4)) > 0
