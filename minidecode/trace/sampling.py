"""Traces of plain sampling: each token, the distribution it was drawn from, and the draw."""

from dataclasses import replace

from ..decoding.chance import as_chance
from ..decoding.sampling import sample
from .candidates import Candidate, Traced, drawn_facts, model_facts
from .listening import ListeningChance, ListeningWarp, Notes


def trace_sample(model, prompt, *, warp=None, chance=None, **limits):
    """`sample`, yielding a `Traced` for each of its steps. Arguments as there."""
    notes = Notes()
    chance = as_chance(chance)
    listening = ListeningWarp.like(warp, notes), ListeningChance(chance, notes)
    for step in sample(model, prompt, warp=listening[0], chance=listening[1], **limits):
        candidates = []
        for distribution, draw in zip(notes.distributions, notes.draws):
            # With Mirostat less is left than the warp has left.
            facts = model_facts(replace(distribution, probs=draw.probs), None, [draw.token])
            facts |= drawn_facts(draw, facts["ids"])
            candidates.append(Candidate(draw.token, "plain", draw.position, **facts))
        notes.clear()
        yield Traced(step, candidates)
