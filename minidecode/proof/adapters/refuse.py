"""Random calls that an enumeration cannot follow."""

import functools

from ...errors import MinidecodeError


@functools.cache
def refuse(call):
    """A function in place of `call` that refuses, with its name."""

    def refused(*args, **kwargs):
        raise unknown(call)

    return refused


def unknown(call):
    """The error for a random call, or a way to call one, that cannot be enumerated."""
    return MinidecodeError(
        f"{call}: a reseed or a random call that cannot be enumerated; draws from a distribution "
        "and uniform numbers that are only compared can"
    )


def draw_one(chance, probs):
    """The index of one option, in proportion to `probs`."""
    return chance.choose(probs, None)


def draw_several(chance, probs, count, replace=True):
    """Indices of `count` options; without replacement each only once, as if drawn one by one."""
    probs, drawn = probs.copy(), []
    for _ in range(count):
        drawn.append(draw_one(chance, probs))
        if not replace:
            probs[drawn[-1]] = 0
    return drawn
