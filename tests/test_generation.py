"""One call for a whole text: which decoder its options choose, and what it refuses."""

import inspect

import numpy as np
import pytest

from minidecode import (
    Dice,
    InputError,
    TableModel,
    Warp,
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
