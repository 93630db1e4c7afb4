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
    power: float  # against a decoder that redraws from p after each rejection


def statistical_test(
    target, draft, prompt, samples, *, warp=None, num_draft_tokens=4, seed=0, progress=None
):
    """Whether `samples` speculative texts begin as often as they should with each pair of tokens.

    Pairs too rare to be counted alone are counted with others of the same first token, or with
    all that are rare. Errors: `InputError` for too few samples, or where nothing is left to chance.
    """
    warp = warp or Warp()
    _check_there_is_something_to_test(samples, warp, num_draft_tokens)
    p = row_after(target, prompt, warp)
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
    mistaken = redrawing(target, draft, prompt, warp, cells, num_draft_tokens)
    power = chi_square.power(samples, probabilities, mistaken, SIGNIFICANCE)
    return Test(p_value >= SIGNIFICANCE, p_value, x, len(cells), samples, power)


def _check_there_is_something_to_test(samples, warp, num_draft_tokens):
    if samples < 100:
        raise InputError(f"samples: got {samples}, at least 100 were wanted")
    nothing = "there is nothing to test"
    if warp.temperature == 0:
        raise InputError(f"temperature: got 0, where every text is the same: {nothing}")
    if num_draft_tokens == 0:
        raise InputError(f"num_draft_tokens: got 0, which is plain sampling: {nothing}")


def row_after(model, tokens, warp):
    """The distribution [V] of the token after `tokens`, in float64."""
    row = warp(model.forward(list(tokens), model.new_cache())[-1], list(tokens))
    return np.asarray(row, np.float64)


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


def redrawing(target, draft, prompt, warp, cells, num_draft_tokens):
    """The cells' probabilities for a decoder that redraws a rejected token from p itself.

    That is wrong, as p should lose what q gave already. Both tokens are drawn that way, unless the
    second is the bonus token of a round of one draft, which comes from p as it should.
    """
    p, q = _rows(target, draft, prompt, warp)
    accepted, rejected = np.minimum(p, q), (1 - np.minimum(p, q).sum()) * p
    others = dict.fromkeys(cells, 0.0)
    for x in {x for x, _ in cells if x is not None}:
        p_x, q_x = _rows(target, draft, [*prompt, x], warp)
        mixed = np.minimum(p_x, q_x) + (1 - np.minimum(p_x, q_x).sum()) * p_x
        bonus = p_x if num_draft_tokens == 1 else mixed
        row = accepted[x] * bonus + rejected[x] * mixed
        others |= {
            cell: float(row[cell[1]]) for cell in cells if cell[0] == x and cell[1] is not None
        }
        alone = [y for first, y in cells if first == x and y is not None]
        others[x, None] = float(row.sum() - row[alone].sum())
    others[None, None] = 1 - sum(others.values())
    return [others[cell] for cell in cells]


def _rows(target, draft, tokens, warp):
    """(p, q) after tokens, of one length; q = p where the draft does not know the last token."""
    p = row_after(target, tokens, warp)
    if tokens[-1] >= draft.vocab_size:
        return p, p
    q = row_after(draft, tokens, warp)
    size = max(len(p), len(q))
    return tuple(np.pad(row, (0, size - len(row))) for row in (p, q))
