"""Proof and test that speculation keeps the target's distribution, for `minidecode verify`.

The proof enumerates every path of the real decoder on small tables (exact.py). The test runs real
models many times and compares how often each beginning of a text came with its exact probability.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from ..decoding.chance import Dice
from ..decoding.warp import Warp
from ..errors import InputError
from ..models.table import TableModel
from ..speculation.drafts import ModelDraft, PromptLookupDraft
from ..speculation.loop import speculative
from . import chi_square, exact, mistakes

SIGNIFICANCE = 1e-3  # fixed in advance: a right decoder fails once in a thousand runs
SMALLEST_EXPECTED = 5  # rarer outcomes are counted together, or the statistic is no chi-square
TOKENS = 2  # of each text that are tested jointly


def ticking_clock(seconds=(1.0, 3.0, 2.0)):
    """A clock that tells made-up but repeatable times, so that `auto` can be enumerated."""
    ticks = itertools.cycle(seconds)
    now = itertools.accumulate(ticks)
    return lambda: next(now)


def settings():
    """(name, target, draft factory, warp, options of `speculative`) of what the proof runs."""
    history, table = mistakes.TARGET, TableModel(mistakes.ROWS[:3], eos=2)
    warps = {
        "plain": Warp(),
        "T=0.5 top-k=2": Warp(temperature=0.5, top_k=2),
        "T=1.5 top-p=0.8": Warp(temperature=1.5, top_p=0.8),
        "penalty=2 ngram=2": Warp(repetition_penalty=2.0, no_repeat_ngram_size=2),
        "epsilon=0.25": Warp(epsilon=0.25),
        "greedy": Warp(temperature=0),
    }

    def model():
        return ModelDraft(mistakes.DRAFT)

    def unsure():
        return ModelDraft(mistakes.DRAFT, stop_below=0.4)

    for k, schedule in ((1, "constant"), (2, "constant"), (3, "heuristic"), (2, "auto")):
        options = {"num_draft_tokens": k, "schedule": schedule}
        for name, warp in warps.items():
            yield f"k={k} {schedule}, {name}", history, model, warp, options
    two, three = {"num_draft_tokens": 2}, {"num_draft_tokens": 3}
    yield "k=2 constant, unsure draft", history, unsure, Warp(), two
    yield "k=2 constant, lookup draft", history, PromptLookupDraft, Warp(), two
    yield "k=3 constant, end token", table, model, Warp(), three


def proof(max_new_tokens=4):
    """Yield (name, `exact.Report`) for each setting of the real decoder."""
    for name, target, make_draft, warp, options in settings():
        decoder = _decoder(make_draft, options)
        limits = {"warp": warp, "max_new_tokens": max_new_tokens}
        yield name, exact.check(decoder, target, [0, 1, 0], **limits)


def _decoder(make_draft, options):
    """`speculative` with a new draft and a new clock for every path."""

    def decoder(target, prompt, **rest):
        clock = ticking_clock()
        return speculative(target, make_draft(), prompt, clock=clock, **options, **rest)

    return decoder


@dataclass(frozen=True)
class Test:
    """A chi-square test of real models: passed when p_value >= SIGNIFICANCE."""

    passed: bool
    p_value: float
    statistic: float
    cells: int
    samples: int
    power: float  # against a decoder that redraws from p after a rejection


def statistical_test(
    target, draft, prompt, samples, *, warp=None, num_draft_tokens=4, seed=0, progress=None
):
    """Whether `samples` speculative texts begin as often as they should with each pair of tokens.

    Pairs too rare to be counted alone are counted with others of the same first token, or with
    all that are rare. Errors: `InputError` for too few samples.
    """
    if samples < 100:
        raise InputError(f"samples: got {samples}, at least 100 were wanted")
    warp = warp or Warp()
    p, q = (first_row(model, prompt, warp) for model in (target, draft))
    cells = make_cells(target, prompt, warp, p, samples)
    counts = dict.fromkeys(cells, 0)
    seeds = np.random.SeedSequence(seed).spawn(samples)
    for child in progress(seeds, desc="sampling") if progress else seeds:
        chance = Dice(int(child.generate_state(1)[0]))
        steps = speculative(
            target,
            draft,
            prompt,
            warp=warp,
            chance=chance,
            num_draft_tokens=num_draft_tokens,
            eos=None,
            max_new_tokens=TOKENS + 1,  # so that both may come of drafts
        )
        x, y, *_ = exact.tokens_of(steps)
        counts[cell_of(cells, x, y)] += 1
    probabilities = list(cells.values())
    x = chi_square.statistic(counts.values(), probabilities)
    p_value = chi_square.tail(x, len(cells) - 1)
    mistaken = redrawing(cells, p, q)
    power = chi_square.power(samples, probabilities, mistaken, SIGNIFICANCE)
    return Test(p_value >= SIGNIFICANCE, p_value, x, len(cells), samples, power)


def first_row(model, prompt, warp):
    return np.asarray(warp(model.forward(prompt, model.new_cache())[-1], prompt), np.float64)


def make_cells(target, prompt, warp, p, samples):
    """{(x, y) or (x, None) or (None, None): probability}: the outcomes that are told apart.

    None stands for all that have no cell of their own. Each cell is expected often enough.
    """
    least = SMALLEST_EXPECTED / samples
    cells = {}
    cache = target.new_cache()
    target.forward(prompt, cache)
    firsts, cells[None, None] = split(p, least)
    for x in firsts:
        cache.truncate(len(prompt))
        row = np.asarray(warp(target.forward([x], cache)[-1], [*prompt, x]), np.float64) * p[x]
        seconds, cells[x, None] = split(row, least)
        cells |= {(x, y): float(row[y]) for y in seconds}
    if len(cells) < 2:
        raise InputError("samples: too few for a distribution as concentrated as this one")
    return cells


def split(row, least):
    """The tokens to count alone, likeliest first, and the mass of all others, at least `least`."""
    tokens = [x for x in np.argsort(-row, kind="stable").tolist() if row[x] >= least]
    rest = float(row.sum() - row[tokens].sum())
    while rest < least and tokens:
        rest += float(row[tokens.pop()])
    return tokens, rest


def cell_of(cells, x, y):
    return next(cell for cell in ((x, y), (x, None), (None, None)) if cell in cells)


def redrawing(cells, p, q):
    """The cells' probabilities where a rejected first token is redrawn from p itself."""
    size = max(len(p), len(q))
    p, q = (np.pad(row, (0, size - len(row))) for row in (p, q))
    accepted = np.minimum(p, q)
    first = accepted + (1 - accepted.sum()) * p
    others = {(x, y): m * first[x] / p[x] for (x, y), m in cells.items() if x is not None}
    others[None, None] = 1 - sum(others.values())
    return [others[cell] for cell in cells]
