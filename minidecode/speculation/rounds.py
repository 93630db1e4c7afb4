"""A round of speculation, and what a list of rounds says."""

from dataclasses import dataclass

from ..decoding.step import Step


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


def speculation_stats(rounds, seconds):
    """Statistics of speculative decoding, None where there is nothing to divide by.

    rounds                  passes of the target
    drafted, accepted       tokens, without those behind the end of the text
    acceptance_rate         accepted / drafted
    acceptance_by_position  of the drafts at place 1, 2, ... whose predecessors were all accepted,
                            the part that was accepted too
    tokens_per_target_pass  new tokens / rounds
    draft_seconds, target_seconds, rest_seconds   where the time went
    """
    drafted = sum(len(r.drafted) for r in rounds)
    accepted = sum(r.accepted for r in rounds)
    by_position = []
    for i in range(max(len(r.drafted) for r in rounds)):
        tested = [r for r in rounds if len(r.drafted) > i and r.accepted >= i]
        passed = sum(r.accepted > i for r in tested)
        by_position.append(passed / len(tested) if tested else None)
    draft_seconds = sum(r.draft_seconds for r in rounds)
    target_seconds = sum(r.target_seconds for r in rounds)
    return {
        "rounds": len(rounds),
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_by_position": by_position,
        "tokens_per_target_pass": sum(len(r.tokens) for r in rounds) / len(rounds),
        "draft_seconds": draft_seconds,
        "target_seconds": target_seconds,
        "rest_seconds": seconds - draft_seconds - target_seconds,
    }
