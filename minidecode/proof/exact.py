"""The exact output law of a decoder: every path of its random choices, with its probability.

A decoder asks a chance object (chance.py) for each random choice. `Enumerator` answers, instead of
drawing, with the first option, and when the run is over it starts again with another, until all
paths have been taken. The decoder itself runs unchanged: its loop, indices, rollbacks and limits
are under test, not a copy of its algebra. On models of a few tokens (`TableModel`) the result is
exact to rounding.
"""

import math
from dataclasses import dataclass, field

from ..decoding.chance import possible
from ..decoding.sampling import sample
from ..errors import InputError, MinidecodeError


class Enumerator:
    """A chance that follows one path, given as the index of the option to take at each choice."""

    coupled = False

    def __init__(self, path):
        self.path = path  # of [options left and right of this one, index]; grows along the way
        self.depth = 0
        self.factors = []

    def choose(self, probs, position):
        tokens, weights = possible(probs)
        total = math.fsum(weights)
        return int(tokens[self._branch([w / total for w in weights])])

    def accept(self, probability):
        probability = float(probability)
        if math.isnan(probability):
            raise InputError("probability to accept with: got nan")
        if probability <= 0 or probability >= 1:  # no choice at all
            return probability >= 1
        return self._branch([probability, 1 - probability]) == 0

    def _branch(self, probabilities):
        if len(probabilities) == 1:
            return 0
        if self.depth == len(self.path):
            self.path.append([len(probabilities), 0])
        options, index = self.path[self.depth]
        if options != len(probabilities):
            raise MinidecodeError(
                "the program took another path with the same choices: it keeps state, or draws "
                "from a randomness of its own"
            )
        self.depth += 1
        self.factors.append(probabilities[index])
        return index


def law(program, max_paths=1_000_000):
    """{outcome: probability} of `program(chance) -> outcome`, which runs once a path.

    Outcomes must be hashable; lists become tuples. Errors: `MinidecodeError` past max_paths, and
    for a program that does not repeat itself.
    """
    return _law(program, max_paths)[0]


def _law(program, max_paths=1_000_000):
    """(law, number of paths)"""
    found, path, paths = {}, [], 0
    while True:
        chance = Enumerator(path)
        outcome = program(chance)
        outcome = tuple(outcome) if isinstance(outcome, list) else outcome
        found.setdefault(outcome, []).append(math.prod(chance.factors))
        paths += 1
        while path and path[-1][1] == path[-1][0] - 1:
            path.pop()
        if not path:
            return {outcome: math.fsum(parts) for outcome, parts in found.items()}, paths
        if paths >= max_paths:
            raise MinidecodeError(f"the program has more than {max_paths} paths")
        path[-1][1] += 1


def total_variation(a, b):
    """Half the sum of |a - b| over all outcomes: 0 for equal laws, 1 for disjoint ones."""
    return math.fsum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b}) / 2


@dataclass(frozen=True)
class Report:
    """What `check` found: the two laws, their distance and whether it is within the tolerance."""

    passed: bool
    distance: float  # total variation, 0 to 1
    paths: int  # of the decoder under test
    law: dict = field(repr=False)
    wanted: dict = field(repr=False)

    def worst(self):
        """The outcome whose probability is furthest off: (outcome, got, wanted)."""
        outcomes = {*self.law, *self.wanted}
        gap = {x: abs(self.law.get(x, 0.0) - self.wanted.get(x, 0.0)) for x in outcomes}
        x = max(gap, key=gap.get)
        return x, self.law.get(x, 0.0), self.wanted.get(x, 0.0)


def check(decoder, target, prompt=(0,), *, warp=None, tolerance=1e-12, max_paths=10**6, **limits):
    """Compare a decoder's output law with plain sampling from `target`.

    decoder(target, prompt, chance=..., warp=..., **limits) yields `Step`s or token ids, and takes
    every random choice from `chance` (`choose` and `accept`). limits: max_new_tokens, eos.
    """

    def under_test(chance):
        return tokens_of(decoder(target, list(prompt), chance=chance, warp=warp, **limits))

    def plain(chance):
        return tokens_of(sample(target, list(prompt), chance=chance, warp=warp, **limits))

    got, paths = _law(under_test, max_paths)
    wanted = law(plain, max_paths)
    distance = total_variation(got, wanted)
    return Report(distance <= tolerance, distance, paths, got, wanted)


def tokens_of(steps):
    """The ids in a stream of `Step`s or of ids, as a tuple."""
    tokens = []
    for step in steps:
        tokens.extend(step.tokens if hasattr(step, "tokens") else [step])
    return tuple(tokens)
