"""Speculative against plain decoding: what each way gains here, and what theory says it should.

Whole texts are written by the decoders as users run them. The ways take turns, so that all see the
same weather; compare them as ratios within one run.
"""

import functools
import itertools
import statistics
import time
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..decoding.chance import Dice
from ..decoding.sampling import sample
from ..decoding.step import Step
from ..decoding.warp import Warp
from ..errors import InputError, MinidecodeError
from ..speculation.drafts import PromptLookupDraft
from ..speculation.loop import speculative
from ..speculation.rounds import Round, speculation_stats
from ..speculation.theory import predicted_speedup
from .prompts import PROMPTS as PROMPTS

LENGTHS = (1, 2, 4, 6, 8)
LOOKUP = 4  # tokens that prompt lookup drafts


@dataclass(frozen=True)
class Text:
    """One text as it was written: its steps, and the seconds that each took."""

    steps: list[Step]
    seconds: list[float]

    @property
    def tokens(self):
        return [token for step in self.steps for token in step.tokens]

    @property
    def rate(self):
        """Tokens a second after the first step, which read the prompt; None without such steps."""
        if len(self.steps) < 2:
            return None
        return (len(self.tokens) - len(self.steps[0].tokens)) / sum(self.seconds[1:])


def write(decoder):
    """Run a decoder to its end: a `Text`."""
    steps, times = [], [time.perf_counter()]
    for step in decoder:
        steps.append(step)
        times.append(time.perf_counter())
    return Text(steps, np.diff(times).tolist())


def measure_speculation(
    target,
    draft,
    prompts,
    *,
    lengths=LENGTHS,
    temperatures=(0.0, 1.0),
    max_new_tokens=64,
    peer=None,
    progress=None,
):
    """Write a text for each of `prompts` (lists of ids) in every way -> a dict, ready for JSON.

    The ways are plain, each constant k of `lengths`, auto, and prompt lookup; with a peer
    (`peers.Assisted`), its plain and assisted ones, greedy only. They take turns prompt by prompt.
    Texts run to max_new_tokens, past end tokens. progress: tqdm or a class like it.
    Errors: `InputError` for settings; `MinidecodeError` if a greedy text of speculation is not that
    of plain decoding. (NumPy's kernels promise that to rounding only: there it is counted.)
    """
    if not prompts or not lengths or min(lengths) < 1:
        raise InputError(f"k: got {list(lengths)} for {len(prompts)} prompts, 1 or more was wanted")
    warps = {temperature: Warp(temperature=temperature) for temperature in temperatures}
    ours = _ways(target, draft, lengths, max_new_tokens)
    theirs = peer.ways(max_new_tokens) if peer is not None else {}
    for way in ours.values():  # the first time of anything is slow
        way(prompts[0][:1], Warp(), 0, max_new_tokens=2)
    jobs = [
        (temperature, number, name)
        for temperature, number in itertools.product(warps, range(len(prompts)))
        for name in (*ours, *(theirs if temperature == 0 else ()))
    ]
    texts = {temperature: {} for temperature in temperatures}
    for temperature, number, name in progress(jobs, desc="texts") if progress else jobs:
        way = ours.get(name) or theirs[name]
        text = way(prompts[number], warps[temperature], number)
        texts[temperature].setdefault(name, []).append(text)
        if temperature == 0 and name in ours and kernels.backend == "native":
            _check_same(texts[0]["plain"][-1], text, name, prompts[number])
    return {
        "threads": kernels.num_threads(),
        "backend": kernels.backend,
        "prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "results": [
            summary(temperature, written, lengths) for temperature, written in texts.items()
        ],
    }


