"""How many tokens to draft in the next round.

A schedule has `next() -> k` and `observe(k, drafted, accepted, seconds)`: drafted and accepted
are counts and seconds is (drafting, the target's pass and the verification). It is None where the
pass was not one over the drafts and one token more: in the round that also read the prompt, and
where a draft held an end token or an unknown id, so that fewer were fed. A schedule is told of no
round that a limit cut short: that the text ends says nothing of how good drafts are.
"""

from collections.abc import Callable
from typing import Protocol

from ..checks import shown, whole
from ..errors import InputError
from .costs import Costs
from .theory import tokens_by_length

MAX_DRAFT = 16  # the adaptive schedules go no further


class Schedule(Protocol):
    """The two methods, as a type."""

    def next(self) -> int: ...

    def observe(
        self, k: int, drafted: int, accepted: int, seconds: tuple[float, float] | None
    ) -> None: ...


class Constant:
    """Always k."""

    def __init__(self, k):
        self.k = k

    def next(self):
        return self.k

    def observe(self, k, drafted, accepted, seconds):
        pass


class Heuristic(Constant):
    """Two more after a round in which all was accepted, else one less; from 1 to MAX_DRAFT."""

    def __init__(self, k):
        super().__init__(max(1, min(k, MAX_DRAFT)))

    def observe(self, k, drafted, accepted, seconds):
        if drafted < k:
            return  # the draft ended early: nothing is known of the tokens it did not draft
        change = 2 if accepted == k else -1
        self.k = max(1, min(self.k + change, MAX_DRAFT))


class Auto:
    """The k with the most expected tokens a second, from what the rounds so far brought and cost.

    theory.py says what a round of k drafts brings and costs; k = 0 is plain decoding. A text has
    few rounds, so what they tell is completed by what is usual: drafts at all places fare alike,
    and costs.py has what a token more costs. The capitals say what that weighs, in drafts seen.

    Every EXPLORE rounds a neighbour of the best k is tried, the longer and the shorter one in turn;
    from k = 0 more and more rarely, as long as that does not pay.
    """

    EXPLORE = 8
    RAREST = 256
    FADE = 0.99  # weight of an old acceptance after each new one
    PRIOR = (3.5, 5.0)  # drafts accepted and tested, assumed before the first
    SHARED = 10.0  # drafts at each place that fared as those at all places do
    PASS, DRAFTING = 0.9, 0.1  # the usual part of their seconds that each has whatever k is
    EARLY, DECIDE = 8, 2  # the best k is worked out in the first rounds, then in every other one
    BEYOND = 2  # drafts more than the longest round had, at the most: further on nothing is known

    def __init__(self, k):
        self.first = max(1, min(k, MAX_DRAFT))
        self.accepted = [0.0] * MAX_DRAFT  # of the drafts tested at each place
        self.tested = [0.0] * MAX_DRAFT
        self.drafting = Costs(self.DRAFTING)
        self.passes = Costs(self.PASS)
        self.rounds, self.decided = 0, -self.DECIDE
        self.chosen = self.first
        self.until_probe = self.interval = self.EXPLORE
        self.step = -1  # of the last probe

    def next(self):
        if not self.drafting.longest:
            return self.first
        best = self.best()
        self.until_probe -= 1
        if self.until_probe > 0:
            return best
        self.interval = min(2 * self.interval, self.RAREST) if best == 0 else self.EXPLORE
        self.until_probe = self.interval
        return self._neighbour(best)

    def _neighbour(self, k):
        """One more or one less than k, in turn where both can be."""
        self.step = -self.step
        if not 0 <= k + self.step <= self._most():
            self.step = -self.step
        return k + self.step

    def _most(self):
        return min(self.passes.longest - 1 + self.BEYOND, MAX_DRAFT)

    def observe(self, k, drafted, accepted, seconds):
        self.rounds += 1
        for i in range(min(accepted + 1, drafted, MAX_DRAFT)):
            self.accepted[i] = self.FADE * self.accepted[i] + (i < accepted)
            self.tested[i] = self.FADE * self.tested[i] + 1
        if seconds is not None:
            draft_seconds, target_seconds = seconds
            if drafted:
                self.drafting.add(drafted, draft_seconds)
            self.passes.add(drafted + 1, target_seconds)

    def best(self):
        """The k with the highest expected rate, up to BEYOND more than the longest round had."""
        if self.rounds <= self.EARLY or self.rounds - self.decided >= self.DECIDE:
            self.decided, self.chosen = self.rounds, self._decide()
        return self.chosen

    def _decide(self):
        most = self._most()
        tokens = tokens_by_length(self._acceptance()[:most])  # for k = 0 .. most, as the others
        drafting = [0.0, *self.drafting.up_to(most)]
        passes = self.passes.up_to(most + 1)
        rates = [n / max(d + p, 1e-12) for n, d, p in zip(tokens, drafting, passes, strict=True)]
        return rates.index(max(rates))

    def _acceptance(self):
        """Of drafts at each place, leaning towards that at all places together."""
        accepted, tested = self.PRIOR
        everywhere = (sum(self.accepted) + accepted) / (sum(self.tested) + tested)
        return [
            (accepted + self.SHARED * everywhere) / (tested + self.SHARED)
            for accepted, tested in zip(self.accepted, self.tested)
        ]


SCHEDULES: dict[str, Callable[[int], Schedule]] = {
    "constant": Constant,
    "heuristic": Heuristic,
    "auto": Auto,
}


def make_schedule(schedule: str | Schedule, num_draft_tokens: int) -> Schedule:
    """A schedule from its name and first length; an object that is one already passes."""
    k = whole("num_draft_tokens", num_draft_tokens, 0)
    if not isinstance(schedule, str) and hasattr(schedule, "next"):
        return schedule
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        names = ", ".join(SCHEDULES)
        raise InputError(f"schedule: got {shown(schedule)}, one of {names} was wanted")
    return SCHEDULES[schedule](k)
