"""What decoders yield."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Tokens committed together, as soon as they are known.

    tokens         ids, in order; empty only where the run was blocked before it found one
    finish_reason  why the run ended with this step, or None while it goes on
    """

    tokens: tuple[int, ...]
    finish_reason: str | None = None
