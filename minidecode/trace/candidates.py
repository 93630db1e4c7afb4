"""What a trace holds: the tokens considered at each position, and what was known of them."""

from dataclasses import dataclass

import numpy as np

from ..decoding.step import Step
from .top_tokens import Bars, at, cuts_of, likeliest, bars_of, own_distribution


@dataclass(frozen=True)
class Candidate:
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
    """A decoder's step and the candidates it considered, in order."""

    step: Step
    candidates: list[Candidate]


def drawn_facts(draw, ids, residual=False):
    """What is known of a draw: the number or the noise, and what a correction was drawn from."""
    if draw is None:  # no chance was asked: a draft that was looked up
        return {}
    if draw.noise is not None:
        return {"noise": at(draw.noise, ids)}
    share = np.asarray(draw.probs, np.float64) / np.sum(draw.probs, dtype=np.float64)
    return {"drawn": draw.uniform, "residual": at(share, ids) if residual else None}


def model_facts(p_given, q_given, considered):
    """What target and draft say at one position, as arguments of `Candidate`."""
    distributions = [
        distribution for distribution in (p_given, q_given) if distribution is not None
    ]
    rows = [distribution.probs for distribution in distributions]
    rows += [
        own_distribution(distribution.logits)
        for distribution in distributions
        if distribution.logits is not None
    ]
    ids = likeliest(rows, considered)
    p, q = (distribution and _bars(distribution, ids) for distribution in (p_given, q_given))
    return {"ids": ids, "p": p, "q": q}


def _bars(distribution, ids):
    if distribution.logits is None:
        return bars_of(ids, final=distribution.probs)
    cuts = cuts_of(distribution.warp, lambda w: w(distribution.logits, distribution.history))
    cut_later = (distribution.warp(distribution.logits, distribution.history) > 0) & (
        distribution.probs == 0
    )
    if cut_later.any():
        cuts.append(("mirostat", cut_later))
    return bars_of(ids, own_distribution(distribution.logits), distribution.probs, cuts)
