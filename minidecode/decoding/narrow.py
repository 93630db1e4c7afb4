"""A model that lacks some ids of the text it reads, such as an amateur of a smaller vocabulary.

It goes by what it knows: behind an id that it lacks it begins anew, as if the text began there.
Right behind one it knows nothing, and all its logits are 0: every token is alike to it. (A draft
need not say anything there, so `ModelDraft` drafts nothing instead.)
"""

import numpy as np


class NarrowCache:
    """All tokens of the text, and the model's own cache of those behind the last id it lacks."""

    def __init__(self, inner, vocab_size, tokens=()):
        self.inner, self.vocab_size, self.tokens = inner, vocab_size, list(tokens)
        self.start = self._known_from()

    @property
    def length(self):
        return len(self.tokens)

    def truncate(self, length):
        """Back to the first `length` tokens; what stood before an unknown id is read again."""
        del self.tokens[length:]
        start = self._known_from()
        self.inner.truncate(min(self.inner.length, length - start) if start == self.start else 0)
        self.start = start

    def fork(self):
        return NarrowCache(self.inner.fork(), self.vocab_size, self.tokens)

    def _known_from(self):
        """Where the text begins that the model can read."""
        lacking = (i for i, token in enumerate(self.tokens) if token >= self.vocab_size)
        return 1 + max(lacking, default=-1)


class NarrowReader:
    """`model`, with the methods of a model that has all ids."""

    def __init__(self, model):
        self.model = model
        self.vocab_size, self.n_positions = model.vocab_size, model.n_positions
        self.eos, self.bos = model.eos, model.bos
        self.tokenizer = getattr(model, "tokenizer", None)

    def new_cache(self):
        return NarrowCache(self.model.new_cache(), self.vocab_size)

    def forward(self, tokens, cache, n_logits=1):
        """As of any model: [n_logits, V] with the V of this one."""
        tokens = list(tokens)
        rows, end = [np.zeros((0, self.vocab_size), np.float32)], len(tokens) - n_logits
        at = 0
        while at < len(tokens):
            if tokens[at] >= self.vocab_size:
                cache.tokens.append(tokens[at])
                cache.truncate(cache.length)  # the text begins anew
                rows.append(np.zeros((int(at >= end), self.vocab_size), np.float32))
                at += 1
                continue
            lacking = (i for i in range(at, len(tokens)) if tokens[i] >= self.vocab_size)
            stop = next(lacking, len(tokens))
            cache.tokens += tokens[at:stop]
            unread = cache.tokens[cache.start + cache.inner.length :]
            wanted = max(0, stop - max(at, end))
            rows.append(self.model.forward(unread, cache.inner, n_logits=wanted))
            at = stop
        return np.concatenate(rows)

    def forward_many(self, batch, n_logits=1):
        counts = [n_logits] * len(batch) if isinstance(n_logits, int) else n_logits
        return [self.forward(*one, n_logits=n) for one, n in zip(batch, counts, strict=True)]


def reader_of(model, text_model):
    """`model` as it is, or one that reads what `text_model` writes though it lacks some ids."""
    return model if model.vocab_size >= text_model.vocab_size else NarrowReader(model)
