"""Where drafts come from. A draft is any object with these two methods:

    propose(history, k, warp, chance) -> (drafted, q)
        up to k token ids to follow `history`, and for each the distribution [V] it was drawn from
    rollback(length)
        only the first `length` tokens of the last history and its drafts still stand; 0 starts over

Speculation stays exact whatever is proposed, so long as q is the distribution that each token was
really drawn from, given all before it. A draft may end early, but only *after* a token it has
drawn: to take one back because of what it is changes the distribution of those that stay.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..checks import check_model
from ..decoding.contracts import Chance, Model
from ..decoding.warp import Blocked, Warp
from ..errors import InputError


class Draft(Protocol):
    """The two methods, as a type."""

    def propose(
        self, history: list[int], k: int, warp: Warp, chance: Chance
    ) -> tuple[Sequence[int], Sequence[np.ndarray]]: ...

    def rollback(self, length: int) -> None: ...


class ModelDraft:
    """Drafts by sampling from a smaller model, with a KV cache of its own.

    stop_below: end a draft after the first token whose q is below this; 0.0 is off. Tokens beyond
    the draft's own n_positions are not drafted.
    """

    def __init__(self, model: Model, *, stop_below: float = 0.0):
        if not 0 <= stop_below < 1:
            raise InputError(f"stop_below: got {stop_below!r}, 0 to below 1 was wanted")
        self.model = model
        self.stop_below = stop_below
        self.cache = model.new_cache()

    def propose(self, history, k, warp, chance):
        tokens, q = list(history), []
        k = min(k, self.model.n_positions + 1 - len(tokens))  # the last draft need not be fed
        for _ in range(k):
            try:
                row = warp(self.next_logits(tokens), tokens)
            except Blocked:
                break
            token = chance.choose(row, len(tokens))
            tokens.append(token)
            q.append(row)
            if row[token] < self.stop_below:
                break
        return tokens[len(history) :], q

    def next_logits(self, tokens):
        """The logits [V] after `tokens`; only those not in the cache are computed.

        These are: in the first round the prompt, after a fully accepted one two tokens, else one.
        """
        return self.model.forward(tokens[self.cache.length :], self.cache)[-1]

    def rollback(self, length):
        self.cache.truncate(min(length, self.cache.length))


def as_draft(draft: Any) -> Draft:
    """A draft from a model, or the draft itself. Errors: `InputError` for what is neither."""
    if hasattr(draft, "propose") and hasattr(draft, "rollback"):
        return draft
    check_model(draft, "draft")
    return ModelDraft(draft)


class PromptLookupDraft:
    """Drafts what followed the latest earlier occurrence of the longest suffix that recurs.

    Needs no model: good where a text repeats itself or its prompt (Saxena 2023). Suffixes of 1 to
    max_ngram tokens are looked for. Nothing is drawn, so q is one-hot.
    """

    def __init__(self, max_ngram: int = 4):
        if max_ngram < 1:
            raise InputError(f"max_ngram: got {max_ngram!r}, at least 1 was wanted")
        self.max_ngram = max_ngram

    def propose(self, history, k, warp, chance):
        history = list(history)
        drafted = history[self._match_end(history) :][:k]
        q = np.zeros((len(drafted), max(drafted, default=-1) + 1))
        q[np.arange(len(drafted)), drafted] = 1
        return drafted, list(q)

    def rollback(self, length):
        pass  # keeps nothing

    def _match_end(self, history):
        """Where what followed the match begins; the length of history where there is none."""
        size = len(history)
        for n in range(min(self.max_ngram, size - 1), 0, -1):
            suffix = history[size - n :]
            for end in range(size - 1, n - 1, -1):
                if history[end - n : end] == suffix:
                    return end
        return size
