"""What decoders yield."""

from dataclasses import dataclass

from .logprobs import TokenLogprobs


@dataclass(frozen=True)
class Step:
    """Tokens committed together, as soon as they are known.

    tokens         ids, in order; empty only where the run was blocked before it found one
    finish_reason  why the run ended with this step, or None while it goes on
    logprobs       one `TokenLogprobs` per token where they were asked for, else ()
    """

    tokens: tuple[int, ...]
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
