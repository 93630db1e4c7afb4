"""The exact output law of a decoder: every path of its random choices, with its probability.

A decoder asks a chance object (decoding/chance.py) for each random choice. `Enumerator` answers,
instead of drawing, with the first option, and when the run is over the program starts again with
another option, until all paths have been taken. The decoder itself runs unchanged: its loop,
indices, rollbacks and limits are under test, not a copy of its algebra. On models of a few tokens
(`TableModel`) the result is exact to rounding.

    law(program)               {outcome: probability} of `program(chance) -> outcome`
    compare(program, wanted)   how far the laws of two programs are apart, as a `Report`
    check(decoder, target)     `compare` with plain sampling from the target

A decoder that takes its randomness from torch, NumPy or `random` goes through `adapters.choices`.
"""

import heapq
import itertools
import math
import pickle
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field, fields

import numpy as np

from ..decoding.chance import Dice, possible
from ..decoding.sampling import sample
from ..decoding.settings import CUT, FILTER
from ..decoding.warp import Warp
from ..errors import InputError, MinidecodeError
from ..lazy import lazy

FLOAT64 = np.dtype(np.float64)
MAX_PATHS = 1_000_000
TOLERANCE = 1e-12  # of float64; laws out of float32 code agree to about 1e-7
START = (1.0, ())  # where all paths begin: (probability, choices)
REMEMBERED = 100_000  # entries of a cache, after which it starts anew

EARLY = 1_000  # paths before the number of all is estimated, and between two looks at the bar
PROBES = 64  # random paths of that estimate
REPEATS = 8  # runs that must agree of a program that asks its chance for nothing
TASKS, SHARE = 64, 2_000  # of an executor: tasks at a time, and paths of one


# ---------------------------------------------------------------------------------- one path


class Enumerator:
    """A chance that follows one path: first the choices it is given, then each first option."""

    coupled = False

    def __init__(self, start=START, known=None):
        self.expected, self.path = start  # path: (number of options, index) of each choice
        self.steps = []
        self.probability = 1.0
        self.untaken = []  # (probability before, probabilities of the options), past the path
        self.asked = False
        self.known = {} if known is None else known

    def choose(self, probs, position):
        """The token that the path takes, of those with a probability above 0."""
        self.asked = True
        probs = np.asarray(probs)
        if probs.dtype is not FLOAT64 or probs.ndim != 1:
            probs = probs.astype(np.float64)
        key = probs.tobytes()
        tokens, weights = self.known.get(key) or self._learn(key, probs)
        return tokens[self._branch(weights)] if len(tokens) > 1 else tokens[0]

    def accept(self, probability):
        """True and False are two options, unless one of them is certain."""
        self.asked = True
        probability = float(probability)
        if 0 < probability < 1:
            return self._branch((probability, 1 - probability)) == 0
        if math.isnan(probability):
            raise InputError("probability to accept with: got nan")
        return probability >= 1

    def _learn(self, key, probs):
        """(tokens, probabilities) of a distribution; most of them come many thousand times."""
        if probs.ndim != 1:
            raise InputError(f"probabilities to draw from: got shape {probs.shape}, [V] was wanted")
        tokens, weights = possible(probs)
        total = math.fsum(weights)
        if len(self.known) >= REMEMBERED:
            self.known.clear()
        self.known[key] = tokens.tolist(), [w / total for w in weights.tolist()]
        return self.known[key]

    def _branch(self, probabilities):
        """The index of the option that the path takes."""
        options, depth = len(probabilities), len(self.steps)
        given = len(self.path) - depth  # how many choices of the path are still to come
        if given > 0:
            wanted, index = self.path[depth]
            if wanted != options:
                raise _another_path()
        else:
            index = self._new(options)
            self.untaken.append((self.probability, probabilities))
        self.steps.append((options, index))
        self.probability *= probabilities[index]
        if given == 1 and abs(self.probability - self.expected) > 1e-6 * self.expected:
            raise _another_path()
        return index

    def _new(self, options):
        """The option to begin with where no path was given."""
        return 0

    def forks(self):
        """Where the run could have gone instead: (probability, choices) of each such beginning."""
        if len(self.steps) < len(self.path):
            raise _another_path()
        for depth, (before, probabilities) in enumerate(self.untaken, len(self.path)):
            for index in range(1, len(probabilities)):
                path = (*self.steps[:depth], (len(probabilities), index))
                yield before * probabilities[index], path


