"""Speculative against plain decoding: what each way gains here, and what theory says it should.

Whole texts are written by the decoders as users run them. The ways take turns prompt by prompt,
since a machine's speed drifts; compare them as ratios within one run.
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
from ..speculation.loop import RULES, speculative
from ..speculation.rounds import Round, speculation_stats
from ..speculation.theory import predicted_speedup
from .prompts import PROMPTS as PROMPTS

LENGTHS = (1, 2, 4, 6, 8)
LOOKUP = 4  # tokens that prompt lookup drafts


@dataclass(frozen=True)
class Way:
    """How texts are written: the engine, plain decoding or what it drafts, and how many tokens.

    k is set where their number is constant, by our own engine's draft model or a peer's; rule is
    the rule of verification.
    """

    name: str  # plain, auto, prompt lookup, or k 4 and the like
    engine: str = "minidecode"
    k: int | None = None
    rule: str = "token"

    @classmethod
    def constant(cls, k: int, engine: str = "minidecode", rule: str = "token") -> "Way":
        """Always k drafted tokens."""
        return cls(f"k {k}{_suffix(rule)}", engine, k, rule)

    @classmethod
    def auto(cls, rule: str = "token") -> "Way":
        """As many as pay."""
        return cls(f"auto{_suffix(rule)}", rule=rule)

    @property
    def is_peer(self) -> bool:
        return self.engine != PLAIN.engine

    @property
    def label(self) -> str:
        return f"{self.engine}, {self.name}" if self.is_peer else self.name


def _suffix(rule):
    return "" if rule == "token" else f", {rule}"


PLAIN = Way("plain")


@dataclass(frozen=True)
class Sums:
    """What one text came to; None for what its writer did not tell.

    tokens          all that were written
    passes          of the target, the one that reads the prompt included where it yields a token
    seconds         in all
    rate            tokens a second after the prompt was read
    text            the ids of the tokens
    drafted, accepted, draft_seconds, target_seconds    summed over the rounds
    """

    tokens: int
    passes: int
    seconds: float
    rate: float | None
    text: list[int] | None = None
    drafted: int | None = None
    accepted: int | None = None
    draft_seconds: float | None = None
    target_seconds: float | None = None


@dataclass(frozen=True)
class Text:
    """One text as it was written: its steps, and the seconds that each took."""

    steps: list[Step]
    seconds: list[float]

    @property
    def tokens(self) -> list[int]:
        return [token for step in self.steps for token in step.tokens]

    @property
    def rate(self) -> float | None:
        """Tokens a second after the first step, which read the prompt; None without such steps."""
        if len(self.steps) < 2:
            return None
        return (len(self.tokens) - len(self.steps[0].tokens)) / sum(self.seconds[1:])

    def sums(self) -> Sums:
        seconds, tokens = sum(self.seconds), self.tokens
        rounds = {}
        if self.steps and all(isinstance(step, Round) for step in self.steps):
            names = ("drafted", "accepted", "draft_seconds", "target_seconds")
            stats = speculation_stats(self.steps, seconds)
            rounds = {name: stats[name] for name in names}
        return Sums(len(tokens), len(self.steps), seconds, self.rate, tokens, **rounds)


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
    rules=("token",),
    max_new_tokens=64,
    peers=(),
    progress=None,
):
    """Write a text for each of `prompts` (lists of ids) in every way -> a dict, ready for JSON.

    The ways are plain, each constant k of `lengths` and auto with each of the rules of
    verification (token, block), and prompt lookup; and of each of the
    peers (`peers.Assisted`, `peers.LlamaSpeculative`) its plain and assisted ones, greedy only.
    Texts run to max_new_tokens, past end tokens. progress: tqdm or a class like it.
    Errors: `InputError` for settings; `MinidecodeError` if a greedy text of speculation is not that
    of plain decoding. (NumPy's kernels promise that to rounding only: there it is counted.)
    """
    if not prompts or not lengths or min(lengths) < 1:
        raise InputError(f"k: got {list(lengths)} for {len(prompts)} prompts, 1 or more was wanted")
    if not rules or not set(rules) <= RULES.keys():
        raise InputError(f"verify: got {list(rules)}, some of {', '.join(RULES)} were wanted")
    warps = {temperature: Warp(temperature=temperature) for temperature in temperatures}
    ours = _ways(target, draft, lengths, rules, max_new_tokens)
    theirs = {}
    for peer in peers:
        theirs |= peer.ways(max_new_tokens)
    for write_text in ours.values():  # the first time of anything is slow
        write_text(prompts[0][:1], Warp(), 0, max_new_tokens=2)
    jobs = [
        (temperature, number, way)
        for temperature, number in itertools.product(warps, range(len(prompts)))
        for way in (*ours, *(theirs if temperature == 0 else ()))
    ]
    texts = {temperature: {} for temperature in temperatures}
    for temperature, number, way in progress(jobs, desc="texts") if progress else jobs:
        write_text = theirs[way] if way.is_peer else ours[way]
        text = write_text(prompts[number], warps[temperature], number)
        texts[temperature].setdefault(way, []).append(text)
        if temperature == 0 and not way.is_peer and kernels.backend == "native":
            _check_same(texts[0][PLAIN][-1], text, way.name, prompts[number])
    return {
        "threads": kernels.num_threads(),
        "backend": kernels.backend,
        "prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "results": [
            summary(temperature, written, lengths, rules) for temperature, written in texts.items()
        ],
    }


def _ways(target, draft, lengths, rules, max_new_tokens):
    """`Way` -> function (prompt, warp, seed) that writes a text."""

    def write_text(prompt, warp, seed, draft=None, max_new_tokens=max_new_tokens, **options):
        options.update(warp=warp, chance=Dice(seed), max_new_tokens=max_new_tokens, eos=None)
        if draft is None:
            return write(sample(target, prompt, **options))
        return write(speculative(target, draft, prompt, **options))

    with_draft = functools.partial(write_text, draft=draft)
    lookup = functools.partial(write_text, draft=PromptLookupDraft(), num_draft_tokens=LOOKUP)
    ways = {PLAIN: write_text}
    for rule in rules:
        for k in lengths:
            way = functools.partial(with_draft, num_draft_tokens=k, verify=rule)
            ways[Way.constant(k, rule=rule)] = way
        ways[Way.auto(rule)] = functools.partial(with_draft, schedule="auto", verify=rule)
    return ways | {Way("prompt lookup"): lookup}


def _check_same(plain, text, name, prompt):
    for i, (wanted, got) in enumerate(itertools.zip_longest(plain.tokens, text.tokens)):
        if got != wanted:
            raise MinidecodeError(
                f"{name}: got token {got} at place {i} after the prompt {prompt}, "
                f"{wanted} as in plain greedy decoding was wanted"
            )


def summary(temperature, texts, lengths, rules=("token",)):
    """The figures of one temperature. texts: `Way` -> a text (`Text`, `Sums`) for each prompt."""
    constant = {
        rule: [text for k in lengths for text in texts[Way.constant(k, rule=rule)]]
        for rule in rules
    }
    acceptance = {}
    for rule, written in constant.items():
        rounds = [step for text in written for step in text.steps]
        acceptance[rule] = speculation_stats(rounds, 0)["acceptance_by_position"]
    draft_seconds, pass_seconds = costs(texts[PLAIN], itertools.chain(*constant.values()))
    sums = {
        way: [text.sums() if isinstance(text, Text) else text for text in written]
        for way, written in texts.items()
    }
    ways = {}
    for way, written in sums.items():
        plain = Way("plain", way.engine)  # a peer's ways are compared with its own plain one
        ways[way.label] = found = {"engine": way.engine, "k": way.k} | figures(written, sums[plain])
        if temperature == 0:
            found["same text as plain"] = _share_alike(written, sums[PLAIN])
        if way.k is not None and not way.is_peer:
            found["rule"] = way.rule
            found["predicted speed-up"] = predicted_speedup(
                acceptance[way.rule], way.k, draft_seconds, pass_seconds
            )
    return {
        "temperature": temperature,
        "acceptance by position": acceptance[rules[0]],
        "acceptance by position and rule": acceptance,
        "draft step, ms": draft_seconds and 1e3 * draft_seconds,
        "pass over n, ms": {
            n: 1e3 * pass_seconds[n] for n in (1, *(k + 1 for k in lengths)) if n in pass_seconds
        },
        "ways": ways,
    }


def _share_alike(written, plain):
    """The part of the texts that is our plain decoding's, word for word; None where untold."""
    if any(sums.text is None for sums in written):
        return None
    return statistics.mean(sums.text == other.text for sums, other in zip(written, plain))


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
    """What is told of one way (`Sums` of its texts), against the plain texts of the same engine.

    None for no number; figures of drafts only where something was drafted by rounds.
    """
    seconds, passes = total("seconds", texts), total("passes", texts)
    pairs = [(text.rate, other.rate) for text, other in zip(texts, plain)]
    rates = [rate for rate, _ in pairs if rate]
    found = {
        "tokens/s": _median(rates),
        "standard error, tokens/s": _standard_error(rates),
        "speed-up": _median([rate / other for rate, other in pairs if rate and other]),
        "seconds a text": seconds / len(texts),
        "standard error, seconds": _standard_error([text.seconds for text in texts]),
        "tokens/pass": total("tokens", texts) / passes,
    }
    drafted, accepted = total("drafted", texts), total("accepted", texts)
    if drafted is not None:
        found["acceptance"] = accepted / drafted if drafted else None
        found["drafted/pass"] = drafted / passes
    drafting, in_target = total("draft_seconds", texts), total("target_seconds", texts)
    if drafting is not None:
        found["time drafting"] = drafting / seconds
        found["time outside both models"] = (seconds - drafting - in_target) / seconds
    return found


def total(name, texts):
    """The sum of one field of the `Sums`; None where any of them has none."""
    values = [getattr(sums, name) for sums in texts]
    return None if None in values else sum(values)


def _standard_error(values):
    """Of their mean; None for fewer than two."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def _median(values):
    return statistics.median(values) if values else None
