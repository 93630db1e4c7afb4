"""A run: its limits, its ends, its prompt, and what breaks it off."""

import math

import numpy as np
import pytest
from builders import bigram, cycle, toy_tokenizer
from decoding.cases import Counted, gpt2, ids, letters, reason, ring

from minidecode import Dice, TableModel, Warp, generate, greedy, sample
from minidecode.decoding.run import Run
from minidecode.errors import ContextError, InputError, LogitsError
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.table import TableCache
from minidecode.models.tokenizer import Tokenizer

# Limits


@pytest.mark.parametrize("n", [0, 1, 2, 10])
def test_so_many_new_tokens_as_asked_for_without_the_prompt(n):
    steps = list(greedy(ring(), [0] * 50, max_new_tokens=n))
    assert len(ids(steps)) == n
    assert [step.finish_reason for step in steps] == [*[None] * (n - 1), "length"][:n]
    assert generate(ring(), [0] * 50, max_new_tokens=n).finish_reason == "length"


def test_no_new_tokens_need_no_pass():
    model = Counted(ring(n_positions=8))
    assert list(greedy(model, [0], max_new_tokens=0)) == []
    result = generate(model, [0] * 8, max_new_tokens=0, tokenizer=letters(6))
    assert (result.tokens, result.finish_reason, result.text) == ([], "length", "")
    assert result.stats["new_tokens"] == 0
    assert result.stats["seconds_to_first"] is result.stats["tokens_per_second"] is None
    assert model.passes == []


@pytest.mark.parametrize("n", [-1, 1.0, 2.5, "3", True, math.nan, math.inf])
def test_a_limit_that_is_no_number_of_tokens_is_refused(n):
    model = Counted(ring())
    for run in (greedy, sample, generate):
        with pytest.raises(InputError, match="max_new_tokens: got"):
            list(run(model, [0], max_new_tokens=n))
    assert model.passes == []


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize(
    ("prompt", "limit", "n", "why"),
    [
        (5, 10, 3, "context"),
        (5, None, 3, "context"),
        (5, 4, 3, "context"),
        (5, 3, 3, "length"),  # all that was asked for, and the last there was room for
        (5, 2, 2, "length"),
        (7, 10, 1, "context"),
        (1, None, 7, "context"),
    ],
)
def test_prompt_and_output_never_exceed_the_positions(table, prompt, limit, n, why):
    model = ring(n_positions=8) if table else gpt2(cycle(n_positions=8))
    model = Counted(model)
    steps = list(greedy(model, [0] * prompt, max_new_tokens=limit))
    assert (len(ids(steps)), steps[-1].finish_reason) == (n, why)
    tokens, held = model.passes[-1]
    assert held + len(tokens) < 8  # the last token is not fed


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize(("prompt", "limit"), [(8, 1), (8, None), (9, 1), (9, 0), (1000, None)])
def test_a_prompt_that_leaves_no_room_is_refused_before_any_pass(table, prompt, limit):
    model = Counted(ring(n_positions=8) if table else gpt2(cycle(n_positions=8)))
    for run in (greedy, sample, generate):
        with pytest.raises(ContextError, match=rf"{prompt} tokens.* 8 positions"):
            list(run(model, [0] * prompt, max_new_tokens=limit))
    assert model.passes == []


# Ends


def test_an_end_token_ends_and_is_part_of_the_tokens():
    for model in (ring(eos=5), ring(eos=[5]), ring(eos=(3, 5)), gpt2(cycle(eos_token_id=5))):
        steps = list(greedy(model, [0], max_new_tokens=20))
        assert (ids(steps), steps[-1].finish_reason) == ([1, 2, 5], "eos")


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, np.array])
def test_end_ids_come_in_any_kind_of_collection(kind):
    assert ids(greedy(ring(eos=kind([5, 2])), [0], max_new_tokens=9)) == [1, 2]
    assert ids(greedy(ring(), [0], eos=kind([5, 2]), max_new_tokens=9)) == [1, 2]


