"""Traces of speculative decoding: each draft, p and q at its place, and whether it stood.

The decoders run unchanged, between wrappers that listen (listening.py). So everything here is what
took place, and the text is that of the same decoder and seed without a trace.
"""

from ..decoding.chance import as_chance
from ..speculation.drafts import ModelDraft
from ..speculation.loop import speculative
from ..speculation.verify import verify
from . import candidates
from .candidates import Place, Traced, drawn_facts
from .listening import ListeningChance, ListeningDraft, ListeningWarp, Notes


def trace_speculative(target, draft, prompt, *, warp=None, chance=None, **options):
    """`speculative`, yielding a `Traced` for each of its rounds. Arguments as there."""
    ours, theirs = Notes(), Notes()
    chance = as_chance(chance)
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
        if not one_test_per_draft(options):
            ours.trials.clear()
        yield Traced(step, _round(step, ours, theirs))
        ours.clear()
        theirs.clear()


def one_test_per_draft(options):
    """Whether what was asked of chance in a round is a test of one draft after the other."""
    return options.get("verify") in (None, "token", verify)


def _round(step, ours, theirs):
    if not ours.looks:  # blocked before there was any distribution
        return []
    p_looks, q_looks = ({len(x.history): x for x in notes.looks} for notes in (ours, theirs))
    start = min(p_looks)
    p_looks = {i: look for i, look in p_looks.items() if i <= start + step.accepted}  # the tested

    def sides(position, considered):
        return candidates.sides(p_looks.get(position), q_looks.get(position), considered)

    drafted = {draw.position: draw for draw in theirs.draws}
    chosen = ours.draws[-1] if ours.draws else None
    return round_places(step, start, sides, ours.trials, drafted, chosen)


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
