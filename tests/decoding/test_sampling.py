"""Greedy, sampling, their limits and their results, on tables, on tiny GPT-2s and on real ones."""

import functools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import PENALTY_LOGITS, bigram, cycle, penalty, random_gpt2, toy_tokenizer

import minidecode
from minidecode import Dice, GumbelDice, Step, TableModel, Warp, generate, greedy, kernels, sample
from minidecode.decoding.chance import inverse_cdf
from minidecode.decoding.run import Run
from minidecode.errors import ContextError, InputError, LogitsError
from minidecode.generation import collect
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.loading import EMBEDDED
from minidecode.models.table import TableCache
from minidecode.models.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "greedy.json").read_text())["models"]
CYCLE = {0: 1, 1: 2, 2: 5, 5: 3, 3: 4, 4: 0}
CYCLE_TABLE = np.array([np.eye(6)[CYCLE[token]] for token in range(6)])


def gpt2(fixture):
    config, tensors = fixture
    return GPT2(Config.from_dict(config), tensors)


def ring(**fields):
    """The cycle 0 1 2 5 3 4 0 ... as a table, without an end unless `eos` says so."""
    return TableModel(CYCLE_TABLE, **fields)


def letters(n=26):
    """A tokenizer with an id for each of a, b, c ..."""
    return Tokenizer(toy_tokenizer(n))


def ids(steps):
    return [token for step in steps for token in step.tokens]


def reason(steps):
    return list(steps)[-1].finish_reason


class Script:
    """A chance that draws by the uniforms it is given, and notes what it was asked."""

    def __init__(self, *uniforms):
        self.uniforms, self.asked = list(uniforms), []

    def choose(self, probs, position):
        self.asked.append((probs.copy(), position))
        return inverse_cdf(probs, self.uniforms.pop(0))


class Counted:
    """A model that counts its passes and keeps what it was given."""

    def __init__(self, model):
        self.model, self.passes = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def forward(self, tokens, cache, n_logits=1):
        self.passes.append((list(tokens), cache.length))
        return self.model.forward(tokens, cache, n_logits)


# Greedy


@functools.lru_cache
def embedded(name):
    return minidecode.load(name)


@pytest.mark.parametrize("name", EMBEDDED)
def test_greedy_writes_what_transformers_writes(name):
    model, tokenizer = embedded(name)
    for case in GOLDEN[name]:
        wanted = case["greedy"]
        assert ids(greedy(model, case["prompt"], max_new_tokens=len(wanted), eos=None)) == wanted
    steps = greedy(model, case["text"], tokenizer=tokenizer, max_new_tokens=len(wanted), eos=None)
    assert ids(steps) == wanted


def test_greedy_takes_the_last_row_and_the_lowest_id_among_equals():
    class Stub:
        vocab_size, n_positions, eos, bos = 4, 64, (), None
        rows = np.array([[9, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 2]], np.float32)

        def new_cache(self):
            return TableCache()

        def forward(self, tokens, cache, n_logits=1):
            cache.tokens.extend(tokens)
            return self.rows  # of three positions, as if more had been asked for

    assert ids(greedy(Stub(), [0], max_new_tokens=1)) == [2]


def test_greedy_is_sampling_at_temperature_0_whatever_the_dice():
    model = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    wanted = ids(greedy(model, [3], max_new_tokens=30))
    for seed in range(5):
        for warp in (Warp(temperature=0), Warp(temperature=0, top_k=5, top_p=0.5, epsilon=0.1)):
            for chance in (Dice(seed), GumbelDice(seed), Script(*[0.999] * 30)):
                steps = sample(model, [3], warp=warp, chance=chance, max_new_tokens=30)
                assert ids(steps) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_a_tie_at_the_top_falls_to_the_lower_id(seed):
    model = TableModel(lambda history: np.array([1, 1, 0]) / 2)
    assert ids(greedy(model, [2], max_new_tokens=3)) == [0, 0, 0]
    steps = sample(model, [2], warp=Warp(top_k=1), chance=Dice(seed), max_new_tokens=3)
    assert ids(steps) == [0, 0, 0]


