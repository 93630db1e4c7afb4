"""What speculation refuses: bad arguments at the call, bad drafts in the round they come in."""

import numpy as np
import pytest
from builders import cycle

from minidecode import (
    ContextError,
    Dice,
    InputError,
    ModelDraft,
    TableModel,
    generate,
    speculative,
    speculative_contrastive,
    speculative_many,
)
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

MODEL = TableModel(np.full((3, 3), 1 / 3), n_positions=8)


def gpt2(built):
    config, tensors = built
    return GPT2(Config.from_dict(config), tensors)


def one(prompt=(0,), **options):
    return speculative(MODEL, MODEL, prompt, **options)


def many(prompt=(0,), **options):
    return speculative_many(MODEL, MODEL, [[1], prompt], **options)


def contrastive(prompt=(0,), **options):
    return speculative_contrastive(MODEL, MODEL, prompt, **options)


@pytest.mark.parametrize("decoder", [one, many, contrastive])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens: got -1"),
        ({"num_draft_tokens": 1.5}, "num_draft_tokens: got 1.5"),
        ({"num_draft_tokens": True}, "num_draft_tokens: got True"),
        ({"schedule": "clever"}, "schedule: got 'clever', one of constant, heuristic, auto"),
        ({"max_new_tokens": -1}, "max_new_tokens: got -1"),
        ({"max_new_tokens": 2.0}, "max_new_tokens: got 2.0"),
        ({"eos": 3}, "token id: got 3"),
        ({"stop": ["x"]}, "stop: stop strings need a tokenizer"),
        ({"prompt": "text"}, "prompt: got text"),
        ({"prompt": [3]}, "token id: got 3"),
        ({"prompt": []}, "prompt: it is empty"),
        ({"verify": "clever"}, "verify: got 'clever'"),
        ({"verify": 3}, "verify: got 3"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(decoder, options, message):
    with pytest.raises(InputError, match=message):
        decoder(**options)


@pytest.mark.parametrize("decoder", [one, many, contrastive])
def test_a_prompt_without_room_is_refused_at_the_call(decoder):
    with pytest.raises(ContextError, match="8 positions"):
        decoder(prompt=[0] * 8)


@pytest.mark.parametrize("setting", [{"alpha": 0}, {"beta": -1}, {"amateur_temperature": 0}])
def test_a_contrast_out_of_range_is_refused_at_the_call(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        contrastive(**setting)


@pytest.mark.parametrize("decoder", [one, many, contrastive])
def test_unknown_options_are_refused_at_the_call(decoder):
    with pytest.raises(TypeError, match="temperature"):
        decoder(temperature=0.5)


def test_prompts_are_several():
    with pytest.raises(InputError, match="prompts: got 'Once', a list of prompts was wanted"):
        speculative_many(MODEL, MODEL, "Once")


def test_decoders_with_one_draft_may_be_made_first_and_run_later():
    """What the first has left in the draft must not reach the second."""
    target = TableModel(lambda h: np.roll([0.7, 0.2, 0.1], sum(h)))
    draft = ModelDraft(target)
    prompts = [[0, 1, 2], [2], [1, 1]]
    runs = [speculative(target, draft, p, chance=Dice(0), max_new_tokens=9) for p in prompts]
    for steps, prompt in zip(runs, prompts):
        fresh = speculative(target, target, prompt, chance=Dice(0), max_new_tokens=9)
        assert [(s.tokens, s.accepted) for s in steps] == [(s.tokens, s.accepted) for s in fresh]


# Drafts


class Lying(ModelDraft):
    def propose(self, history, k, warp, chance):
        return [0] * (k + 1), [np.ones(6) / 6] * (k + 1)


def test_a_draft_that_proposes_too_much_is_refused():
    model = gpt2(cycle())
    with pytest.raises(InputError, match="up to 4 were wanted"):
        list(speculative(model, Lying(model), [0], max_new_tokens=20))


@pytest.mark.parametrize("token", [1, -1, 6])
def test_a_draft_that_q_rules_out_is_refused(token):
    class Impossible(ModelDraft):
        def propose(self, history, k, warp, chance):
            return [token], [np.eye(6)[0]]

    model = gpt2(cycle())
    with pytest.raises(InputError, match="q gives no probability"):
        list(speculative(model, Impossible(model), [0], max_new_tokens=20))


class Odd(ModelDraft):
    """A draft whose answer is put into another form."""

    def __init__(self, model, form):
        super().__init__(model)
        self.form = form

    def propose(self, history, k, warp, chance):
        return self.form(*super().propose(history, k, warp, chance))


@pytest.mark.parametrize(
    "form",
    [
        lambda drafted, q: (tuple(drafted), tuple(q)),
        lambda drafted, q: (np.array(drafted), np.array(q)),
        lambda drafted, q: ([np.int32(x) for x in drafted], [list(row) for row in q]),
        lambda drafted, q: (np.array(drafted, np.uint8), [row.astype(np.float32) for row in q]),
        lambda drafted, q: (iter(drafted), iter(q)),
    ],
)
def test_what_a_draft_returns_may_have_any_form(form):
    options = {"max_new_tokens": 7}
    wanted = list(speculative(MODEL, MODEL, [0], chance=Dice(2), **options))
    got = list(speculative(MODEL, Odd(MODEL, form), [0], chance=Dice(2), **options))
    assert [(s.tokens, s.drafted) for s in got] == [(s.tokens, s.drafted) for s in wanted]
    assert all(type(x) is int for step in got for x in (*step.tokens, *step.drafted))


@pytest.mark.parametrize(
    "form, message",
    [
        (lambda drafted, q: ([float(x) for x in drafted], q), "draft: got token [0-2].0, a whole"),
        (lambda drafted, q: ([True] * len(q), q), "draft: got token True, a whole"),
        (lambda drafted, q: (np.array(drafted, np.float64), q), "draft: got token .*, a whole"),
        (lambda drafted, q: ([None] * len(q), q), "draft: got token None, a whole"),
        (lambda drafted, q: (drafted, [row[:, None] for row in q]), "draft: got a q of shape"),
        (lambda drafted, q: (drafted, [["x"] for _ in q]), "draft: got a q of shape"),
    ],
)
def test_drafts_that_are_no_ids_are_refused_by_name(form, message):
    with pytest.raises(InputError, match=message):
        list(speculative(MODEL, Odd(MODEL, form), [0], max_new_tokens=7))


def test_a_draft_that_changes_its_history_changes_no_text():
    class Scribbling(ModelDraft):
        def propose(self, history, k, warp, chance):
            answer = super().propose(history, k, warp, chance)
            history += answer[0]
            history[0] = 2
            return answer

    for options in ({}, {"schedule": "heuristic"}, {"verify": "block"}):
        options |= {"max_new_tokens": 7}
        wanted = list(speculative(MODEL, MODEL, [0], chance=Dice(2), **options))
        got = list(speculative(MODEL, Scribbling(MODEL), [0], chance=Dice(2), **options))
        assert [s.tokens for s in got] == [s.tokens for s in wanted]


def test_speculative_options_without_a_draft_are_refused():
    with pytest.raises(InputError, match="num_draft_tokens: has no effect without draft"):
        generate(gpt2(cycle()), [0], num_draft_tokens=3, max_new_tokens=2)


def test_vocabularies_that_disagree_are_refused_before_the_first_pass():
    target = gpt2(cycle())

    class Words:
        def __init__(self, differs):
            self.differs = differs

        def same_vocabulary(self, other):
            return self.differs

    draft = gpt2(cycle())
    target.tokenizer, draft.tokenizer = Words(3), Words(3)
    target.forward = None  # must not be called
    with pytest.raises(InputError, match="id 3"):
        list(speculative(target, draft, [0], max_new_tokens=2))
