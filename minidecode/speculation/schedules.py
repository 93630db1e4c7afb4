"""How many tokens to draft in the next round.

A schedule has `next() -> k` and `observe(k, drafted, accepted, seconds)`: drafted and accepted
are counts and seconds is (drafting, the target's pass and the verification). It is None where the
pass was not one over the drafts and one token more: in the round that also read the prompt, and
where a draft held an end token or an unknown id, so that fewer were fed. A schedule is told of no
round that a limit cut short: that the text ends says nothing of how good drafts are.
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
    """The k with the most expected tokens a second, from what the rounds so far brought and cost.

    theory.py says what a round of k drafts brings and costs; k = 0 is plain decoding. A text has
    few rounds, so what they tell is completed by what is usual: drafts at all places fare alike,
    and each token more makes a pass dearer by the same, small part. The capitals say what that
    weighs, in drafts or passes seen.

    Every EXPLORE rounds a neighbour of the best k is tried, the longer and the shorter one in turn;
    from k = 0 more and more rarely, as long as that does not pay.
    """

    EXPLORE = 8
    RAREST = 256
    FADE = 0.97  # weight of an old acceptance after each new one
    PRIOR = (4.0, 5.0)  # drafts accepted and tested, assumed before the first
    SHARED = 6.0  # drafts at each place that fared as those at all places do
    SLOPE = (0.01, 100.0)  # part of a pass that one token more costs; weighs less with each pass
    LINE = 1.0  # passes over each number of tokens that cost what the line through all says
    BEYOND = 2  # drafts more than the longest round had, at the most: further on nothing is known

    def __init__(self, k):
        self.first = max(1, min(k, MAX_DRAFT))
        self.accepted = np.zeros(MAX_DRAFT)  # of the drafts tested at each place
        self.tested = np.zeros(MAX_DRAFT)
        self.draft_cost = deque(maxlen=9)  # seconds per draft token
        self.pass_cost = {}  # tokens in the pass -> its last times
        self.until_probe = self.interval = self.EXPLORE
        self.step = -1  # of the last probe

    def next(self):
        if not self.draft_cost:
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
        if not 0 <= k + self.step <= self._longest():
            self.step = -self.step
        return k + self.step

    def _longest(self):
        return min(max(self.pass_cost) - 1 + self.BEYOND, MAX_DRAFT)

    def observe(self, k, drafted, accepted, seconds):
        for i in range(min(accepted + 1, drafted, MAX_DRAFT)):
            self.accepted[i] = self.FADE * self.accepted[i] + (i < accepted)
            self.tested[i] = self.FADE * self.tested[i] + 1
        if seconds is not None:
            draft_seconds, target_seconds = seconds
            if drafted:
                self.draft_cost.append(draft_seconds / drafted)
            self.pass_cost.setdefault(drafted + 1, deque(maxlen=9)).append(target_seconds)

    def best(self):
        """The k with the highest expected rate, up to BEYOND more than the longest round had."""
        longest = self._longest()
        tokens = tokens_by_length(self._acceptance()[:longest])  # for k = 0 .. longest
        drafting = np.arange(longest + 1) * statistics.median(self.draft_cost)
        seconds = drafting + self._pass_seconds(longest + 1)
        return int(np.argmax(tokens / np.maximum(seconds, 1e-12)))

    def _acceptance(self):
        """Of drafts at each place, leaning towards that at all places together."""
        accepted, tested = self.PRIOR
        everywhere = (self.accepted.sum() + accepted) / (self.tested.sum() + tested)
        return (self.accepted + self.SHARED * everywhere) / (self.tested + self.SHARED)

    def _pass_seconds(self, longest):
        """What a pass over 1 .. longest tokens costs: medians, leaning towards a line."""
        n = np.arange(1, longest + 1)
        seen = np.array(sorted(self.pass_cost))
        times = np.array([statistics.median(self.pass_cost[i]) for i in seen])
        weights = np.array([len(self.pass_cost[i]) for i in seen])
        seconds = self._line(n, seen, times, weights)
        known = seen <= longest
        at, weights = seen[known] - 1, weights[known]
        pull = self.LINE * seconds[at]
        seconds[at] = (weights * times[known] + pull) / (weights + self.LINE)
        return seconds

    def _line(self, n, seen, times, weights):
        """The line through the times of the passes seen, at n tokens."""
        middle, level = np.average(seen, weights=weights), np.average(times, weights=weights)
        usual, weight = self.SLOPE[0], self.SLOPE[1] / weights.sum()
        away = weights * (seen - middle)
        spread = away @ (seen - middle)
        slope = (away @ (times - level) + weight * usual * level) / (spread + weight)
        line = level + max(slope, 0.0) * (n - middle)
        # A pass over half of the tokens costs at least half.
        return np.maximum(line, level * np.minimum(n / middle, 1))


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
