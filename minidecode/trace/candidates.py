"""What a trace holds: the tokens considered at each position, and what was known of them."""

from dataclasses import dataclass

import numpy as np

from ..decoding.step import Step
from .top_tokens import Bars, at, cuts_of, likeliest, look_closer, own_distribution


@dataclass(frozen=True)
class Place:
    """A token that was considered for a position of the text.

    kind        accepted, rejected, correction, bonus, untested (drafted behind a rejection), plain
                (chosen without a draft); in a beam search running, finished or dropped
    position    tokens before it, the prompt's counted
    ids         the likeliest tokens at this position, and those considered for it
    p, q        `Bars` of `ids` for target and draft, or for expert and amateur
    residual    probabilities of `ids` in norm(max(0, p - q)), which a correction is drawn from
    scores      contrastive scores of `ids`, or what they add to a beam's total; None where barred
    noise       of `GumbelDice`: its noise for `ids`, added to log p
    acceptance  with which probability the draft was to be accepted; it was if `uniform` lay below
    drawn       the uniform number that the token itself was drawn with
    """

    token: int
    kind: str
    position: int
    ids: tuple[int, ...] = ()
    p: Bars | None = None
    q: Bars | None = None
    residual: tuple[float, ...] | None = None
    scores: tuple[float | None, ...] | None = None
    noise: tuple[float, ...] | None = None
    acceptance: float | None = None
    uniform: float | None = None
    drawn: float | None = None


@dataclass(frozen=True)
class Traced:
    """A decoder's step and the places it considered, in order."""

    step: Step
    places: list[Place]


def drawn_facts(draw, ids, residual=False):
    """What is known of a draw: the number or the noise, and what a correction was drawn from."""
    if draw is None:  # no chance was asked: a draft that was looked up
        return {}
    if draw.noise is not None:
        return {"noise": at(draw.noise, ids)}
    share = np.asarray(draw.probs, np.float64) / np.sum(draw.probs, dtype=np.float64)
    return {"drawn": draw.uniform, "residual": at(share, ids) if residual else None}


def sides(p_look, q_look, considered):
    """What target and draft say at one position, as arguments of `Place`."""
    looks = [look for look in (p_look, q_look) if look is not None]
    rows = [look.probs for look in looks]
    rows += [own_distribution(look.logits) for look in looks if look.logits is not None]
    ids = likeliest(rows, considered)
    p, q = (look and _bars(look, ids) for look in (p_look, q_look))
    return {"ids": ids, "p": p, "q": q}


def _bars(look, ids):
    if look.logits is None:
        return look_closer(ids, final=look.probs)
    cuts = cuts_of(look.warp, lambda w: w(look.logits, look.history))
    cut_later = (look.warp(look.logits, look.history) > 0) & (look.probs == 0)
    if cut_later.any():
        cuts.append(("mirostat", cut_later))
    return look_closer(ids, own_distribution(look.logits), look.probs, cuts)
