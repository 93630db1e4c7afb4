"""From logits to the distribution that is sampled: penalties, temperature, top-k, top-p, epsilon.

Order: repetition penalty, n-gram blocking, temperature, top-k, top-p, epsilon, renormalise.
Sources: repetition penalty, Keskar et al. 2019 (CTRL), section 4.1; n-gram blocking, Paulus et al.
2017; top-k, Fan et al. 2018; top-p (nucleus), Holtzman et al. 2020; epsilon, Hewitt et al. 2022.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .. import kernels
from ..errors import LogitsError, MinidecodeError
from . import filters
from .settings import BAN, CUT, FILTER, PENALTY, STAGES, Real, Whole, setting, table


class Blocked(MinidecodeError):
    """Every token is banned; decoders end with the reason `blocked`."""


@dataclass(frozen=True)
class Warp:
    """All that changes a distribution before it is sampled; `warp(logits, history) -> probs`.

    temperature           0 is greedy: the one-hot at the lowest-id maximum, whatever else is set
    top_k                 keep exactly the k likeliest, ties to the lower id; 0 is off
    top_p                 keep the smallest set whose mass reaches top_p, at least one; 1.0 is off
    epsilon               drop probabilities below epsilon, never the likeliest; 0 is off
    repetition_penalty    of ids seen before divide positive logits, multiply negative; 1.0 is off
    no_repeat_ngram_size  ban what completes an n-gram of that size seen before; 0 is off

    The prompt counts as seen. A setting out of range is an `InputError`. The fields are the table
    of settings that all others read (`SETTINGS`): within a stage they apply in this order.
    """

    temperature: float = setting(
        1.0,
        Real(0),
        FILTER,
        "temperature",
        "below 1 sharpens the distribution, above 1 flattens it, 0 is greedy",
        example=0.7,
    )
    top_k: int = setting(0, Whole(), FILTER, "top-k", "keep the k likeliest tokens", example=10)
    top_p: float = setting(
        1.0,
        Real(0, 1, without_low=True),
        FILTER,
        "top-p",
        "keep the smallest set of tokens whose mass reaches this",
        example=0.9,
    )
    epsilon: float = setting(
        0.0,
        Real(0, 1, without_high=True),
        FILTER,
        "epsilon",
        "drop tokens less likely than this",
        example=0.01,
        apply=filters.epsilon,
    )
    repetition_penalty: float = setting(
        1.0,
        Real(0, without_low=True),
        PENALTY,
        "repetition penalty",
        "above 1 makes tokens seen before less likely",
        example=1.3,
        apply=filters.repetition_penalty,
    )
    no_repeat_ngram_size: int = setting(
        0,
        Whole(),
        BAN,
        "n-gram blocking",
        "never write an n-gram of this size twice",
        example=2,
        apply=filters.no_repeat_ngram_size,
    )

    def __post_init__(self):
        for name, row in SETTINGS.items():
            row.kind.check(name, getattr(self, name))

    def __call__(self, logits, history):
        """logits [V] after the token ids `history` -> probabilities [V] of the same dtype.

        Errors: `LogitsError` for NaN, +inf or nothing but -inf, naming the step; `Blocked` when
        every token is banned. `logits` is left unchanged.
        """
        with np.errstate(all="ignore"):  # infinities are meant, and what is wrong is refused
            scores = self.penalise(logits, history)
            try:
                return self._filter(scores)
            except ValueError as error:
                at = _at(len(history))
                if np.max(logits) > -np.inf and np.max(scores) == -np.inf:
                    raise Blocked(f"{at}every token is banned") from None
                raise LogitsError(f"{at}{error}") from None

    def penalise(self, logits, history):
        """The logits after the penalties and the bans alone."""
        with np.errstate(all="ignore"):
            for row, value in self._set[PENALTY]:
                logits = row.apply(logits, history, value)
            for row, value in self._set[BAN]:
                logits = _ban(logits, row.apply(history, value))
        return logits

    def only(self, *stages):
        """A warp with the settings of these stages alone, the others off."""
        off = {n: row.off for n, row in SETTINGS.items() if row.stage not in stages}
        return dataclasses.replace(self, **off)

    def _filter(self, scores):
        """From scores [V] to probabilities; ValueError where they are none."""
        if self._set[CUT] and np.isfinite(scores.max()):  # else the kernel says what is wrong
            for row, value in self._set[CUT]:
                scores = np.where(row.apply(scores, value), scores, -np.inf)
        later = [(row, value) for row, value in self._set[FILTER] if row.apply is not None]
        settings = (float(self.temperature), min(self.top_k, len(scores)), float(self.top_p))
        if self.temperature == 0 or all(row.name == "epsilon" for row, _ in later):
            return kernels.sampling_filter(scores, *settings, float(self.epsilon))
        probs = kernels.sampling_filter(scores.astype(np.float64), *settings, 0.0)
        for row, value in later:
            probs = np.where(row.apply(probs, value), probs, 0)
            probs /= probs.sum()
        return probs.astype(scores.dtype)

    @cached_property
    def _set(self):
        """{stage: [(row, value)]} of what is not off, in the order in which it applies."""
        values = [(row, getattr(self, name)) for name, row in SETTINGS.items()]
        return {
            stage: [(r, value) for r, value in values if r.stage == stage and value != r.off]
            for stage in STAGES
        }


SETTINGS = table(Warp)  # {name: Setting}


def _ban(logits, ids):
    """The logits with -inf at `ids`; what is NaN or inf stays, to be refused."""
    ids = np.asarray(ids, dtype=np.int64)
    ids = ids[ids < len(logits)]
    logits = logits.copy()
    logits[ids[logits[ids] < np.inf]] = -np.inf
    return logits


def log_softmax(logits, step=None, temperature=1.0):
    """Log-probabilities [V] in float64, never above 0, -inf where the probability is 0.

    Errors: `LogitsError` for NaN, +inf or nothing but -inf, as from `Warp`.
    """
    with np.errstate(all="ignore"):  # far below the maximum is -inf, is 0
        peak = np.max(logits)
        if not np.isfinite(peak):
            try:
                kernels.softmax(logits)  # says which logit is wrong
            except ValueError as error:
                raise LogitsError(f"{_at(step)}{error}") from None
        shifted = np.subtract(logits, peak, dtype=np.float64)
        if temperature != 1:
            shifted /= temperature
        return shifted - math.log(np.exp(shifted).sum())


def _at(step):
    return "" if step is None else f"step {step} (the prompt's tokens counted): "
