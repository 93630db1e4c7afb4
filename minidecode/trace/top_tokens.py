"""A distribution cut down to what can be looked at: its likeliest tokens, and what filters took."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..decoding.settings import PENALTY, in_order
from ..decoding.warp import ROWS, Warp

SHOWN = 8  # tokens of each distribution


@dataclass(frozen=True)
class Bars:
    """Some tokens of one distribution, before the settings and after; all are in the same order.

    model  their probabilities in the model's own distribution: temperature 1, nothing cut;
           None where no model made it
    final  in the distribution that was drawn from; None where nothing was drawn from it
    cut    the setting that cut each, or None
    kept   how many tokens of the whole vocabulary could be drawn; None where nothing was drawn
    cuts   (setting, tokens it cut, their share of the model's distribution), in the order applied
    """

    model: tuple[float, ...] | None = None
    final: tuple[float, ...] | None = None
    cut: tuple[str | None, ...] = ()
    kept: int | None = None
    cuts: tuple[tuple[str, int, float], ...] = ()


def bars_of(ids, model=None, final=None, cuts=()):
    """The `Bars` of `ids` from distributions [V] and cuts: (setting, mask [V] of what it cut)."""
    by = {i: setting for setting, mask in cuts for i in ids if i < len(mask) and mask[i]}
    return Bars(
        model=None if model is None else at(model, ids),
        final=None if final is None else at(final, ids),
        cut=tuple(by.get(i) for i in ids),
        kept=None if final is None else int(np.count_nonzero(final)),
        cuts=tuple((setting, int(mask.sum()), float(model[mask].sum())) for setting, mask in cuts),
    )


def likeliest(distributions, considered):
    """The ids to show: the likeliest of each distribution [V] and those considered, best first."""
    ids = set(considered)
    for probs in distributions:
        least = np.partition(probs, -SHOWN)[-SHOWN] if len(probs) > SHOWN else 0
        near = np.flatnonzero((probs >= least) & (probs > 0))  # SHOWN and ties: little to sort
        ids |= {int(i) for i in near[np.argsort(-probs[near], kind="stable")[:SHOWN]]}
    order = [dict(zip(ids, at(probs, ids))) for probs in distributions]
    return tuple(sorted(ids, key=lambda i: (*(-probs[i] for probs in order), i)))


def at(values, ids):
    """values [V] at `ids`, 0 for an id beyond them, as Python numbers."""
    return tuple(float(values[i]) if i < len(values) else 0.0 for i in ids)


def own_distribution(logits):
    """What the model itself says [V], before any setting."""
    return Warp()(logits, ())


def cuts_of(warp, distribution):
    """What each setting of `warp` cut: [(setting, mask [V])], in the order they apply.

    distribution(warp) -> probs [V]. The settings are put in one after the other, so what each cuts
    is what the real filter leaves no more. A setting that made tokens less likely cut none.
    """
    off = {row.name: row.off for row in in_order(ROWS.values()) if row.stage != PENALTY}
    current = dataclasses.replace(warp, **(off | {"temperature": warp.temperature or 1.0}))
    left, found = distribution(current) > 0, []
    for name in off:
        if getattr(warp, name) == getattr(current, name):
            continue
        current = dataclasses.replace(current, **{name: getattr(warp, name)})
        remaining = distribution(current) > 0
        found.append((name, left & ~remaining))
        left = remaining
    return found
