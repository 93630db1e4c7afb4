"""From logits to the distribution that is sampled: penalties, temperature, top-k, top-p, epsilon.

Order: repetition penalty, n-gram blocking, temperature, top-k, top-p, epsilon, renormalise.
Sources: repetition penalty, Keskar et al. 2019 (CTRL), section 4.1; n-gram blocking, Paulus et al.
2017; top-k, Fan et al. 2018; top-p (nucleus), Holtzman et al. 2020; epsilon, Hewitt et al. 2022.
"""

import math
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..errors import InputError, LogitsError, MinidecodeError


class Blocked(MinidecodeError):
    """n-gram blocking left no token; decoders end with the reason `blocked`."""


@dataclass(frozen=True)
class Warp:
    """All that changes a distribution before it is sampled; `warp(logits, history) -> probs`.

    temperature           0 is greedy: the one-hot at the lowest-id maximum, whatever else is set
    top_k                 keep exactly the k likeliest, ties to the lower id; 0 is off
    top_p                 keep the smallest set whose mass reaches top_p, at least one; 1.0 is off
    epsilon               drop probabilities below epsilon, never the likeliest; 0 is off
    repetition_penalty    of ids seen before divide positive logits, multiply negative; 1.0 is off
    no_repeat_ngram_size  ban what completes an n-gram of that size seen before; 0 is off

    The prompt counts as seen. A setting out of range is an `InputError`.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    epsilon: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0

    def __post_init__(self):
        def check(name, kind, fits, wanted):
            value = getattr(self, name)
            number = isinstance(value, kind) and not isinstance(value, bool | np.bool_)
            if not number or not fits(value):
                raise InputError(f"{name}: got {value!r}, {wanted} was wanted")

        real, whole = (int, float, np.integer, np.floating), (int, np.integer)
        inf = float("inf")
        check("temperature", real, lambda x: 0 <= x < inf, "a finite number of at least 0")
        check("top_k", whole, lambda x: x >= 0, "a whole number of at least 0")
        check("top_p", real, lambda x: 0 < x <= 1, "a number above 0 and at most 1")
        check("epsilon", real, lambda x: 0 <= x < 1, "a number of at least 0 and below 1")
        check("repetition_penalty", real, lambda x: 0 < x < inf, "a finite number above 0")
        check("no_repeat_ngram_size", whole, lambda x: x >= 0, "a whole number of at least 0")

    def __call__(self, logits, history):
        """logits [V] after the token ids `history` -> probabilities [V] of the same dtype.

        Errors: `LogitsError` for NaN, +inf or nothing but -inf, naming the step; `Blocked` when
        n-gram blocking bans every token. `logits` is left unchanged.
        """
        penalised = self.penalise(logits, history)
        try:
            return kernels.sampling_filter(
                penalised, self.temperature, min(self.top_k, len(logits)), self.top_p, self.epsilon
            )
        except ValueError as error:
            at = f"step {len(history)} (the prompt's tokens counted)"
            if np.max(logits) > -np.inf and np.max(penalised) == -np.inf:
                raise Blocked(f"{at}: every token is banned") from None
            raise LogitsError(f"{at}: {error}") from None

    def penalise(self, logits, history):
        """The logits after repetition penalty and n-gram blocking alone."""
        if self.repetition_penalty == 1 and self.no_repeat_ngram_size == 0:
            return logits
        logits = logits.copy()
        if self.repetition_penalty != 1:
            seen = np.unique(np.asarray(history, dtype=np.int64))  # once each, however often seen
            old = logits[seen]
            # An overflow is refused later as an infinite logit.
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                penalty = np.asarray(self.repetition_penalty).astype(logits.dtype)
                logits[seen] = np.where(old > 0, old / penalty, old * penalty)
        if self.no_repeat_ngram_size:
            banned = banned_tokens(history, self.no_repeat_ngram_size)
            sound = logits[banned] < np.inf  # what is NaN or inf stays, to be refused
            logits[np.array(banned, dtype=np.int64)[sound]] = -np.inf
        return logits


def banned_tokens(history, n):
    """The ids that would complete an n-gram that `history` holds already, ascending."""
    history = list(history)
    start = len(history) - (n - 1)  # where the unfinished n-gram begins
    if n == 0 or start < 0:
        return []
    prefix = history[start:]
    return sorted({history[i + n - 1] for i in range(start) if history[i : i + n - 1] == prefix})


def log_softmax(logits, step=None, temperature=1.0):
    """Log-probabilities [V] in float64, never above 0, -inf where the probability is 0.

    Errors: `LogitsError` for NaN, +inf or nothing but -inf, as from `Warp`.
    """
    peak = np.max(logits)
    if not np.isfinite(peak):
        try:
            kernels.softmax(logits)  # says which logit is wrong
        except ValueError as error:
            raise LogitsError(f"{_at(step)}{error}") from None
    shifted = np.subtract(logits, peak, dtype=np.float64)
    if temperature != 1:
        with np.errstate(over="ignore"):  # a tiny temperature sends all but the maximum to -inf
            shifted /= temperature
    return shifted - math.log(np.exp(shifted).sum())


def _at(step):
    return "" if step is None else f"step {step} (the prompt's tokens counted): "
