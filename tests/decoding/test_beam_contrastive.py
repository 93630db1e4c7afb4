"""Beam search by the contrastive score, and to stop strings and ends that do not count."""

import itertools
import math

import numpy as np
import pytest
from builders import random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

import minidecode
from minidecode.decoding.beam import beam_search
from minidecode.decoding.contrastive import Contrast, contrastive
from minidecode.decoding.greedy import greedy
from minidecode.errors import InputError
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.table import TableCache, TableModel

MODES = (True, False, "never")


def gpt2(fixture):
    config, tensors = fixture
    return GPT2(Config.from_dict(config), tensors)


def tokens(hypotheses):
    return [h.tokens for h in hypotheses]


class WithoutCache:
    """A model that computes everything anew for each sequence in each pass."""

    def __init__(self, model):
        self.model = model
        self.vocab_size, self.n_positions = model.vocab_size, model.n_positions
        self.eos, self.bos = model.eos, model.bos

    def new_cache(self):
        return TableCache()

    def forward(self, tokens, cache, n_logits=1):
        cache.tokens.extend(tokens)
        return self.model.forward(cache.tokens, self.model.new_cache(), n_logits)

    def forward_many(self, batch, n_logits=1):
        return [self.forward(*sequence, n_logits) for sequence in batch]


# --- the contrastive score in place of the log-probability ----------------------------------------


def test_contrastive_beam_finds_the_best_contrastive_text():
    rng = np.random.default_rng(0)
    expert, amateur = (TableModel(rng.dirichlet(np.ones(4), size=4)) for _ in range(2))
    contrast = Contrast(alpha=0.3)

    def scores(history):
        return contrast(*(np.log(m.row(history)) for m in (expert, amateur)))

    totals = {}
    for text in itertools.product(range(4), repeat=3):
        totals[text] = sum(scores([0, *text[:i]])[t] for i, t in enumerate(text))
    possible = [t for t in totals if totals[t] > -np.inf]
    options = {"num_beams": 64, "num_return_sequences": 64, "max_new_tokens": 3}
    found = beam_search(expert, [0], amateur=amateur, contrast=contrast, **options)
    assert {tuple(h.tokens) for h in found} == set(possible)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for h in found:
        assert sum(h.logprobs) == pytest.approx(totals[tuple(h.tokens)])


def test_a_contrastive_search_stops_for_no_bound():
    """Its scores may be positive, so a later token can make up for any lead."""
    expert = TableModel([[0.1, 0.4, 0.5], [0.9, 0.05, 0.05], [0.4, 0.3, 0.3]])
    amateur = TableModel([[0.1, 0.8, 0.1], [0.01, 0.495, 0.495], [0.4, 0.3, 0.3]])
    options = {"num_beams": 2, "max_new_tokens": 2, "length_penalty": 0, "early_stopping": "never"}
    found = beam_search(expert, [0], eos=2, amateur=amateur, contrast=Contrast(0.5), **options)
    assert found[0].tokens == [1, 0]  # log 0.5 + log 90 against the log 5 of [2]
    assert found[0].score == pytest.approx(math.log(45))


@pytest.mark.parametrize("seed", range(3))
def test_one_contrastive_beam_is_greedy_contrastive_decoding(seed):
    expert = gpt2(random_gpt2(seed, 21, 2, 2, 16, 64))
    amateur = gpt2(random_gpt2(seed + 10, 21, 1, 1, 8, 64))
    steps = contrastive(expert, amateur, [3, 4], alpha=0.2, max_new_tokens=15, eos=5)
    (found,) = beam_search(
        expert,
        [3, 4],
        num_beams=1,
        amateur=amateur,
        contrast=Contrast(0.2),
        max_new_tokens=15,
        eos=5,
    )
    assert found.tokens == [t for step in steps for t in step.tokens]


def test_the_caches_of_the_amateur_follow_too():
    expert = gpt2(random_gpt2(1, 21, 2, 2, 16, 64))
    amateur = gpt2(random_gpt2(2, 21, 1, 1, 8, 64))
    options = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 12, "eos": None}
    found = beam_search(expert, [3] * 30, amateur=amateur, **options)
    without = beam_search(WithoutCache(expert), [3] * 30, amateur=WithoutCache(amateur), **options)
    assert tokens(found) == tokens(without)


def test_alpha_1_leaves_the_contrastive_beam_one_text():
    """Only the expert's likeliest token is plausible after each text."""
    expert = gpt2(random_gpt2(1, 21, 2, 2, 16, 64))
    amateur = gpt2(random_gpt2(2, 21, 1, 1, 8, 64))
    options = {"max_new_tokens": 8, "eos": None}
    found = beam_search(
        expert,
        [3],
        num_beams=4,
        num_return_sequences=4,
        amateur=amateur,
        contrast=Contrast(1.0),
        **options,
    )
    assert tokens(found) == [[t for step in greedy(expert, [3], **options) for t in step.tokens]]


# --- stop strings, and ends that do not count -----------------------------------------------------


class Letters:
    """A tokenizer whose ids are letters: a is 0."""

    def encode(self, text):
        return [ord(c) - ord("a") for c in text]

    def token_bytes(self, token):
        return bytes([ord("a") + token])