def test_the_penalty_counts_each_token_once():
    """Counted as often as it stands there, it would make 1 2 3 1 2 0 1 3 ..."""
    steps = greedy(gpt2(penalty()), [0], repetition_penalty=3.5, max_new_tokens=12)
    assert ids(steps) == [1, 2, 3, 1, 2, 0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("table", [True, False])
def test_when_every_token_is_blocked_the_run_ends_and_says_so(table):
    weights = np.exp(PENALTY_LOGITS)
    rows = weights / weights.sum(axis=1, keepdims=True)
    model = TableModel(rows) if table else gpt2(penalty())
    steps = list(greedy(model, [0], no_repeat_ngram_size=2, max_new_tokens=30))
    assert ids(steps) == [1, 2, 0, 2, 3, 1, 3, 0, 3, 2, 1, 0, 0]
    assert steps[-1] == Step((), "blocked")
    assert all(step.finish_reason is None for step in steps[:-1])
    warp = Warp(temperature=0, no_repeat_ngram_size=2)
    result = generate(model, [0], warp=warp, max_new_tokens=30)
    assert (len(result.tokens), result.finish_reason) == (13, "blocked")
    assert result.stats["new_tokens"] == 13


def test_a_run_may_be_blocked_before_its_first_token():
    model = TableModel([[1.0]])
    steps = list(greedy(model, [0, 0], no_repeat_ngram_size=2, max_new_tokens=3))
    assert steps == [Step((), "blocked")]
    result = generate(model, [0, 0], warp=Warp(no_repeat_ngram_size=1), tokenizer=letters(1))
    assert (result.tokens, result.finish_reason, result.text) == ([], "blocked", "")


# Sampling


def texts_with_their_probabilities(model, prompt, **options):
    """{(tokens, reason): probability} of `sample`, each branch of every draw taken in turn."""

    class Branch:
        """Takes the tokens of `path`, then the first there is, and leaves the others for later."""

        def __init__(self, path):
            self.path, self.taken, self.probability = path, [], 1.0

        def choose(self, probs, position):
            if self.path:
                token, *self.path = self.path
            else:
                token, *others = np.flatnonzero(probs).tolist()
                paths.extend([*self.taken, other] for other in others)
            self.taken.append(token)
            self.probability *= float(probs[token])
            return token

    law, paths = {}, [[]]
    while paths:
        branch = Branch(paths.pop())
        steps = list(sample(model, prompt, chance=branch, **options))
        outcome = tuple(ids(steps)), steps[-1].finish_reason
        assert outcome not in law
        law[outcome] = branch.probability
    return law


def law_by_hand(P, last, n, end):
    """The same, from the definition of a Markov chain."""
    if n == 0:
        return {((), "length"): 1.0}
    law = {}
    for token, p in enumerate(P[last]):
        if token == end:
            law[(token,), "eos"] = p
        elif p > 0:
            for (rest, why), q in law_by_hand(P, token, n - 1, end).items():
                law[(token, *rest), why] = p * q
    return law


TABLE = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.75, 0.0]])


def test_texts_come_with_exactly_their_probabilities():
    law = texts_with_their_probabilities(TableModel(TABLE, eos=2), [0], max_new_tokens=4)
    right = law_by_hand(TABLE, 0, 4, 2)
    assert law.keys() == right.keys()
    assert all(math.isclose(law[text], right[text], abs_tol=1e-12) for text in right)
    assert sum(law.values()) == pytest.approx(1, abs=1e-12)


def test_a_warp_changes_each_step_of_the_law():
    warp = Warp(temperature=0.5, top_k=2)
    sharp = TABLE**2
    sharp[np.arange(3), TABLE.argmin(axis=1)] = 0
    sharp /= sharp.sum(axis=1, keepdims=True)
    law = texts_with_their_probabilities(TableModel(TABLE), [1], warp=warp, max_new_tokens=3)
    right = law_by_hand(sharp, 1, 3, None)
    assert law.keys() == right.keys()
    assert all(math.isclose(law[text], right[text], abs_tol=1e-12) for text in right)


def test_a_row_may_depend_on_the_whole_history():
    def row(history):
        return np.eye(5)[(sum(history) + len(history)) % 5]

    assert ids(sample(TableModel(row), [4, 3], max_new_tokens=4)) == [4, 4, 4, 4]
    assert ids(greedy(TableModel(row), [0], max_new_tokens=4)) == [1, 3, 2, 0]


def test_draws_are_made_in_order_of_position_from_the_rows_of_the_table():
    chance = Script(0.4, 0.95, 0.7, 0.0)
    assert ids(sample(TableModel(TABLE), [0, 0, 0], chance=chance, max_new_tokens=4)) == [
        0,
        2,
        1,
        0,
    ]
    rows, positions = zip(*chance.asked)
    assert positions == (3, 4, 5, 6)
    np.testing.assert_allclose(rows, TABLE[[0, 0, 2, 1]], rtol=1e-14)


