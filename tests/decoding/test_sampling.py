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
from builders import PENALTY_LOGITS, bigram, penalty, random_gpt2
from decoding.cases import Counted, gpt2, ids, letters, ring

import minidecode
from minidecode import Dice, GumbelDice, Step, TableModel, Warp, generate, greedy, kernels, sample
from minidecode.decoding.chance import inverse_cdf
from minidecode.errors import InputError
from minidecode.generation import collect
from minidecode.models.loading import EMBEDDED
from minidecode.models.table import TableCache

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "greedy.json").read_text())["models"]


class Script:
    """A chance that draws by the uniforms it is given, and notes what it was asked."""

    def __init__(self, *uniforms):
        self.uniforms, self.asked = list(uniforms), []

    def choose(self, probs, position):
        self.asked.append((probs.copy(), position))
        return inverse_cdf(probs, self.uniforms.pop(0))


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
