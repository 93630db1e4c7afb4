"""Stochastic beam search: its walk against the whole tree, its law, its limits and refusals."""

import functools
import itertools
import math
import zlib
from collections import Counter

import numpy as np
import pytest
from builders import random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import (
    Context,
    Dice,
    GumbelDice,
    InputError,
    TableModel,
    Warp,
    generate,
    stochastic_beam_search,
)
from minidecode.cli import main
from minidecode.decoding.stochastic_beam import with_maximum
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.proof.chi_square import statistic, tail

ROWS = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.25, 0.25, 0.5]])
MODEL = TableModel(ROWS, eos=2)
LENGTH = 3


def outcomes(rows, length, eos=2):
    """{text: probability} of a table by the last token, after the prompt [0]."""
    found, open_texts = {}, {(): 1.0}
    for _ in range(length):
        longer = {
            (*text, t): p * rows[text[-1] if text else 0][t]
            for text, p in open_texts.items()
            for t in range(len(rows))
        }
        found |= {text: p for text, p in longer.items() if text[-1] == eos}
        open_texts = {text: p for text, p in longer.items() if text[-1] != eos}
    return {text: p for text, p in (found | open_texts).items() if p > 0}


class KeyedNoise:
    """A chance whose noise depends on the text alone, so that wide and narrow searches share it.

    `note` is a processor of the warp: it is told the text just before the noise is drawn.
    """

    choose = accept = None

    def __init__(self, seed):
        self.seed, self.last = seed, ()

    def note(self, logits, history):
        self.last = tuple(history)
        return logits

    def gumbel(self, size):
        key = zlib.crc32(repr(self.last).encode())
        return np.random.default_rng([self.seed, key]).gumbel(size=size)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.sampled_from([(), 1, (0, 2)]))
def test_a_narrow_search_finds_the_first_texts_of_the_whole_tree(seed, num_beams, eos):
    rows = np.random.default_rng(seed).dirichlet(np.full(3, 0.7), size=3)
    model = TableModel(rows, eos=eos)

    def search(num_beams):
        chance = KeyedNoise(seed)
        warp = Warp(processors=[chance.note], no_repeat_ngram_size=2)
        options = {"warp": warp, "chance": chance, "max_new_tokens": 4}
        return stochastic_beam_search(model, [0, 1], num_beams=num_beams, **options)

    every = search(81)
    assert len({tuple(h.tokens) for h in every}) == len(every)
    assert search(num_beams) == every[:num_beams]
    assert sum(math.exp(sum(h.logprobs)) for h in every) == pytest.approx(1)


def test_the_whole_tree_is_every_text_with_its_probability():
    found = stochastic_beam_search(MODEL, [0], num_beams=40, max_new_tokens=LENGTH)
    wanted = outcomes(ROWS, LENGTH)
    assert {tuple(h.tokens) for h in found} == set(wanted)
    for h in found:
        assert math.exp(sum(h.logprobs)) == pytest.approx(wanted[tuple(h.tokens)], rel=1e-12)
        assert h.finish_reason == ("eos" if h.tokens[-1] == 2 else "length")
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


@given(st.lists(st.floats(-800, 50), min_size=1, max_size=6), st.floats(-800, 800))
def test_the_largest_child_has_the_sum_of_its_parent_and_the_order_stays(sums, largest):
    found = with_maximum(np.array(sums), largest)
    assert found.max() == largest and np.isfinite(found).all()
    assert (np.diff(found[np.argsort(sums, kind="stable")]) >= 0).all()


def test_the_formula_is_the_published_one():
    sums, largest = np.array([0.3, -1.2, 0.9, -3.0]), -0.4
    wanted = -np.log(np.exp(-largest) - np.exp(-sums.max()) + np.exp(-sums))
    assert with_maximum(sums, largest) == pytest.approx(wanted)


@functools.cache
def draws():
    dice, options = Dice(20190301), {"num_beams": 2, "max_new_tokens": LENGTH}
    return [stochastic_beam_search(MODEL, [0], chance=dice, **options) for _ in range(4000)]


