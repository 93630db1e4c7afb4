"""What happened while decoding: each token, the distributions it was drawn from, and the draw.

The decoders run unchanged, between wrappers that listen (recording.py). So everything here is what
took place, and the text is that of the same decoder and seed without a trace.
"""

from dataclasses import dataclass

import numpy as np

from .bars import Bars, at, cuts_of, likeliest, look_closer, own_distribution
from .chance import Dice
from .contrastive import Contrast, contrastive, log_softmax
from .draft import ModelDraft
from .recording import ListeningChance, ListeningDraft, ListeningModel, ListeningWarp, Notes
from .sampling import sample
from .speculative import speculative
from .step import Step
from .warp import Warp


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
    listening = ListeningWarp.like(warp, notes), ListeningChance(chance or Dice(), notes)
    for step in sample(model, prompt, warp=listening[0], chance=listening[1], **limits):
        places = []
        for look, draw in zip(notes.looks, notes.draws):
            ids, p, _ = _sides(warp, look, None, [draw.token])
            places.append(Place(draw.token, "plain", draw.position, ids, p, **_drawn(draw, ids)))
        notes.clear()
        yield Traced(step, places)


def trace_contrastive(expert, amateur, prompt, *, warp=None, chance=None, **options):
    """`contrastive`, yielding a `Traced` for each of its steps. Arguments as there."""
    settings = {n: options[n] for n in ("alpha", "beta", "amateur_temperature") if n in options}
    contrast = Contrast(**settings)
    warp, ours, theirs = warp or Warp(temperature=0), Notes(), Notes()
    expert, amateur = ListeningModel(expert, ours), ListeningModel(amateur, theirs)
    listening = ListeningChance(chance or Dice(), ours)
    for step in contrastive(expert, amateur, prompt, warp=warp, chance=listening, **options):
        places = [
            _contrasted(contrast, warp, row, other, expert.history, draw)
            for [row], [other], draw in zip(ours.rows, theirs.rows, ours.draws)
        ]
        ours.clear()
        theirs.clear()
        yield Traced(step, places)


def _contrasted(contrast, warp, expert, amateur, history, draw):
    """The place of a token chosen from two rows of logits after the ids `history`."""
    p = own_distribution(expert)
    q = np.exp(log_softmax(amateur, temperature=contrast.amateur_temperature))
    scores = warp.penalise(contrast(expert, amateur), history)
    ids = likeliest([draw.probs, p, q], [draw.token, int(np.argmax(scores))])
    cuts = [("alpha", contrast(expert, amateur) == -np.inf)]
    cuts += cuts_of(warp, lambda w: contrast.probs(expert, amateur, w, history))
    return Place(
        draw.token,
        "plain",
        draw.position,
        ids,
        p=look_closer(ids, p, draw.probs, cuts),
        q=look_closer(ids, q),
        scores=tuple(None if s == -np.inf else s for s in at(scores, ids)),
        **_drawn(draw, ids),
    )


def trace_speculative(target, draft, prompt, *, warp=None, chance=None, **options):
    """`speculative`, yielding a `Traced` for each of its rounds. Arguments as there."""
    warp, ours, theirs = warp or Warp(), Notes(), Notes()
    draft = ModelDraft(draft) if hasattr(draft, "forward") else draft
    rounds = speculative(
        target,
        ListeningDraft(draft, theirs),
        prompt,
        warp=ListeningWarp.like(warp, ours),
        chance=ListeningChance(chance or Dice(), ours),
        **options,
    )
    for step in rounds:
        yield Traced(step, _round(step, warp, ours, theirs))
        ours.clear()
        theirs.clear()


def _round(step, warp, ours, theirs):
    """The places of a round: the drafted tokens, then the one that the target chose."""
    if not ours.looks:  # blocked before there was any distribution
        return []
    start = len(ours.looks[0].history)
    p_looks, q_looks = ({len(x.history): x for x in notes.looks} for notes in (ours, theirs))
    draws = {draw.position: draw for draw in theirs.draws}
    rejected = [] if step.next_token is None else step.drafted[step.accepted : step.accepted + 1]
    places = []
    for position, token in enumerate(step.drafted, start):
        i = position - start
        kind = "accepted" if i < step.accepted else "rejected" if i == step.accepted else "untested"
        considered = [token, step.next_token] if kind == "rejected" else [token]
        sides = _sides(warp, p_looks.get(position), q_looks[position], considered)
        trial = {} if kind == "untested" else _trial(i, token, ours, p_looks[position])
        drawn = _drawn(draws.get(position), sides[0])
        places.append(Place(token, kind, position, *sides, **trial, **drawn))
    if step.next_token is not None:
        position = start + step.accepted
        kind = "correction" if rejected else "bonus" if step.drafted else "plain"
        considered = [*rejected, step.next_token]
        sides = _sides(warp, p_looks.get(position), q_looks.get(position), considered)
        draw = ours.draws[-1] if ours.draws else None
        drawn = _drawn(draw, sides[0], residual=kind == "correction")
        places.append(Place(step.next_token, kind, position, *sides, **drawn))
    return places


def _trial(i, token, ours, p_look):
    """How the i-th draft of a round was tested: by chance, or by the target's own draw."""
    if i < len(ours.trials):
        return {"acceptance": ours.trials[i].probability, "uniform": ours.trials[i].uniform}
    impossible = token >= len(p_look.probs) or p_look.probs[token] == 0
    coupled = any(draw.noise is not None for draw in ours.draws)
    return {"acceptance": 0.0} if impossible and not coupled else {}


def _drawn(draw, ids, residual=False):
    """What is known of a draw: the number or the noise, and what a correction was drawn from."""
    if draw is None:  # no chance was asked: a draft that was looked up
        return {}
    if draw.noise is not None:
        return {"noise": at(draw.noise, ids)}
    share = np.asarray(draw.probs, np.float64) / np.sum(draw.probs, dtype=np.float64)
    return {"drawn": draw.uniform, "residual": at(share, ids) if residual else None}


def _sides(warp, p_look, q_look, considered):
    """The ids to show at one position, and the `Bars` of target and draft."""
    looks = [look for look in (p_look, q_look) if look is not None]
    rows = [look.probs for look in looks]
    rows += [own_distribution(look.logits) for look in looks if look.logits is not None]
    ids = likeliest(rows, considered)
    return ids, *(look and _warped(warp, look, ids) for look in (p_look, q_look))


def _warped(warp, look, ids):
    if look.logits is None:
        return look_closer(ids, final=look.probs)
    cuts = cuts_of(warp, lambda w: w(look.logits, look.history))
    return look_closer(ids, own_distribution(look.logits), look.probs, cuts)
