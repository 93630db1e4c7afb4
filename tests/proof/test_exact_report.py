"""What a report says: where laws part, what comes of too many paths, and hints; executors."""

import itertools
import math
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import InputError, MinidecodeError, TableModel, exact, sample, speculative
from minidecode.proof import paths

TARGET = TableModel([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
DRAFT = TableModel([[0.3, 0.1, 0.6], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]])


def four_paths(chance):
    return [chance.accept(0.5), chance.accept(0.25)]


def decoder(target, prompt, **options):
    """At the top of a module, as other processes want it."""
    return speculative(target, DRAFT, prompt, num_draft_tokens=4, **options)


def redrawing(target, prompt, **options):
    def redraw(p, q, drafted, chance, position=0):
        for i, x in enumerate(drafted):
            if not chance.accept(min(1.0, p[i][x] / q[i][x])):
                return i, chance.choose(p[i], position)
        return len(drafted), chance.choose(p[len(drafted)], position)

    return speculative(target, DRAFT, prompt, verify=redraw, **options)


# Numbers of paths


def test_max_paths_is_the_number_of_paths_that_may_be():
    assert sum(exact.law(four_paths, max_paths=4).values()) == 1
    with pytest.raises(MinidecodeError, match="more than 3 paths"):
        exact.law(four_paths, max_paths=3)
    assert exact.compare(four_paths, four_paths, max_paths=4).passed
    assert not exact.compare(four_paths, four_paths, max_paths=3).passed


@pytest.mark.parametrize("n, paths", [(1, 3), (2, 15), (3, 129)])
def test_the_number_of_paths_of_the_readme_s_tables(n, paths):
    report = exact.check(decoder, TARGET, max_new_tokens=n)
    assert report.paths == paths
    assert report.passed and report.complete


@pytest.mark.parametrize("bad", [0, -1])
def test_no_paths_at_all_are_refused(bad):
    with pytest.raises(InputError, match="max_paths: got"):
        exact.law(four_paths, max_paths=bad)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 400))
def test_any_limit_below_the_number_of_paths_leaves_some_out(options, limit):
    def program(chance):
        return [chance.choose([1] * n, 0) for n in options]

    total = math.prod(options)
    report = exact.compare(program, program, max_paths=limit)
    assert report.complete == report.passed == (limit >= total)
    assert report.paths == min(limit, total)
    assert math.fsum(report.law.values()) == pytest.approx(min(1, limit / total))


def test_what_is_found_at_the_limit_is_a_lower_bound_of_the_distance():
    whole = exact.check(redrawing, TARGET, max_new_tokens=4, eos=None)
    assert whole.complete and whole.distance > 0.1
    bounds = []
    for limit in (50, 400, 2000, whole.paths - 1):
        report = exact.check(redrawing, TARGET, max_new_tokens=4, eos=None, max_paths=limit)
        assert not report.passed and not report.complete and report.paths == limit
        assert report.distance <= whole.distance + 1e-12
        assert "lower max_new_tokens" in report.hints[0] and "at least" in str(report)
        bounds.append(report.distance)
    assert bounds[-1] > 0.9 * whole.distance  # the likeliest paths come first
    assert bounds == sorted(bounds)


def test_a_right_decoder_at_the_limit_is_not_decided():
    report = exact.check(decoder, TARGET, max_new_tokens=4, max_paths=100)
    assert not report.passed and report.distance == pytest.approx(0, abs=1e-12)
    assert "NOT DECIDED" in str(report)


laws = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any)


