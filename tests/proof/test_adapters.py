"""Random calls of other libraries as choices: their laws, and what is refused aloud."""

import bisect
import copy
import itertools
import math
import random

import numpy as np
import pytest
from builders import DRAFT, TARGET
from hypothesis import given
from hypothesis import strategies as st

from minidecode import Dice, MinidecodeError, exact, sample
from minidecode.proof.adapters import Uniform, choices

P = [0.5, 0.3, 0.2]


def law(program):
    """The law of a program that knows nothing of chance."""

    def run(chance):
        with choices(chance):
            return program()

    return exact.law(run)


# A uniform number that nobody has looked at


def test_one_comparison_is_one_choice():
    assert law(lambda: random.random() < 0.25) == {True: 0.25, False: 0.75}
    assert law(lambda: random.random() >= 0.25) == {True: 0.75, False: 0.25}
    assert law(lambda: random.random() < 0.25) == {True: 0.25, False: 0.75}
    assert law(lambda: random.random() >= 0.25) == {True: 0.75, False: 0.25}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_a_number_compared_again_and_again_stays_one_number(steps):
    """Which steps lie above u: only as many answers as u can have places among the steps."""

    def program():
        u = random.random()
        return tuple(u < x for x in steps)

    ends = sorted({0.0, *steps, 1.0})
    wanted = {}
    for low, high in itertools.pairwise(ends):
        wanted[tuple(high <= x for x in steps)] = high - low
    found = {x: p for x, p in law(program).items() if p > 1e-15}
    wanted = {x: p for x, p in wanted.items() if p > 1e-15}
    assert found == pytest.approx(wanted, abs=1e-12)


def test_what_is_certain_is_no_choice():
    assert law(lambda: (random.random() < 0, random.random() < 1, random.random() < 7)) == {
        (False, True, True): 1.0
    }
    assert law(lambda: (random.random() < math.nan, random.random() > math.nan)) == {
        (False, False): 1.0
    }


def test_an_array_of_steps_is_compared_one_by_one():
    cumulative = np.cumsum(P)
    wanted = pytest.approx({0: 0.5, 1: 0.3, 2: 0.2})
    assert law(lambda: int(np.searchsorted(cumulative, random.random()))) == wanted
    assert law(lambda: int(np.argmax(cumulative > random.random()))) == wanted
    assert law(lambda: int((random.random() >= cumulative).sum())) == wanted
    assert law(lambda: bisect.bisect(cumulative.tolist(), random.random())) == wanted
    assert law(lambda: next(i for i, c in enumerate(cumulative) if random.random() < c)) != wanted


USES = {
    "__add__": lambda u: u + 1,
    "__rsub__": lambda u: 1 - u,
    "__mul__": lambda u: u * 2,
    "__rmul__": lambda u: np.ones(2) * u,
    "__rtruediv__": lambda u: 0.5 / u,
    "__neg__": lambda u: -u,
    "__pow__": lambda u: u**0.5,
    "__float__": lambda u: math.log(u),
    "__int__": lambda u: int(u),
    "__bool__": lambda u: bool(u),
    "__eq__": lambda u: u == 0.5,
    "__format__": lambda u: f"{u:.3f}",
    "__round__": lambda u: round(u, 3),
    "< between two of them": lambda u: u < random.random(),
    "numpy.sum": lambda u: np.sum(u),
    "numpy.argmin": lambda u: np.argmin(u),
}


@pytest.mark.parametrize("name", USES)
def test_more_than_a_comparison_is_refused_by_name(name):
    with pytest.raises(MinidecodeError, match=name.strip("_")):
        law(lambda: USES[name](random.random()))


@pytest.mark.parametrize("use", [np.log, np.sqrt, np.sin, lambda u: np.asarray(u) + 1, hash])
def test_whatever_else_is_done_with_it_is_no_number(use):
    with pytest.raises((MinidecodeError, TypeError)):
        law(lambda: use(random.random()))


def test_an_array_of_uniforms_can_be_compared_and_not_summed():
    def program():
        return tuple((np.random.default_rng().random(2) < [0.25, 0.5]).tolist())

    assert law(program)[True, True] == 0.125
    for use in (np.sum, np.mean, np.argmax, np.sort, np.log, lambda a: a.astype(float)):
        with pytest.raises((MinidecodeError, TypeError)):
            law(lambda use=use: use(np.random.random(3)))


