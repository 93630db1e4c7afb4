"""The settings in which the real decoder must keep the target's distribution.

Every path of it is enumerated (exact.py) on small tables, for `minidecode verify`: rules of
verification, draft lengths and schedules, kinds of drafts, and settings of the distribution.
"""

import functools
import itertools

from ..decoding.warp import Warp
from ..errors import InputError
from ..models.table import TableModel
from ..speculation.drafts import ModelDraft, PromptLookupDraft
from ..speculation.loop import speculative
from . import exact, mistakes


def ticking_clock(seconds=(1.0, 3.0, 2.0)):
    """A clock that tells made-up but repeatable times, so that `auto` can be enumerated."""
    ticks = itertools.cycle(seconds)
    now = itertools.accumulate(ticks)
    return lambda: next(now)


def settings():
    """(name, target, draft factory, warp, options of `speculative`) of what the proof runs."""
    history, table = mistakes.TARGET, TableModel(mistakes.ROWS[:3], eos=2)
    warps = {
        "plain": Warp(),
        "T=0.5 top-k=2": Warp(temperature=0.5, top_k=2),
        "T=1.5 top-p=0.8": Warp(temperature=1.5, top_p=0.8),
        "penalty=2 ngram=2": Warp(repetition_penalty=2.0, no_repeat_ngram_size=2),
        "epsilon=0.25": Warp(epsilon=0.25),
        "greedy": Warp(temperature=0),
    }

    def model():
        return ModelDraft(mistakes.DRAFT)

    def unsure():
        return ModelDraft(mistakes.DRAFT, stop_below=0.4)

    for rule in ("token", "block"):
        for k, schedule in ((1, "constant"), (2, "constant"), (3, "heuristic"), (2, "auto")):
            options = {"num_draft_tokens": k, "schedule": schedule, "verify": rule}
            for name, warp in warps.items():
                yield f"{rule}, k={k} {schedule}, {name}", history, model, warp, options
        two, three = ({"num_draft_tokens": k, "verify": rule} for k in (2, 3))
        yield f"{rule}, k=2 constant, unsure draft", history, unsure, Warp(), two
        yield f"{rule}, k=2 constant, lookup draft", history, PromptLookupDraft, Warp(), two
        yield f"{rule}, k=3 constant, end token", table, model, Warp(), three


def report(name, max_new_tokens=4):
    """The `exact.Report` of one setting of the real decoder, by name: for other processes too."""
    for each, target, make_draft, warp, options in settings():
        if each == name:
            decoder = _decoder(make_draft, options)
            limits = {"warp": warp, "max_new_tokens": max_new_tokens}
            return exact.check(decoder, target, [0, 1, 0], **limits)
    raise InputError(f"setting: got {name!r}, one of those in suite.settings() was wanted")


def proof(max_new_tokens=4, *, progress=None, executor=None):
    """Yield (name, `exact.Report`) for each setting of the real decoder."""
    names = [name for name, *_ in settings()]
    one = functools.partial(report, max_new_tokens=max_new_tokens)
    return reports(one, names, progress=progress, executor=executor)


def reports(report, names, *, progress=None, executor=None):
    """Yield (name, report(name)) in order; an executor takes one name at a time."""
    found = executor.map(report, names) if executor else map(report, names)
    if progress:
        found = progress(found, total=len(names), desc="settings", unit=" settings")
    yield from zip(names, found, strict=True)


def _decoder(make_draft, options):
    """`speculative` with a new draft and a new clock for every path."""

    def decoder(target, prompt, **rest):
        clock = ticking_clock()
        return speculative(target, make_draft(), prompt, clock=clock, **options, **rest)

    return decoder
