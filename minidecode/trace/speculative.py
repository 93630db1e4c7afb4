"""What happened while decoding: each token, the distributions it was drawn from, and the draw.

The decoders run unchanged, between wrappers that listen (recording.py). So everything here is what
took place, and the text is that of the same decoder and seed without a trace.
"""

from dataclasses import dataclass

import numpy as np

from ..decoding.chance import Dice
from ..decoding.sampling import sample
from ..decoding.step import Step
from ..decoding.warp import Warp
from ..speculation.drafts import ModelDraft
from ..speculation.loop import speculative
from .listening import ListeningChance, ListeningDraft, ListeningWarp, Notes
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


def trace_sample(model, prompt, *, warp=None, chance=None, **limits):
    """`sample`, yielding a `Traced` for each of its steps. Arguments as there."""
    warp, notes = warp or Warp(), Notes()
    chance = Dice() if chance is None else chance
    listening = ListeningWarp.like(warp, notes), ListeningChance(chance, notes)
    for step in sample(model, prompt, warp=listening[0], chance=listening[1], **limits):
        places = []
        for look, draw in zip(notes.looks, notes.draws):
            facts = _sides(warp, look, None, [draw.token])
            facts |= drawn_facts(draw, facts["ids"])
            places.append(Place(draw.token, "plain", draw.position, **facts))
        notes.clear()
        yield Traced(step, places)


def trace_speculative(target, draft, prompt, *, warp=None, chance=None, **options):
    """`speculative`, yielding a `Traced` for each of its rounds. Arguments as there."""
    warp, ours, theirs = warp or Warp(), Notes(), Notes()
    chance = Dice() if chance is None else chance
    draft = ModelDraft(draft) if hasattr(draft, "forward") else draft
    rounds = speculative(
        target,
        ListeningDraft(draft, theirs),
        prompt,
        warp=ListeningWarp.like(warp, ours),
        chance=ListeningChance(chance, ours),
        **options,
    )
    for step in rounds:
        yield Traced(step, _round(step, warp, ours, theirs))
        ours.clear()
        theirs.clear()


def _round(step, warp, ours, theirs):
    if not ours.looks:  # blocked before there was any distribution
        return []
    p_looks, q_looks = ({len(x.history): x for x in notes.looks} for notes in (ours, theirs))

    def sides(position, considered):
        return _sides(warp, p_looks.get(position), q_looks.get(position), considered)

    drafted = {draw.position: draw for draw in theirs.draws}
    chosen = ours.draws[-1] if ours.draws else None
    return round_places(step, min(p_looks), sides, ours.trials, drafted, chosen)


def round_places(step, start, sides, trials, drafted, chosen):
    """The places of a round: the drafted tokens, then the one that the target chose.

    start: the position of the first. sides(position, considered): what is known of p and q there,
    as arguments of `Place`. trials: the tests of drafts, in order. drafted: the `Draw`s of the
    draft by position; chosen: that of the target.
    """
    coupled = chosen is not None and chosen.noise is not None
    rejected = () if step.next_token is None else step.drafted[step.accepted : step.accepted + 1]
    places = []
    for i, token in enumerate(step.drafted):
        kind = "accepted" if i < step.accepted else "rejected" if i == step.accepted else "untested"
        facts = sides(start + i, [token, step.next_token] if kind == "rejected" else [token])
        if i < len(trials):
            facts |= {"acceptance": trials[i].probability, "uniform": trials[i].uniform}
        elif (
            kind == "rejected" and not coupled and facts["p"].final[facts["ids"].index(token)] == 0
        ):
            facts["acceptance"] = 0.0  # no number is drawn for what cannot be
        facts |= drawn_facts(drafted.get(start + i), facts["ids"])
        places.append(Place(token, kind, start + i, **facts))
    if step.next_token is not None:
        kind = "correction" if rejected else "bonus" if step.drafted else "plain"
        facts = sides(start + step.accepted, [*rejected, step.next_token])
        facts |= drawn_facts(chosen, facts["ids"], residual=kind == "correction")
        places.append(Place(step.next_token, kind, start + step.accepted, **facts))
    return places


def drawn_facts(draw, ids, residual=False):
    """What is known of a draw: the number or the noise, and what a correction was drawn from."""
    if draw is None:  # no chance was asked: a draft that was looked up
        return {}
    if draw.noise is not None:
        return {"noise": at(draw.noise, ids)}
    share = np.asarray(draw.probs, np.float64) / np.sum(draw.probs, dtype=np.float64)
    return {"drawn": draw.uniform, "residual": at(share, ids) if residual else None}


def _sides(warp, p_look, q_look, considered):
    """What target and draft say at one position, as arguments of `Place`."""
    looks = [look for look in (p_look, q_look) if look is not None]
    rows = [look.probs for look in looks]
    rows += [own_distribution(look.logits) for look in looks if look.logits is not None]
    ids = likeliest(rows, considered)
    p, q = (look and _bars(warp, look, ids) for look in (p_look, q_look))
    return {"ids": ids, "p": p, "q": q}


def _bars(warp, look, ids):
    if look.logits is None:
        return look_closer(ids, final=look.probs)
    cuts = cuts_of(warp, lambda w: w(look.logits, look.history))
    return look_closer(ids, own_distribution(look.logits), look.probs, cuts)
