"""A chi-square test of real models: do speculative texts begin as often as they should?

The law of real models cannot be enumerated. They are sampled many times instead, and how often each
beginning of a text came is compared with its exact probability.
"""

from dataclasses import dataclass

import numpy as np

from ..decoding.chance import Dice
from ..decoding.warp import Warp
from ..errors import InputError
from ..speculation.loop import speculative
from . import chi_square, exact

SIGNIFICANCE = 1e-3  # fixed in advance: a right decoder fails once in a thousand runs
SMALLEST_EXPECTED = 5  # rarer outcomes are counted together, or the statistic is no chi-square
TOKENS = 2  # of each text that are tested jointly


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