# The standard library


def test_draws_of_the_standard_library():
    assert law(lambda: random.choice("ab")) == {"a": 0.5, "b": 0.5}
    assert law(lambda: random.choices("abc", P)[0]) == pytest.approx(dict(zip("abc", P)))
    assert law(lambda: random.choices("abc", cum_weights=[2, 3, 4])[0])["a"] == 0.5
    assert law(lambda: tuple(random.choices("ab", k=2))) == dict.fromkeys(
        itertools.product("ab", repeat=2), 0.25
    )
    assert law(lambda: random.randint(1, 4)) == dict.fromkeys([1, 2, 3, 4], 0.25)
    assert law(lambda: random.randrange(0, 8, 2)) == dict.fromkeys([0, 2, 4, 6], 0.25)
    assert law(lambda: tuple(random.sample("abc", 2))) == pytest.approx(
        dict.fromkeys(itertools.permutations("abc", 2), 1 / 6)
    )
    assert law(lambda: random.uniform(0, 1) < 0.5) == {True: 0.5, False: 0.5}
    assert law(lambda: random.Random(3).random() < 0.25)[True] == 0.25


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: random.seed(0), "random.seed"),
        (lambda: random.gauss(0, 1), "random.gauss"),
        (lambda: random.shuffle([1, 2]), "random.shuffle"),
        (lambda: random.setstate(random.getstate()), "random.setstate"),
        (lambda: random.uniform(0, 2), r"random.uniform\(0, 2\)"),
        (lambda: random.Random(0).seed(0), "random.Random.seed"),
        (lambda: random.Random(0).gauss(0, 1), "random.Random.gauss"),
        (lambda: copy.copy(random.Random(0)), "random.Random.__reduce__"),
        (lambda: random.SystemRandom(), "random.SystemRandom"),
        (lambda: [random.Random(0) for _ in range(2)], "twice with the seed 0"),
        (lambda: np.random.seed(0), "numpy.random.seed"),
        (lambda: np.random.normal(), "numpy.random.normal"),
        (lambda: np.random.set_state(np.random.get_state()), "numpy.random.set_state"),
        (lambda: np.random.uniform(0, 2), r"uniform\(0, 2\)"),
        (lambda: np.random.default_rng().normal(), "numpy.random.Generator.normal"),
        (lambda: np.random.default_rng().permutation(3), "numpy.random.Generator.permutation"),
        (lambda: np.random.default_rng().bit_generator(), "numpy.random.Generator.bit_generator"),
        (lambda: np.random.default_rng().random(out=np.empty(2)), "random.out"),
        (lambda: copy.deepcopy(np.random.default_rng()), "a copy of a numpy.random.Generator"),
        (lambda: [np.random.default_rng(7) for _ in range(2)], "twice with the seed 7"),
        (lambda: np.random.RandomState(0).seed(1), "numpy.random.RandomState.seed"),
        (lambda: np.random.RandomState(0).randn(), "numpy.random.RandomState.randn"),
    ],
)
def test_reseeds_and_unknown_calls_are_refused_by_name(call, name):
    with pytest.raises(MinidecodeError, match=name):
        law(call)


# NumPy


@pytest.mark.parametrize(
    "draw",
    [
        lambda: np.random.choice(3, p=P),
        lambda: np.random.choice([0, 1, 2], 1, p=P)[0],
        lambda: np.random.default_rng().choice(3, p=P),
        lambda: np.random.default_rng(5).choice(3, size=(1, 1), p=P)[0, 0],
        lambda: np.random.RandomState(5).choice(3, p=P),
        lambda: np.random.Generator(np.random.PCG64(1)).choice(3, p=P),
        lambda: int(np.searchsorted(np.cumsum(P), np.random.rand())),
        lambda: int(np.searchsorted(np.cumsum(P), np.random.random_sample())),
        lambda: int(np.searchsorted(np.cumsum(P), np.random.RandomState(1).rand())),
        lambda: int(np.searchsorted(np.cumsum(P), np.random.default_rng().random())),
    ],
)
def test_draws_of_numpy(draw):
    assert law(draw) == pytest.approx({0: 0.5, 1: 0.3, 2: 0.2})


