"""What a decoder asks of what it is given: a model, a tokenizer, a chance. Nothing is inherited:
whatever has these methods will do, and the type checkers read them here.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

Prompt: TypeAlias = str | Sequence[int] | np.ndarray  # text needs a tokenizer
EndIds: TypeAlias = int | Iterable[int] | str | None  # as in `Run`
StopStrings: TypeAlias = str | Iterable[str] | None


class Cache(Protocol):
    """The tokens that a model has read, in whatever form it keeps them."""

    @property
    def length(self) -> int: ...

    def truncate(self, length: int) -> None: ...

    def fork(self) -> "Cache": ...


class Model(Protocol):
    """Tokens to logits. `forward` appends n tokens to the cache: [n_logits, V] of the last ones.

    A model with hidden states has `hidden_size` too, and both passes take `hidden=True`: see GPT2.
    """

    vocab_size: int
    n_positions: int
    eos: tuple[int, ...]  # the ids that end a text
    bos: int | None  # what stands for an empty prompt

    def new_cache(self) -> Any: ...

    def forward(self, tokens: Any, cache: Any, n_logits: int = 1) -> np.ndarray: ...

    def forward_many(self, batch: Any, n_logits: Any = 1) -> list[np.ndarray]: ...


class Tokenizer(Protocol):
    """Text to ids, and the bytes that each id stands for."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Any) -> str: ...

    def token_bytes(self, token: int) -> bytes: ...


class Chance(Protocol):
    """The only source of randomness (chance.py)."""

    def choose(self, probs: np.ndarray, position: int) -> int: ...

    def accept(self, probability: float) -> bool: ...
