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


@dataclass(frozen=True)
class Round(Step):
    """A step of speculative decoding: one pass of the target over what was drafted.

    drafted         ids proposed, without any that lie behind the end of the run
    accepted        how many of them were accepted; tokens = drafted[:accepted], then the next one
    next_token      the correction of the first rejected draft, or the bonus token after all of
                    them; None where the run ended before it
    draft_seconds   spent drafting
    target_seconds  spent in the target's pass
    """

    drafted: tuple[int, ...] = ()
    accepted: int = 0
    next_token: int | None = None
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