def test_the_warp_sees_exactly_the_tokens_before():
    seen = []

    def watch(logits, history):
        seen.append(history)
        return logits

    ids(sample(ring(), [4, 0], warp=Warp(processors=[watch]), max_new_tokens=3))
    assert seen == [[4, 0], [4, 0, 1], [4, 0, 1, 2]]


@pytest.mark.parametrize("kind", [Dice, GumbelDice])
def test_first_tokens_are_drawn_as_often_as_the_model_says(kind):
    P = [[0.5, 0.3, 0.2]] * 3
    model, counts = TableModel(P), np.zeros(3)
    dice = Dice(4)
    for seed in range(4000):
        chance = dice if kind is Dice else GumbelDice(seed)
        counts[ids(sample(model, [0], chance=chance, max_new_tokens=1))] += 1
    assert np.abs(counts / 4000 - P[0]).max() < 0.034  # over four sigma


def test_same_seed_same_text_and_another_seed_another():
    model = gpt2(bigram(np.full((50, 50), 1 / 50)))

    def text(seed, kind=Dice):
        return ids(sample(model, [0], chance=kind(seed), max_new_tokens=20))

    for kind in (Dice, GumbelDice):
        assert text(0, kind) == text(0, kind) != text(1, kind)
        assert len(set(text(0, kind))) >= 10  # 16.6 are expected
    assert ids(sample(model, [0], max_new_tokens=20)) != ids(sample(model, [0], max_new_tokens=20))
    dice = Dice()
    first = ids(sample(model, [0], chance=dice, max_new_tokens=20))
    assert text(dice.seed) == first