def test_whole_numbers_and_draws_without_replacement():
    assert law(lambda: np.random.randint(2, 4)) == {2: 0.5, 3: 0.5}
    assert law(lambda: np.random.default_rng().integers(4)) == dict.fromkeys(range(4), 0.25)
    assert law(lambda: np.random.default_rng().integers(1, 2, endpoint=True)) == {1: 0.5, 2: 0.5}
    pairs = law(lambda: tuple(np.random.choice(3, 2, replace=False, p=P).tolist()))
    wanted = {(a, b): P[a] * P[b] / (1 - P[a]) for a, b in itertools.permutations(range(3), 2)}
    assert pairs == pytest.approx(wanted)


def test_the_generator_that_the_block_gives_asks_chance():
    def program(chance):
        with choices(chance) as rng:
            assert isinstance(rng, np.random.Generator)
            return int(np.searchsorted(np.cumsum(P), rng.random()))

    assert exact.law(program) == pytest.approx({0: 0.5, 1: 0.3, 2: 0.2})


# What went past


def test_a_function_imported_by_name_before_is_noticed():
    from random import gauss

    from numpy.random import random as drawn_from_numpy

    with pytest.raises(MinidecodeError, match="numpy: its generator moved"):
        law(drawn_from_numpy)
    with pytest.raises(MinidecodeError, match="random: its generator moved"):
        law(lambda: gauss(0, 1))


def test_a_generator_made_before_is_told_by_the_report():
    rng = np.random.default_rng(0)

    def program(chance):
        with choices(chance):
            return [int(rng.random() < 2)]

    report = exact.compare(program, lambda chance: [int(chance.accept(0.5))])
    assert "a generator that was made before" in report.hints[0]


def test_afterwards_all_is_as_it_was():
    before = {name: getattr(np.random, name) for name in np.random.__all__}
    plain = {name: getattr(random, name) for name in random.__all__}
    state = random.getstate()
    law(lambda: random.random() < 0.5)
    with pytest.raises(ZeroDivisionError), choices(Dice(0)):
        raise ZeroDivisionError
    assert all(getattr(np.random, name) is each for name, each in before.items())
    assert all(getattr(random, name) is each for name, each in plain.items())
    assert random.getstate() == state
    assert 0 <= random.random() < 1


def test_blocks_can_stand_in_one_another():
    def program(outer):
        with choices(outer):
            with choices(outer):
                inside = random.random() < 0.5
            return inside, random.random() < 0.5

    assert exact.law(program)[True, True] == 0.25


def test_dice_can_stand_in_for_the_enumeration():
    with choices(Dice(1)):
        draws = [random.random() < 0.25 for _ in range(2000)]
    assert 0.2 < np.mean(draws) < 0.3


def test_the_interval_can_be_read():
    u = Uniform(Dice(0))
    assert repr(u) == "Uniform(low=0.0, high=1.0)"
    below = u < 0.5
    assert (u.low, u.high) == ((0.0, 0.5) if below else (0.5, 1.0))


# Loops that know nothing of chance


def speculative_loop(uniform, tokens, n, residual=True):
    """A loop as one finds it: draft one token, accept or redraw, by inverse cumulative sums."""

    def draw(weights):
        return int(np.searchsorted(np.cumsum(weights) / np.sum(weights), uniform(), side="right"))

    while len(tokens) < n:
        p, q = TARGET.row(tokens), DRAFT.row(tokens)
        x = draw(q)
        if uniform() < p[x] / q[x]:
            tokens.append(x)
        else:
            tokens.append(draw(np.maximum(p - q, 0) if residual else p))
    return tokens


@pytest.mark.parametrize("residual", [True, False])
def test_a_numpy_loop_and_a_plain_one_are_proved_unchanged(residual):
    def with_numpy(chance):
        with choices(chance):
            rng = np.random.default_rng(0)
            return speculative_loop(rng.random, [0], 4, residual)

    def with_random(chance):
        with choices(chance):
            return speculative_loop(random.random, [0], 4, residual)

    def plain(chance):
        return [0, *exact.tokens_of(sample(TARGET, [0], chance=chance, max_new_tokens=3))]

    for program in (with_numpy, with_random):
        report = exact.compare(program, plain)
        assert report.passed == residual
        assert (report.distance < 1e-12) if residual else (report.distance > 0.05)
