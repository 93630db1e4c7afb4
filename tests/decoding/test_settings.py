"""The table of settings: whoever adds a field of `Warp` gets all this from its row."""

import argparse
import math

import numpy as np
import pytest

from minidecode import (
    InputError,
    TableModel,
    Warp,
    beam_search,
    contrastive,
    generate,
    sample,
    speculative,
    speculative_contrastive,
)
from minidecode.cli import make_parser
from minidecode.decoding.settings import (
    PENALTY,
    STAGES,
    Biases,
    Functions,
    Ids,
    LengthAndIds,
    Real,
    Sequences,
    Whole,
    encode_texts,
)
from minidecode.decoding.warp import OPTIONS, ROWS, SETTINGS
from minidecode.measure.compare import parse_method
from minidecode.models.labels import Spelling
from minidecode.trace.page import Recording, _facts
from minidecode.trace.sampling import trace_sample

EVERY_ROW = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
EVERY_OPTION = pytest.mark.parametrize("row", OPTIONS.values(), ids=OPTIONS.keys())
NO_NUMBERS = [True, "1", None, 1j, math.nan, math.inf, 10**400, -(10**400), 10**5000]
NO_IDS = [True, -1, 1.5, None, "1", 10**400, [1], math.nan]


def outside(kind):
    """Values that a kind must refuse, by what it says of itself."""
    if isinstance(kind, Real):
        low, high = kind.low, kind.high
        beyond = [low - 0.1] * (low > -math.inf) + [high + 0.1] * (high < math.inf)
        return [*NO_NUMBERS, *beyond, *([low] * kind.without_low), *([high] * kind.without_high)]
    if isinstance(kind, Whole):
        return [*NO_NUMBERS, kind.low - 1, kind.low + 0.5, 2**63]
    if isinstance(kind, Ids):
        return [*NO_IDS[:-2], *([i] for i in NO_IDS)]
    if isinstance(kind, Biases):
        pairs = [{i: 1.0} for i in NO_IDS if i != [1]] + [{1: x} for x in NO_NUMBERS]
        return [5, None, "1=2", [5], [(1, 2, 3)], [(1, 2), (1, 2)], *pairs]
    if isinstance(kind, Sequences):
        return [5, None, "word", ["word"], [5], [[]], *([[i]] for i in NO_IDS)]
    if isinstance(kind, Functions):
        return [5, None, "f", print, [5], [None]]
    if isinstance(kind, LengthAndIds):
        return [5, None, "f", (5,), (-1, [2]), (1.5, [2]), (5, [-2]), (10**400, [2])]
    raise AssertionError(f"{kind}: say here what is outside of it")


@EVERY_ROW
def test_values_outside_the_range_are_refused_by_name(row):
    for value in outside(row.kind):
        with pytest.raises(InputError, match=f"^{row.name}: got .* wanted") as caught:
            Warp(**{row.name: value})
        assert len(str(caught.value)) < 200


@EVERY_ROW
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_off_value_leaves_the_distribution_bit_for_bit(row, dtype):
    logits = np.random.default_rng(3).standard_normal(300).astype(dtype)
    history = [5, 7, 5, 299]
    off = Warp(**{row.name: row.off})
    assert off == Warp() and off(logits, history).tolist() == Warp()(logits, history).tolist()
    assert off.penalise(logits, history) is logits


@EVERY_ROW
def test_the_example_does_something(row):
    logits = np.random.default_rng(4).standard_normal(300)
    history = [5, 7, 5, 299, 5]
    changed = Warp(**{row.name: row.example})
    assert changed(logits, history).tolist() != Warp()(logits, history).tolist()
    assert hash(changed) == hash(Warp(**{row.name: row.example})) and changed != Warp()
    kept = changed.only(row.stage)
    assert kept == changed and changed.only() == Warp()


@EVERY_ROW
def test_every_setting_says_what_it_is(row):
    assert row.stage in STAGES and row.label and row.help
    assert row.kind.check(row.name, row.off) == row.off
    assert row.kind.check(row.name, row.example) == row.example


def test_what_is_given_in_other_clothes_is_the_same_warp():
    one = Warp(logit_bias={5: 1, 2: -math.inf}, bad_words=[[1, 2], [3]], suppress=np.array([4, 1]))
    two = Warp(logit_bias=[(2, -math.inf), (5, 1.0)], bad_words=({3}, (1, 2)), suppress={1, 4})
    assert one == two and hash(one) == hash(two)
    assert Warp(suppress=3) == Warp(suppress=[3, 3])
    assert Warp(bad_words=iter([iter([1, 2])])) == Warp(bad_words=[(1, 2)])


def test_a_warp_is_shown_as_what_is_set():
    assert repr(Warp()) == "Warp()"
    assert repr(Warp(temperature=0.7, suppress=[3])) == "Warp(temperature=0.7, suppress=(3,))"
    warp = Warp(temperature=0, logit_bias={1: 2.0}, bad_words=[[1, 2]], eta=0.1)
    assert eval(repr(warp)) == warp