def test_the_texts_are_samples_without_replacement_in_order():
    p = outcomes(ROWS, LENGTH)
    pairs = {(a, b): p[a] * p[b] / (1 - p[a]) for a, b in itertools.permutations(p, 2)}
    assert sum(pairs.values()) == pytest.approx(1)
    counts = Counter(tuple(tuple(h.tokens) for h in found) for found in draws())
    assert set(counts) <= set(pairs)
    common = [pair for pair in pairs if pairs[pair] * len(draws()) >= 8]  # the rest are one cell
    cells = [counts[pair] for pair in common]
    expected = [pairs[pair] for pair in common]
    cells.append(len(draws()) - sum(cells))
    expected.append(1 - sum(expected))
    assert tail(statistic(cells, expected), len(cells) - 1) > 1e-3
    replaced = [p[a] * p[b] for a, b in common]  # with replacement: the test would notice
    replaced.append(1 - sum(replaced))
    assert tail(statistic(cells, replaced), len(cells) - 1) < 1e-9


def test_the_sums_are_the_order_statistics_of_perturbed_log_probabilities():
    """The first is standard Gumbel; the second that of the texts left, held below the first."""
    p = outcomes(ROWS, LENGTH)
    first = [math.exp(-math.exp(-a.score)) for a, _ in draws()]
    second = []
    for a, b in draws():
        left = 1 - p[tuple(a.tokens)]
        second.append(math.exp(-left * (math.exp(-b.score) - math.exp(-a.score))))
    for uniform in (first, second):
        cells = np.histogram(uniform, bins=20, range=(0, 1))[0]
        assert tail(statistic(cells, [1 / 20] * 20), 19) > 1e-3


def test_the_warp_shapes_what_is_drawn():
    found = stochastic_beam_search(
        MODEL, [0], num_beams=40, max_new_tokens=LENGTH, warp=Warp(top_k=2, temperature=0.5)
    )
    sharp = np.where(np.sort(ROWS, axis=1)[:, 1:2] <= ROWS, ROWS, 0) ** 2
    sharp[2] = [0.25**2, 0, 0.5**2]  # a tie: the lower id wins
    wanted = outcomes(sharp / sharp.sum(axis=1, keepdims=True), LENGTH)
    assert {tuple(h.tokens) for h in found} == set(wanted)
    for h in found:
        assert math.exp(sum(h.logprobs)) == pytest.approx(wanted[tuple(h.tokens)], rel=1e-12)
    one = stochastic_beam_search(
        MODEL, [0], num_beams=5, max_new_tokens=LENGTH, warp=Warp(temperature=0)
    )
    assert [h.tokens for h in one] == [[0, 0, 0]]


def test_it_ends_as_every_decoder_does():
    found = stochastic_beam_search(
        MODEL, [0], num_beams=9, warp=Warp(no_repeat_ngram_size=1), eos=None, chance=Dice(1)
    )
    assert {h.finish_reason for h in found} == {"blocked"}
    assert {tuple(h.tokens) for h in found} == {(1, 2), (2, 1)}
    later = stochastic_beam_search(
        MODEL, [0], num_beams=40, max_new_tokens=LENGTH, min_new_tokens=LENGTH
    )
    assert all(len(h.tokens) == LENGTH and 2 not in h.tokens[:-1] for h in later)
    [empty] = stochastic_beam_search(MODEL, [0], num_beams=3, max_new_tokens=0)
    assert empty.tokens == []
    short = TableModel(ROWS, n_positions=4)
    assert {
        (len(h.tokens), h.finish_reason) for h in stochastic_beam_search(short, [0, 1], num_beams=3)
    } == {(2, "context")}


