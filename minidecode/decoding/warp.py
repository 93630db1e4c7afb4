"""From logits to the distribution that is sampled: one frozen object holds all settings.

Order: processors of the user's own; penalties (logit_bias, repetition, presence, frequency); bans
(n-grams, bad words, ids); top-n-sigma; temperature, top-k, top-p; min-p, typical-p, epsilon, eta.
What is kept is renormalised. The functions and their sources stand in filters.py, but for top-k
(Fan et al. 2018) and top-p (nucleus, Holtzman et al. 2020), which the kernels do in one pass with
temperature and epsilon: where nothing else is set, that pass is all there is.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..checks import shown
from ..errors import InputError, LogitsError, MinidecodeError
from ..lazy import lazy
from . import filters
from .settings import (
    BAN,
    CUT,
    FILTER,
    PENALTY,
    STAGES,
    Biases,
    Functions,
    Ids,
    LengthAndIds,
    Real,
    Sequences,
    Whole,
    setting,
    table,
)


class Blocked(MinidecodeError):
    """Every token is banned; decoders end with the reason `blocked`."""


@dataclass(frozen=True, repr=False)
class Warp:
    """All that changes a distribution before it is sampled; `warp(logits, history) -> probs`.

    temperature           0 is greedy: the one-hot at the lowest-id maximum, whatever else is set
    top_k                 keep exactly the k likeliest, ties to the lower id; 0 is off
    top_p                 keep the smallest set whose mass reaches top_p, at least one; 1.0 is off
    min_p                 keep what has at least this share of the likeliest's probability; 0 is off
    typical_p             keep the smallest set of this mass with the most typical surprise; 1.0 off
    epsilon               drop probabilities below epsilon, never the likeliest; 0 is off
    eta                   as epsilon, lower where the entropy is high; 0 is off
    top_n_sigma           drop logits more than n standard deviations below the maximum; 0 is off
    repetition_penalty    of ids seen before divide positive logits, multiply negative; 1.0 is off
    presence_penalty      subtract this from the logits of ids seen before; 0 is off
    frequency_penalty     subtract this as often as the id was seen before; 0 is off
    logit_bias            {id: number} to add to logits; -inf bans
    no_repeat_ngram_size  ban what completes an n-gram of that size seen before; 0 is off
    bad_words             sequences of ids that must not be written
    suppress              ids that must not be written
    end_after             (length, end ids): banned in a shorter text. A `Run` sets it
    processors            functions (logits [V], history) -> logits [V] of your own, first in line

    The prompt counts as seen. A setting out of range is an `InputError`; an id that a vocabulary
    lacks has no effect on it. What is given as a dict or lists is kept as tuples, so that equal
    warps are equal, and keys of a dict. The fields are the table of settings that all others read
    (`ROWS`, `SETTINGS`): within a stage they apply in the order of this class.
    """

    processors: Iterable[Callable] = setting(
        (),
        Functions(),
        PENALTY,
        "processor",
        "functions (logits, history) -> logits",
        example=(lambda logits, history: logits / 2,),
        apply=filters.processors,
    )
    temperature: float = setting(
        1.0,
        Real(0),
        FILTER,
        "temperature",
        "below 1 sharpens the distribution, above 1 flattens it, 0 is greedy",
        example=0.7,
        kw_only=False,
    )
    top_k: int = setting(
        0,
        Whole(),
        FILTER,
        "top-k",
        "keep the k likeliest tokens",
        example=10,
        kw_only=False,
    )
    top_p: float = setting(
        1.0,
        Real(0, 1, without_low=True),
        FILTER,
        "top-p",
        "keep the smallest set of tokens whose mass reaches this",
        example=0.9,
        kw_only=False,
    )
    min_p: float = setting(
        0.0,
        Real(0, 1),
        FILTER,
        "min-p",
        "keep tokens with at least this share of the likeliest's probability",
        example=0.1,
        apply=filters.min_p,
    )
    typical_p: float = setting(
        1.0,
        Real(0, 1, without_low=True),
        FILTER,
        "typical-p",
        "keep the tokens whose surprise is nearest to the expected one, of this mass",
        example=0.9,
        apply=filters.typical_p,
    )
    epsilon: float = setting(
        0.0,
        Real(0, 1, without_high=True),
        FILTER,
        "epsilon",
        "drop tokens less likely than this",
        example=0.01,
        apply=filters.epsilon,
        kw_only=False,
    )
    eta: float = setting(
        0.0,
        Real(0, 1, without_high=True),
        FILTER,
        "eta",
        "as --epsilon, but lower where many tokens are likely",
        example=0.01,
        apply=filters.eta,
    )
    top_n_sigma: float = setting(
        0.0,
        Real(0),
        CUT,
        "top-n-sigma",
        "keep tokens with logits at most this many standard deviations below the largest",
        example=1.5,
        apply=filters.top_n_sigma,
    )
    logit_bias: Mapping[int, float] | Iterable = setting(
        (),
        Biases(),
        PENALTY,
        "logit bias",
        "add NUMBER to the logit of the token ID; repeatable",
        example=((5, 2.0),),
        apply=filters.logit_bias,
    )
    repetition_penalty: float = setting(
        1.0,
        Real(0, without_low=True),
        PENALTY,
        "repetition penalty",
        "above 1 makes tokens seen before less likely",
        example=1.3,
        apply=filters.repetition_penalty,
        kw_only=False,
    )
    presence_penalty: float = setting(
        0.0,
        Real(),
        PENALTY,
        "presence penalty",
        "above 0 makes tokens seen before less likely, prompt and all",
        example=0.5,
        apply=filters.presence_penalty,
    )
    frequency_penalty: float = setting(
        0.0,
        Real(),
        PENALTY,
        "frequency penalty",
        "above 0 makes tokens less likely the more often they were seen",
        example=0.5,
        apply=filters.frequency_penalty,
    )
    no_repeat_ngram_size: int = setting(
        0,
        Whole(),
        BAN,
        "n-gram blocking",
        "never write an n-gram of this size twice",
        example=2,
        apply=filters.no_repeat_ngram_size,
        kw_only=False,
    )
    bad_words: Iterable[Iterable[int]] = setting(
        (),
        Sequences(),
        BAN,
        "bad words",
        "never write this text, with or without a space before it; repeatable",
        example=((5, 7),),
        apply=filters.bad_words,
    )
    end_after: tuple = setting(
        (),
        LengthAndIds(),
        BAN,
        "too early to end",
        "a length and the end ids",
        example=(9, (2,)),
        apply=filters.end_after,
        public=False,
    )
    suppress: Iterable[int] = setting(
        (),
        Ids(),
        BAN,
        "suppressed",
        "never write the token with this id; repeatable",
        example=(7,),
        apply=filters.suppress,
    )

    def __post_init__(self):
        for name, row in ROWS.items():  # frozen, but lists become tuples
            object.__setattr__(self, name, row.kind.check(name, getattr(self, name)))

    def __repr__(self):
        """What is not off, as one would write it: Warp(temperature=0.7, top_p=0.9)."""
        values = [(name, getattr(self, name)) for name in ROWS]
        given = [f"{name}={value!r}" for name, value in values if value != ROWS[name].off]
        return f"{type(self).__name__}({', '.join(given)})"

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
        off = {n: row.off for n, row in ROWS.items() if row.stage not in stages}
        return dataclasses.replace(self, **off)

    def check_ids(self, vocab_size):
        """`InputError` for an id in a setting that a vocabulary of this size lacks."""
        for rows in self._set.values():
            for row, value in rows:
                for i in row.kind.ids(value):
                    if i >= vocab_size:
                        wanted = f"an id from 0 to {vocab_size - 1}"
                        raise InputError(f"{row.name}: got id {i}, {wanted} was wanted")

    def _filter(self, scores):
        """From scores [V] to probabilities; ValueError where they are none."""
        if self._set[CUT] and np.isfinite(scores.max()):  # else the kernel says what is wrong
            for row, value in self._set[CUT]:
                scores = _ban(scores, np.flatnonzero(~row.apply(scores, value)))
        later = [(row, value) for row, value in self._set[FILTER] if row.apply is not None]
        settings = (float(self.temperature), min(self.top_k, len(scores)), float(self.top_p))
        if self.temperature == 0 or all(row.name == "epsilon" for row, _ in later):
            return kernels.sampling_filter(scores, *settings, float(self.epsilon))
        wide = scores.astype(np.float64) if scores.dtype == np.float32 else scores
        probs = kernels.sampling_filter(wide, *settings, 0.0)
        for row, value in later:
            probs = np.where(row.apply(probs, value), probs, 0)
            probs /= probs.sum()
        return probs.astype(scores.dtype)

    @lazy
    def _set(self):
        """{stage: [(row, value)]} of what is not off, in the order in which it applies."""
        values = [(row, getattr(self, name)) for name, row in ROWS.items()]
        return {
            stage: [(r, value) for r, value in values if r.stage == stage and value != r.off]
            for stage in STAGES
        }


ROWS = table(Warp)  # {name: Setting}
SETTINGS = {name: row for name, row in ROWS.items() if row.public}  # those that a user sets
OPTIONS = {name: row for name, row in SETTINGS.items() if row.option}  # on a command line too


def as_warp(warp, default=None):
    """`warp`, or where it is None the default (plain sampling); `InputError` for what is none."""
    if warp is None:
        return Warp() if default is None else default
    if not isinstance(warp, Warp):
        hint = "a function of your own goes into Warp(processors=[...])"
        raise InputError(f"warp: got {shown(warp)}, a Warp was wanted; {hint}")
    return warp


def unshaped(decoder, warp, **settings):
    """`warp`, or one of these settings, for a decoder that draws nothing: its penalties and bans.

    Errors: `InputError` for both, and for a setting that only shapes what is drawn.
    """
    given = [name for name, value in settings.items() if value != SETTINGS[name].off]
    if warp is None:
        return Warp(**settings)
    if given:
        raise InputError(f"{given[0]}: got it beside a warp, one of them was wanted")
    for name, row in SETTINGS.items():
        if row.shapes and getattr(as_warp(warp), name) != row.off:
            raise InputError(f"{name}: has no effect with {decoder}")
    return warp


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
