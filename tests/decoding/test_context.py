"""Context reuse: what was read is not read again, and nothing that is written changes by it."""

import numpy as np
import pytest
from builders import random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import Context, Dice, InputError, TableModel, generate, generate_many, sample
from minidecode.kernels import backend
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2


def gpt2(seed, V=31, layers=2):
    config, tensors = random_gpt2(seed, V, layers, 2, 16, 64)
    return GPT2(Config.from_dict(config), tensors)


MODEL, OTHER = gpt2(1), gpt2(2, layers=1)
TABLE, SMALL = (TableModel(np.full((n, n), 1 / n)) for n in (6, 4))
WAYS = {
    "sampling": lambda other: {"temperature": 0.9},
    "greedy": lambda other: {"temperature": 0},
    "speculative": lambda other: {"draft": other, "num_draft_tokens": 3},
    "contrastive": lambda other: {"amateur": other, "temperature": 1.0},
    "both": lambda other: {"amateur": other, "draft": other, "temperature": 1.0},
    "beams": lambda other: {"num_beams": 3},
    "contrastive beams": lambda other: {"num_beams": 3, "amateur": other},
}


def tokens(model, prompt, way, other, seed, **options):
    options |= WAYS[way](other)
    if "num_beams" not in options:
        options["chance"] = Dice(seed)
    return generate(model, prompt, max_new_tokens=8, eos=None, **options).tokens


@pytest.mark.skipif(backend == "numpy", reason="NumPy's products round by shape, draws may differ")
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_texts_are_those_without_a_context_whatever_was_written_before(data):
    context = Context(MODEL)
    prompt = [1, 2, 3]
    for seed in range(5):
        way = data.draw(st.sampled_from(list(WAYS)))
        kept = data.draw(st.integers(0, len(prompt)))
        new = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=5))
        prompt = (prompt[:kept] + new)[-40:]
        if data.draw(st.booleans()):
            context = context.fork()
        got = tokens(MODEL, prompt, way, OTHER, seed, context=context)
        assert got == tokens(MODEL, prompt, way, OTHER, seed)
        prompt = prompt + got


@pytest.mark.parametrize("way", WAYS)
def test_a_draft_with_fewer_ids_and_tables_serve_too(way):
    other = SMALL if way == "speculative" else TABLE
    context, prompt = Context(TABLE), [5, 0]
    for seed in range(4):
        got = tokens(TABLE, prompt, way, other, seed, context=context)
        assert got == tokens(TABLE, prompt, way, other, seed)
        prompt = prompt + got[:5] + [3]


class Counting:
    """Counts the tokens that a model reads."""

    def __init__(self, inner):
        self.inner, self.read = inner, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def forward(self, tokens, cache, n_logits=1):
        return self.forward_many([(tokens, cache)], n_logits)[0]

    def forward_many(self, batch, n_logits=1):
        self.read += sum(len(tokens) for tokens, _ in batch)
        return self.inner.forward_many(batch, n_logits)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_read_is_not_read_again(way):
    model, other = Counting(gpt2(1)), Counting(gpt2(2, layers=1))
    context, prompt = Context(model), list(range(30))
    options = {"max_new_tokens": 1, "context": context, **WAYS[way](other)}
    generate(model, prompt, **options)
    read = model.read, other.read
    generate(model, [*prompt, 3], **options)
    assert model.read - read[0] <= 2
    assert other.read - read[1] <= 2
    assert len(context.tokens) in (30, 31)
    assert repr(context) == f"Context({len(context.tokens)} tokens)"


def test_an_abandoned_run_leaves_a_sound_context():
    context = Context(MODEL)
    for way in ("sampling", "speculative"):
        options = WAYS[way](OTHER)
        steps = []

        def stop(step, steps=steps):
            steps.append(step)
            if len(steps) == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            generate(MODEL, [1, 2, 3], context=context, on_step=stop, **options)
        assert context.tokens[:3] == [1, 2, 3]
        assert len(context.tokens) <= 3 + sum(len(step.tokens) for step in steps) - 1


def test_a_fork_goes_its_own_way():
    context = Context(TABLE)
    tokens(TABLE, [0, 1, 2, 3], "sampling", None, 0, context=context)
    fork, before = context.fork(), context.tokens
    tokens(TABLE, [0, 1, 5], "sampling", None, 1, context=fork)
    assert context.tokens == before
    assert fork.tokens[:3] == [0, 1, 5]


def test_what_is_no_context_is_refused():
    with pytest.raises(InputError, match="context: got 5, a Context was wanted"):
        sample(TABLE, [0], context=5)
    with pytest.raises(InputError, match="context: is of another model"):
        generate(TABLE, [0], context=Context(SMALL))
    with pytest.raises(InputError, match="context: serves one text at a time"):
        generate_many(TABLE, [[0]], context=Context(TABLE))
    with pytest.raises(InputError, match="context: serves one text at a time"):
        generate(TABLE, [0], num_return_sequences=2, context=Context(TABLE))
    with pytest.raises(InputError, match="model: got 'gpt2'"):
        Context("gpt2")
