"""What a setting is: a row of the one table, which the fields of `Warp` are.

The command line, `compare`, the trace, its page and the pictures read these rows and know no
setting by its name. So a filter is added with a function in filters.py and a field of `Warp`.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..checks import real, shown, whole
from ..errors import InputError

PENALTY, BAN, CUT, FILTER = STAGES = ("penalty", "ban", "cut", "filter")


class Kind:
    """What values a setting takes.

    metavar  what the command line writes for one
    parse    from its text to a value, ValueError where it is none; None: no command line has it
    several  the option may be repeated
    """

    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    several = False

    def check(self, name: str, value: Any) -> Any:
        """The value as it is kept; `InputError` for one that is none of these."""
        raise NotImplementedError

    def ids(self, value: Any) -> Iterable[int]:
        """The token ids in a value."""
        return ()

    def encode(self, value: Any, tokenizer: Any) -> Any:
        """The value with ids for the texts in it."""
        return value


@dataclass(frozen=True)
class Real(Kind):
    """A number from `low` to `high`, or without one of the ends."""

    low: float = -math.inf
    high: float = math.inf
    without_low: bool = False
    without_high: bool = False
    metavar = "FLOAT"
    parse = float

    def __contains__(self, x):
        above = x > self.low if self.without_low else x >= self.low
        below = x < self.high if self.without_high else x <= self.high
        return above and below and math.isfinite(x)

    def __str__(self):
        least = f"{'above' if self.without_low else 'of at least'} {self.low:g}"
        if self.low == -math.inf:
            return "a finite number"
        if self.high == math.inf:
            return f"a finite number {least}"
        return f"a number {least} and {'below' if self.without_high else 'at most'} {self.high:g}"

    def check(self, name, value):
        real(name, value, str(self), self.__contains__)
        return value


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number of at least `low`."""

    low: int = 0
    metavar = "INT"
    parse = int

    def check(self, name, value):
        whole(name, value, self.low)
        return value


class Ids(Kind):
    """Token ids, kept as a tuple."""

    metavar = "ID"
    parse = int
    several = True

    def check(self, name, value):
        ids = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        return tuple(sorted({whole(name, i, 0) for i in ids}))

    def ids(self, value):
        return value


def id_and_number(text):
    token, _, number = text.partition("=")
    return int(token), float(number)


id_and_number.__name__ = "ID=NUMBER"  # as argparse names it where it complains


class Biases(Kind):
    """{id: number}, kept as a tuple of pairs; a number may be -inf."""

    metavar = "ID=NUMBER"
    several = True

    def check(self, name, value):
        if not isinstance(value, Mapping | Iterable) or isinstance(value, str):
            raise InputError(f"{name}: got {shown(value)}, {{id: number}} was wanted")
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InputError(f"{name}: got {shown(pair)}, an id and a number were wanted")
        ids = [whole(name, i, 0) for i, _ in pairs]
        twice = [i for i in ids if ids.count(i) > 1]
        if twice:
            raise InputError(f"{name}: got id {twice[0]} twice, each once was wanted")
        wanted = "a number below infinity"
        numbers = [real(name, number, wanted, lambda x: x < math.inf) for _, number in pairs]
        return tuple(sorted(zip(ids, numbers)))

    def ids(self, value):
        return [i for i, _ in value]

    parse = staticmethod(id_and_number)


class Sequences(Kind):
    """Sequences of token ids, kept as a tuple of tuples; or, before `encode`, texts."""

    metavar = "TEXT"
    several = True
    parse = str

    def check(self, name, value):
        wanted = "sequences of token ids were wanted, or texts with a tokenizer"
        if not isinstance(value, Iterable) or isinstance(value, str):
            raise InputError(f"{name}: got {shown(value)}, {wanted}")
        return tuple(sorted({self._sequence(name, one, wanted) for one in value}))

    def _sequence(self, name, ids, wanted):
        if not isinstance(ids, Iterable) or isinstance(ids, str):
            raise InputError(f"{name}: got {shown(ids)}, {wanted}")
        found = tuple(whole(name, i, 0) for i in ids)
        if not found:
            raise InputError(f"{name}: got an empty sequence, at least one id was wanted")
        return found

    def ids(self, value):
        return [i for sequence in value for i in sequence]

    def encode(self, value, tokenizer):
        """Of each text the ids that it has at the start of a text and after a space."""
        if tokenizer is None:
            return value  # texts are refused when they are checked
        found = []
        for one in [value] if isinstance(value, str) else value:
            if isinstance(one, str) and one:
                word = one.lstrip(" ")
                found += [tokenizer.encode(text) for text in (word, f" {word}") if text]
            else:
                found.append(one)  # ids; an empty text is refused when it is checked
        return found


class Functions(Kind):
    """Functions (logits [V], history) -> logits [V], kept as a tuple."""

    def check(self, name, value):
        wanted = "functions (logits, history) -> logits were wanted"
        if not isinstance(value, Iterable) or isinstance(value, str):
            raise InputError(f"{name}: got {shown(value)}, {wanted}")
        found = tuple(value)
        for function in found:
            if not callable(function):
                raise InputError(f"{name}: got {shown(function)}, {wanted}")
        return found


class LengthAndIds(Kind):
    """(length, ids), or () for none."""

    def check(self, name, value):
        if value == ():
            return ()
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise InputError(f"{name}: got {shown(value)}, a length and end ids were wanted")
        return whole(name, value[0], 0), Ids().check(name, value[1])


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    name     of the field, and with hyphens of the option
    off      the value that changes nothing, which is the default
    kind     the values it takes: how they are checked, kept, parsed and named
    stage    penalty, ban, cut or filter: where it stands in the order, and what `apply` is given
    label    its name in words
    help     one line for the command line
    example  a value that shows what it does
    apply    its function in filters.py; None where the compiled filter serves alone
    public   whether a user sets it
    """

    name: str
    off: Any
    kind: Any
    stage: str
    label: str
    help: str
    example: Any
    apply: Callable | None
    public: bool

    @property
    def option(self):
        """What the command line calls it; None where it has no such option."""
        return None if self.kind.parse is None else "--" + self.name.replace("_", "-")

    @property
    def shapes(self):
        """Whether it only shapes what is sampled; the others change greedy texts and beams too."""
        return self.stage in (CUT, FILTER)

    def parse(self, text):
        """The value that a method of `compare` writes as `text`, several with + between them."""
        if not self.kind.several:
            return self.kind.parse(text)
        return tuple(self.kind.parse(part) for part in text.split("+"))


def encode_texts(rows, settings, tokenizer):
    """The settings {name: value} with ids for the texts in them (bad words)."""
    return {name: rows[name].kind.encode(value, tokenizer) for name, value in settings.items()}


def setting(off, kind, stage, label, help, *, example, apply=None, kw_only=True, public=True):
    """A field of `Warp` that carries its row of the table."""
    row = {"kind": kind, "stage": stage, "label": label, "help": help}
    row |= {"example": example, "apply": apply, "public": public}
    return dataclasses.field(default=off, kw_only=kw_only, metadata=row)


def table(owner):
    """{name: `Setting`} of a dataclass, in the order of its fields."""
    marked = [f for f in dataclasses.fields(owner) if f.metadata]
    return {f.name: Setting(f.name, f.default, **f.metadata) for f in marked}


def in_order(rows):
    """The rows in the order in which they apply: by stage, within one in the order of fields."""
    return sorted(rows, key=lambda row: STAGES.index(row.stage))
