"""Where drafts come from. A draft is any object with these two methods:

    propose(history, k, warp, chance) -> (drafted, q)
        up to k token ids to follow `history`, and for each the distribution [V] it was drawn from;
        lists, tuples or arrays. `history` is a copy of its own
    rollback(length)
        only the first `length` tokens of the last history and its drafts still stand; 0 starts over

Speculation stays exact whatever is proposed, so long as q is the distribution that each token was
really drawn from, given all before it. A draft may end early, but only *after* a token it has
drawn: to take one back because of what it is changes the distribution of those that stay.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..checks import check_model, real, whole
from ..decoding.contracts import Chance, Model
from ..decoding.warp import Blocked, Warp


class Draft(Protocol):
    """The two methods, as a type."""

    def propose(
        self, history: list[int], k: int, warp: Warp, chance: Chance
    ) -> tuple[Sequence[int], Sequence[np.ndarray]]: ...

    def rollback(self, length: int) -> None: ...


class ModelDraft:
    """Drafts by sampling from a smaller model, with a KV cache of its own.

    stop_below: end a draft after the first token whose q is below this; 0.0 is off. Tokens beyond
    the draft's own n_positions are not drafted. A model with fewer ids than the target cannot read
    some: it drafts nothing right after one of these, and then goes by the text behind the last.
    """

    def __init__(self, model: Model, *, stop_below: float = 0.0):
        self.model = model
        self.stop_below = real("stop_below", stop_below, "0 to below 1", lambda x: 0 <= x < 1)
        self.cache = model.new_cache()
        self.start = 0  # where in the history the cache begins

    def propose(self, history, k, warp, chance):
        drafting = self.drafting(history, k, warp, chance)
        try:
            tokens = next(drafting)
            while True:
                tokens = drafting.send(self.next_logits(tokens))
        except StopIteration as done:
            return done.value

    def drafting(self, history, k, warp, chance):
        """A generator that returns what `propose` does, for several drafts to take turns.

        It yields all tokens so far where it needs the logits [V] after them, which it is sent.
        """
        tokens, q = list(history), []
        self._skip_unknown(tokens)
        length = len(tokens) - self.start  # of what the model reads
        room = self.model.n_positions + 1 - length  # the last draft need not be fed
        for _ in range(min(k, room) if length else 0):
            logits = yield tokens
            try:
                row = warp(logits, tokens)
            except Blocked:
                break
            token = chance.choose(row, len(tokens))
            tokens.append(token)
            q.append(row)
            if row[token] < self.stop_below:
                break
        return tokens[len(history) :], q

    def unread(self, tokens):
        """Those of the tokens that are not in the cache."""
        return tokens[self.start + self.cache.length :]

    def next_logits(self, tokens):
        """The logits [V] after `tokens`; only those not in the cache are computed.

        These are: in the first round the prompt, after a fully accepted one two tokens, else one.
        """
        return self.model.forward(self.unread(tokens), self.cache)[-1]

    def rollback(self, length):
        if length < self.start:
            self.start = length = 0
        self.cache.truncate(min(length - self.start, self.cache.length))

    def _skip_unknown(self, history):
        """Begin anew behind the last id that the model lacks; those in the cache it has."""
        for i in range(len(history) - 1, self.start + self.cache.length - 1, -1):
            if history[i] >= self.model.vocab_size:
                self.cache.truncate(0)
                self.start = i + 1
                return


def draft_together(jobs):
    """What each draft proposes, drafted in common passes: [(drafted, q)].

    jobs: [(`ModelDraft`, history, k, warp, chance)], all of one model. Each drafts what it would
    alone, bit for bit.
    """
    found, waiting = [None] * len(jobs), {}

    def go_on(i, drafting, logits):
        try:
            waiting[i] = drafting, drafting.send(logits)
        except StopIteration as done:
            found[i] = done.value

    for i, (draft, *arguments) in enumerate(jobs):
        go_on(i, draft.drafting(*arguments), None)
    while waiting:
        turn, waiting = waiting, {}
        batch = [(jobs[i][0].unread(tokens), jobs[i][0].cache) for i, (_, tokens) in turn.items()]
        rows = jobs[0][0].model.forward_many(batch)
        for (i, (drafting, _)), logits in zip(turn.items(), rows):
            go_on(i, drafting, logits[-1])
    return found


def as_draft(draft: Any) -> Draft:
    """A draft from a model, or the draft itself. Errors: `InputError` for what is neither."""
    if hasattr(draft, "propose") and hasattr(draft, "rollback"):
        return draft
    check_model(draft, "draft")
    return ModelDraft(draft)


class PromptLookupDraft:
    """Drafts what followed the latest earlier occurrence of the longest suffix that recurs.

    Needs no model: good where a text repeats itself or its prompt (Saxena 2023). Suffixes of 1 to
    max_ngram tokens are looked for, in time linear in the text. Nothing is drawn, so q is one-hot.
    """

    stateless = True  # one object may serve several texts

    def __init__(self, max_ngram: int = 4):
        self.max_ngram = whole("max_ngram", max_ngram, 1)

    def propose(self, history, k, warp, chance):
        history = list(history)
        drafted = history[self._match_end(history) :][:k]
        q = np.zeros((len(drafted), max(drafted, default=-1) + 1))
        q[np.arange(len(drafted)), drafted] = 1
        return drafted, list(q)

    def rollback(self, length):
        pass  # keeps nothing

    def _match_end(self, history):
        """Where what followed the match begins; the length of history where there is none.

        In the reversed text the suffix is the beginning, and its match the place j from which the
        tokens agree longest with it. How many agree, z[j], follows from earlier places (the Z
        algorithm, Gusfield 1997, section 1.4): inside a stretch left .. right that is known to
        agree with the beginning, z[j] is z[j - left], unless that reaches the end of the stretch.
        """
        text, size = history[::-1], len(history)
        z, left, right = [0] * size, 0, 0
        longest, where = 0, 0
        for j in range(1, size):
            n = min(z[j - left], right - j) if j < right else 0
            while j + n < size and text[n] == text[j + n]:
                n += 1
            if j + n > right:
                left, right = j, j + n
            z[j] = n
            if n > longest:  # the first place is the latest in the history
                longest, where = n, j
                if n >= self.max_ngram:
                    break
        return size - where