class Probe(Enumerator):
    """Follows a random path, every option as likely as another."""

    def __init__(self, dice):
        super().__init__()
        self.dice = dice

    def _new(self, options):
        return self.dice.choose(np.full(options, 1 / options), 0)


def _another_path():
    return MinidecodeError(
        "the program took another path with the same choices: it keeps state, or draws from a "
        "randomness of its own"
    )


# --------------------------------------------------------------------------------- all paths


@dataclass
class Found:
    """What is known of a law so far: of each outcome, the probabilities of its paths."""

    parts: dict = field(default_factory=dict)
    paths: int = 0
    asked: bool = False  # whether the program ever asked its chance
    waiting: list = field(default_factory=lambda: [START])  # paths that have only begun
    estimate: int | None = None  # of all paths, when there are many

    @property
    def complete(self):
        return not self.waiting

    def law(self):
        """{outcome: probability}. `fsum` rounds once, so the order of the paths has no effect."""
        return {outcome: math.fsum(parts) for outcome, parts in self.parts.items()}

    def add(self, other):
        """Take over the paths of another part of the same tree."""
        for outcome, parts in other.parts.items():
            self.parts.setdefault(outcome, []).extend(parts)
        self.paths += other.paths
        self.asked |= other.asked
        self.waiting.extend(other.waiting)


def follow(program, waiting, budget, *, likeliest=False, known=None):
    """`Found` of up to `budget` of the paths that begin as those in `waiting`.

    likeliest: of the paths waiting take the likeliest first, so that most is known when the budget
    ends; else the newest, so that few wait.
    """
    found, known = Found(waiting=[]), {} if known is None else known
    waiting = [(-probability, path) for probability, path in waiting]
    if likeliest:
        heapq.heapify(waiting)
    while waiting and found.paths < budget:
        expected, path = heapq.heappop(waiting) if likeliest else waiting.pop()
        chance = Enumerator((-expected, path), known)
        outcome = _outcome(program(chance))
        found.parts.setdefault(outcome, []).append(chance.probability)
        found.paths += 1
        found.asked |= chance.asked
        for probability, fork in chance.forks():
            if likeliest:
                heapq.heappush(waiting, (-probability, fork))
            else:
                waiting.append((-probability, fork))
    found.waiting = [(-expected, path) for expected, path in waiting]
    return found


def estimate_paths(program, probes=PROBES):
    """About how many paths a program has: the mean, over random paths, of the options' product.

    Source: Knuth 1975, "Estimating the efficiency of backtrack programs". Unbiased, not precise.
    """
    dice, total = Dice(0), 0
    for _ in range(probes):
        chance = Probe(dice)
        program(chance)
        total += math.prod(options for options, _ in chance.steps)
    return round(total / probes)


def enumerate_paths(program, max_paths=MAX_PATHS, *, progress=None, executor=None):
    """`Found` of a program: all its paths, or max_paths of them.

    progress: tqdm, or what is called as tqdm is. executor: a `concurrent.futures.Executor` that
    takes subtrees of the paths; for one of processes the program must be picklable.
    """
    if max_paths < 1:
        raise InputError(f"max_paths: got {max_paths!r}, at least 1 was wanted")
    found, known = Found(), {}
    _go_on(found, program, min(EARLY, max_paths) if executor is None else 1, known=known)
    if found.complete:
        return found
    found.estimate = max(found.paths + len(found.waiting), estimate_paths(program))
    likeliest = found.estimate > max_paths
    bar = progress and progress(total=min(found.estimate, max_paths), desc="paths", unit=" paths")
    while found.waiting and found.paths < max_paths:
        before, budget = found.paths, max_paths - found.paths
        if executor is not None:
            _share_out(found, program, budget, likeliest, executor)
        else:
            _go_on(found, program, min(budget, EARLY), likeliest=likeliest, known=known)
        if bar:
            bar.update(found.paths - before)
    if bar:
        bar.close()
    return found


def _go_on(found, program, budget, **options):
    waiting, found.waiting = found.waiting, []
    found.add(follow(program, waiting, budget, **options))