def _ways(target, draft, lengths, max_new_tokens):
    """name -> function (prompt, warp, seed) that writes a text."""

    def way(prompt, warp, seed, draft=None, max_new_tokens=max_new_tokens, **options):
        options.update(warp=warp, chance=Dice(seed), max_new_tokens=max_new_tokens, eos=None)
        if draft is None:
            return write(sample(target, prompt, **options))
        return write(speculative(target, draft, prompt, **options))

    return {
        "plain": way,
        **{f"k {k}": functools.partial(way, draft=draft, num_draft_tokens=k) for k in lengths},
        "auto": functools.partial(way, draft=draft, schedule="auto"),
        "prompt lookup": functools.partial(way, draft=PromptLookupDraft(), num_draft_tokens=LOOKUP),
    }


def _check_same(plain, text, name, prompt):
    for i, (wanted, got) in enumerate(itertools.zip_longest(plain.tokens, text.tokens)):
        if got != wanted:
            raise MinidecodeError(
                f"{name}: got token {got} at place {i} after the prompt {prompt}, "
                f"{wanted} as in plain greedy decoding was wanted"
            )


def summary(temperature, texts, lengths):
    """The figures of one temperature. texts: way -> its `Text`s, one for each prompt, in order."""
    constant = [text for k in lengths for text in texts[f"k {k}"]]
    rounds = [step for text in constant for step in text.steps]
    acceptance = speculation_stats(rounds, 0)["acceptance_by_position"]
    draft_seconds, pass_seconds = costs(texts["plain"], constant)
    ways = {}
    for name, written in texts.items():
        engine = name.rpartition(", ")[0]  # a peer's ways are compared with its own plain one
        ways[name] = figures(written, texts[f"{engine}, plain" if engine else "plain"])
        if temperature == 0:
            same = [text.tokens == plain.tokens for text, plain in zip(written, texts["plain"])]
            ways[name]["same text as plain"] = statistics.mean(same)
    for k in lengths:
        predicted = predicted_speedup(acceptance, k, draft_seconds, pass_seconds)
        ways[f"k {k}"]["predicted speed-up"] = predicted
    return {
        "temperature": temperature,
        "acceptance by position": acceptance,
        "draft step, ms": draft_seconds and 1e3 * draft_seconds,
        "pass over n, ms": {
            n: 1e3 * pass_seconds[n] for n in (1, *(k + 1 for k in lengths)) if n in pass_seconds
        },
        "ways": ways,
    }


def costs(plain, speculated):
    """(seconds of a draft step, tokens in a pass of the target -> its seconds), medians.

    A pass over 1 is a step of plain decoding, the drawing of its token included. The first step of
    a text, which reads the prompt, is left out, and the last, which may hide what it drafted.
    """
    drafts, passes = [], {1: [seconds for text in plain for seconds in text.seconds[1:]]}
    for step in (step for text in speculated for step in text.steps[1:-1]):
        passes.setdefault(len(step.drafted) + 1, []).append(step.target_seconds)
        if step.drafted:
            drafts.append(step.draft_seconds / len(step.drafted))
    medians = {n: statistics.median(seconds) for n, seconds in passes.items() if seconds}
    return _median(drafts), medians


def figures(texts, plain):
    """What is told of one way, against the plain texts of the same engine; None for no number."""
    seconds = sum(sum(text.seconds) for text in texts)
    steps = [step for text in texts for step in text.steps]
    pairs = [(text.rate, other.rate) for text, other in zip(texts, plain)]
    found = {
        "tokens/s": _median([rate for rate, _ in pairs if rate]),
        "speed-up": _median([rate / other for rate, other in pairs if rate and other]),
        "seconds a text": seconds / len(texts),
        "tokens/pass": sum(len(step.tokens) for step in steps) / len(steps),
    }
    if all(isinstance(step, Round) for step in steps):
        stats = speculation_stats(steps, seconds)
        found["acceptance"] = stats["acceptance_rate"]
        found["drafted/pass"] = stats["drafted"] / stats["rounds"]
        found["time drafting"] = stats["draft_seconds"] / seconds
        found["time outside both models"] = stats["rest_seconds"] / seconds
    return found


def _median(values):
    return statistics.median(values) if values else None
