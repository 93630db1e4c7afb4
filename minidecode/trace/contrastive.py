"""Traces of contrastive decoding: each token with what the expert and the amateur said of it."""

import numpy as np

from ..decoding.chance import as_chance
from ..decoding.contrastive import Contrast, contrastive
from ..decoding.run import Run
from ..decoding.warp import Warp, log_softmax
from ..speculation.contrastive import speculative_contrastive
from .candidates import Candidate, Traced, drawn_facts
from .listening import ListeningChance, ListeningModel, Notes
from .speculative import listen_to_rule, round_candidates, tests_of
from .top_tokens import at, bars_of, cuts_of, likeliest, own_distribution


def trace_contrastive(expert, amateur, prompt, **options):
    """`contrastive`, yielding a `Traced` for each of its steps. Arguments as there."""
    listener = _Listener(expert, amateur, prompt, options)
    for step in contrastive(*listener.models, prompt, **listener.options):
        candidates = []
        for draw in listener.expert_notes.draws:
            facts = listener.model_facts(draw.position, [draw.token])
            facts |= drawn_facts(draw, facts["ids"])
            candidates.append(Candidate(draw.token, "plain", draw.position, **facts))
        listener.forget(step)
        yield Traced(step, candidates)


def trace_speculative_contrastive(expert, amateur, prompt, **options):
    """`speculative_contrastive`, yielding a `Traced` for each of its rounds. Arguments as there."""
    listener = _Listener(expert, amateur, prompt, options)
    options, listener.rule = listen_to_rule(
        listener.options, as_chance(options.get("chance")), listener.expert_notes
    )
    for step in speculative_contrastive(*listener.models, prompt, **options):
        listener.drafted = step.drafted
        judged = len(step.drafted) if listener.rule == "block" else step.accepted
        listener.tested = judged + (step.next_token is not None)
        # Both models draw with one chance, and the draft draws first.
        draws = listener.expert_notes.draws
        drafted = {draw.position: draw for draw in draws[: len(step.drafted)]}
        chosen = draws[-1] if draws else None
        start = len(listener.history)
        tests = tests_of(listener.rule, listener.expert_notes, step.accepted)
        candidates = round_candidates(step, start, listener.model_facts, tests, drafted, chosen)
        listener.forget(step)
        yield Traced(step, candidates, listener.rule)


class _Listener:
    """Two models and a chance with ears, and what was heard in the step that is under way.

    history: the ids before the step; drafted: the ids drafted in it; tested: how many positions the
    contrastive distribution was asked for.
    """

    def __init__(self, expert, amateur, prompt, options):
        settings = ("alpha", "beta", "amateur_temperature")
        self.contrast = Contrast(**{n: options[n] for n in settings if n in options})
        limits = ("max_new_tokens", "min_new_tokens", "eos", "tokenizer")
        run = Run(expert, prompt, **{n: options[n] for n in limits if n in options})
        self.warp = run.warped(options.get("warp"), Warp(temperature=0))
        self.expert_notes, self.amateur_notes = Notes(), Notes()
        self.models = (
            ListeningModel(expert, self.expert_notes),
            ListeningModel(amateur, self.amateur_notes),
        )
        chance = as_chance(options.get("chance"))
        self.options = options | {"chance": ListeningChance(chance, self.expert_notes)}
        self.history = run.prompt
        self.drafted, self.tested, self.rule = (), 1, None

    def model_facts(self, position, considered):
        """What expert and amateur say at one position, as arguments of `Candidate`."""
        i = position - len(self.history)
        history = [*self.history, *self.drafted[:i]]
        expert, amateur = (
            logits_at(notes, position) for notes in (self.expert_notes, self.amateur_notes)
        )
        q_own = np.exp(log_softmax(amateur, temperature=self.contrast.amateur_temperature))
        q, q_cuts = None, []
        if i < len(self.drafted):
            q = self.warp(amateur, history)
            q_cuts = cuts_of(self.warp, lambda warp: warp(amateur, history))
        if i >= self.tested:
            ids = likeliest([q, q_own], considered)
            return {"ids": ids, "q": bars_of(ids, q_own, q, q_cuts)}
        p_own = own_distribution(expert)
        p = self.contrast.probs(expert, amateur, self.warp, history)
        raw = self.contrast(expert, amateur)
        scores = self.warp.penalise(raw, history)
        cuts = [("alpha", raw == -np.inf)]
        cuts += cuts_of(self.warp, lambda warp: self.contrast.probs(expert, amateur, warp, history))
        ids = likeliest([p, p_own, q_own], [*considered, int(np.argmax(scores))])
        return {
            "ids": ids,
            "p": bars_of(ids, p_own, p, cuts),
            "q": bars_of(ids, q_own, q, q_cuts),
            "least": self.contrast.alpha * float(p_own.max()),
            "scores": tuple(None if s == -np.inf else s for s in at(scores, ids)),
        }

    def forget(self, step):
        self.history += step.tokens
        self.expert_notes.clear()
        self.amateur_notes.clear()


def logits_at(notes, position):
    """The row of logits [V] after `position` tokens, of the passes of one sequence."""
    for [(length, logits)] in notes.passes:
        if length - len(logits) < position <= length:
            return logits[position - length - 1]
    return None
