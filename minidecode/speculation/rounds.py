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


def acceptance(counts):
    """(drafted, accepted, rate) over pairs of drafted and accepted; the rate of nothing is None."""
    counts = list(counts)
    drafted, accepted = (sum(pair[i] for pair in counts) for i in (0, 1))
    return drafted, accepted, accepted / drafted if drafted else None


def by_position(rounds):
    """[(tested, accepted)] of the drafts at place 1, 2, ...

    A draft is tested where all before it in its round were accepted.
    """
    found = []
    for i in range(max((len(r.drafted) for r in rounds), default=0)):
        tested = [r for r in rounds if len(r.drafted) > i and r.accepted >= i]
        found.append((len(tested), sum(r.accepted > i for r in tested)))
    return found


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
    drafted, accepted, rate = acceptance((len(r.drafted), r.accepted) for r in rounds)
    draft_seconds = sum(r.draft_seconds for r in rounds)
    target_seconds = sum(r.target_seconds for r in rounds)
    return {
        "rounds": len(rounds),
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": rate,
        "acceptance_by_position": [
            passed / tested if tested else None for tested, passed in by_position(rounds)
        ],
        "tokens_per_target_pass": sum(len(r.tokens) for r in rounds) / len(rounds),
        "draft_seconds": draft_seconds,
        "target_seconds": target_seconds,
        "rest_seconds": seconds - draft_seconds - target_seconds,
    }
