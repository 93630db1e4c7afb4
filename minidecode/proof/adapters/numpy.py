"""NumPy's random functions, old (`numpy.random.rand`) and new (`default_rng`), as choices.

Generators that are made inside `choices` ask it; one made before cannot be reached, as NumPy's
classes are closed.
"""

import functools

import numpy as np

from .refuse import draw_one, draw_several, refuse, unknown
from .uniform import Uniform

LEGACY = {"random_sample": "random", "ranf": "random", "sample": "random", "randint": "integers"}
ORIGINAL = {"Generator": np.random.Generator, "RandomState": np.random.RandomState}
HARMLESS = {"get_state", "SeedSequence", "BitGenerator", "MT19937", "PCG64", "PCG64DXSM"}
HARMLESS |= {"Philox", "SFC64"}


def state():
    """What moves whenever a number is drawn from NumPy's shared generator."""
    return np.random.get_state()


def same(a, b):
    return a[2:] == b[2:] and np.array_equal(a[1], b[1])


def places(chance, seeds):
    """(owner, name, replacement) of each call."""
    known = {name: _generator_class(name, chance, seeds) for name in ORIGINAL}
    draws = Draws(chance)
    known |= {name: _method(draws, name) for name in ("random", "uniform", "choice", "rand")}
    known |= {name: _method(draws, name) for name in LEGACY}
    known["default_rng"] = _default_rng(known["Generator"], seeds)
    for name in sorted(set(np.random.__all__) - HARMLESS):
        yield np.random, name, known.get(name) or refuse(f"numpy.random.{name}")


def generator():
    """Inside `choices`, a generator that asks its chance."""
    return np.random.default_rng()


class Draws:
    """The calls that can be enumerated, under the names of `numpy.random.Generator`."""

    def __init__(self, chance):
        self.chance = chance

    def random(self, size=None, dtype=None, out=None):
        if out is not None:
            raise unknown("numpy.random: random(out=...)")
        return self._fill(size, lambda: Uniform(self.chance))

    def rand(self, *size):
        return self.random(size or None)

    def uniform(self, low=0.0, high=1.0, size=None):
        if (low, high) != (0, 1):
            raise unknown(f"numpy.random: uniform({low}, {high})")
        return self.random(size)

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        low, high = (0, low) if high is None else (low, high)
        count = high - low + bool(endpoint)
        probs = np.full(count, 1 / count)
        drawn = self._fill(size, lambda: low + draw_one(self.chance, probs))
        return drawn if size is None else drawn.astype(dtype)

    def choice(self, a, size=None, replace=True, p=None, axis=0, shuffle=True):
        a = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        if a.ndim != 1 and axis != 0:
            raise unknown(f"numpy.random: choice(axis={axis})")
        probs = np.full(len(a), 1 / len(a)) if p is None else np.array(p, np.float64)
        if size is None:
            return a[draw_one(self.chance, probs)]
        count = int(np.prod(size))
        drawn = draw_several(self.chance, probs, count, replace)
        shape = size if isinstance(size, tuple) else (size,)
        return a[np.array(drawn, int).reshape(shape)]

    def _fill(self, size, draw):
        if size is None:
            return draw()
        cells = np.empty(size, object)
        for index in np.ndindex(cells.shape):
            cells[index] = draw()
        return cells


def _method(draws, name):
    return getattr(draws, LEGACY.get(name, name))


def _generator_class(name, chance, seeds):
    """`Generator` or `RandomState` with its draws replaced, and all else refused."""
    return type(name, (_unbound_class(name),), {"chance": chance, "seeds": seeds})


@functools.cache
def _unbound_class(name):
    """The same without a chance: what takes long to make."""
    base = ORIGINAL[name]

    class Choosing(Draws, base):
        def __init__(self, source=None):
            if not isinstance(source, np.random.BitGenerator):
                self.seeds.take(f"numpy.random.{name}", source)
                source = np.random.PCG64() if name == "Generator" else np.random.MT19937()
            base.__init__(self, source)

    for method in dir(base):
        if name == "RandomState" and method in LEGACY:
            setattr(Choosing, method, getattr(Draws, LEGACY[method]))
        elif not hasattr(Draws, method) and not method.startswith("__"):
            setattr(Choosing, method, refuse(f"numpy.random.{name}.{method}"))
    Choosing.__reduce__ = refuse(f"a copy of a numpy.random.{name}")  # gives the same numbers again
    return Choosing


def _default_rng(choosing, seeds):
    def default_rng(seed=None):
        if isinstance(seed, choosing):
            return seed
        if isinstance(seed, ORIGINAL["Generator"]):
            raise unknown("numpy.random.default_rng of a generator made before choices()")
        seeds.take("numpy.random.default_rng", seed)
        return choosing()

    return default_rng
