"""What models have read, kept from one text to the next: an interactive story, a shared prompt.

    context = Context(model)
    generate(model, prompt, context=context)
    generate(model, longer_prompt, context=context)  # reads only what is new

A text begins with the longest prefix that it has in common with the one before; the rest is rolled
back. Nothing that is written changes by it.
"""

from ..checks import check_model
from .contracts import Model


class Context:
    """The caches of one story: of the model, and of drafts and amateurs that it is used with.

    Not to be shared by two texts at once: `fork` it.
    """

    def __init__(self, model: Model):
        check_model(model)
        self.model = model
        self._held: dict[tuple, tuple] = {}  # (id of a model, role) -> (model, cache, tokens)

    @property
    def tokens(self) -> list[int]:
        """What the model has read and will not read again."""
        held = self._held.get((id(self.model), 0))
        return [] if held is None else _read(*held[1:])

    def fork(self) -> "Context":
        """A context that goes on from here by itself."""
        other = Context(self.model)
        other._held = {
            key: (model, cache.fork(), list(tokens))
            for key, (model, cache, tokens) in self._held.items()
        }
        return other

    def open(self, model: Model, role: int, tokens: list[int]):
        """The cache of a text that begins with `tokens`, a list to which its decoder appends.

        role: 0 for the model itself, 1 for its draft or amateur, which may be the same model. At
        least one token is left to be read, since its logits are wanted.
        """
        _, cache, before = self._held.get((id(model), role)) or (model, model.new_cache(), [])
        cache.truncate(min(_in_common(_read(cache, before), tokens), len(tokens) - 1))
        self._held[id(model), role] = model, cache, tokens
        return cache

    def __repr__(self):
        return f"Context({len(self.tokens)} tokens)"


def _read(cache, tokens):
    """The tokens that the cache surely holds: whatever interrupted it, not the newest."""
    return tokens[: min(cache.length, max(len(tokens) - 1, 0))]


def _in_common(a, b):
    """The length of the longest common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
