"""Several texts at once: each is that of its prompt alone, and the passes are shared."""

import numpy as np
import pytest
from builders import random_gpt2

from minidecode import (
    Dice,
    GumbelDice,
    InputError,
    ModelDraft,
    PromptLookupDraft,
    TableModel,
    generate,
    generate_many,
    speculative,
)
from minidecode.kernels import backend
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

PROMPTS = [[3], [1, 2, 3, 4, 5], [7, 7], [30, 0, 9, 9], [2, 4]]


def gpt2(seed, V=31, layers=2):
    config, tensors = random_gpt2(seed, V, layers, 2, 16, 64, eos_token_id=5)
    return GPT2(Config.from_dict(config), tensors)


class Counting:
    """A model that counts its passes and the most sequences that shared one."""

    def __init__(self, inner):
        self.inner, self.passes, self.widest = inner, 0, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def forward(self, tokens, cache, n_logits=1):
        return self.forward_many([(tokens, cache)], n_logits)[0]

    def forward_many(self, batch, n_logits=1):
        self.passes += 1
        self.widest = max(self.widest, len(batch))
        return self.inner.forward_many(batch, n_logits)


WAYS = {
    "plain": lambda model, other: {"temperature": 0.9, "top_p": 0.95},
    "greedy": lambda model, other: {"temperature": 0},
    "mirostat": lambda model, other: {"mirostat": 3.0},
    "speculative": lambda model, other: {"draft": other, "num_draft_tokens": 3},
    "adaptive": lambda model, other: {"draft": other, "schedule": "heuristic"},
    "lookup": lambda model, other: {"draft": PromptLookupDraft()},
    "contrastive": lambda model, other: {"amateur": other, "temperature": 1.0},
    "both": lambda model, other: {"amateur": other, "draft": other},
    "beams": lambda model, other: {"num_beams": 2},
}


@pytest.mark.skipif(backend == "numpy", reason="NumPy's products round by shape, draws may differ")
@pytest.mark.parametrize("kind", [Dice, GumbelDice])
@pytest.mark.parametrize("way", WAYS)
def test_each_text_is_that_of_its_prompt_alone(way, kind):
    model, other = gpt2(1), gpt2(2, layers=1)
    options = {"max_new_tokens": 20, "logprobs": 1, **WAYS[way](model, other)}
    chances = [None] * 5 if way == "beams" else [kind(i) for i in range(5)]
    many = generate_many(model, PROMPTS, chances=chances, **options)
    for i, prompt in enumerate(PROMPTS):
        chance = None if way == "beams" else kind(i)
        alone = generate(model, prompt, chance=chance, **options)
        assert many[i].tokens == alone.tokens
        assert many[i].finish_reason == alone.finish_reason
        assert many[i].logprobs == alone.logprobs


@pytest.mark.parametrize("way", ["plain", "speculative", "contrastive"])
def test_one_pass_of_each_model_serves_all_that_still_run(way):
    model, other = Counting(gpt2(1)), Counting(gpt2(2, layers=1))
    chances = [Dice(i) for i in range(5)]
    options = {"max_new_tokens": 12, "eos": None, **WAYS[way](model, other)}
    steps = [0] * 5

    def count(i, step):
        steps[i] += 1

    generate_many(model, PROMPTS, chances=chances, on_step=count, **options)
    assert model.widest == 5
    assert model.passes == max(steps)
    if way != "plain":
        assert other.widest == 5
    if way == "contrastive":
        assert other.passes == max(steps)
    if way == "speculative":
        assert other.passes <= 3 * max(steps)


def test_drafts_of_several_models_and_of_ones_own_serve_beside_each_other():
    model, small = TableModel(np.full((6, 6), 1 / 6)), TableModel(np.full((4, 4), 0.25))

    class Own:
        def propose(self, history, k, warp, chance):
            return [0][:k], [np.ones(1)][:k]

        def rollback(self, length):
            pass

    drafts = [model, small, ModelDraft(model, stop_below=0.1), Own(), model]
    prompts = [[0], [5], [1], [2], [3]]
    many = {i: [] for i in range(5)}
    from minidecode import speculative_many

    for i, step in speculative_many(
        model, drafts, prompts, chances=[Dice(i) for i in range(5)], max_new_tokens=15
    ):
        many[i] += step.tokens
    for i, draft in enumerate([model, small, ModelDraft(model, stop_below=0.1), Own(), model]):
        alone = speculative(model, draft, prompts[i], chance=Dice(i), max_new_tokens=15)
        assert many[i] == [token for step in alone for token in step.tokens]


def test_several_sequences_of_one_prompt_have_the_seeds_that_follow():
    model = TableModel(np.full((6, 6), 1 / 6))
    for options in ({}, {"draft": model}, {"amateur": model, "temperature": 1.0}):
        for kind in (Dice, GumbelDice):
            told = []
            result = generate(
                model,
                [0],
                num_return_sequences=3,
                chance=kind(7),
                max_new_tokens=9,
                on_step=told.append,
                **options,
            )
            assert [one.tokens for one in result.sequences] == [
                generate(model, [0], chance=kind(7 + i), max_new_tokens=9, **options).tokens
                for i in range(3)
            ]
            assert result.tokens == result.sequences[0].tokens
            assert [token for step in told for token in step.tokens] == result.tokens
    fresh = generate(model, [0], num_return_sequences=4, max_new_tokens=20)
    assert len({tuple(one.tokens) for one in fresh.sequences}) == 4
    assert len(generate(model, [0], num_return_sequences=1, max_new_tokens=2).sequences) == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_return_sequences": 0}, "num_return_sequences: got 0"),
        ({"num_return_sequences": True}, "num_return_sequences: got True"),
        (
            {"num_return_sequences": 2, "temperature": 0},
            "num_return_sequences: has no effect where",
        ),
        ({"num_return_sequences": 2, "chance": object()}, "num_return_sequences: needs a Dice"),
    ],
)
def test_sequences_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=f"^{message}"):
        generate(TableModel(np.eye(2)), [0], max_new_tokens=2, **options)


def test_what_is_wrong_with_several_prompts_is_told():
    model = TableModel(np.eye(2))
    for prompts, chances, message in [
        ("ab", None, "prompts: got 'ab', a list of prompts was wanted"),
        ([[0], [1]], [Dice(1)], "chances: got 1 for 2 prompts"),
        ([[0], [1]], [Dice(1)] * 0, "chances: got 0 for 2 prompts"),
        ([[0], [2]], None, "token id: got 2"),
    ]:
        with pytest.raises(InputError, match=message):
            generate_many(model, prompts, chances=chances, max_new_tokens=2)
    dice = Dice(1)
    with pytest.raises(InputError, match="chances: one object stands for two prompts"):
        generate_many(model, [[0], [1]], chances=[dice, dice], max_new_tokens=2)
    with pytest.raises(TypeError, match="'chance'; chances was perhaps meant"):
        generate_many(model, [[0]], chance=dice)
    assert generate_many(model, [], max_new_tokens=2) == []
