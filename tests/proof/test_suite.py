"""The chi-square test, and the command that proves and tests."""

import functools
import json
import math
import sys

import numpy as np
import pytest
from builders import random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import (
    InputError,
    ModelDraft,
    PromptLookupDraft,
    TableModel,
    Warp,
    exact,
    speculative,
)
from minidecode.cli import main
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.proof import chi_square, mistakes, statistical, suite
from minidecode.proof.statistical import (
    cell_of,
    make_cells,
    redrawing,
    row_after,
    statistical_test,
)


@pytest.mark.parametrize(  # from printed tables of the chi-square distribution
    "x, df, p",
    [(3.841, 1, 0.05), (18.307, 10, 0.05), (23.209, 10, 0.01), (124.342, 100, 0.05), (0, 3, 1)],
)
def test_tail_probabilities_are_those_of_the_tables(x, df, p):
    assert chi_square.tail(x, df) == pytest.approx(p, rel=1e-3)


@pytest.mark.parametrize("x", [0.1, 1.0, 5.0, 40.0])
def test_with_two_degrees_of_freedom_the_tail_is_exponential(x):
    assert chi_square.tail(x, 2) == pytest.approx(math.exp(-x / 2), rel=1e-12)


@pytest.mark.parametrize("df", [1, 7, 300])
def test_critical_is_the_inverse_of_tail(df):
    assert chi_square.tail(chi_square.critical(1e-3, df), df) == pytest.approx(1e-3, rel=1e-9)


def test_the_statistic_by_hand():
    assert chi_square.statistic([30, 70], [0.5, 0.5]) == 16


def test_power_is_the_significance_when_nothing_is_wrong_and_grows_to_one():
    p, q = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
    assert chi_square.power(1000, p, p, 0.01) == pytest.approx(0.01)
    powers = [chi_square.power(n, p, q, 0.01) for n in (10, 100, 1000)]
    assert powers == sorted(powers)
    assert powers[-1] > 0.99


def test_power_agrees_with_simulation():
    p, q, n = np.array([0.5, 0.3, 0.2]), np.array([0.45, 0.35, 0.2]), 600
    counts = np.random.default_rng(0).multinomial(n, q, size=4000)
    statistics = ((counts - n * p) ** 2 / (n * p)).sum(axis=1)
    found = np.mean(statistics > chi_square.critical(0.05, 2))
    assert chi_square.power(n, p, q, 0.05) == pytest.approx(found, abs=0.04)


def tiny(seed):
    config, tensors = random_gpt2(seed, 31, 1, 2, 8, 16)
    tensors = {name: 0.5 * t if name == "wte.weight" else t for name, t in tensors.items()}
    return GPT2(Config.from_dict(config), tensors)


def test_cells_are_a_partition_of_all_pairs():
    model, prompt, samples = tiny(1), [3], 2000
    row = np.asarray(Warp()(model.forward(prompt, model.new_cache())[-1], prompt), dtype=np.float64)
    cells = make_cells(model, prompt, Warp(), row, samples)
    assert sum(cells.values()) == pytest.approx(1, abs=1e-5)
    assert min(cells.values()) * samples >= 5 - 1e-9
    for x in range(31):
        for y in range(31):
            assert cell_of(cells, x, y) in cells


def test_the_right_decoder_passes_on_real_models():
    test = statistical_test(tiny(1), tiny(2), [3], 600, seed=5)
    assert test.passed
    assert test.cells > 5


def test_a_wrong_decoder_fails_on_real_models(monkeypatch):
    from minidecode.speculation.loop import speculative

    def redraws(p, q, drafted, chance, position=0):
        for i, x in enumerate(drafted):
            if not chance.accept(min(1.0, p[i][x] / q[i][x])):
                return i, chance.choose(p[i], position)
        return len(drafted), chance.choose(p[len(drafted)], position)

    def wrong(*args, **options):
        return speculative(*args, verify=redraws, **options)

    monkeypatch.setattr(statistical, "speculative", wrong)
    test = statistical_test(tiny(1), tiny(2), [3], 1500, seed=5)
    assert test.power > 0.99
    assert not test.passed


def test_too_few_samples_are_refused():
    with pytest.raises(InputError, match="samples: got 99, at least 100"):
        statistical_test(tiny(1), tiny(2), [3], 99)
    with pytest.raises(InputError, match="concentrated"):
        statistical_test(tiny(1), tiny(2), [3], 100, warp=Warp(top_k=1))


def test_verify_proves_and_rejects(capsys):
    assert main(["verify", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["passed"]
    assert all(row["total_variation"] < 1e-12 for row in facts["decoder"].values())
    assert all(row["total_variation"] > 0.05 for row in facts["wrong decoders"].values())
    assert max(row["paths"] for row in facts["decoder"].values()) > 1000


def test_verify_tests_real_models(capsys):
    command = ["verify", "--target", "storyteller-1m", "--draft", "storyteller-1m"]
    assert main([*command, "--samples", "200"]) == 0
    assert "power against redrawing from p" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--target", "storyteller-6m"], "both or neither"),
        (["--samples", "500"], "--samples has no effect without --target and --draft"),
        (["--top-k", "5"], "--top-k has no effect"),
    ],
)
def test_verify_refuses_half_a_command(arguments, message, capsys):
    assert main(["verify", *arguments]) == 2
    assert message in capsys.readouterr().err


# What the power is the power of


