"""Every path of a program: how many, up to a limit, shared out; what counts as an outcome."""

import itertools
import math
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from builders import TARGET, decoder, four_paths
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import InputError, MinidecodeError, exact, sample
from minidecode.proof import paths


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
