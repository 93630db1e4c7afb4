"""Traces of speculative decoding: each draft, p and q at its position, and whether it stood.

The decoders run unchanged, between wrappers that listen (listening.py). So everything here is what
took place, and the text is that of the same decoder and seed without a trace.
"""

from dataclasses import dataclass

from ..decoding.chance import as_chance, is_coupled
from ..speculation.drafts import ModelDraft
from ..speculation.loop import RULES, choose_rule, speculative
from ..speculation.verify import residual, verify_block, verify_coupled
from . import candidates
from .candidates import Candidate, Traced, drawn_facts
from .listening import ListeningChance, ListeningDraft, ListeningRule, ListeningWarp, Notes

NAMES = {rule: name for name, rule in RULES.items()}
NAMES |= {verify_block: "block", verify_coupled: "coupled"}


def trace_speculative(target, draft, prompt, *, warp=None, chance=None, **options):
    """`speculative`, yielding a `Traced` for each of its rounds. Arguments as there."""
    target_notes, draft_notes = Notes(), Notes()
    chance = as_chance(chance)
    draft = ModelDraft(draft) if hasattr(draft, "forward") else draft
    options, rule = listen_to_rule(options, chance, target_notes)
    rounds = speculative(
        target,
        ListeningDraft(draft, draft_notes),
        prompt,
        warp=ListeningWarp.like(warp, target_notes),
        chance=ListeningChance(chance, target_notes),
        **options,
    )
    for step in rounds:
        yield Traced(step, _round(step, rule, target_notes, draft_notes), rule)
        target_notes.clear()
        draft_notes.clear()


def listen_to_rule(options, chance, notes):
    """The options with a rule of verification that is heard, and its name: one of one's own is own.

    A coupled chance brings its own rule and asks nothing of chance but draws, so none is put in.
    """
    rule = choose_rule(options.get("verify"), chance)
    if not is_coupled(chance):
        options = options | {"verify": ListeningRule(rule, notes)}
    return options, NAMES.get(rule, "own")


@dataclass(frozen=True)
class Test:
    """What decided about a draft.

    acceptance, uniform   as in `Candidate`
    reach                 P_i of block verification; None under other rules
    """

    acceptance: float
    uniform: float | None = None
    reach: float | None = None


def tests_of(rule, notes, accepted):
    """{number of the draft in its round, from 0: its `Test`} of the round that was heard."""
    if notes.verified is None or rule not in ("token", "block"):
        return {}
    p, q, drafted = notes.verified
    if rule == "token":
        found = {i: Test(x.probability, x.uniform) for i, x in enumerate(notes.trials)}
        if accepted < len(drafted) and accepted not in found:
            found[accepted] = Test(0.0)  # no number is drawn for what cannot be
        return found
    found, trials = {}, iter(notes.trials)
    for kept, coin, reach in block_coins(p, q, drafted):
        if kept < accepted or kept == 0:
            break
        uniform = next(trials).uniform if coin > 0 else None
        found[kept - 1] = Test(coin, uniform, reach)
    return found


def block_coins(p, q, drafted):
    """The coins of `verify_block` in the order thrown: (drafts kept if it falls, chance, P_i)."""
    reach = [1.0]
    for i, x in enumerate(drafted):
        reach.append(min(1.0, reach[i] * float(p[i][x]) / float(q[i][x])))
    yield len(drafted), reach[-1], reach[-1]
    for i in reversed(range(len(drafted))):
        _, mass = residual(p[i], q[i], reach[i])
        yield i, mass / (mass + 1 - reach[i]) if mass else float(reach[i] == 1), reach[i]


def _round(step, rule, target_notes, draft_notes):
    if not target_notes.distributions:  # blocked before there was any distribution
        return []
    p_rows = {len(row.history): row for row in target_notes.distributions}
    q_rows = {len(row.history): row for row in draft_notes.distributions}
    start = min(p_rows)
    if rule != "block":  # which reads the rows behind a rejection too
        p_rows = {i: row for i, row in p_rows.items() if i <= start + step.accepted}

    def model_facts(position, considered):
        return candidates.model_facts(p_rows.get(position), q_rows.get(position), considered)

    drafted = {draw.position: draw for draw in draft_notes.draws}
    tests = tests_of(rule, target_notes, step.accepted)
    chosen = target_notes.draws[-1] if target_notes.draws else None
    return round_candidates(step, start, model_facts, tests, drafted, chosen)


def round_candidates(step, start, model_facts, tests, drafted, chosen):
    """The candidates of a round: the drafted tokens, then the one that the target chose.

    start: the position of the first. model_facts(position, considered): what is known of p and q
    there, as arguments of `Candidate`. tests: as `tests_of` gives them. drafted: the `Draw`s of the
    draft by position; chosen: that of the target.
    """
    corrected = () if step.next_token is None else step.drafted[step.accepted : step.accepted + 1]
    found = []
    for i, token in enumerate(step.drafted):
        kind = _kind(i, step.accepted, tests)
        rival = [step.next_token] if i == step.accepted and corrected else []
        facts = model_facts(start + i, [token, *rival])
        if i in tests:
            facts |= vars(tests[i])
        facts |= drawn_facts(drafted.get(start + i), facts["ids"])
        found.append(Candidate(token, kind, start + i, **facts))
    if step.next_token is not None:
        kind = "correction" if corrected else "bonus" if step.drafted else "plain"
        facts = model_facts(start + step.accepted, [*corrected, step.next_token])
        facts |= drawn_facts(chosen, facts["ids"], residual=kind == "correction")
        found.append(Candidate(step.next_token, kind, start + step.accepted, **facts))
    return found


def _kind(i, accepted, tests):
    """What became of the i-th draft; block verification tests those behind a rejection too."""
    if i < accepted:
        return "accepted"
    return "rejected" if i == accepted or i in tests else "untested"
