"""The exact output law of a decoder: every path of its random choices, with its probability.

A decoder asks a chance object (decoding/chance.py) for each random choice. `Enumerator` (paths.py)
takes its place and has the decoder run once for every way in which the choices can fall. The
decoder itself runs unchanged: its loop, indices, rollbacks and limits are under test, not a copy of
its algebra. On models of a few tokens (`TableModel`) the result is exact to rounding.

    law(program)               {outcome: probability} of `program(chance) -> outcome`
    compare(program, wanted)   how far the laws of two programs are apart, as a `Report`
    check(decoder, target)     `compare` with plain sampling from the target

A decoder that takes its randomness from torch, NumPy or `random` goes through `adapters.choices`.
"""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from typing import Any

from ..decoding.contracts import Chance, Model
from ..decoding.sampling import sample
from ..decoding.settings import CUT, FILTER
from ..decoding.warp import Warp
from ..errors import MinidecodeError
from ..lazy import lazy
from .paths import MAX_PATHS, REMEMBERED, Found, check_repeats, enumerate_paths, outcome_of
from .paths import Enumerator as Enumerator
from .paths import tokens_of as tokens_of
from .report import TOLERANCE, Report, hints_of, least_variation, total_variation

Program = Callable[[Chance], Any]  # chance -> outcome
Law = dict[Hashable, float]  # {outcome: probability}


def law(
    program: Program,
    max_paths: int = MAX_PATHS,
    *,
    progress: Callable | None = None,
    executor: Executor | None = None,
) -> Law:
    """{outcome: probability} of `program(chance) -> outcome`, which runs once per path.

    Outcomes must be hashable; lists, arrays and streams of `Step`s become tuples. progress and
    executor as in `enumerate_paths`. A program of our decoders is twice as fast with
    `warp=remembering(warp)`, which `check` gives to its own. Errors: `MinidecodeError` past
    max_paths, and for a program that does not repeat itself.
    """
    found = enumerate_paths(program, max_paths, progress=progress, executor=executor)
    check_repeats(program, found)
    if not found.complete:
        raise MinidecodeError(
            f"the program has more than {max_paths} paths, about {found.estimate}"
        )
    return found.law()


def compare(
    program: Program,
    wanted: Program | Law,
    *,
    tolerance: float = TOLERANCE,
    max_paths: int = MAX_PATHS,
    progress: Callable | None = None,
    executor: Executor | None = None,
) -> Report:
    """`Report` of how the law of `program` differs from that of `wanted`.

    program, wanted: `chance -> outcome`; wanted may also be a law, {outcome: probability}.
    tolerance: of the total variation; 1e-12 for float64, 1e-6 for code that computes in float32.
    progress and executor as in `enumerate_paths`.
    """
    got = enumerate_paths(program, max_paths, progress=progress, executor=executor)
    if callable(wanted):
        want = enumerate_paths(wanted, max_paths, progress=progress, executor=executor)
    else:
        want = Found({outcome_of(x): [p] for x, p in wanted.items()}, waiting=[])
    laws = got.law(), want.law()
    complete = got.complete and want.complete
    distance = total_variation(*laws) if complete else least_variation(*laws)
    passed = complete and distance <= tolerance
    hints = () if passed else tuple(hints_of(got, want, *laws, max_paths))
    return Report(passed, distance, got.paths, *laws, tolerance, complete, hints)


def check(
    decoder: Callable,
    target: Model,
    prompt: Sequence[int] = (0,),
    *,
    warp: Warp | None = None,
    tolerance: float = TOLERANCE,
    max_paths: int = MAX_PATHS,
    progress: Callable | None = None,
    executor: Executor | None = None,
    **limits: Any,
) -> Report:
    """Compare a decoder's output law with plain sampling from `target`, as a `Report`.

    decoder(target, prompt, chance=..., warp=..., **limits) yields `Step`s or token ids, and takes
    every random choice from `chance` (`choose` and `accept`). limits: max_new_tokens, eos.
    progress and executor as in `enumerate_paths`.
    """
    warp = remembering(warp)
    program, plain = (
        Decoding(each, target, tuple(prompt), warp, limits) for each in (decoder, sample)
    )
    return compare(
        program,
        plain,
        tolerance=tolerance,
        max_paths=max_paths,
        progress=progress,
        executor=executor,
    )


@dataclass(frozen=True)
class Decoding:
    """One decoder on one target as `chance -> tokens`: an object, for other processes."""

    decoder: object
    target: object
    prompt: tuple
    warp: object
    limits: dict

    def __call__(self, chance):
        steps = self.decoder(
            self.target, list(self.prompt), chance=chance, warp=self.warp, **self.limits
        )
        return tokens_of(steps)


class RememberingWarp(Warp):
    """A `Warp` that computes each distribution once; an enumeration asks for it thousands of times.

    Each caller gets an array of its own, so one that writes into it harms nobody else.
    """

    def __call__(self, logits, history):
        key = logits.tobytes(), logits.dtype.char, None if self._by_logits else tuple(history)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[key] = super().__call__(logits, history)
        return known.copy()

    @lazy
    def _known(self):
        return {}

    @lazy
    def _by_logits(self):
        """Whether the history has no effect: no penalties and no bans."""
        return self == self.only(FILTER, CUT)


def remembering(warp: Any) -> Any:
    """A warp that remembers, for one that is a `Warp` or None; any other stays as it is.

    So does one with processors of the user's own, which may keep state: they run each time.
    """
    if warp is None:
        return RememberingWarp()
    if type(warp) is not Warp or warp.processors:
        return warp
    return RememberingWarp(**{each.name: getattr(warp, each.name) for each in fields(Warp)})
