"""What a model thinks of a text: the log-probability of each token, perplexity, bits per byte."""

import math
from dataclasses import dataclass

import numpy as np

from ..checks import check_model, check_tokenizer
from ..decoding.contracts import Model, Prompt, Tokenizer
from ..decoding.run import prompt_ids
from ..errors import ContextError, InputError
from .metrics import token_logprobs


@dataclass(frozen=True)
class Score:
    """A text under a model.

    tokens    its ids
    logprobs  for each its log-probability after all before it, in nats; None for the first where
              the model has no bos id to begin from
    n_bytes   bytes of the tokens that have one; None without a tokenizer
    """

    tokens: list[int]
    logprobs: list[float | None]
    n_bytes: int | None = None

    @property
    def scored(self) -> list[float]:
        """The log-probabilities there are."""
        return [value for value in self.logprobs if value is not None]

    @property
    def perplexity(self) -> float | None:
        """Among how many equally likely tokens it is like choosing; None without tokens."""
        if not self.scored:
            return None
        with np.errstate(over="ignore"):
            return float(np.exp(-np.mean(self.scored)))

    @property
    def bits_per_byte(self) -> float | None:
        """What coding a byte of the text costs; comparable between tokenizers. None without bytes.

        Source: Gao et al. 2020 (The Pile), section 3.1.
        """
        return -sum(self.scored) / math.log(2) / self.n_bytes if self.n_bytes else None


def score(model: Model, text: Prompt, *, tokenizer: Tokenizer | None = None) -> Score:
    """The `Score` of a text, or of ids. The model reads it once, many rows to a pass.

    It begins from the model's bos id; without one the first token is not scored.
    Errors: `InputError`; `ContextError` for more than the model has positions.
    """
    check_model(model)
    check_tokenizer(tokenizer)
    if isinstance(text, str | list | tuple) and not text:
        raise InputError("text: it is empty, at least one token was wanted")
    tokens = prompt_ids(model, text, tokenizer)
    first = 1 if model.bos is None else 0
    if len(tokens) - first > model.n_positions:
        raise ContextError(
            f"text: got {len(tokens)} tokens, at most {model.n_positions + first} were wanted, "
            "as the model has positions"
        )
    start = tokens[:1] if first else [model.bos]
    scored = token_logprobs(model, start, tokens[first:]).tolist()
    n_bytes = None
    if tokenizer is not None:
        n_bytes = sum(len(tokenizer.token_bytes(token)) for token in tokens[first:])
    return Score(tokens, [None] * first + scored, n_bytes)
