"""How far two laws are apart, and what that may come of. A law is {outcome: probability}."""

import itertools
import math
from dataclasses import dataclass, field

TOLERANCE = 1e-12  # of float64; laws out of float32 code agree to about 1e-7


def total_variation(a: dict, b: dict) -> float:
    """Half the sum of |a - b| over all outcomes: 0 for equal laws, 1 for disjoint ones."""
    return math.fsum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b}) / 2


def least_variation(a: dict, b: dict) -> float:
    """The least total variation of two laws of which only parts may be known.

    What is known bounds each probability from below. So where a exceeds b it does so at least by
    what it exceeds b now, less all that b may still get; the same with a and b exchanged.
    """
    surplus = math.fsum(max(0.0, p - b.get(x, 0.0)) for x, p in a.items())
    return max(0.0, surplus - max(0.0, 1 - math.fsum(b.values())))


@dataclass(frozen=True)
class Report:
    """What `compare` found: the two laws, their distance and whether it is within the tolerance.

    Where `complete` is False, max_paths ended the search: the laws hold what was found, `distance`
    is the least that the rest allows, and `passed` is False.
    """

    passed: bool
    distance: float  # total variation, 0 to 1
    paths: int  # of the program under test
    law: dict = field(repr=False)
    wanted: dict = field(repr=False)
    tolerance: float = field(default=TOLERANCE, repr=False)
    complete: bool = True
    hints: tuple[str, ...] = ()

    def worst(self) -> tuple:
        """The outcome whose probability is furthest off: (outcome, got, wanted)."""
        return self.worst_outcomes(1)[0]

    def worst_outcomes(self, count: int = 5) -> list[tuple]:
        """The `count` outcomes furthest off, (outcome, got, wanted) each, the furthest first."""
        rows = [(x, self.law.get(x, 0.0), self.wanted.get(x, 0.0)) for x in self._outcomes()]
        return sorted(rows, key=lambda row: -abs(row[1] - row[2]))[:count]

    def parting(self) -> int | None:
        """The first position at which the laws part, counted from 0.

        Up to there the beginnings of the texts have equal laws. None where the laws agree, are
        not known whole, or are not of sequences.
        """
        if self.distance <= self.tolerance or not self.complete:
            return None
        outcomes = self._outcomes()
        if not all(isinstance(x, tuple) for x in outcomes):
            return None
        for position in range(max(map(len, outcomes)) + 1):
            beginnings = [_beginnings(x, position + 1) for x in (self.law, self.wanted)]
            if total_variation(*beginnings) > self.tolerance:
                return position
        return None  # only their sum over many outcomes exceeds the tolerance

    def _outcomes(self):
        return {**self.law, **self.wanted}

    def __str__(self) -> str:
        relation = "total variation" if self.complete else "total variation of at least"
        verdict = "exact" if self.passed else "NOT EXACT" if self.complete else "NOT DECIDED"
        if not self.complete and self.distance > self.tolerance:
            verdict = "NOT EXACT"
        lines = [f"{verdict}: {relation} {self.distance:.3g} after {self.paths:,} paths"]
        parting = self.parting()
        if parting is not None:
            lines.append(f"the laws part at position {parting} (the first is 0)")
        if self.distance > self.tolerance:
            rows = [("outcome", "got", "wanted")]
            rows += [(str(x), f"{p:.6f}", f"{q:.6f}") for x, p, q in self.worst_outcomes()]
            width = max(len(row[0]) for row in rows)
            lines += [f"  {x:<{width}}  {p:>8}  {q:>8}" for x, p, q in rows]
        return "\n".join([*lines, *(f"hint: {hint}" for hint in self.hints)])


def _beginnings(law, length):
    """The law of the first `length` elements of the outcomes."""
    parts = {}
    for outcome, probability in law.items():
        parts.setdefault(outcome[:length], []).append(probability)
    return {x: math.fsum(each) for x, each in parts.items()}


def hints_of(got, want, law, wanted, max_paths):
    """What a report that did not pass may come of, as far as the laws show it."""
    for found, name in ((got, "the program"), (want, "the program it is compared with")):
        if not found.complete:
            mass = math.fsum(itertools.chain.from_iterable(found.parts.values()))
            yield (
                f"{name} has about {found.estimate:,} paths, and max_paths is {max_paths:,} (they "
                f"hold {mass:.0%} of the probability): lower max_new_tokens first, then the number "
                "of drafted tokens or the vocabulary, or raise max_paths"
            )
    if not got.asked:
        yield (
            "the program took no choice from chance: it is greedy, or draws from a randomness of "
            "its own, such as a generator that was made before"
        )
    if all(isinstance(x, tuple) for x in (*law, *wanted)):
        got_tokens, asked = (max(map(len, each)) for each in (law, wanted))
        extra = abs(got_tokens - asked)
        if extra:
            amount = "one token" if extra == 1 else f"{extra} tokens"
            relation = "more" if got_tokens > asked else "fewer"
            yield f"the program gave {amount} {relation} than asked ({got_tokens}, not {asked})"
