"""The table of settings: whoever adds a field of `Warp` gets all this from its row."""

import argparse
import math

import numpy as np
import pytest

from minidecode import InputError, TableModel, Warp
from minidecode.cli import make_parser
from minidecode.decoding.settings import STAGES, Real, Whole
from minidecode.decoding.warp import SETTINGS
from minidecode.measure.compare import parse_method
from minidecode.trace.page import Recording, _facts
from minidecode.trace.sampling import trace_sample

ROWS = pytest.mark.parametrize("row", SETTINGS.values(), ids=SETTINGS.keys())
NO_NUMBERS = [True, "1", None, 1j, math.nan, math.inf, 10**400, -(10**400), 10**5000]


def outside(kind):
    """Values that a kind must refuse, by what it says of itself."""
    if isinstance(kind, Whole):
        return [*NO_NUMBERS, kind.low - 1, kind.low + 0.5, 2**63]
    beyond = [kind.low - 0.1] + ([kind.high + 0.1] if kind.high < math.inf else [])
    ends = [kind.low] * kind.without_low + [kind.high] * kind.without_high
    return [*NO_NUMBERS, *beyond, *ends]


@ROWS
def test_values_outside_the_range_are_refused_by_name(row):
    for value in outside(row.kind):
        with pytest.raises(InputError, match=f"^{row.name}: got .* was wanted$") as caught:
            Warp(**{row.name: value})
        assert len(str(caught.value)) < 200


@ROWS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_off_value_leaves_the_distribution_bit_for_bit(row, dtype):
    logits = np.random.default_rng(3).standard_normal(300).astype(dtype)
    history = [5, 7, 5, 299]
    off = Warp(**{row.name: row.off})
    assert off == Warp() and off(logits, history).tolist() == Warp()(logits, history).tolist()
    assert off.penalise(logits, history) is logits


@ROWS
def test_the_example_does_something(row):
    logits = np.random.default_rng(4).standard_normal(300)
    history = [5, 7, 5, 299, 5]
    changed = Warp(**{row.name: row.example})
    assert changed(logits, history).tolist() != Warp()(logits, history).tolist()
    assert hash(changed) == hash(Warp(**{row.name: row.example})) and changed != Warp()


@ROWS
def test_every_setting_says_what_it_is(row):
    assert row.stage in STAGES and row.label and row.help
    row.kind.check(row.name, row.off)
    row.kind.check(row.name, row.example)


def commands(parser, path=()):
    """{words of a command: its parser}"""
    found = {path: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= commands(below, (*path, name))
    return found


@ROWS
@pytest.mark.parametrize("words", ["generate", "trace", "verify", "plot filters"])
def test_every_setting_is_an_option_with_its_help(row, words):
    parser = commands(make_parser())[tuple(words.split())]
    [action] = [a for a in parser._actions if row.option in a.option_strings]
    assert action.help


@ROWS
def test_compare_takes_every_setting(row):
    for kind in ("sample", "contrastive", "speculative"):
        method = parse_method(f"{kind}:{row.name}={row.example}")
        assert method.settings == {row.name: row.example}
    if not row.shapes:
        assert parse_method(f"greedy:{row.name}={row.example}").settings == {row.name: row.example}


class Letters:
    """a, b, c, ..."""

    def token_bytes(self, token):
        return bytes([97 + token])


@ROWS
def test_trace_and_page_know_every_setting(row):
    model = TableModel([[0.4, 0.3, 0.2, 0.1]] * 4)
    warp = Warp(**{row.name: row.example})
    steps = list(trace_sample(model, [0, 1, 0], warp=warp, max_new_tokens=2))
    cut = [name for name, _, _ in steps[0].places[0].p.cuts]
    assert cut in ([row.name], [])
    assert steps[0].places[0].p.kept == np.count_nonzero(
        warp(np.log([0.4, 0.3, 0.2, 0.1]), [0, 1, 0])
    )
    facts = _facts(Recording("", "", {}, steps=steps), _spelling())
    assert facts["words"][row.name] == row.label


def _spelling():
    from minidecode.models.labels import Spelling

    return Spelling(Letters())


def test_a_range_says_what_it_takes():
    assert str(Real(0)) == "a finite number of at least 0"
    assert str(Real(0, without_low=True)) == "a finite number above 0"
    assert str(Real(0, 1, without_low=True)) == "a number above 0 and at most 1"
    assert str(Real(0, 1, without_high=True)) == "a number of at least 0 and below 1"
