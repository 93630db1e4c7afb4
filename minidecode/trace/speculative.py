"""Traces of speculative decoding: each draft, p and q at its position, and whether it stood.

The decoders run unchanged, between wrappers that listen (listening.py). So everything here is what
took place, and the text is that of the same decoder and seed without a trace.
"""

from ..decoding.chance import Dice
from ..speculation.drafts import ModelDraft
from ..speculation.loop import speculative
from ..speculation.verify import verify
from . import candidates
from .candidates import Candidate, Traced, drawn_facts
from .listening import ListeningChance, ListeningDraft, ListeningWarp, Notes


def trace_speculative(target, draft, prompt, *, warp=None, chance=None, **options):
    """`speculative`, yielding a `Traced` for each of its rounds. Arguments as there."""
    target_notes, draft_notes = Notes(), Notes()
    chance = Dice() if chance is None else chance
    draft = ModelDraft(draft) if hasattr(draft, "forward") else draft
    rounds = speculative(
        target,
        ListeningDraft(draft, draft_notes),
        prompt,
        warp=ListeningWarp.like(warp, target_notes),
        chance=ListeningChance(chance, target_notes),
        **options,
    )
    for step in rounds:
        if not one_test_per_draft(options):
            target_notes.trials.clear()
        yield Traced(step, _round(step, target_notes, draft_notes))
        target_notes.clear()
        draft_notes.clear()


def one_test_per_draft(options):
    """Whether what was asked of chance in a round is a test of one draft after the other."""
    return options.get("verify") in (None, "token", verify)


def _round(step, target_notes, draft_notes):
    if not target_notes.distributions:  # blocked before there was any distribution
        return []
    p_rows, q_rows = (
        {len(x.history): x for x in notes.distributions} for notes in (target_notes, draft_notes)
    )
    start = min(p_rows)
    p_rows = {
        i: distribution for i, distribution in p_rows.items() if i <= start + step.accepted
    }  # the tested

    def model_facts(position, considered):
        return candidates.model_facts(p_rows.get(position), q_rows.get(position), considered)

    drafted = {draw.position: draw for draw in draft_notes.draws}
    chosen = target_notes.draws[-1] if target_notes.draws else None
    return round_candidates(step, start, model_facts, target_notes.trials, drafted, chosen)


def round_candidates(step, start, model_facts, trials, drafted, chosen):
    """The candidates of a round: the drafted tokens, then the one that the target chose.

    start: the position of the first. model_facts(position, considered): what is known of p and q there,
    as arguments of `Candidate`. trials: the tests of drafts, in order. drafted: the `Draw`s of the
    draft by position; chosen: that of the target.
    """
    coupled = chosen is not None and chosen.noise is not None
    rejected = () if step.next_token is None else step.drafted[step.accepted : step.accepted + 1]
    candidates = []
    for i, token in enumerate(step.drafted):
        kind = "accepted" if i < step.accepted else "rejected" if i == step.accepted else "untested"
        facts = model_facts(start + i, [token, step.next_token] if kind == "rejected" else [token])
        if i < len(trials):
            facts |= {"acceptance": trials[i].probability, "uniform": trials[i].uniform}
        elif (
            kind == "rejected" and not coupled and facts["p"].final[facts["ids"].index(token)] == 0
        ):
            facts["acceptance"] = 0.0  # no number is drawn for what cannot be
        facts |= drawn_facts(drafted.get(start + i), facts["ids"])
        candidates.append(Candidate(token, kind, start + i, **facts))
    if step.next_token is not None:
        kind = "correction" if rejected else "bonus" if step.drafted else "plain"
        facts = model_facts(start + step.accepted, [*rejected, step.next_token])
        facts |= drawn_facts(chosen, facts["ids"], residual=kind == "correction")
        candidates.append(Candidate(step.next_token, kind, start + step.accepted, **facts))
    return candidates
