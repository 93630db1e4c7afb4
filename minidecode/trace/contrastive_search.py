"""Traces of contrastive search: each candidate with its probability, its likeness and its score."""

import numpy as np

from ..decoding.contrastive_search import contrastive_search
from ..decoding.run import prompt_ids
from .candidates import Candidate, Traced
from .top_tokens import bars_of, likeliest, own_distribution


def trace_contrastive_search(model, prompt, **options):
    """`contrastive_search`, yielding a `Traced` for each of its steps. Arguments as there."""
    looks = []
    position = len(prompt_ids(model, prompt, options.get("tokenizer")))
    for step in contrastive_search(model, prompt, trace=looks, **options):
        # Popped, so that the logits of one step are all that is ever kept; a step has one token.
        yield Traced(step, [_candidate(t, position, looks.pop()) for t in step.tokens])
        position += len(step.tokens)


def _candidate(token, position, look):
    """The token taken, among all that were looked at and those that were likely."""
    own, left = own_distribution(look.logits), np.zeros(len(look.logits))
    left[look.tokens] = look.probs
    ids = likeliest([own], look.tokens)

    def listed(values):
        return tuple(map(dict(zip(look.tokens, map(float, values))).get, ids))

    return Candidate(
        token,
        "plain",
        position,
        ids=ids,
        p=bars_of(ids, own, left, [("top_k", (own > 0) & (left == 0))]),
        likeness=listed(look.likeness),
        scores=listed(look.scores),
    )