@pytest.mark.parametrize("mode", MODES)
def test_early_stopping_counts_ends_among_the_num_beams_best_alone(mode):
    """Public report: few candidates are open, and ends below them filled the list at once."""
    model = TableModel([[0.06, 0.04, 0.5, 0.4]] * 2 + [[0.98, 0, 0.01, 0.01]] * 2, eos=(0, 1))
    found = beam_search(
        model,
        [0],
        num_beams=2,
        num_return_sequences=2,
        max_new_tokens=5,
        early_stopping=mode,
    )
    assert [h.tokens for h in found] == [[2, 0], [3, 0]]
    wanted = [math.log(0.5 * 0.98) / 2, math.log(0.4 * 0.98) / 2]
    assert [h.score for h in found] == pytest.approx(wanted)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_with_early_stopping_no_end_outside_the_num_beams_best_is_returned(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    V, num_beams = int(rng.integers(3, 7)), int(rng.integers(2, 5))
    eos = tuple(range(int(rng.integers(1, V))))
    model = TableModel(rng.dirichlet(np.full(V, 0.5), size=V), eos=eos)
    trace = []
    found = beam_search(
        model, [0], num_beams=num_beams, max_new_tokens=4, early_stopping=True, trace=trace
    )
    assert found
    for branches in trace:
        ranked = [b for b in branches if b.token is not None]
        assert all(b.fate != "finished" for b in ranked[num_beams:])


@pytest.mark.parametrize("stop", ["c", "cb", ["dd", "ab"], "bbbb", "aaaaaaaaaa"])
@pytest.mark.parametrize("seed", range(4))
def test_one_beam_with_stop_strings_is_greedy_decoding(stop, seed):
    rng = np.random.default_rng(seed)
    model = TableModel(rng.dirichlet(np.full(4, 0.5), size=4))
    options = {"tokenizer": Letters(), "stop": stop, "max_new_tokens": 8}
    plain = minidecode.generate(model, [0], temperature=0, **options)
    found = minidecode.generate(model, [0], num_beams=1, **options)
    assert (found.tokens, found.text, found.finish_reason) == (
        plain.tokens,
        plain.text,
        plain.finish_reason,
    )


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_wide_beam_with_stop_strings_is_exhaustive_search(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    stop = data.draw(st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=2))
    rows = rng.dirichlet(np.ones(3), size=3)
    model, limit = TableModel(rows), 4

    def texts(tokens, total):
        text = "".join("abc"[t] for t in tokens)
        if any(s in text for s in stop) or len(tokens) == limit:
            return [(tokens, total / len(tokens))]
        row = rows[tokens[-1] if tokens else 0]
        return [x for t in range(3) for x in texts([*tokens, t], total + math.log(row[t]))]

    best = max(texts([], 0.0), key=lambda found: found[1])
    (found,) = beam_search(
        model,
        [0],
        num_beams=81,
        max_new_tokens=limit,
        stop=stop,
        tokenizer=Letters(),
        early_stopping="never",
    )
    assert found.score == pytest.approx(best[1])


def test_the_text_of_beams_ends_before_the_stop_string_and_the_reason_is_stop():
    model = TableModel([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    options = {"tokenizer": Letters(), "stop": "ca", "num_beams": 3, "max_new_tokens": 6}
    found = minidecode.generate(model, [0], **options)
    assert (found.text, found.tokens, found.finish_reason) == ("b", [1, 2, 0], "stop")
    with pytest.raises(InputError, match=r"stop: .* need a tokenizer"):
        beam_search(model, [0], num_beams=2, stop="a", max_new_tokens=2)


def test_a_warp_of_penalties_is_taken_and_one_that_shapes_a_distribution_is_not():
    model = TableModel([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    options = {"num_beams": 2, "max_new_tokens": 6}
    warp = minidecode.Warp(repetition_penalty=1.5, no_repeat_ngram_size=2)
    assert beam_search(model, [0], warp=warp, **options) == beam_search(
        model, [0], repetition_penalty=1.5, no_repeat_ngram_size=2, **options
    )
    assert minidecode.generate(model, [0], warp=warp, **options).tokens
    with pytest.raises(InputError, match=r"^top_k: has no effect with beam search"):
        beam_search(model, [0], warp=minidecode.Warp(top_k=1), **options)
    with pytest.raises(InputError, match=r"^repetition_penalty: got it beside a warp"):
        beam_search(model, [0], warp=warp, repetition_penalty=2, **options)


@pytest.mark.parametrize("wrong", [True, "1", None, 51, -51, 10**400, [1]])
def test_a_length_penalty_that_is_no_number_from_minus_50_to_50_is_refused(wrong):
    with pytest.raises(InputError, match=r"^length_penalty: got .* from -50 to 50 was wanted"):
        beam_search(TableModel(np.eye(2)), [0], num_beams=2, length_penalty=wrong)


@pytest.mark.parametrize("size", [10_001, 10**12, 10**400])
def test_more_beams_or_texts_than_could_ever_end_are_refused(size):
    model = TableModel([[0.5, 0.5], [0.5, 0.5]])
    for options in ({"num_beams": size}, {"num_beams": size, "stochastic": True}):
        with pytest.raises(InputError, match="num_beams: got"):
            minidecode.generate(model, [0], tokenizer=None, max_new_tokens=2, **options)
    with pytest.raises(InputError, match="num_return_sequences: got"):
        minidecode.generate(model, [0], tokenizer=None, max_new_tokens=2, num_return_sequences=size)
