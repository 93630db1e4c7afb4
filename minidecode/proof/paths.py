"""Every path of a program's random choices, with its probability.

A program is `chance -> outcome`. `Enumerator` stands in for its chance: it answers, instead of
drawing, with the first option, and when the run is over the program starts again with another
option, until all paths have been taken.
"""

import heapq
import math
import pickle
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field

import numpy as np

from ..decoding.chance import Dice, possible
from ..errors import InputError, MinidecodeError

FLOAT64 = np.dtype(np.float64)
MAX_PATHS = 1_000_000
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
                raise another_path()
        else:
            index = self._new(options)
            self.untaken.append((self.probability, probabilities))
        self.steps.append((options, index))
        self.probability *= probabilities[index]
        if given == 1 and abs(self.probability - self.expected) > 1e-6 * self.expected:
            raise another_path()
        return index

    def _new(self, options):
        """The option to begin with where no path was given."""
        return 0

    def forks(self):
        """Where the run could have gone instead: (probability, choices) of each such beginning."""
        if len(self.steps) < len(self.path):
            raise another_path()
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


def another_path():
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
        outcome = outcome_of(program(chance))
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


def check_repeats(program, found):
    """`MinidecodeError` for a program that asked for no choice and yet goes another path."""
    if not found.asked:
        for _ in range(REPEATS):
            if outcome_of(program(Enumerator())) not in found.parts:
                raise another_path()


# ---------------------------------------------------------------------------------- outcomes


def outcome_of(value):
    """What a program returned, as something hashable."""
    if type(value) is tuple and {*map(type, value)} <= {int}:
        return value
    if isinstance(value, Iterator):
        return tokens_of(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple([outcome_of(x) for x in value])
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
