"""What decoders ask of the objects they are given, as types. Nothing here runs.

Any object with these methods will do: `GPT2` and `TableModel` are a `Model`, `Dice` and
`GumbelDice` a `Chance`. Shapes: n new tokens, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

Prompt = str | Sequence[int] | np.ndarray  # text needs a tokenizer
EndIds = int | Iterable[int] | str | None  # str: run.FROM_MODEL, the checkpoint's


class Cache(Protocol):
    """What a model keeps of the tokens it has read."""

    @property
    def length(self) -> int: ...
    def truncate(self, length: int) -> None: ...
    def fork(self) -> Any: ...


class Model(Protocol):
    """From ids to logits; also has `tokenizer` where it is known, to compare vocabularies."""

    vocab_size: int
    n_positions: int
    eos: Sequence[int]
    bos: int | None

    def new_cache(self) -> Any: ...

    def forward(self, tokens: Any, cache: Any, n_logits: int = 1) -> np.ndarray:
        """Append `tokens` to the cache -> logits [n_logits, V] of the last of them."""

    def forward_many(self, batch: Any, n_logits: Any = 1) -> list[np.ndarray]:
        """The same for several sequences at once: [(tokens, cache)]."""


class Chance(Protocol):
    """The only source of randomness; `coupled` is optional (see chance.py)."""

    def choose(self, probs: np.ndarray, position: int) -> int: ...
    def accept(self, probability: float) -> bool: ...


class Tokenizer(Protocol):
    """From text to ids, and each id's bytes."""

    def encode(self, text: str) -> list[int]: ...
    def token_bytes(self, token: int) -> bytes: ...
