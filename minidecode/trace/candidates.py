"""What a trace holds: the tokens considered at each position, and what was known of them."""

from dataclasses import dataclass

import numpy as np

from ..decoding.step import Step
from .top_tokens import Bars, at, bars_of, cuts_of, likeliest, own_distribution


@dataclass(frozen=True)
class Candidate:
    """A token that was considered for a position of the text.

    kind        accepted, rejected, correction, bonus, untested (drafted behind a rejection), plain
                (chosen without a draft); in a beam search running, finished or dropped
    position    tokens before it, the prompt's counted
    ids         the likeliest tokens at this position, and those considered for it
    p, q        `Bars` of `ids` for target and draft, or for expert and amateur
    residual    probabilities of `ids` in the distribution that a correction is drawn from:
                max(0, p - q) divided by its sum, under block verification max(0, P_i p - q)
    divisor     that sum
    scores      contrastive scores of `ids`, of decoding or of search, or what they add to a beam's
                total; None where barred
    likeness    in contrastive search, the largest cosine between the hidden state of each of `ids`
                and one of the text; None for what was not looked at
    noise       of `GumbelDice`: its noise for `ids`, added to log p
    acceptance  with which probability the draft was to be accepted; it was if `uniform` lay below.
                Under block verification: that all drafts up to this one be kept and none behind it
    reach       under block verification, P_i of algorithm 2: with which probability the drafts up
                to this one are kept, whatever becomes of those behind
    drawn       the uniform number that the token itself was drawn with
    starts      where each of `ids` begins on the line from 0 to 1 that `drawn` points to: the
                probability of all smaller ids in what was drawn from
    least       in contrastive decoding, alpha times the expert's largest probability
    """

    token: int
    kind: str
    position: int
    ids: tuple[int, ...] = ()
    p: Bars | None = None
    q: Bars | None = None
    residual: tuple[float, ...] | None = None
    divisor: float | None = None
    scores: tuple[float | None, ...] | None = None
    likeness: tuple[float | None, ...] | None = None
    noise: tuple[float, ...] | None = None
    acceptance: float | None = None
    uniform: float | None = None
    reach: float | None = None
    drawn: float | None = None
    starts: tuple[float, ...] | None = None
    least: float | None = None


@dataclass(frozen=True)
class Traced:
    """A decoder's step and the candidates it considered, in order.

    rule: of verification: token, block, coupled or own; None where nothing is verified
    """

    step: Step
    candidates: list[Candidate]
    rule: str | None = None


def drawn_facts(draw, ids, residual=False):
    """What is known of a draw: the number or the noise, and what a correction was drawn from."""
    if draw is None:  # no chance was asked: a draft that was looked up
        return {}
    if draw.noise is not None:
        return {"noise": at(draw.noise, ids)}
    probs = np.asarray(draw.probs, np.float64)
    before = np.concatenate([[0.0], np.cumsum(probs)])
    divisor = float(before[-1])
    facts = {"drawn": draw.uniform}
    if draw.uniform is not None and np.count_nonzero(probs) > 1:
        facts["starts"] = at(before / divisor, ids)
    if residual:
        facts |= {"residual": at(probs / divisor, ids), "divisor": divisor}
    return facts


def model_facts(p_row, q_row, considered):
    """What target and draft say at one position, as arguments of `Candidate`."""
    given = [row for row in (p_row, q_row) if row is not None]
    rows = [row.probs for row in given]
    rows += [own_distribution(row.logits) for row in given if row.logits is not None]
    ids = likeliest(rows, considered)
    return {"ids": ids, "p": p_row and _bars(p_row, ids), "q": q_row and _bars(q_row, ids)}


def _bars(row, ids):
    if row.logits is None:
        return bars_of(ids, final=row.probs)
    cuts = cuts_of(row.warp, lambda warp: warp(row.logits, row.history))
    cut_later = (row.warp(row.logits, row.history) > 0) & (row.probs == 0)
    if cut_later.any():
        cuts.append(("mirostat", cut_later))
    return bars_of(ids, own_distribution(row.logits), row.probs, cuts)
