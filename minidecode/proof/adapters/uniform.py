"""A uniform random number in [0, 1) that nobody has looked at: all that is known is an interval.

A decoder that draws u and asks whether u < x has two ways to go on, the first with probability x.
So a comparison is a choice, and what it tells narrows the interval: a u that is compared twice
(with the steps of a cumulative distribution, or once to accept and once to redraw) stays exact.
u < x and u <= x differ with probability 0 and count as the same here. Anything but a comparison
would need more of u than an interval, and is refused.
"""

import math

import numpy as np

from ...errors import MinidecodeError


class Uniform:
    """A number of which only `low <= u < high` is known; comparisons ask `chance.accept`."""

    __array_ufunc__ = None  # NumPy leaves operators with arrays to the methods below

    def __init__(self, chance, low=0.0, high=1.0):
        self.chance, self.low, self.high = chance, low, high

    def below(self, x):
        """Whether u < x."""
        x = float(x)
        if math.isnan(x):
            return False
        share = (x - self.low) / (self.high - self.low)
        if self.chance.accept(min(1.0, max(0.0, share))):
            self.high = min(self.high, x)
            return True
        self.low = max(self.low, x)
        return False

    def above(self, x):
        """Whether u > x, which no number is of NaN."""
        return not math.isnan(float(x)) and not self.below(x)

    def __lt__(self, x):
        return _each(self.below, x, "<")

    def __le__(self, x):
        return _each(self.below, x, "<=")

    def __gt__(self, x):
        return _each(self.above, x, ">")

    def __ge__(self, x):
        return _each(self.above, x, ">=")

    def __array_function__(self, function, types, args, kwargs):
        """np.searchsorted(cumulative, u) compares; every other function of NumPy is refused."""
        if function is not np.searchsorted or args[1] is not self:
            raise refusal(f"numpy.{function.__name__}")
        return _search(*args, **kwargs)

    def __repr__(self):
        return f"Uniform(low={self.low}, high={self.high})"

    __hash__ = None  # type: ignore[assignment]  # Python's own way to say: not hashable


def _each(decide, x, operator):
    """The answer for one number, or for each of an array or a tensor, in order."""
    if isinstance(x, Uniform):
        raise refusal(f"{operator} between two of them")
    if getattr(x, "ndim", 0) == 0:
        return decide(x)
    numbers = np.asarray(x.detach() if hasattr(x, "detach") else x)
    flags = np.array([decide(each) for each in numbers.ravel()], bool).reshape(numbers.shape)
    return x.new_tensor(flags.tolist()).bool() if hasattr(x, "new_tensor") else flags


def _search(steps, u, side="left", sorter=None):
    """The number of steps below u. `side` tells apart what has probability 0."""
    steps = np.asarray(steps) if sorter is None else np.asarray(steps)[sorter]
    for index, step in enumerate(steps.tolist()):
        if u.below(step):
            return index
    return len(steps)


def refusal(what):
    """The error for a use of uniform numbers that no interval can answer."""
    return MinidecodeError(
        f"{what}: a uniform random number was used for more than a comparison with a number, "
        "which cannot be enumerated"
    )


def refuse_operators(kind):
    """Give a class all operators but comparisons and indexing, each to refuse."""
    arithmetic = "add sub mul truediv floordiv mod divmod pow and or xor lshift rshift matmul"
    names = arithmetic.split() + ["r" + name for name in arithmetic.split()]
    names += ["eq", "ne", "bool", "int", "float", "complex", "index", "format"]
    names += ["round", "trunc", "floor", "ceil", "neg", "pos", "abs", "invert"]
    for name in names:
        setattr(kind, f"__{name}__", _refused(name))


def _refused(name):
    def method(self, *args, **kwargs):
        raise refusal(name)

    return method


refuse_operators(Uniform)
