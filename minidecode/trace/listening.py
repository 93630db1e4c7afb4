"""Wrappers that listen: each does what the object inside it does, and notes what passed.

They draw nothing and change nothing, so a decoder that is given them writes what it would have
written without. The warp sees every distribution, the chance every draw, a draft what it proposed.
"""

import copy
import dataclasses
from dataclasses import dataclass, replace

import numpy as np

from ..decoding.chance import Dice, is_coupled
from ..decoding.warp import Warp, as_warp
from ..lazy import lazy


@dataclass(frozen=True)
class Distribution:
    """`probs` [V] after the ids `history`, made by `warp` of `logits` [V]; None where of none."""

    logits: np.ndarray | None
    history: tuple[int, ...]
    probs: np.ndarray
    warp: Warp | None = None


@dataclass(frozen=True)
class Draw:
    """A token drawn, from `probs` [V] that need not sum to 1.

    uniform: the number from [0, 1) that `Dice` drew; noise [V]: what `GumbelDice` added to log p.
    """

    probs: np.ndarray
    position: int
    token: int
    uniform: float | None = None
    noise: np.ndarray | None = None


@dataclass(frozen=True)
class Trial:
    """A draft tested: accepted with this probability, which it was if `uniform` lay below."""

    probability: float
    accepted: bool
    uniform: float | None


class Notes:
    """What the wrappers of one side, target or draft, have noted since `clear`."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.distributions, self.draws, self.trials, self.passes = [], [], [], []
        self.verified = None  # (p, q, drafted), as a rule of verification got them


class Listening:
    """Does all that `inner` does; a subclass notes some of it."""

    def __init__(self, inner, notes):
        self.inner, self.notes = inner, notes

    def __getattr__(self, name):
        return getattr(self.inner, name)


@dataclass(frozen=True)
class ListeningWarp(Warp):
    """A warp like any other, so that a decoder may also take it apart and replace a setting."""

    notes: Notes | None = None

    @classmethod
    def like(cls, warp, notes):
        """`warp`, which is plain sampling where it is None, with an ear."""
        warp = as_warp(warp)
        return cls(**{f.name: getattr(warp, f.name) for f in dataclasses.fields(Warp)}, notes=notes)

    def __call__(self, logits, history):
        probs = super().__call__(logits, history)
        self.notes.distributions.append(Distribution(logits, tuple(history), probs, self._plain))
        return probs

    @lazy
    def _plain(self):
        """The same settings, and nobody listening."""
        return Warp(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Warp)})


class ListeningChance(Listening):
    """Of `Dice` it hears the uniform numbers too; the stream they come from stays the same."""

    def __init__(self, inner, notes):
        super().__init__(inner, notes)
        self.uniform = None  # the last one
        if isinstance(inner, Dice):
            self.inner = copy.copy(inner)  # shares the generator
            self.inner.uniform = self._hear(inner.uniform)

    def _hear(self, uniform):
        def heard():
            self.uniform = float(uniform())
            return self.uniform

        return heard

    def choose(self, probs, position):
        token = self.inner.choose(probs, position)
        noise = self.inner.noise(position, len(probs)) if is_coupled(self.inner) else None
        self.notes.draws.append(Draw(probs, position, token, self.uniform, noise))
        return token

    def accept(self, probability):
        accepted = self.inner.accept(probability)
        self.notes.trials.append(Trial(float(probability), bool(accepted), self.uniform))
        return accepted


class ListeningRule(Listening):
    """A rule of verification; noted are the rows and the drafts it judged."""

    def __call__(self, p, q, drafted, chance, position=0):
        self.notes.verified = p, q, list(drafted)
        return self.inner(p, q, drafted, chance, position)


class ListeningDraft(Listening):
    """A draft whose draws are noted apart from the target's, with one row per drafted token."""

    def propose(self, history, k, warp, chance):
        warp = ListeningWarp.like(warp, self.notes)
        chance = chance.inner if isinstance(chance, ListeningChance) else chance
        drafted, q = self.inner.propose(history, k, warp, ListeningChance(chance, self.notes))
        warped = {len(row.history): row for row in self.notes.distributions}
        self.notes.distributions = [
            self._row((*history, *drafted[:i]), probs, warped) for i, probs in enumerate(q)
        ]
        return drafted, q

    def _row(self, history, probs, warped):
        """What a token was drafted from, with the logits where a warp made it of some."""
        if len(history) not in warped:
            return Distribution(None, history, probs)
        return replace(warped[len(history)], history=history, probs=probs)


class ListeningModel(Listening):
    """Notes each pass in `notes.passes`, as one (tokens in the cache now, logits) a sequence."""

    def forward(self, tokens, cache, n_logits=1):
        return self.forward_many([(tokens, cache)], n_logits)[0]

    def forward_many(self, batch, n_logits=1):
        results = self.inner.forward_many(batch, n_logits)
        noted = [(cache.length, logits) for (_, cache), logits in zip(batch, results)]
        self.notes.passes.append(noted)
        return results
