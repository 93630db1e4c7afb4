"""One call for a whole text: which decoder its options choose, and what it refuses."""

import inspect

import numpy as np
import pytest

from minidecode import (
    Dice,
    InputError,
    TableModel,
    Warp,
    beam_search,
    contrastive,
    generate,
    greedy,
    sample,
    speculative,
    speculative_contrastive,
)
from minidecode.decoding.warp import SETTINGS
from minidecode.generation import choose
from minidecode.measure.compare import arguments, parse_method


@pytest.fixture
def model():
    return TableModel(np.full((4, 4), 0.25), n_positions=32)


# Settings of the warp


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_may_be_given_as_it_is_or_in_a_warp(name):
    model = TableModel(np.full((32, 32), 1 / 32))
    value = SETTINGS[name].example
    direct = generate(model, [0], chance=Dice(1), max_new_tokens=20, **{name: value})
    warp = Warp(**{name: value})
    assert (
        direct.tokens == generate(model, [0], chance=Dice(1), max_new_tokens=20, warp=warp).tokens
    )


def test_settings_beside_a_warp_are_refused(model):
    with pytest.raises(InputError, match=r"^top_p: got it beside a warp"):
        generate(model, [0], warp=Warp(), top_p=0.5)


def test_an_unknown_option_is_named_with_the_one_that_was_perhaps_meant(model):
    with pytest.raises(TypeError, match=r"generate\(\) .* 'temprature'; temperature was"):
        generate(model, [0], temprature=0.8)
    with pytest.raises(TypeError, match="'max_tokens'; max_new_tokens was perhaps meant"):
        generate(model, [0], max_tokens=1)


@pytest.mark.parametrize("function", [generate, sample, greedy, contrastive, speculative])
def test_signatures_are_written_out_with_types(function):
    parameters = inspect.signature(function).parameters.values()
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters)
    assert all(p.annotation is not p.empty for p in parameters)
    assert {"max_new_tokens", "eos", "stop", "tokenizer"} <= {p.name for p in parameters}


def test_the_signature_of_generate_shows_every_setting():
    assert set(SETTINGS) <= set(inspect.signature(generate).parameters)


# Which decoder runs