def test_the_callers_end_ids_come_before_the_models():
    def run(eos):
        return ids(greedy(ring(eos=[5, 2]), [0], eos=eos, max_new_tokens=9))

    assert run(5) == [1, 2, 5]
    assert run([3, 4]) == [1, 2, 5, 3]
    assert run(np.int64(1)) == [1]
    for never in (None, [], ()):
        assert len(run(never)) == 9


def test_an_end_token_in_the_prompt_ends_nothing():
    assert ids(greedy(ring(eos=5), [5, 0], max_new_tokens=9)) == [1, 2, 5]
    assert ids(greedy(ring(eos=0, bos=0), [], max_new_tokens=3)) == [1, 2, 5]


@pytest.mark.parametrize("eos", [-1, 6, 2**40, [5, 6], 1.5, "5", True])
def test_end_ids_out_of_range_are_refused(eos):
    with pytest.raises(InputError, match="token id: got"):
        list(greedy(ring(), [0], eos=eos, max_new_tokens=2))


def test_of_two_reasons_the_end_token_comes_first_then_the_stop_string():
    two = {"tokenizer": letters(6), "max_new_tokens": 3}
    assert reason(greedy(ring(n_positions=4), [0], eos=5, stop="f", **two)) == "eos"
    assert reason(greedy(ring(n_positions=4), [0], stop="f", **two)) == "stop"
    assert reason(greedy(ring(n_positions=4), [0], **two)) == "length"
    assert reason(greedy(ring(n_positions=4), [0])) == "context"


# Stop strings: the ring spells b c f d e a b c f ...


@pytest.mark.parametrize(
    ("stop", "tokens", "text"),
    [
        ("f", [1, 2, 5], "bc"),
        ("fd", [1, 2, 5, 3], "bc"),
        (["zz", "fd"], [1, 2, 5, 3], "bc"),
        (["deab", "cfd", "fd"], [1, 2, 5, 3], "b"),  # complete at once: the longest counts
        (["deab", "fdea"], [1, 2, 5, 3, 4, 0], "bc"),  # the first that is complete
        ("b", [1], ""),
        ("bcfdea", [1, 2, 5, 3, 4, 0], ""),
    ],
)
def test_a_stop_string_ends_the_text_before_it_but_not_the_tokens(stop, tokens, text):
    result = generate(ring(), [0], tokenizer=letters(6), stop=stop, max_new_tokens=20)
    assert result.tokens == tokens
    assert (result.text, result.finish_reason) == (text, "stop")


def test_what_might_have_been_a_stop_string_is_shown_in_the_end():
    shown = []
    model = ring(eos=4)
    result = generate(model, [0], tokenizer=letters(6), stop="fdx", on_text=shown.append)
    assert result.text == "".join(shown) == "bcfd"
    assert (result.tokens, result.finish_reason) == ([1, 2, 5, 3, 4], "eos")
    result = generate(ring(), [0], tokenizer=letters(6), stop="fdx", max_new_tokens=3)
    assert (result.text, result.finish_reason) == ("bcf", "length")


def test_a_stop_string_in_the_prompt_or_across_its_end_stops_nothing():
    result = generate(ring(), "ea", tokenizer=letters(6), stop=["ea", "ab"], max_new_tokens=4)
    assert (result.text, result.finish_reason) == ("bcfd", "length")


def test_stop_strings_need_a_tokenizer_and_must_not_be_empty():
    with pytest.raises(InputError, match=r"stop: .* tokenizer"):
        list(greedy(ring(), [0], stop="f", max_new_tokens=3))
    for wrong in ("", [""], ["f", ""], [1]):
        for run in (greedy, generate):
            with pytest.raises(InputError, match="stop: got"):
                list(run(ring(), [0], stop=wrong, tokenizer=letters(6), max_new_tokens=3))


@pytest.mark.parametrize("none", [None, (), []])
def test_no_stop_strings_may_be_said_in_any_way(none):
    result = generate(ring(), [0], stop=none, tokenizer=letters(6), max_new_tokens=3)
    assert result.text == "bcf"


# Prompts