def test_ids_that_a_model_lacks_are_refused_before_the_first_step():
    model = TableModel([[0.4, 0.3, 0.2, 0.1]] * 4)
    for settings in ({"suppress": [4]}, {"logit_bias": {4: 1.0}}, {"bad_words": [[0, 4]]}):
        [name] = settings
        for options in ({}, {"draft": model}, {"amateur": model}, {"num_beams": 2}):
            with pytest.raises(InputError, match=f"^{name}: got id 4, an id from 0 to 3 was want"):
                generate(model, [0], max_new_tokens=0, **settings, **options)


def test_what_is_no_warp_is_refused_with_what_to_do():
    model = TableModel([[0.4, 0.3, 0.2, 0.1]] * 4)
    for no_warp in (lambda logits, history: logits, {"top_k": 2}, "greedy", 0.5):
        for decode in (
            lambda warp: sample(model, [0], warp=warp),
            lambda warp: speculative(model, model, [0], warp=warp),
            lambda warp: contrastive(model, model, [0], warp=warp),
            lambda warp: speculative_contrastive(model, model, [0], warp=warp),
            lambda warp: beam_search(model, [0], num_beams=2, max_new_tokens=2, warp=warp),
            lambda warp: generate(model, [0], warp=warp),
            lambda warp: next(trace_sample(model, [0], warp=warp)),
        ):
            with pytest.raises(InputError, match=r"^warp: got .* Warp\(processors="):
                decode(no_warp)


def commands(parser, path=()):
    """{words of a command: its parser}"""
    found = {path: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= commands(below, (*path, name))
    return found


@EVERY_OPTION
@pytest.mark.parametrize("words", ["generate", "trace", "verify", "plot filters"])
def test_every_setting_is_an_option_with_its_help(row, words):
    parser = commands(make_parser())[tuple(words.split())]
    [action] = [a for a in parser._actions if row.option in a.option_strings]
    assert action.help


def as_text(value):
    """A value as a method of `compare` writes it."""
    if isinstance(value, tuple):
        return "+".join("=".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in value)
    return str(value)


@EVERY_OPTION
def test_compare_takes_every_setting(row):
    if isinstance(row.kind, Sequences):
        text, value = "the end+fox", ("the end", "fox")
    else:
        text, value = as_text(row.example), row.example
    kinds = ["sample", "contrastive", "speculative", *([] if row.shapes else ["greedy", "beam"])]
    for kind in kinds:
        label = f"{kind}:{'num_beams=2,' * (kind == 'beam')}{row.name}={text}"
        method = parse_method(label)
        assert (method.settings | method.options)[row.name] == value


@EVERY_ROW
def test_trace_and_page_know_every_setting(row):
    probs = [0.4, 0.3, 0.2, 0.1]
    model = TableModel([probs] * 4)
    example = {"bad_words": ((0, 2),), "suppress": (1,), "logit_bias": ((1, 2.0),)}
    example["temperature"] = 0  # another cuts nothing
    value = example.get(row.name, row.example)
    warp = Warp(**{row.name: value})
    steps = list(trace_sample(model, [0, 1, 0], warp=warp, max_new_tokens=2))
    cut = [name for name, _, _ in steps[0].candidates[0].p.cuts]
    assert cut == ([] if row.stage == PENALTY else [row.name])
    assert steps[0].candidates[0].p.kept == np.count_nonzero(warp(np.log(probs), [0, 1, 0]))
    facts = _facts(Recording("", "", {}, steps=steps), Spelling(Letters()))
    assert facts["words"][row.name] == row.label


class Letters:
    """a, b, c, ...; a word is a space and letters."""

    def token_bytes(self, token):
        return bytes([97 + token])

    def encode(self, text):
        return [26 if letter == " " else ord(letter) - 97 for letter in text]


def test_bad_words_may_be_texts_where_there_is_a_tokenizer():
    settings = {"bad_words": ["ab", " c", [5]], "top_k": 3}
    ids = encode_texts(SETTINGS, settings, Letters())
    assert ids == {"bad_words": [[0, 1], [26, 0, 1], [2], [26, 2], [5]], "top_k": 3}
    model = TableModel([[0.5, 0.3, 0.2]] * 3)
    spaces = TableModel([[1 / 27] * 27] * 27)
    found = generate(spaces, [0], tokenizer=Letters(), bad_words="ab", max_new_tokens=200)
    assert "ab" not in "a" + found.text
    with pytest.raises(InputError, match=r"^bad_words: got 'ab', .* texts with a tokenizer"):
        generate(model, [0], bad_words=["ab"])


def test_a_range_says_what_it_takes():
    assert str(Real(0)) == "a finite number of at least 0"
    assert str(Real(0, without_low=True)) == "a finite number above 0"
    assert str(Real(0, 1, without_low=True)) == "a number above 0 and at most 1"
    assert str(Real(0, 1, without_high=True)) == "a number of at least 0 and below 1"
