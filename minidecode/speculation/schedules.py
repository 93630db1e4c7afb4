"""How many tokens to draft in the next round.

A schedule has `next() -> k` and `observe(k, drafted, accepted, seconds)`: drafted and accepted
are counts and seconds is (draft, target). It is None where the target's pass was not one over the
drafts and one token more: in the round that also read the prompt, and where a draft held an end
token or an unknown id, so that fewer were fed. A schedule is told of no round that a limit cut
short: that the text ends says nothing of how good drafts are.
"""

import statistics
from collections import deque
from typing import Protocol

import numpy as np

from ..checks import shown, whole
from ..errors import InputError
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
    """The k with the most expected tokens a second.

    What a round of k drafts brings and costs is told in theory.py; the numbers are those measured
    so far. k = 0 is plain decoding. Every EXPLORE rounds a neighbour of the best k is tried; from
    k = 0 more and more rarely as long as that does not pay.
    """

    EXPLORE = 8
    RAREST = 256
    FADE = 0.97  # weight of an old observation after each new one
    PRIOR = (1.5, 2.0)  # accepted and tested drafts assumed at each place before the first is seen

    def __init__(self, k):
        self.first = max(1, min(k, MAX_DRAFT))
        self.accepted = np.full(MAX_DRAFT, self.PRIOR[0])
        self.tested = np.full(MAX_DRAFT, self.PRIOR[1])
        self.draft_cost = deque(maxlen=9)  # seconds a draft token
        self.pass_cost = {}  # tokens in the pass -> its last times
        self.rounds = 0
        self.until_probe = self.interval = self.EXPLORE

    def next(self):
        self.rounds += 1
        if not self.draft_cost:
            return self.first
        if 1 not in self.pass_cost:
            return 0  # what plain decoding costs here
        best = self.best()
        self.until_probe -= 1
        if self.until_probe > 0:
            return best
        if best == 0:
            self.interval = min(2 * self.interval, self.RAREST)
        else:
            self.interval = self.EXPLORE
        self.until_probe = self.interval
        return max(1, min(best + (1 if self.rounds % 2 else -1), MAX_DRAFT))

    def observe(self, k, drafted, accepted, seconds):
        for i in range(min(accepted + 1, drafted)):
            self.accepted[i] = self.FADE * self.accepted[i] + (i < accepted)
            self.tested[i] = self.FADE * self.tested[i] + 1
        if seconds is not None:
            draft_seconds, target_seconds = seconds
            if drafted:
                self.draft_cost.append(draft_seconds / drafted)
            self.pass_cost.setdefault(drafted + 1, deque(maxlen=9)).append(target_seconds)

    def best(self):
        """The k with the highest expected rate: one more than has been tried, at the most.

        Passes not seen are taken to cost what their neighbours do. For the next longer one this is
        too little, so that it is tried, and then known; further ones would look better still.
        """
        seen = sorted(self.pass_cost)  # tokens in a pass, k + 1
        k = np.arange(min(seen[-1], MAX_DRAFT) + 1)
        tokens = tokens_by_length((self.accepted / self.tested)[: len(k) - 1])
        costs = [statistics.median(self.pass_cost[n]) for n in seen]
        seconds = np.interp(k + 1, seen, costs) + k * statistics.median(self.draft_cost)
        return int(np.argmax(tokens / np.maximum(seconds, 1e-12)))


SCHEDULES = {"constant": Constant, "heuristic": Heuristic, "auto": Auto}


def make_schedule(schedule: str | Schedule, num_draft_tokens: int) -> Schedule:
    """A schedule from its name and first length; an object that is one already passes."""
    k = whole("num_draft_tokens", num_draft_tokens, 0)
    if hasattr(schedule, "next"):
        return schedule
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        names = ", ".join(SCHEDULES)
        raise InputError(f"schedule: got {shown(schedule)}, one of {names} was wanted")
    return SCHEDULES[schedule](k)