def test_one_seed_one_text_in_another_process_and_with_any_number_of_threads():
    code = """
import sys
import numpy as np
from builders import random_gpt2
from minidecode import Dice, kernels, sample
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
config, tensors = random_gpt2(1, 500, 2, 2, 96, 64)
model = GPT2(Config.from_dict(config), tensors)
steps = sample(model, range(20), chance=Dice(42), max_new_tokens=30)
print([step.tokens[0] for step in steps], file=sys.stderr)
print(kernels.num_threads())
"""
    model = gpt2(random_gpt2(1, 500, 2, 2, 96, 64))
    steps = sample(model, range(20), chance=Dice(42), max_new_tokens=30)
    right = str([step.tokens[0] for step in steps])
    for threads in "124":
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        env |= {"MINIDECODE_THREADS": threads, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert done.stderr.strip() == right
        assert done.stdout.strip() == (threads if kernels.backend == "native" else "None")


def test_a_chance_is_kept_even_if_it_is_empty():
    class Empty(Script):
        def __len__(self):
            return 0

    chance = Empty(0.0, 0.99)
    assert ids(sample(TableModel(TABLE), [0], chance=chance, max_new_tokens=2)) == [0, 2]


# What the model is given


def test_each_token_is_fed_once():
    model = Counted(ring())
    assert ids(greedy(model, [3, 4, 0], max_new_tokens=4)) == [1, 2, 5, 3]
    assert model.passes == [([3, 4, 0], 0), ([1], 3), ([2], 4), ([5], 5)]


def test_the_last_token_is_not_fed_and_neither_is_one_too_many():
    model = Counted(ring(eos=5))
    assert ids(greedy(model, [0])) == [1, 2, 5]
    assert len(model.passes) == 3


def test_a_step_is_yielded_as_soon_as_it_is_known():
    model = Counted(ring())
    steps = greedy(model, [0], max_new_tokens=4)
    assert model.passes == []
    assert next(steps) == Step((1,)) and len(model.passes) == 1
    assert next(steps) == Step((2,)) and len(model.passes) == 2


def test_the_prompt_is_left_as_it_is():
    prompt = [3, 4, 0]
    ids(greedy(ring(), prompt, max_new_tokens=4))
    assert prompt == [3, 4, 0]


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


# Results


def test_a_result_agrees_with_itself():
    steps, shown = [], []
    model = ring(eos=4)
    result = generate(model, "a", tokenizer=letters(6), on_step=steps.append, on_text=shown.append)
    assert result.tokens == ids(steps) == [1, 2, 5, 3, 4]
    assert result.finish_reason == steps[-1].finish_reason == "eos"
    assert result.text == "".join(shown) == "bcfd"  # the end token is no text, though a letter
    stats = result.stats
    assert stats["new_tokens"] == 5
    assert 0 < stats["seconds_to_first"] <= stats["seconds"]
    assert stats["tokens_per_second"] > 0


def test_text_is_none_without_a_tokenizer():
    result = generate(ring(), [0], max_new_tokens=2)
    assert (result.text, result.tokens) == (None, [1, 2])


def test_one_step_alone_has_no_speed():
    assert generate(ring(), [0], max_new_tokens=1).stats["tokens_per_second"] is None


def test_results_are_collected_from_any_steps():
    steps = [Step((0, 1)), Step((2, 3, 4), "eos")]
    result = collect(steps, letters(6))
    assert (result.tokens, result.text, result.finish_reason) == ([0, 1, 2, 3, 4], "abcd", "eos")
    result = collect([Step((0, 1, 2), "stop")], letters(6), stop="c")
    assert (result.tokens, result.text) == ([0, 1, 2], "ab")


def test_unknown_options_are_refused():
    for run in (greedy, sample, generate):
        with pytest.raises((TypeError, InputError)):
            list(run(ring(), [0], max_tokens=3))


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


# Tables


def test_a_table_answers_with_float64_log_probabilities():
    model = TableModel(TABLE)
    logits = model.forward([0, 1, 2], model.new_cache(), n_logits=2)
    assert logits.dtype == np.float64 and logits.shape == (2, 3)
    assert logits[1, 2] == -np.inf
    assert np.exp(logits) == pytest.approx(TABLE[1:])
    assert model.vocab_size == 3


def test_a_table_reads_alike_in_pieces_and_in_batches():
    model = TableModel(lambda h: np.roll([0.7, 0.2, 0.1], sum(h) * len(h)))
    whole = model.forward([0, 1, 2, 1], model.new_cache(), n_logits=4)
    a, b = model.new_cache(), model.new_cache()
    model.forward([0], a)
    batch = model.forward_many([([1, 2, 1], a), ([0, 1], b)], n_logits=[3, 1])
    assert np.array_equal(batch[0], whole[1:]) and np.array_equal(batch[1], whole[1:2])
    assert (a.length, b.length) == (4, 2)
    assert model.forward([2], b, n_logits=0).shape == (0, 3)


def test_rows_are_made_only_where_they_are_wanted():
    asked = []

    def row(history):
        asked.append(history)
        return [0.5, 0.5]

    model = TableModel(row)
    asked.clear()
    model.forward([0, 1, 1, 0], model.new_cache(), n_logits=2)
    assert asked == [[0, 1, 1], [0, 1, 1, 0]]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [0.5, 0.5],
        [[0.5, 0.5]],
        [[1, 0], [0.5, 0.4]],
        [[2, -1], [0.5, 0.5]],
        [[math.nan, 1], [0.5, 0.5]],
        [[math.inf, 0], [0.5, 0.5]],
        np.zeros((2, 2, 2)),
        lambda history: [0.5, 0.6],
        lambda history: [[0.5, 0.5]],
        lambda history: 1.0,
    ],
    ids=str,
)
def test_rows_that_are_no_probabilities_are_refused(rows):
    with pytest.raises(InputError, match=r"^rows?"):
        TableModel(rows)


@pytest.mark.parametrize("late", [[0.5, 0.6], [1.0], [0.5, 0.25, 0.25]], ids=str)
def test_a_row_that_goes_wrong_later_is_refused_and_the_cache_as_before(late):
    model = TableModel(lambda history: [0.5, 0.5] if len(history) < 3 else late)
    cache = model.new_cache()
    model.forward([0, 1], cache)
    with pytest.raises(InputError, match=r"row after \[0, 1, 1\]"):
        model.forward([1], cache)
    assert cache.length == 2


def test_errors_of_a_table_are_those_of_a_model():
    model = TableModel(TABLE, n_positions=4)
    cache, full = model.new_cache(), model.new_cache()
    model.forward([0], cache)
    model.forward([0, 1, 2, 0], full)
    for bad in ([], [3], [-1], [1.5], [True]):
        with pytest.raises(InputError):
            model.forward(bad, cache)
    with pytest.raises(InputError):
        model.forward([1], cache, n_logits=2)
    with pytest.raises(ContextError, match="4 positions"):
        model.forward_many([([1], cache), ([1], full)])
    with pytest.raises(InputError):
        model.forward_many([([1], cache), ([1], cache)])
    assert (cache.length, full.length) == (1, 4)


def test_end_ids_of_a_table_are_checked():
    for bad in (-1, 3, [0, 3], 1.5):
        with pytest.raises(InputError):
            TableModel(TABLE, eos=bad)
    assert len(ids(greedy(TableModel(TABLE, eos=None), [0], max_new_tokens=9))) == 9
