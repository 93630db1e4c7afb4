"""The loop of twenty lines: exact, and the robust loop with less around it."""

import inspect

import numpy as np
import pytest
from builders import DRAFT, TARGET

from minidecode import Dice, TableModel, Warp, exact, speculative
from minidecode.proof import mistakes
from minidecode.speculation import simple
from minidecode.speculation.simple import simple_speculative

PAIRS = {
    "by last token": (TARGET, DRAFT),
    "by all tokens": (TableModel(mistakes.target_row), mistakes.DRAFT),
    "some impossible": (
        TableModel([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [1.0, 0.0, 0.0]]),
        TableModel([[0.1, 0.2, 0.7], [0.9, 0.1, 0.0], [0.2, 0.4, 0.4]]),
    ),
}


def check(pair, k, warp, n):
    target, draft = pair

    def decoder(target, prompt, *, chance, max_new_tokens, **_):
        options = {"chance": chance, "k": k, "warp": warp, "max_new_tokens": max_new_tokens}
        return simple_speculative(target, draft, prompt, **options)

    return exact.check(decoder, target, warp=warp, max_new_tokens=n)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize(("k", "n"), [(1, 3), (2, 3), (3, 2)])
@pytest.mark.parametrize("warp", [Warp(), Warp(temperature=0.5), Warp(top_k=2)])
def test_its_law_is_the_target_s(pair, k, n, warp):
    report = check(pair, k, warp, n)
    assert report.passed and report.complete, report


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.maximum(p[i] - q[i], 0)", "p[i]"),
        ("chance.choose(p[k], len(text))", "chance.choose(p[0], len(text))"),
        ("p[i][x] / q[i][x]", "q[i][x] / p[i][x]"),
        ("text + drafted, warp, k + 1)", "text + drafted, warp, k + 1)[::-1]"),
    ],
)
def test_the_proof_sees_each_line_changed(monkeypatch, right, wrong):
    source = inspect.getsource(simple_speculative)
    assert source.count(right) == 1
    names = dict(vars(simple))
    exec(source.replace(right, wrong), names)
    monkeypatch.setitem(globals(), "simple_speculative", names["simple_speculative"])
    assert not check(PAIRS["by last token"], 2, Warp(), 3).passed


@pytest.mark.parametrize("k", [1, 3])
def test_its_text_is_that_of_the_robust_loop_with_the_same_dice(k):
    """With the ratio test, while no limit cuts a round short."""
    target, draft = PAIRS["by last token"]
    mine = simple_speculative(target, draft, [0], chance=Dice(5), k=k, max_new_tokens=40)
    options = {"num_draft_tokens": k, "verify": "token", "max_new_tokens": 40 + k + 1}
    robust = exact.tokens_of(speculative(target, draft, [0], chance=Dice(5), **options))
    assert tuple(mine) == robust[:40]


def test_it_fits_on_a_screen():
    code = [line.strip() for line in inspect.getsource(simple_speculative).splitlines()]
    body = code[code.index(next(line for line in code if line.startswith("warp, text"))) :]
    assert len([line for line in body if line and not line.startswith("#")]) <= 20
    assert np.all([len(line) <= 100 for line in code])
