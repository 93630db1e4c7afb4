"""Mirostat 2: by hand, its average surprise, and what it refuses."""

import math

import numpy as np
import pytest

from minidecode import Dice, InputError, TableModel, Warp, beam_search, exact, generate, sample
from minidecode.cli import main
from minidecode.decoding.mirostat import Mirostat, MirostatState
from minidecode.trace.sampling import trace_sample

HALVES = TableModel([[0.5, 0.25, 0.125, 0.125]] * 4)  # of 1, 2, 3 and 3 bits
WIDE = TableModel(np.tile(np.random.default_rng(0).dirichlet(np.full(60, 0.3)), (60, 1)))


def test_by_hand():
    """mu: 2, then 2 - 0.5 (1 - 1) = 2, then 2 - 0.5 (2 - 1) = 1.5, then 1.5 - 0.5 (1 - 1)."""
    state = MirostatState(Mirostat(1.0, eta=0.5), Warp())
    logits, history = np.log([0.5, 0.25, 0.125, 0.125]), [3]
    for token, mu, right in (
        (0, 2.0, [2 / 3, 1 / 3, 0, 0]),
        (1, 2.0, [2 / 3, 1 / 3, 0, 0]),
        (0, 1.5, [1, 0, 0, 0]),
        (0, 1.5, [1, 0, 0, 0]),
    ):
        probs = state(logits, history)
        assert state.mu == pytest.approx(mu) and probs == pytest.approx(right)
        history.append(token)


def test_the_likeliest_stays_however_small_mu_is():
    state = MirostatState(Mirostat(1e-9), Warp())
    assert state(np.zeros(8), []).tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("tau", [2.8, 3.2, 3.6])  # bits; the likeliest has 2.5, all have 4.5
def test_the_average_surprise_is_the_one_wanted(tau):
    bits = -np.log2(WIDE.row([0]))
    steps = sample(WIDE, [0], mirostat=tau, chance=Dice(1), max_new_tokens=1000)
    tokens = exact.tokens_of(steps)
    assert np.mean([bits[token] for token in tokens]) == pytest.approx(tau, abs=0.15)


def test_each_text_begins_with_a_state_of_its_own():
    options = {"mirostat": Mirostat(1.0, eta=0.7), "max_new_tokens": 20}
    first, second = (
        exact.tokens_of(sample(WIDE, [0], chance=Dice(3), **options)) for _ in range(2)
    )
    assert first == second
    assert generate(WIDE, [0], chance=Dice(3), **options).tokens == list(first)


def test_the_warp_comes_first():
    options = {"mirostat": 3.0, "max_new_tokens": 200, "chance": Dice(0)}
    found = generate(HALVES, [0], suppress=[0], **options)
    assert set(found.tokens) == {1, 2, 3}


@pytest.mark.parametrize("bits", [0, -1, math.nan, math.inf, True, "1", 10**400])
def test_what_is_no_surprise(bits):
    with pytest.raises(InputError, match=r"^mirostat: got .* a finite number of bits above 0 was"):
        sample(HALVES, [0], mirostat=bits)
    with pytest.raises(InputError, match=r"^eta: got .* was wanted"):
        Mirostat(1.0, eta=-1 if bits == 0 else bits if bits != -1 else math.nan)


def test_nothing_else_takes_mirostat():
    for options in ({"draft": HALVES}, {"amateur": HALVES}, {"num_beams": 2}):
        with pytest.raises(InputError, match=r"^mirostat: cannot be combined with"):
            generate(HALVES, [0], mirostat=2.0, max_new_tokens=1, **options)
    with pytest.raises(InputError, match=r"^mirostat: has no effect at temperature 0"):
        generate(HALVES, [0], mirostat=2.0, temperature=0)
    with pytest.raises(TypeError):
        beam_search(HALVES, [0], num_beams=2, mirostat=2.0)


def test_the_trace_tells_what_mirostat_cut():
    options = {"mirostat": 1.0, "max_new_tokens": 5}
    steps = list(trace_sample(HALVES, [0], chance=Dice(2), **options))
    assert [s.step for s in steps] == list(sample(HALVES, [0], chance=Dice(2), **options))
    place = steps[0].candidates[0]
    assert place.p.cuts == (("mirostat", 2, pytest.approx(0.25)),)
    assert place.p.kept == 2 and place.p.final[0] == pytest.approx(2 / 3)


def test_from_the_command_line(capsys):
    words = ["generate", "Once", "--seed", "1", "--max-new-tokens", "5", "--mirostat"]
    assert main([*words, "2.5"]) == 0 and capsys.readouterr().out
    for options, complaint in (
        (["0"], "mirostat: got 0.0"),
        (["2", "--draft", "storyteller-1m"], "--mirostat: cannot be combined with --draft"),
        (["2", "--num-beams", "2"], "--mirostat has no effect with --num-beams"),
        (["2", "--greedy"], "--mirostat has no effect with --greedy"),
    ):
        assert main([*words, *options]) == 2
        assert complaint in capsys.readouterr().err
