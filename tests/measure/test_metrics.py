"""Measures of text: values worked out by hand, and what must hold for any text."""

import math

import numpy as np
import pytest
from builders import random_gpt2
from hypothesis import given
from hypothesis import strategies as st

from minidecode.errors import ContextError, InputError
from minidecode.measure.metrics import (
    BLOCK,
    distinct,
    mean_logprob,
    ngram_entropy,
    perplexity,
    rep,
    share_in_repeats,
    token_logprobs,
    words,
    zipf_exponent,
)
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.table import TableModel

TEXT = words("the cat sat on the mat the cat ran")  # 9 words: the 3, cat 2, sat on mat ran 1


def test_words_keep_their_punctuation():
    assert words(" One day,\n a  cat. ") == ["One", "day,", "a", "cat."]
    assert words("") == []


def test_entropy_by_hand():
    # f = 3/9, 2/9 and four of 1/9
    wanted = (3 * math.log2(3) + 2 * math.log2(9 / 2) + 4 * math.log2(9)) / 9
    assert ngram_entropy(TEXT, 1) == pytest.approx(wanted, abs=1e-15)
    # 8 pairs, of which "the cat" twice: 2/8 and six of 1/8
    assert ngram_entropy(TEXT, 2) == pytest.approx(0.25 * 2 + 0.75 * 3, abs=1e-15)
    # 7 different triples
    assert ngram_entropy(TEXT, 3) == pytest.approx(math.log2(7), abs=1e-15)


def test_entropy_is_exact_for_powers_of_two():
    assert ngram_entropy("aabb", 1) == 1.0
    assert ngram_entropy("abcd", 1) == 2.0
    assert ngram_entropy([7, 7, 7], 1) == 0.0
    assert math.copysign(1, ngram_entropy([7], 1)) == 1.0  # shown as 0, not as -0


def test_distinct_and_rep_by_hand():
    assert distinct(TEXT, 1) == 6 / 9
    assert distinct(TEXT, 2) == 7 / 8
    assert distinct(TEXT, 3) == 1.0
    assert rep(TEXT, 1) == pytest.approx(3 / 9)
    assert rep(TEXT, 2) == 1 / 8
    assert rep([1] * 5, 4) == 0.5  # two 4-grams, one of them different


def test_share_in_repeats_by_hand():
    assert share_in_repeats("abcdxabcd", 4) == 4 / 9  # the second abcd
    assert share_in_repeats("abcdabcd", 4) == 4 / 8
    assert share_in_repeats("abcdabcda", 4) == 5 / 9  # abcd and bcda overlap: each item once
    assert share_in_repeats("aaaaa", 4) == 4 / 5  # aaaa at 0 and at 1
    assert share_in_repeats(TEXT, 2) == 2 / 9
    assert share_in_repeats("abcdefgh", 4) == 0.0


def test_zipf_exponent_by_hand():
    # frequencies 4, 2 at ranks 1, 2: the slope is log(2/4) / log 2 = -1
    assert zipf_exponent("aaaabb") == pytest.approx(1.0)
    assert zipf_exponent("aaaab") == pytest.approx(2.0)
    assert zipf_exponent("abcabc") == 0.0
    # 6, 3, 2: frequencies exactly proportional to 1 / rank
    assert zipf_exponent("a" * 6 + "b" * 3 + "c" * 2) == pytest.approx(1.0)
    # 9, 1, 1: x = 0, log 2, log 3, y = 2 log 3, 0, 0
    x, y = np.log([1, 2, 3]), np.log([9, 1, 1])
    assert zipf_exponent("a" * 9 + "bc") == pytest.approx(-np.polyfit(x, y, 1)[0])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("length", range(4))
def test_texts_that_are_too_short(n, length):
    items = list(range(length))
    for measure in (ngram_entropy, distinct, rep):
        assert (measure(items, n) is None) == (length < n)
    assert share_in_repeats(items, n) == (0.0 if length else None)
    assert (zipf_exponent(items) is None) == (length < 2)


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 4))
def test_bounds_and_agreement(items, n):
    total = max(0, len(items) - n + 1)
    if total:
        assert 0 <= ngram_entropy(items, n) <= math.log2(total) + 1e-12
        assert 1 / total <= distinct(items, n) <= 1
        assert rep(items, n) == 1 - distinct(items, n)
        assert (share_in_repeats(items, n) > 0) == (rep(items, n) > 0)
    if items:
        assert 0 <= share_in_repeats(items, n) < 1
        names = ["abcde"[i] for i in items]  # what the items are makes no difference
        assert ngram_entropy(names, n) == ngram_entropy(items, n)
        assert zipf_exponent(names) == zipf_exponent(items)


# --- under a model --------------------------------------------------------------------------------


def test_log_probabilities_by_hand():
    model = TableModel([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.0, 0.5, 0.5]])
    assert token_logprobs(model, [1], [0, 0, 1]) == pytest.approx(np.log([0.125, 0.5, 0.25]))
    assert mean_logprob(model, [1], [0, 0, 1]) == pytest.approx(-2 * math.log(2))  # 1/64 in all
    assert perplexity(model, [1], [0, 0, 1]) == pytest.approx(4.0)
    assert perplexity(model, [1, 2, 0], [0, 0]) == pytest.approx(2.0)  # the prompt is not counted


def test_uniform_model_has_perplexity_V():
    model = TableModel(np.full((5, 5), 0.2))
    assert perplexity(model, [0], [1, 2, 3, 4]) == pytest.approx(5.0)


def test_impossible_and_missing_tokens():
    model = TableModel([[1.0, 0.0], [0.5, 0.5]], bos=1)
    assert perplexity(model, [0], [0, 1]) == math.inf
    assert mean_logprob(model, [0], []) is None
    assert perplexity(model, [0], []) is None
    assert perplexity(model, [], [0]) == pytest.approx(2.0)  # an empty prompt is the bos id
    for tokens in ([0, 2, 0], [0, 2], [-1]):
        with pytest.raises(InputError, match="token id"):
            token_logprobs(model, [0], tokens)


@pytest.mark.parametrize("length", [1, 2, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
@pytest.mark.parametrize("prompt", [[3], [3, 1, 4]])
def test_blocks_change_nothing(length, prompt):
    config, tensors = random_gpt2(1, 19, 2, 2, 16, 140)
    model = GPT2(Config.from_dict(config), tensors)
    tokens = np.random.default_rng(0).integers(0, 19, length).tolist()
    logits = model.forward([*prompt, *tokens], model.new_cache(), n_logits=length + 1)[:-1]
    logits = logits.astype(np.float64)
    wanted = logits[range(length), tokens] - np.log(np.exp(logits).sum(axis=1))
    assert token_logprobs(model, prompt, tokens) == pytest.approx(wanted, abs=1e-4)


def test_no_more_than_the_model_has_positions():
    model = TableModel(np.full((2, 2), 0.5), n_positions=4)
    assert len(token_logprobs(model, [0, 0], [1, 1, 1])) == 3  # the last token is never fed
    with pytest.raises(ContextError):
        token_logprobs(model, [0, 0], [1, 1, 1, 1])