def test_an_empty_prompt_starts_from_the_bos_id_which_is_not_shown():
    tokenizer = letters(6)
    for prompt in ("", [], (), np.array([], int)):
        model = Counted(ring(bos=4))
        result = generate(model, prompt, tokenizer=tokenizer, max_new_tokens=3)
        assert (result.tokens, result.text) == ([0, 1, 2], "abc")
        assert model.passes[0] == ([4], 0)


def test_an_empty_prompt_without_a_bos_id_is_refused():
    for prompt in ("", []):
        with pytest.raises(InputError, match="prompt: it is empty"):
            list(greedy(ring(), prompt, tokenizer=letters(6), max_new_tokens=3))


def test_a_space_is_a_prompt_like_any_other():
    tokenizer = Tokenizer(toy_tokenizer())
    (space,) = tokenizer.encode(" ")
    V = tokenizer.vocab_size
    model = Counted(TableModel(lambda history: np.eye(V)[0], bos=1))
    assert generate(model, " ", tokenizer=tokenizer, max_new_tokens=2).text == "aa"
    assert model.passes[0] == ([space], 0)


def test_text_needs_a_tokenizer():
    with pytest.raises(InputError, match="prompt: got text"):
        list(greedy(ring(), "abc", max_new_tokens=3))


@pytest.mark.parametrize("bad", [-1, 6, 2**40, 1.5, True, None, "a"])
def test_a_prompt_of_what_is_no_id_is_refused_before_any_pass(bad):
    model = Counted(ring())
    for run in (greedy, sample, generate):
        with pytest.raises(InputError, match=r"token id: got .* from 0 to 5"):
            list(run(model, [0, bad], max_new_tokens=3))
    assert model.passes == []


# Broken logits


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("warp", [Warp(), Warp(temperature=0), Warp(top_k=2, top_p=0.9)])
def test_broken_logits_end_the_run_with_an_error_that_names_the_step(bad, warp):
    class Breaking:
        vocab_size, n_positions, eos, bos = 6, 64, (), None

        def new_cache(self):
            return TableCache()

        def forward(self, tokens, cache, n_logits=1):
            cache.tokens.extend(tokens)
            logits = np.zeros((1, 6), np.float32)
            logits[0, 3] = bad if cache.length == 4 else 0
            return logits

    steps = sample(Breaking(), [0, 0], warp=warp, max_new_tokens=5)
    assert len(next(steps).tokens) == len(next(steps).tokens) == 1
    with pytest.raises(LogitsError, match="step 4 "):
        next(steps)


def test_ids_beyond_the_tokenizer_are_never_drawn():
    V = 8
    config, tensors = bigram(np.full((V, V), 1 / V))
    unknown = letters(6).unknown_ids(V)
    assert unknown.tolist() == [6, 7]
    model = GPT2(Config.from_dict(config), tensors, unknown_ids=unknown)
    counts = np.zeros(V)
    for seed in range(100):
        steps = sample(model, [0], chance=Dice(seed), max_new_tokens=50)
        counts += np.bincount(ids(steps), minlength=V)
    assert not counts[6:].any()
    assert np.abs(counts[:6] / 5000 - 1 / 6).max() < 0.025
    assert not set(ids(greedy(model, [0], max_new_tokens=20))) & {6, 7}


# Run


def test_what_comes_after_the_end_of_a_run_is_not_committed():
    run = Run(ring(eos=5), [0], max_new_tokens=10)
    assert run.commit([1, 2]) == (1, 2) and run.finish_reason is None
    assert run.remaining == 8
    assert run.commit([5, 3, 4]) == (5,) and run.finish_reason == "eos"
    assert run.commit([0]) == ()
    assert run.tokens == [1, 2, 5] and run.history == [0, 1, 2, 5]


def test_a_block_is_cut_at_the_limit_and_at_a_stop_string():
    run = Run(ring(), [0], max_new_tokens=2)
    assert run.commit([1, 2, 5]) == (1, 2) and run.finish_reason == "length"
    run = Run(ring(), [0], stop="cf", tokenizer=letters(6))
    assert run.commit([1, 2, 5, 3]) == (1, 2, 5) and run.finish_reason == "stop"
