"""The tree of a beam search: every hypothesis it weighed, and what became of each."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..decoding.beam import Hypothesis, beam_search
from ..decoding.contrastive import Contrast
from ..decoding.diverse_beam import diverse_beam_search
from ..decoding.run import prompt_ids
from ..decoding.warp import log_softmax
from .candidates import Candidate
from .listening import ListeningModel, Notes
from .top_tokens import bars_of, likeliest, own_distribution


@dataclass(frozen=True)
class Node:
    """A hypothesis of the step; its text is that of its parent and one token.

    candidate  the token, with the distributions after the parent. None if the parent was blocked:
               then the node is the parent, finished as it was
    parent     the index of its parent among the nodes of the step before; None at the first step
    total      the sum of its scores, which are log-probabilities without an amateur
    fate       running, finished or dropped
    rank       of the returned hypothesis that ends here, from 0; None if none does
    best       whether the best hypothesis passes through it
    group      its number in diverse beam search, from 1
    """

    candidate: Candidate | None
    parent: int | None
    total: float
    fate: str
    rank: int | None = None
    best: bool = False
    group: int | None = None


@dataclass(frozen=True)
class Tree:
    """levels: the nodes of each step, best first. hypotheses: what the search returned.

    length_penalty: a hypothesis has score sum / length ** length_penalty.
    """

    levels: list[list[Node]]
    hypotheses: list[Hypothesis]
    length_penalty: float = 1.0


def trace_beam(model, prompt, *, amateur=None, contrast=None, **options):
    """`beam_search`, returning its `Tree`. Arguments as there, but for `trace`."""
    model_notes, amateur_notes = Notes(), Notes()
    start = len(prompt_ids(model, prompt, options.get("tokenizer")))
    grower = _Grower(
        start, model_notes, amateur_notes, (contrast or Contrast()).amateur_temperature
    )
    hypotheses = beam_search(
        ListeningModel(model, model_notes),
        prompt,
        amateur=None if amateur is None else ListeningModel(amateur, amateur_notes),
        contrast=contrast,
        trace=grower,
        **options,
    )
    return Tree(_mark(grower.levels, hypotheses), hypotheses, options.get("length_penalty", 1.0))


def trace_diverse_beam(model, prompt, *, num_beam_groups, **options):
    """`diverse_beam_search`, returning its `Tree`. Arguments as there, but for `trace`."""
    notes = Notes()
    start = len(prompt_ids(model, prompt, options.get("tokenizer")))
    grower = _Grower(start, notes, Notes(), 1.0, roots=num_beam_groups)
    hypotheses = diverse_beam_search(
        ListeningModel(model, notes),
        prompt,
        num_beam_groups=num_beam_groups,
        trace=grower,
        **options,
    )
    return Tree(_mark(grower.levels, hypotheses), hypotheses, options.get("length_penalty", 1.0))


class _Grower:
    """Stands for the list that `beam_search` appends each step's branches to, and makes levels.

    Done step by step, so that the logits of one step are all that is ever kept.
    """

    def __init__(self, start, model_notes, amateur_notes, temperature, roots=1):
        self.start, self.model_notes, self.amateur_notes = start, model_notes, amateur_notes
        self.temperature = temperature
        self.levels = []
        self.running = [(None, 0.0)] * roots  # of the level before, what ran on: (index, total)

    def append(self, branches):
        passes = [
            notes.passes.pop() for notes in (self.model_notes, self.amateur_notes) if notes.passes
        ]
        shared = [
            self._shared_facts(
                [b for b in branches if b.parent == i], total, *(x[-1] for _, x in one)
            )
            for i, ((_, total), one) in enumerate(zip(self.running, zip(*passes)))
        ]
        position = self.start + len(self.levels)
        nodes = []
        for b in branches:
            candidate = None
            if b.token is not None:
                candidate = Candidate(b.token, b.fate, position, **shared[b.parent])
            parent = self.running[b.parent][0]
            nodes.append(Node(candidate, parent, b.total, b.fate, group=b.group))
        self.levels.append(nodes)
        self.running = [(i, n.total) for i, n in enumerate(nodes) if n.fate == "running"]

    def _shared_facts(self, children, total, expert, amateur=None):
        """What the children of one hypothesis share: the ids to show, the `Bars` of each model."""
        added = {b.token: b.total - total for b in children if b.token is not None}
        p, q = own_distribution(expert), None
        if amateur is not None:
            q = np.exp(log_softmax(amateur, temperature=self.temperature))
        ids = likeliest([p] if q is None else [p, q], added)
        return {
            "ids": ids,
            "p": bars_of(ids, p),
            "q": None if q is None else bars_of(ids, q),
            "scores": tuple(map(added.get, ids)),
        }


def _mark(levels, hypotheses):
    """The levels with `rank` and `best` filled in."""
    ranks = {}  # of each text; two groups may return the same one, the earlier does better
    for rank, h in enumerate(hypotheses):
        ranks.setdefault(tuple(h.tokens), []).append(rank)
    texts = []  # the tokens of each node of the level before
    for nodes in levels:
        above, texts = texts, []
        for i, node in enumerate(nodes):
            text = () if node.parent is None else above[node.parent]
            texts.append(text if node.candidate is None else (*text, node.candidate.token))
            if node.fate == "finished":
                own = ranks.get(texts[-1])
                nodes[i] = dataclasses.replace(node, rank=own.pop(0) if own else None)
    index = None
    for nodes in reversed(levels):
        if index is None:
            index = next((i for i, node in enumerate(nodes) if node.rank == 0), None)
        if index is not None:
            nodes[index] = dataclasses.replace(nodes[index], best=True)
            index = nodes[index].parent
    return levels
