"""Python's `random`, its functions and `random.Random`, as choices of a chance."""

import functools
import random
from collections.abc import Sequence

import numpy as np

from .refuse import draw_one, draw_several, refuse, unknown
from .uniform import Uniform

ORIGINAL = random.Random  # not the stand-in of a block around this one
HARMLESS = {"Random", "SystemRandom", "getstate"}


def state():
    """What moves whenever a number is drawn from the module's own generator."""
    return random.getstate()


def same(a, b):
    return a == b


def places(chance, seeds):
    """(owner, name, replacement) of each call."""
    draws = Draws(chance)
    for name in sorted(set(random.__all__) - HARMLESS):
        known = getattr(draws, name, None)
        yield random, name, known or refuse(f"random.{name}")
    yield random, "Random", _generator_class(chance, seeds)
    yield random, "SystemRandom", refuse("random.SystemRandom")


class Draws:
    """The calls that can be enumerated."""

    def __init__(self, chance):
        self.chance = chance

    def random(self):
        return Uniform(self.chance)

    def uniform(self, a, b):
        if (a, b) != (0, 1):
            raise unknown(f"random.uniform({a}, {b})")
        return self.random()

    def choice(self, seq):
        return seq[self._index(len(seq))]

    def choices(self, population, weights=None, *, cum_weights=None, k=1):
        if cum_weights is not None:
            weights = np.diff(cum_weights, prepend=0)
        size = len(population)
        probs = np.full(size, 1 / size) if weights is None else np.array(weights, np.float64)
        return [population[i] for i in draw_several(self.chance, probs, k)]

    def sample(self, population, k, *, counts=None):
        if counts is not None or not isinstance(population, Sequence):
            raise unknown("random.sample with counts or of what is no sequence")
        probs = np.full(len(population), 1 / len(population))
        return [population[i] for i in draw_several(self.chance, probs, k, replace=False)]

    def randrange(self, start, stop=None, step=1):
        return self.choice(range(start) if stop is None else range(start, stop, step))

    def randint(self, a, b):
        return self.randrange(a, b + 1)

    def _index(self, size):
        return draw_one(self.chance, np.full(size, 1 / size))


def _generator_class(chance, seeds):
    return type("Random", (_unbound_class(),), {"chance": chance, "seeds": seeds})


@functools.cache
def _unbound_class():
    """`random.Random` without its chance: what takes long to make."""

    class Random(Draws, ORIGINAL):
        def __init__(self, x=None):
            self.seeds.take("random.Random", x)

    for name in set(random.__all__) - HARMLESS:
        if not hasattr(Draws, name):
            setattr(Random, name, refuse(f"random.Random.{name}"))
    for name in ("__reduce__", "getstate"):  # a copy would give the same numbers again
        setattr(Random, name, refuse(f"random.Random.{name}"))
    return Random