def wrong_law(target, draft, cells, k):
    """The cells' probabilities for the real loop with a rule that redraws from p."""

    def redraws(p, q, drafted, chance, position=0):
        for i, x in enumerate(drafted):
            if not chance.accept(min(1.0, p[i][x] / q[i][x])):
                return i, chance.choose(p[i], position)
        return len(drafted), chance.choose(p[len(drafted)], position)

    law = exact.law(
        lambda chance: speculative(
            target, draft, [0], chance=chance, verify=redraws, num_draft_tokens=k, max_new_tokens=3
        )
    )
    found = dict.fromkeys(cells, 0.0)
    for (x, y, _), probability in law.items():
        found[cell_of(cells, x, y)] += probability
    return list(found.values())


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("samples", [100, 5000])
@pytest.mark.parametrize("draft", [mistakes.DRAFT, TableModel([[0.3, 0.7], [0.6, 0.4]])])
def test_the_power_is_that_of_the_decoder_it_names_over_both_tokens(k, samples, draft):
    target = TableModel([[0.5, 0.3, 0.2], [0.1, 0.88, 0.02], [0.3, 0.6, 0.1]])
    warp = Warp()
    cells = make_cells(target, [0], warp, row_after(target, [0], warp), samples)
    found = redrawing(target, draft, [0], warp, cells, k)
    assert sum(found) == pytest.approx(1)
    if draft is mistakes.DRAFT:
        assert found == pytest.approx(wrong_law(target, draft, cells, k), abs=1e-12)


def test_exactly_two_cells_are_enough_and_one_is_too_few():
    first = [0.9] + [0.1 / 19] * 19
    target = TableModel(lambda history: first if len(history) == 1 else [1 / 20] * 20)
    warp = Warp()
    p = row_after(target, [0], warp)
    assert set(make_cells(target, [0], warp, p, 60)) == {(None, None), (0, None)}
    assert statistical_test(target, target, [0], 110, seed=1).cells == 2
    with pytest.raises(InputError, match="concentrated"):
        make_cells(target, [0], warp, p, 5)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--temperature", "0"], "temperature: got 0"),
        (["--num-draft-tokens", "0"], "num_draft_tokens: got 0"),
    ],
)
def test_where_nothing_is_left_to_chance_there_is_nothing_to_test(options, message, capsys):
    command = ["verify", "--target", "storyteller-1m", "--draft", "storyteller-1m", *options]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error and "there is nothing to test" in error


def test_verify_ends_with_a_summary(capsys):
    assert main(["verify"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    right, wrong = len(list(suite.settings())), len(mistakes.WRONG) + len(mistakes.LOSSY)
    assert last.startswith(f"passed: {right} of {right} settings are exact")
    assert f"{wrong} of {wrong} wrong and lossy decoders are rejected" in last


RULES = st.sampled_from(["token", "block"])
SCHEDULES = st.sampled_from(["constant", "heuristic", "auto"])
KINDS = st.sampled_from(
    [ModelDraft, PromptLookupDraft, functools.partial(ModelDraft, stop_below=0.4)]
)
WARPS = st.builds(
    Warp,
    temperature=st.sampled_from([0.5, 1.0, 1.5]),
    top_k=st.integers(0, 3),
    top_p=st.sampled_from([0.7, 1.0]),
    min_p=st.sampled_from([0.0, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.5]),
    no_repeat_ngram_size=st.sampled_from([0, 2]),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(RULES, SCHEDULES, KINDS, WARPS, st.integers(1, 3), st.integers(0, 99), st.integers(2, 3))
def test_random_settings_of_the_real_decoder_are_exact(rule, schedule, kind, warp, k, seed, size):
    """Rule x schedule x draft x warp x length, on tables drawn at random, some with zeros."""
    p, q = random_rows(seed, size), random_rows(seed + 100, size)

    def decoder(target, prompt, **rest):
        draft = kind() if kind is PromptLookupDraft else kind(TableModel(q))
        how = {"num_draft_tokens": k, "schedule": schedule, "verify": rule}
        return speculative(target, draft, prompt, clock=suite.ticking_clock(), **how, **rest)

    eos = (size - 1,) if seed % 3 == 0 else None
    report = exact.check(decoder, TableModel(p), [0, 1], warp=warp, max_new_tokens=3, eos=eos)
    assert report.passed, report


def random_rows(seed, size):
    """A function of the whole history; a third of its numbers are 0."""

    def row(history):
        rng = np.random.default_rng([seed, size, *history])
        weights = rng.random(size) * (rng.random(size) > 0.33)
        weights[rng.integers(size)] += 0.1
        return weights / weights.sum()

    return row


def test_verify_on_processes_says_the_same(capsys):
    facts = []
    for jobs in ([], ["--jobs", "2"]):
        assert main(["verify", "--json", *jobs]) == 0
        facts.append(json.loads(capsys.readouterr().out))
    assert facts[0] == facts[1]


def test_a_library_that_is_not_installed_is_named_with_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["verify", "--library", "transformers"]) == 1
    error = capsys.readouterr().err
    assert "is not installed: pip install 'minidecode[peers]'" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--library", "other"], "invalid choice"),
        (["--jobs", "0"], "--jobs: got 0"),
        (["--library", "transformers", "--top-k", "5"], "--top-k has no effect"),
        (["--target", "a", "--draft", "b", "--jobs", "2"], "--jobs has no effect with --target"),
    ],
)
def test_verify_refuses_options_without_effect(arguments, message, capsys):
    try:
        code = main(["verify", *arguments])
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("rule", mistakes.LOSSY)
def test_lossy_rules_are_as_far_off_as_they_were_measured(rule):
    report = mistakes.report(rule)
    assert not report.passed and report.complete
    assert report.distance > 0.3


def test_lenience_keeps_its_promise():
    """No first token comes more often than with p / l."""
    report = mistakes.report("lenience 0.5: accepts with min(1, p / (0.5 q))")
    for x, p in enumerate(mistakes.TARGET.row([0])):
        got = sum(probability for text, probability in report.law.items() if text[0] == x)
        assert got <= p / 0.5 + 1e-12