@pytest.mark.parametrize(
    ("options", "title", "draws"),
    [
        ({}, "Ancestral sampling", True),
        ({"temperature": 0}, "Greedy decoding", False),
        ({"warp": Warp(temperature=0)}, "Greedy decoding", False),
        ({"draft": "d"}, "Speculative decoding", True),
        ({"draft": "d", "temperature": 0}, "Speculative decoding", False),
        ({"amateur": "a"}, "Contrastive decoding", False),
        ({"amateur": "a", "repetition_penalty": 1.2}, "Contrastive decoding", False),
        ({"amateur": "a", "top_k": 3}, "Contrastive decoding", True),
        ({"amateur": "a", "draft": "a"}, "Speculative contrastive decoding", False),
        ({"num_beams": 3}, "Beam search", False),
        ({"num_beams": 3, "amateur": "a"}, "Beam search", False),
        ({"num_beams": None, "draft": None, "amateur": None, "top_k": None}, "Ancestral", True),
    ],
)
def test_the_options_choose_the_decoder(options, title, draws):
    choice = choose("m", options)
    assert choice.decoder.title.startswith(title)
    assert choice.draws == draws
    with_amateur, with_draft = options.get("amateur"), options.get("draft")
    roles = ("expert", "amateur") if with_amateur else ("target", "draft") if with_draft else None
    assert choice.decoder.roles == (roles or ("model", None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "auto"}, "schedule: has no effect without draft"),
        ({"alpha": 0.1}, "alpha: has no effect without amateur"),
        ({"early_stopping": False}, "early_stopping: has no effect without num_beams"),
        ({"num_beams": 2, "top_p": 1.0}, "top_p: has no effect with beam search"),
        ({"num_beams": 2, "draft": "d"}, "draft: has no effect with beam search"),
        ({"amateur": "a", "draft": "d"}, "draft: got another model than the amateur"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(InputError, match=f"^{message}"):
        choose("m", options)


def test_methods_of_compare_run_the_decoders_that_generate_chooses():
    titles = {
        "greedy:repetition_penalty=2": "Greedy decoding",
        "sample": "Ancestral sampling",
        "beam:2": "Beam search",
        "speculative:k=2": "Speculative decoding",
        "contrastive": "Contrastive decoding",
        "contrastive:k=2": "Speculative contrastive decoding",
    }
    for label, title in titles.items():
        options = arguments(parse_method(label), draft="a", amateur="a", chance=Dice(0))
        assert choose("m", options).decoder.title == title


# Refusals come at the call


@pytest.mark.parametrize(
    "start",
    [
        sample,
        greedy,
        lambda model, prompt, **options: contrastive(model, model, prompt, **options),
        lambda model, prompt, **options: speculative(model, model, prompt, **options),
        lambda model, prompt, **options: speculative_contrastive(model, model, prompt, **options),
    ],
)
def test_bad_arguments_are_refused_before_the_first_step_is_asked_for(model, start):
    for prompt, options in [
        ([9], {}),
        ("text", {}),
        ([0], {"max_new_tokens": -1}),
        ([0], {"stop": "x"}),
        ([0], {"eos": 4}),
        ([0] * 32, {}),
    ]:
        with pytest.raises(InputError):
            start(model, prompt, **options)


def test_integers_of_numpy_are_integers(model):
    result = generate(model, [0], max_new_tokens=np.int8(3), eos=np.int64(3), top_k=np.uint8(1))
    assert len(result.tokens) == 3
    beams = generate(
        model, [0], max_new_tokens=2, num_beams=np.int64(2), length_penalty=np.int32(1)
    )
    assert len(beams.hypotheses) == 1


# What is no model, no prompt, ...: one sentence each


def decoders(model):
    return {
        "generate": lambda **o: generate(o.pop("model", model), o.pop("prompt", [0]), **o),
        "sample": lambda **o: sample(o.pop("model", model), o.pop("prompt", [0]), **o),
        "greedy": lambda **o: greedy(o.pop("model", model), o.pop("prompt", [0]), **o),
        "beams": lambda **o: beam_search(
            o.pop("model", model), o.pop("prompt", [0]), num_beams=2, max_new_tokens=2, **o
        ),
        "contrastive": lambda **o: contrastive(
            o.pop("model", model), o.pop("amateur", model), o.pop("prompt", [0]), **o
        ),
        "speculative": lambda **o: speculative(
            o.pop("model", model), o.pop("draft", model), o.pop("prompt", [0]), **o
        ),
        "both": lambda **o: speculative_contrastive(
            o.pop("model", model), o.pop("amateur", model), o.pop("prompt", [0]), **o
        ),
    }


EVERY = tuple(decoders(None))
PROMPTS_THAT_ARE_NONE = [
    (b"\x00\x01", r"prompt: got b'\x00\x01', text or a list of token ids was wanted"),
    (bytearray(b"ab"), "prompt: got bytearray(b'ab'), text or a list"),
    (memoryview(b"ab"), "prompt: got <memory at "),
    (np.array(5), "prompt: got array(5), text or a list"),
    (np.zeros((1, 2), int), "prompt: got array([[0, 0]]), text or a list"),
    (None, "prompt: got None, text or a list"),
    (5, "prompt: got 5, text or a list"),
    (iter([1, 2]), "prompt: got <list_iterator"),
    ({0: 1}, "prompt: got {0: 1}, text or a list"),
    ([0.0], "token id: got 0.0, an integer from 0 to 3 was wanted"),
    ([True], "token id: got True, an integer"),
    ([[0, 1]], "token id: got [0, 1], an integer"),
    (["0"], "token id: got '0', an integer"),
]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("prompt, message", PROMPTS_THAT_ARE_NONE)
def test_what_is_no_prompt_is_refused_at_the_call(model, name, prompt, message):
    with pytest.raises(InputError) as caught:
        decoders(model)[name](prompt=prompt)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "options, message",
    [
        ({"model": "gpt2"}, "model: got 'gpt2', a model was wanted; load('gpt2') returns it"),
        ({"model": None}, "model: got None, a model was wanted"),
        ({"model": ("model", "tokenizer")}, "model: got an object of type tuple, a model was"),
        ({"chance": 5}, "chance: got 5, a Dice or GumbelDice was wanted; Dice(5) has that seed"),
        ({"chance": "dice"}, "chance: got 'dice', a Dice or GumbelDice was wanted"),
        ({"chance": np.random.default_rng(0)}, "chance: got Generator(PCG64)"),
        ({"warp": {"temperature": 1}}, "warp: got {'temperature': 1}, a Warp was wanted"),
        ({"warp": 0.8}, "warp: got 0.8, a Warp was wanted"),
        ({"tokenizer": "gpt2"}, "tokenizer: got 'gpt2', a tokenizer was wanted"),
        ({"stop": 5}, "stop: "),
        ({"stop": b"ab"}, "stop: "),
        ({"eos": b"ab"}, "token id: got b'ab'"),
        ({"eos": "end"}, "token id: got 'end'"),
        ({"max_new_tokens": 2.0}, "max_new_tokens: got 2.0, a whole number"),
        ({"max_new_tokens": 10**400}, "max_new_tokens: got a whole number of 1329 bits"),
    ],
)
def test_what_is_no_model_chance_or_warp_is_refused_at_the_call(model, name, options, message):
    takes = {"greedy": ("chance", "warp"), "beams": ("chance", "max_new_tokens")}.get(name, ())
    if set(options) & set(takes):
        pytest.skip("this decoder takes no such option")
    with pytest.raises(InputError) as caught:
        decoders(model)[name](**options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("wrong", ["gpt2", None, ("model", "tokenizer"), 5, np.zeros(2)])
def test_what_is_no_draft_or_amateur_is_refused_at_the_call(model, wrong):
    calls = decoders(model)
    with pytest.raises(InputError, match=r"^draft: got .*, a model was wanted"):
        calls["speculative"](draft=wrong)
    for name in ("contrastive", "both"):
        with pytest.raises(InputError, match=r"^amateur: got .*, a model was wanted"):
            calls[name](amateur=wrong)
    if wrong is not None:
        with pytest.raises(InputError, match=r"^draft: got .*, a model was wanted"):
            generate(model, [0], draft=wrong)
