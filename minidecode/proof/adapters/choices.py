"""`choices(chance)`: while it is open, the random calls of other libraries ask `chance`.

What is known of a library stands in its own file: which calls draw from a distribution
(`chance.choose`), which give uniform numbers (`uniform.py`), and which are refused, because they
reseed or because their result cannot be enumerated. A call that went past all of these, such as
that of a function imported by name before, is noticed when the block ends: the library's own
generator has moved.
"""

import contextlib
import sys

from ...errors import MinidecodeError
from . import numpy, random, torch

INHERITED = object()  # stands for an attribute that a class has of its base
LIBRARIES = {"random": random, "numpy": numpy, "torch": torch}


@contextlib.contextmanager
def choices(chance):
    """Let every random choice made through torch, NumPy and `random` be one of `chance`.

    Yields a stand-in for a `numpy.random.Generator`, for a decoder that takes one as argument. One
    block at a time per process: the libraries themselves are changed while it is open. Libraries
    that are not imported yet are left alone. A generator object made before the block cannot be
    reached. Errors: `MinidecodeError`, naming the call, for what cannot be enumerated.
    """
    open_ones = {name: each for name, each in LIBRARIES.items() if name in sys.modules}
    before = {name: each.state() for name, each in open_ones.items()}
    seeds = Seeds()
    places = [place for each in open_ones.values() for place in each.places(chance, seeds)]
    old = [(owner, name, vars(owner).get(name, INHERITED)) for owner, name, _ in places]
    try:
        for owner, name, replacement in places:
            setattr(owner, name, replacement)
        yield numpy.generator()
    finally:
        for owner, name, value in old:
            delattr(owner, name) if value is INHERITED else setattr(owner, name, value)
    for name, each in LIBRARIES.items():
        _check_unmoved(name, each, before)


def _check_unmoved(name, library, before):
    if name in sys.modules and name not in before:
        raise MinidecodeError(
            f"{name}: imported while choices() was open, its random calls went past it; import it "
            "before"
        )
    if name in before and not library.same(library.state(), before[name]):
        raise MinidecodeError(
            f"{name}: its generator moved while choices() was open; a random call was made that is "
            f"not known here, or one through a function imported by name (from {name} import ...)"
        )


class Seeds:
    """The seeds that generators were made with: one that comes twice gives the same numbers twice,
    which independent choices are not."""

    def __init__(self):
        self.used = set()

    def take(self, call, seed):
        key = (call, repr(seed))
        if seed is not None and key in self.used:
            raise MinidecodeError(
                f"{call}: made twice with the seed {seed!r}, so that the same numbers come again; "
                "that cannot be enumerated"
            )
        self.used.add(key)