def _share_out(found, program, budget, likeliest, executor):
    """One round of tasks: each follows the paths behind a few that wait, up to its share."""
    found.waiting.sort(reverse=True)  # the likeliest first: most paths lie behind them
    count = min(TASKS, budget, len(found.waiting))
    tasks = [found.waiting[i::count] for i in range(count)]
    found.waiting = []
    share = max(1, min(SHARE, budget // count))
    running = [executor.submit(follow, program, task, share, likeliest=likeliest) for task in tasks]
    try:
        for future in running:
            found.add(future.result())
    except (pickle.PicklingError, AttributeError, TypeError, futures.BrokenExecutor) as error:
        if "pickle" not in str(error) and not isinstance(error, pickle.PicklingError):
            raise
        raise InputError(
            f"program: it cannot be sent to another process ({error}); what it is made of must be "
            "defined at the top of a module"
        ) from error
    finally:
        for future in running:
            future.cancel()


def law(program, max_paths=MAX_PATHS, *, progress=None, executor=None):
    """{outcome: probability} of `program(chance) -> outcome`, which runs once per path.

    Outcomes must be hashable; lists, arrays and streams of `Step`s become tuples. progress and
    executor as in `enumerate_paths`. A program of our decoders is twice as fast with
    `warp=remembering(warp)`, which `check` gives to its own. Errors: `MinidecodeError` past
    max_paths, and for a program that does not repeat itself.
    """
    found = enumerate_paths(program, max_paths, progress=progress, executor=executor)
    if not found.asked and not _repeats(program, found):
        raise _another_path()
    if not found.complete:
        raise MinidecodeError(
            f"the program has more than {max_paths} paths, about {found.estimate}"
        )
    return found.law()


def _repeats(program, found):
    """Whether a program that asked its chance for nothing goes on giving the one outcome found."""
    return all(_outcome(program(Enumerator())) in found.parts for _ in range(REPEATS))


def _outcome(value):
    """What a program returned, as something hashable."""
    if type(value) is tuple and {*map(type, value)} <= {int}:
        return value
    if isinstance(value, Iterator):
        return tokens_of(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple([_outcome(x) for x in value])
    try:
        hash(value)
    except TypeError:
        raise InputError(
            f"outcome of the program: got {type(value).__name__}, something hashable was wanted"
        ) from None
    return value


def tokens_of(steps):
    """The ids in a stream of `Step`s or of ids, as a tuple."""
    tokens = []
    for step in steps:
        tokens.extend(step.tokens if hasattr(step, "tokens") else [step])
    return tuple(tokens)


# ---------------------------------------------------------------------------------- two laws


def total_variation(a, b):
    """Half the sum of |a - b| over all outcomes: 0 for equal laws, 1 for disjoint ones."""
    return math.fsum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b}) / 2


def least_variation(a, b):
    """The least total variation of two laws of which only parts may be known.

    What is known bounds each probability from below. So where a exceeds b it does so at least by
    what it exceeds b now, less all that b may still get; the same with a and b exchanged.
    """
    surplus = math.fsum(max(0.0, p - b.get(x, 0.0)) for x, p in a.items())
    return max(0.0, surplus - max(0.0, 1 - math.fsum(b.values())))


@dataclass(frozen=True)
class Report:
    """What `compare` found: the two laws, their distance and whether it is within the tolerance.

    Where `complete` is False, max_paths ended the search: the laws hold what was found, `distance`
    is the least that the rest allows, and `passed` is False.
    """

    passed: bool
    distance: float  # total variation, 0 to 1
    paths: int  # of the program under test
    law: dict = field(repr=False)
    wanted: dict = field(repr=False)
    tolerance: float = field(default=TOLERANCE, repr=False)
    complete: bool = True
    hints: tuple[str, ...] = ()

    def worst(self):
        """The outcome whose probability is furthest off: (outcome, got, wanted)."""
        return self.worst_outcomes(1)[0]

    def worst_outcomes(self, count=5):
        """The `count` outcomes furthest off, (outcome, got, wanted) each, the furthest first."""
        rows = [(x, self.law.get(x, 0.0), self.wanted.get(x, 0.0)) for x in self._outcomes()]
        return sorted(rows, key=lambda row: -abs(row[1] - row[2]))[:count]

    def parting(self):
        """The first position at which the laws part, counted from 0.

        Up to there the beginnings of the texts have equal laws. None where the laws agree, are
        not known whole, or are not of sequences.
        """
        if self.distance <= self.tolerance or not self.complete:
            return None
        if not all(isinstance(x, tuple) for x in self._outcomes()):
            return None
        for position in itertools.count():
            beginnings = [_beginnings(x, position + 1) for x in (self.law, self.wanted)]
            if total_variation(*beginnings) > self.tolerance:
                return position
            if position > max(map(len, self._outcomes())):
                return None  # only their sum over many outcomes exceeds the tolerance

    def _outcomes(self):
        return {**self.law, **self.wanted}

    def __str__(self):
        relation = "total variation" if self.complete else "total variation of at least"
        verdict = "exact" if self.passed else "NOT EXACT" if self.complete else "NOT DECIDED"
        if not self.complete and self.distance > self.tolerance:
            verdict = "NOT EXACT"
        lines = [f"{verdict}: {relation} {self.distance:.3g} after {self.paths:,} paths"]
        if self.parting() is not None:
            lines.append(f"the laws part at position {self.parting()} (the first is 0)")
        if self.distance > self.tolerance:
            rows = [("outcome", "got", "wanted")]
            rows += [(str(x), f"{p:.6f}", f"{q:.6f}") for x, p, q in self.worst_outcomes()]
            width = max(len(row[0]) for row in rows)
            lines += [f"  {x:<{width}}  {p:>8}  {q:>8}" for x, p, q in rows]
        return "\n".join([*lines, *(f"hint: {hint}" for hint in self.hints)])


def _beginnings(law, length):
    """The law of the first `length` elements of the outcomes."""
    parts = {}
    for outcome, probability in law.items():
        parts.setdefault(outcome[:length], []).append(probability)
    return {x: math.fsum(each) for x, each in parts.items()}


def compare(
    program, wanted, *, tolerance=TOLERANCE, max_paths=MAX_PATHS, progress=None, executor=None
):
    """`Report` of how the law of `program` differs from that of `wanted`.

    program, wanted: `chance -> outcome`; wanted may also be a law, {outcome: probability}.
    tolerance: of the total variation; 1e-12 for float64, 1e-6 for code that computes in float32.
    progress and executor as in `enumerate_paths`.
    """
    how = {"progress": progress, "executor": executor}
    got = enumerate_paths(program, max_paths, **how)
    if callable(wanted):
        want = enumerate_paths(wanted, max_paths, **how)
    else:
        want = Found({_outcome(x): [p] for x, p in wanted.items()}, waiting=[])
    laws = got.law(), want.law()
    complete = got.complete and want.complete
    distance = total_variation(*laws) if complete else least_variation(*laws)
    passed = complete and distance <= tolerance
    hints = () if passed else tuple(_hints(got, want, *laws, max_paths))
    return Report(passed, distance, got.paths, *laws, tolerance, complete, hints)


def _hints(got, want, law, wanted, max_paths):
    """What a report that did not pass may come of, as far as the laws show it."""
    for found, name in ((got, "the program"), (want, "the program it is compared with")):
        if not found.complete:
            mass = math.fsum(itertools.chain.from_iterable(found.parts.values()))
            yield (
                f"{name} has about {found.estimate:,} paths, and max_paths is {max_paths:,} (they "
                f"hold {mass:.0%} of the probability): lower max_new_tokens first, then the number "
                "of drafted tokens or the vocabulary, or raise max_paths"
            )
    if not got.asked:
        yield (
            "the program took no choice from chance: it is greedy, or draws from a randomness of "
            "its own, such as a generator that was made before"
        )
    if all(isinstance(x, tuple) for x in (*law, *wanted)):
        got_tokens, asked = (max(map(len, each)) for each in (law, wanted))
        extra = abs(got_tokens - asked)
        if extra:
            amount = "one token" if extra == 1 else f"{extra} tokens"
            relation = "more" if got_tokens > asked else "fewer"
            yield f"the program gave {amount} {relation} than asked ({got_tokens}, not {asked})"


def check(
    decoder,
    target,
    prompt=(0,),
    *,
    warp=None,
    tolerance=TOLERANCE,
    max_paths=MAX_PATHS,
    progress=None,
    executor=None,
    **limits,
):
    """Compare a decoder's output law with plain sampling from `target`, as a `Report`.

    decoder(target, prompt, chance=..., warp=..., **limits) yields `Step`s or token ids, and takes
    every random choice from `chance` (`choose` and `accept`). limits: max_new_tokens, eos.
    progress and executor as in `enumerate_paths`.
    """
    warp = remembering(warp)
    programs = (Decoding(each, target, tuple(prompt), warp, limits) for each in (decoder, sample))
    how = {"tolerance": tolerance, "progress": progress, "executor": executor}
    return compare(*programs, max_paths=max_paths, **how)


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


def remembering(warp):
    """A warp that remembers, for one that is a `Warp` or None; any other stays as it is.

    So does one with processors of the user's own, which may keep state: they run each time.
    """
    if warp is None:
        return RememberingWarp()
    if type(warp) is not Warp or warp.processors:
        return warp
    return RememberingWarp(**{each.name: getattr(warp, each.name) for each in fields(Warp)})