def test_the_same_seed_gives_the_same_texts_and_the_caches_follow():
    config, tensors = random_gpt2(1, 21, 2, 2, 16, 64)
    model = GPT2(Config.from_dict(config), tensors)
    options = {"num_beams": 4, "max_new_tokens": 8, "eos": None, "stochastic": True}
    found = generate(model, [3] * 30, chance=Dice(5), **options)
    again = generate(model, [3] * 30, chance=Dice(5), **options)
    assert found.hypotheses == again.hypotheses and len(found.hypotheses) == 4
    few = generate(model, [3] * 30, chance=Dice(5), num_return_sequences=2, **options)
    assert few.hypotheses == found.hypotheses[:2] and few.tokens == found.tokens
    for h in found.hypotheses:
        logits = model.forward([3] * 30 + h.tokens[:-1], model.new_cache(), 8).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        assert h.logprobs == pytest.approx(logprobs[range(8), h.tokens].tolist(), abs=1e-4)


def test_a_context_changes_nothing_and_log_probabilities_are_told():
    context = Context(MODEL)
    for prompt in ([0, 1, 0], [0, 1, 1, 0], [0], [0]):
        options = {"num_beams": 4, "max_new_tokens": 3, "warp": Warp(temperature=0.7)}
        plain = stochastic_beam_search(MODEL, prompt, chance=Dice(4), **options)
        options |= {"stochastic": True, "context": context, "logprobs": 1}
        found = generate(MODEL, prompt, chance=Dice(4), **options).hypotheses
        assert [(h.tokens, h.score) for h in found] == [(h.tokens, h.score) for h in plain]
        for h in found:
            assert [each.warped for each in h.token_logprobs] == pytest.approx(h.logprobs)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"num_beams": None}, "stochastic: has no effect without num_beams"),
        ({"stochastic": 1}, "stochastic: got 1, True or False"),
        ({"num_beams": 0}, "num_beams: got 0"),
        ({"num_return_sequences": 5}, "num_return_sequences: got 5"),
        ({"chance": GumbelDice(1)}, "chance: got .*, a Dice was wanted"),
        ({"draft": object()}, "draft: has no effect with stochastic"),
        ({"amateur": object()}, "amateur: has no effect with stochastic"),
        ({"length_penalty": 2.0}, "length_penalty: has no effect with stochastic"),
        ({"early_stopping": False}, "early_stopping: has no effect with stochastic"),
        ({"num_beam_groups": 2}, "num_beam_groups: has no effect with stochastic"),
        ({"penalty_alpha": 0.5}, "penalty_alpha: has no effect with stochastic"),
        ({"trace": []}, "trace: has no effect with stochastic"),
    ],
)
def test_what_cannot_be_is_refused(options, named):
    options = {"num_beams": 4, "stochastic": True, "max_new_tokens": 2} | options
    with pytest.raises(InputError, match=f"^{named}"):
        generate(MODEL, [0], **options)


def test_stochastic_false_is_as_if_it_were_not_given():
    plain = generate(MODEL, [0], num_beams=2, max_new_tokens=3)
    again = generate(MODEL, [0], num_beams=2, max_new_tokens=3, stochastic=False)
    assert again.hypotheses == plain.hypotheses
    assert generate(MODEL, [0], temperature=0, stochastic=False, max_new_tokens=2).tokens


def test_on_the_command_line(capsys):
    arguments = ["generate", "The king", "--max-new-tokens", "4", "--num-beams", "4"]
    assert main([*arguments, "--stochastic", "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert len({part.strip() for part in text.split("--------------------")}) == 4
    assert main([*arguments, "--stochastic", "--seed", "3"]) == 0
    assert capsys.readouterr().out == text
    for option in ("--greedy", "--coupled", "--length-penalty=2", "--draft=prompt-lookup"):
        assert main([*arguments, "--stochastic", option]) == 2
        assert "has no effect" in capsys.readouterr().err
    assert main([*arguments[:-2], "--stochastic"]) == 2
    assert "--stochastic has no effect without --num-beams" in capsys.readouterr().err
    assert main(["trace", *arguments[1:], "--stochastic"]) == 2
    assert "stochastic beam search cannot be traced yet" in capsys.readouterr().err
