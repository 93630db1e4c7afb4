"""Traces of contrastive decoding: each token with what the expert and the amateur said of it."""

import numpy as np

from ..decoding.chance import as_chance
from ..decoding.contrastive import Contrast, contrastive
from ..decoding.run import Run
from ..decoding.warp import Warp, log_softmax
from ..speculation.contrastive import speculative_contrastive
from .candidates import Place, Traced, drawn_facts
from .listening import ListeningChance, ListeningModel, Notes
from .speculative import one_test_per_draft, round_places
from .top_tokens import at, cuts_of, likeliest, look_closer, own_distribution


def trace_contrastive(expert, amateur, prompt, **options):
    """`contrastive`, yielding a `Traced` for each of its steps. Arguments as there."""
    heard = _Heard(expert, amateur, prompt, options)
    for step in contrastive(*heard.models, prompt, **heard.options):
        places = []
        for draw in heard.ours.draws:
            facts = heard.sides(draw.position, [draw.token])
            facts |= drawn_facts(draw, facts["ids"])
            places.append(Place(draw.token, "plain", draw.position, **facts))
        heard.forget(step)
        yield Traced(step, places)


def trace_speculative_contrastive(expert, amateur, prompt, **options):
    """`speculative_contrastive`, yielding a `Traced` for each of its rounds. Arguments as there."""
    heard = _Heard(expert, amateur, prompt, options)
    for step in speculative_contrastive(*heard.models, prompt, **heard.options):
        heard.drafted = step.drafted
        heard.tested = step.accepted + (step.next_token is not None)
        # Both sides draw with one chance, and the draft draws first.
        draws = heard.ours.draws
        drafted = {draw.position: draw for draw in draws[: len(step.drafted)]}
        chosen = draws[-1] if draws else None
        start = len(heard.history)
        trials = heard.ours.trials if one_test_per_draft(options) else []
        places = round_places(step, start, heard.sides, trials, drafted, chosen)
        heard.forget(step)
        yield Traced(step, places)


class _Heard:
    """Two models and a chance with ears, and what they heard in the step that is under way.

    history: the ids before the step; drafted: the ids drafted in it; tested: how many positions the
    contrastive distribution was asked for.
    """

    def __init__(self, expert, amateur, prompt, options):
        settings = ("alpha", "beta", "amateur_temperature")
        self.contrast = Contrast(**{n: options[n] for n in settings if n in options})
        limits = ("max_new_tokens", "min_new_tokens", "eos", "tokenizer")
        run = Run(expert, prompt, **{n: options[n] for n in limits if n in options})
        self.warp = run.warped(options.get("warp"), Warp(temperature=0))
        self.ours, self.theirs = Notes(), Notes()
        self.models = ListeningModel(expert, self.ours), ListeningModel(amateur, self.theirs)
        chance = as_chance(options.get("chance"))
        self.options = options | {"chance": ListeningChance(chance, self.ours)}
        self.history = run.prompt
        self.drafted, self.tested = (), 1

    def sides(self, position, considered):
        """What expert and amateur say at one position, as arguments of `Place`."""
        i = position - len(self.history)
        history = [*self.history, *self.drafted[:i]]
        expert, amateur = (logits_at(notes, position) for notes in (self.ours, self.theirs))
        q_own = np.exp(log_softmax(amateur, temperature=self.contrast.amateur_temperature))
        q, q_cuts = None, []
        if i < len(self.drafted):
            q = self.warp(amateur, history)
            q_cuts = cuts_of(self.warp, lambda warp: warp(amateur, history))
        if i >= self.tested:
            ids = likeliest([q, q_own], considered)
            return {"ids": ids, "q": look_closer(ids, q_own, q, q_cuts)}
        p_own = own_distribution(expert)
        p = self.contrast.probs(expert, amateur, self.warp, history)
        raw = self.contrast(expert, amateur)
        scores = self.warp.penalise(raw, history)
        cuts = [("alpha", raw == -np.inf)]
        cuts += cuts_of(self.warp, lambda warp: self.contrast.probs(expert, amateur, warp, history))
        ids = likeliest([p, p_own, q_own], [*considered, int(np.argmax(scores))])
        return {
            "ids": ids,
            "p": look_closer(ids, p_own, p, cuts),
            "q": look_closer(ids, q_own, q, q_cuts),
            "scores": tuple(None if s == -np.inf else s for s in at(scores, ids)),
        }

    def forget(self, step):
        self.history += step.tokens
        self.ours.clear()
        self.theirs.clear()


def logits_at(notes, position):
    """The row of logits [V] after `position` tokens, of the passes of one sequence."""
    for [(length, logits)] in notes.passes:
        if length - len(logits) < position <= length:
            return logits[position - length - 1]
    return None
