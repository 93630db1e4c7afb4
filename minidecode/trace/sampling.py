"""Traces of plain sampling: each token, the distribution it was drawn from, and the draw."""

from dataclasses import replace

from ..decoding.chance import as_chance
from ..decoding.sampling import sample
from .candidates import Place, Traced, drawn_facts, sides
from .listening import ListeningChance, ListeningWarp, Notes


def trace_sample(model, prompt, *, warp=None, chance=None, **limits):
    """`sample`, yielding a `Traced` for each of its steps. Arguments as there."""
    notes = Notes()
    chance = as_chance(chance)
    listening = ListeningWarp.like(warp, notes), ListeningChance(chance, notes)
    for step in sample(model, prompt, warp=listening[0], chance=listening[1], **limits):
        places = []
        for look, draw in zip(notes.looks, notes.draws):
            # With Mirostat less is left than the warp has left.
            facts = sides(replace(look, probs=draw.probs), None, [draw.token])
            facts |= drawn_facts(draw, facts["ids"])
            places.append(Place(draw.token, "plain", draw.position, **facts))
        notes.clear()
        yield Traced(step, places)
