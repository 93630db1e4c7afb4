"""Log-probabilities of what is written: under the model, and in the distribution it is drawn from.

A decoder asks `distribution(logits of each model ..., history)` for every token. `Noted` stands for
that function, returns what it returns, and notes the rows, from which the records are made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import whole
from .warp import log_softmax

BLOCK = 64  # rows of logits that are held at once


@dataclass(frozen=True)
class TokenLogprobs:
    """What one token of a text was worth, in nats.

    logprob      its log-probability under the model itself: temperature 1, no filter, no penalty
    warped       the same in the distribution that it was drawn from, -inf where that rules it out;
                 of beam search, what it added to the total
    top          (id, logprob) of the likeliest under the model, likeliest first, ties to lower ids
    warped_top   the same of that distribution; of tokens with probability 0 there are none
    """

    token: int
    logprob: float
    warped: float
    top: tuple[tuple[int, float], ...] = ()
    warped_top: tuple[tuple[int, float], ...] = ()


def record(token: int, own: np.ndarray, warped: np.ndarray, n: int) -> TokenLogprobs:
    """The record of a token with its n likeliest alternatives; both rows [V] log-probabilities."""
    return TokenLogprobs(
        int(token), float(own[token]), float(warped[token]), likeliest(own, n), likeliest(warped, n)
    )


def likeliest(row: np.ndarray, n: int) -> tuple[tuple[int, float], ...]:
    """(id, log-probability) of the n likeliest of a row [V], without those that are impossible."""
    best = np.argsort(-row, kind="stable")[:n] if n else ()
    return tuple((int(i), float(row[i])) for i in best if row[i] > -np.inf)


class Noted:
    """A distribution that remembers the rows it was asked for, by position, until `records`."""

    def __init__(self, distribution: Callable[..., np.ndarray], n: int):
        self.distribution, self.n = distribution, n
        self.rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, *rows_and_history):
        logits, history = rows_and_history[0], rows_and_history[-1]
        probs = self.distribution(*rows_and_history)
        self.rows[len(history)] = logits, probs
        return probs

    def records(self, start: int, tokens: Sequence[int]) -> tuple[TokenLogprobs, ...]:
        """Of tokens that stand at the positions from `start` on; forgets all rows."""
        found = []
        for position, token in enumerate(tokens, start):
            logits, probs = self.rows[position]
            own = log_softmax(logits, position)
            with np.errstate(divide="ignore"):  # probability 0
                warped = np.log(np.asarray(probs, np.float64))
            found.append(record(token, own, warped, self.n))
        self.rows.clear()
        return tuple(found)


def noted(distribution: Callable[..., np.ndarray], n: int | None) -> Callable[..., np.ndarray]:
    """The distribution, noted where log-probabilities with n alternatives are wanted."""
    return distribution if n is None else Noted(distribution, whole("logprobs", n, 0))


def records_of(distribution, start, tokens) -> tuple[TokenLogprobs, ...]:
    """The records of a decoder's step; () where none were wanted."""
    return distribution.records(start, tokens) if isinstance(distribution, Noted) else ()


def rescored(models, prompt, tokens, distribution, n) -> tuple[TokenLogprobs, ...]:
    """The records of a finished text, with one pass of each model over it, BLOCK rows at a time."""
    text, noted = [*prompt, *tokens], Noted(distribution, n)
    caches, found = [model.new_cache() for model in models], []
    for start in range(len(prompt), len(text), BLOCK):
        end = min(start + BLOCK, len(text))
        rows = [  # for each model [end - start, V]
            model.forward(text[cache.length : end - 1], cache, n_logits=end - start)
            for model, cache in zip(models, caches)
        ]
        for i, one in enumerate(zip(*rows), start):
            noted(*one, text[:i])
        found += noted.records(start, text[start:end])
    return tuple(found)
