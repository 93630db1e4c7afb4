"""What a setting is: a row of the one table, which the fields of `Warp` are.

The command line, `compare`, the trace, its page and the pictures read these rows and know no
setting by its name. So a filter is added with a function in filters.py and a field of `Warp`.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..checks import real, whole

PENALTY, BAN, CUT, FILTER = STAGES = ("penalty", "ban", "cut", "filter")


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`, or without one of the ends."""

    low: float
    high: float = math.inf
    without_low: bool = False
    without_high: bool = False
    metavar = "FLOAT"
    parse = float  # of a command line's text; ValueError where it is none

    def __contains__(self, x):
        above = x > self.low if self.without_low else x >= self.low
        return above and (
            x < self.high if self.without_high or self.high == math.inf else x <= self.high
        )

    def __str__(self):
        least = "above" if self.without_low else "of at least"
        if self.high == math.inf:
            return f"a finite number {least} {self.low:g}"
        most = "below" if self.without_high else "at most"
        return f"a number {least} {self.low:g} and {most} {self.high:g}"

    def check(self, name, value):
        """`InputError` for a value that is none of these."""
        real(name, value, str(self), self.__contains__)


@dataclass(frozen=True)
class Whole:
    """A whole number of at least `low`."""

    low: int = 0
    metavar = "INT"
    parse = int

    def check(self, name, value):
        whole(name, value, self.low)


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    name     of the field, and with hyphens of the option
    off      the value that changes nothing, which is the default
    kind     the values it takes: how they are checked, parsed and named
    stage    penalty, ban, cut or filter: where it stands in the order, and what `apply` is given
    label    its name in words
    help     one line for the command line
    example  a value that shows what it does
    apply    its function in filters.py; None where the compiled filter serves alone
    """

    name: str
    off: Any
    kind: Any
    stage: str
    label: str
    help: str
    example: Any
    apply: Callable | None

    @property
    def option(self):
        """What the command line calls it."""
        return "--" + self.name.replace("_", "-")

    @property
    def shapes(self):
        """Whether it only shapes what is sampled; the others change greedy texts and beams too."""
        return self.stage in (CUT, FILTER)


def setting(off, kind, stage, label, help, *, example, apply=None, kw_only=False):
    """A field of `Warp` that carries its row of the table."""
    row = {"kind": kind, "stage": stage, "label": label, "help": help}
    row |= {"example": example, "apply": apply}
    return dataclasses.field(default=off, kw_only=kw_only, metadata=row)


def table(owner):
    """{name: `Setting`} of a dataclass, in the order of its fields."""
    marked = [f for f in dataclasses.fields(owner) if f.metadata]
    return {f.name: Setting(f.name, f.default, **f.metadata) for f in marked}


def in_order(rows):
    """The rows in the order in which they apply: by stage, within one in the order of fields."""
    return sorted(rows, key=lambda row: STAGES.index(row.stage))
