"""Mirostat 2: keep the surprise of the text near a target, by cutting more or less of each row.

A token of probability p is a surprise of -log2 p bits. Only tokens of at most mu bits may be drawn
(the likeliest always may); after each draw mu moves against the error,

    mu <- mu - eta * (surprise - tau),   at first mu = 2 tau

Source: Basu et al. 2021, Mirostat 2.0 as its authors published it: the surprise is that under the
model's distribution, before the cut. Here that is the distribution after `Warp`. The state mu
depends on all that was drawn before, so there is no speculation with it, and it is no field of
`Warp`.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..checks import real
from ..errors import InputError
from .warp import Warp


@dataclass(frozen=True)
class Mirostat:
    """The settings: tau, the surprise wanted per token in bits, and eta, how fast mu follows."""

    tau: float
    eta: float = 0.1

    def __post_init__(self):
        real("mirostat", self.tau, "a finite number of bits above 0", lambda x: 0 < x < math.inf)
        real("eta", self.eta, "a finite number of at least 0", lambda x: 0 <= x < math.inf)


class MirostatState:
    """One sequence: `state(logits [V], history) -> probs [V]`, to be called once per token.

    It learns which token was drawn from the next call's history. Errors: those of the warp.
    """

    def __init__(self, settings: Mirostat, warp: Warp):
        self.settings, self.warp = settings, warp
        self.mu = 2.0 * settings.tau
        self.surprises = None  # of the last row [V], in bits

    def __call__(self, logits, history):
        if self.surprises is not None:
            error = self.surprises[history[-1]] - self.settings.tau
            self.mu -= self.settings.eta * float(error)
        probs = self.warp(logits, history)
        with np.errstate(all="ignore"):  # probability 0 is an infinite surprise
            self.surprises = -np.log2(probs, dtype=np.float64)
            kept = self.surprises <= self.mu
            kept[np.argmax(probs)] = True
            left = np.where(kept, probs, 0).astype(np.float64)
            return (left / left.sum()).astype(probs.dtype)


def as_mirostat(value, warp):
    """A `MirostatState` for a number of bits or a `Mirostat`; the warp itself for None."""
    if value is None:
        return warp
    if warp.temperature == 0:
        raise InputError("mirostat: has no effect at temperature 0")
    settings = value if isinstance(value, Mirostat) else Mirostat(value)
    return MirostatState(settings, warp)