@given(laws, laws, st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_the_least_distance_is_one_that_the_whole_laws_exceed(a, b, known):
    """Whatever part of each probability is known."""
    a, b = ([x / sum(law) for x in law] for law in (a, b))
    parts = [p * share for p, share in zip((*a, *b), known)]
    least = exact.least_variation(dict(enumerate(parts[:4])), dict(enumerate(parts[4:])))
    assert least <= exact.total_variation(dict(enumerate(a)), dict(enumerate(b))) + 1e-12


def test_the_estimate_is_exact_where_all_paths_have_the_same_choices():
    assert paths.estimate_paths(lambda chance: [chance.choose([1] * 3, 0) for _ in range(4)]) == 81


def test_the_estimate_is_of_the_right_size_for_a_real_decoder():
    program = exact.Decoding(decoder, TARGET, (0,), None, {"max_new_tokens": 5})
    assert 161_595 / 2 < paths.estimate_paths(program) < 161_595 * 2


def test_progress_is_told_of_every_path_past_the_first_thousand():
    told = []

    class Bar:
        def __init__(self, total, desc, unit):
            told.append(total)

        def update(self, paths):
            told.append(paths)

        def close(self):
            told.append("closed")

    exact.law(lambda chance: [chance.accept(0.5) for _ in range(12)], progress=Bar)
    assert told[0] == 2**12 and told[-1] == "closed"
    assert sum(told[1:-1]) == 2**12 - paths.EARLY


# Executors


def many(chance):
    """1,458 paths whose products round."""
    return [chance.choose([0.1, 0.2, 0.7], 0) for _ in range(6)] + [chance.accept(1 / 3)]


@pytest.mark.parametrize("share", [1, 100, 2_000])
def test_subtrees_on_threads_give_the_same_law_to_the_last_bit(share, monkeypatch):
    monkeypatch.setattr(paths, "SHARE", share)
    with ThreadPoolExecutor(2) as executor:
        assert exact.law(many, executor=executor) == exact.law(many)


def test_an_executor_respects_the_limit():
    with ThreadPoolExecutor(2) as executor:
        assert exact.law(many, 1458, executor=executor) == exact.law(many)
        report = exact.compare(many, many, max_paths=1457, executor=executor)
    assert not report.complete and report.paths == 1457


def test_other_processes_give_the_same_report():
    alone = exact.check(decoder, TARGET, max_new_tokens=3)
    with ProcessPoolExecutor(2, get_context("fork")) as executor:
        report = exact.check(decoder, TARGET, max_new_tokens=3, executor=executor)
        assert report == alone
        with pytest.raises(InputError, match="top of a module"):
            exact.law(lambda chance: chance.accept(0.5) + chance.accept(0.5), executor=executor)
        failing = exact.Decoding(nothing_of_the_kind, TARGET, (0,), None, {})
        with pytest.raises(ZeroDivisionError):
            exact.law(failing, executor=executor)


def nothing_of_the_kind(target, prompt, chance, **options):
    if chance.accept(0.5):
        return [0]
    raise ZeroDivisionError


def test_a_dask_cluster_is_an_executor_too():
    distributed = pytest.importorskip("distributed", reason="dask's distributed is not installed")
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        report = exact.check(sample, TARGET, max_new_tokens=4, executor=client.get_executor())
    assert report.passed


def test_tables_and_programs_can_be_pickled():
    again = pickle.loads(pickle.dumps(TARGET))
    assert again.row([0, 2]).tolist() == TARGET.row([0, 2]).tolist()
    program = exact.Decoding(decoder, TARGET, (0,), exact.remembering(None), {"max_new_tokens": 2})
    assert exact.law(pickle.loads(pickle.dumps(program))) == exact.law(program)


# Reports


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_first_position_at_which_laws_part(position):
    def program(wrong):
        def run(chance):
            return [chance.accept(0.3 if wrong and i == position else 0.5) for i in range(3)]

        return run

    report = exact.compare(program(True), program(False))
    assert report.parting() == position
    assert f"part at position {position}" in str(report)


def test_a_text_that_ends_early_parts_where_it_ends():
    report = exact.compare(lambda chance: [0, 1], lambda chance: [0, 1, 2])
    assert report.parting() == 2
    assert report.hints == (
        "the program took no choice from chance: it is greedy, or draws from a randomness of its "
        "own, such as a generator that was made before",
        "the program gave one token fewer than asked (2, not 3)",
    )


def test_laws_that_agree_or_are_not_of_texts_part_nowhere():
    assert exact.compare(four_paths, four_paths).parting() is None
    assert exact.compare(lambda c: "a", lambda c: "b").parting() is None


def test_the_worst_outcomes_stand_first():
    got, wanted = {(0,): 0.5, (1,): 0.5}, {(0,): 0.4, (1,): 0.3, (2,): 0.3}
    report = exact.compare(lambda chance: [chance.choose([1, 1], 0)], wanted)
    assert report.law == got
    assert report.worst() == ((2,), 0.0, 0.3)  # an outcome that never came
    assert report.worst_outcomes(2) == [((2,), 0.0, 0.3), ((1,), 0.5, 0.3)]
    assert len(report.worst_outcomes()) == 3
    assert str(report).splitlines()[2].split() == ["outcome", "got", "wanted"]
    assert "(2,)" in str(report).splitlines()[3]


def test_an_outcome_that_should_never_come_is_the_worst():
    report = exact.compare(lambda chance: [chance.choose([1, 3], 0)], {(0,): 1.0})
    assert report.worst() in {((0,), 0.25, 1.0), ((1,), 0.75, 0.0)}
    assert dict.fromkeys(x for x, *_ in report.worst_outcomes()) == {(0,): None, (1,): None}


def test_a_decoder_that_gives_one_token_more_is_told_so():
    def longer(target, prompt, *, max_new_tokens, **options):
        return sample(target, prompt, max_new_tokens=max_new_tokens + 1, **options)

    report = exact.check(longer, TARGET, max_new_tokens=2)
    assert report.parting() == 2
    assert "the program gave one token more than asked (3, not 2)" in report.hints


def test_a_decoder_with_dice_of_its_own_is_told_so():
    def own(target, prompt, *, chance, **options):
        return [0, 1]

    assert "took no choice from chance" in exact.check(own, TARGET, max_new_tokens=2).hints[0]
    certain = exact.check(own, TableModel([[0.0, 1.0], [1.0, 0.0]]), [1], max_new_tokens=2)
    assert certain.passed and certain.hints == ()


def test_an_exact_report_says_so_in_one_line():
    report = exact.check(decoder, TARGET, max_new_tokens=2)
    assert str(report).startswith("exact: total variation") and "\n" not in str(report)


# Outcomes


@pytest.mark.parametrize(
    "outcome, wanted",
    [
        (lambda: [1, [2, 3]], (1, (2, 3))),
        (lambda: np.array([1, 2]), (1, 2)),
        (lambda: (np.int64(1), 2), (1, 2)),
        (lambda: iter([4, 5]), (4, 5)),
        (lambda: "text", "text"),
    ],
)
def test_outcomes_become_hashable(outcome, wanted):
    assert exact.law(lambda chance: outcome()) == {wanted: 1.0}


def test_a_stream_of_steps_is_an_outcome():
    law = exact.law(lambda chance: sample(TARGET, [0], chance=chance, max_new_tokens=1))
    assert law == pytest.approx({(0,): 0.6, (1,): 0.3, (2,): 0.1})


def test_an_outcome_that_cannot_be_counted_is_refused():
    with pytest.raises(InputError, match="outcome of the program: got dict"):
        exact.law(lambda chance: {})


# Refusals


def test_a_choice_that_changes_its_probabilities_is_noticed():
    calls = itertools.count()

    def program(chance):
        return [chance.accept(0.5 if next(calls) < 3 else 0.7), chance.accept(0.5)]

    with pytest.raises(MinidecodeError, match="keeps state"):
        exact.law(program)


def test_a_program_that_ends_early_the_second_time_is_noticed():
    calls = itertools.count()

    def program(chance):
        return [] if next(calls) else [chance.accept(0.5)]

    with pytest.raises(MinidecodeError, match="keeps state"):
        exact.law(program)


# What is remembered stays as it was


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

    assert exact.check(careless, TARGET, max_new_tokens=3, eos=None).passed


@pytest.mark.parametrize("bad", [[True], [1.0], [3], [-1], []])
def test_a_table_that_remembers_still_refuses(bad):
    table = TableModel(np.full((3, 3), 1 / 3))
    table.forward([0, 1], table.new_cache())
    table.forward([1], table.new_cache())
    with pytest.raises(InputError):
        table.forward(bad, table.new_cache())


def test_a_table_that_remembers_still_counts_its_positions():
    table = TableModel(np.full((2, 2), 0.5), n_positions=2)
    for _ in range(2):
        cache = table.new_cache()
        table.forward([0, 1], cache)
        assert cache.length == 2
        with pytest.raises(InputError, match="positions"):
            table.forward([0], cache)
        assert cache.length == 2
