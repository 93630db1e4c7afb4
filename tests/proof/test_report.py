"""What a report says: how far laws are apart and where they part, the worst outcomes, hints."""

import pytest
from builders import DRAFT, TARGET, decoder, four_paths
from hypothesis import given
from hypothesis import strategies as st

from minidecode import TableModel, exact, sample, speculative


def redrawing(target, prompt, **options):
    def redraw(p, q, drafted, chance, position=0):
        for i, x in enumerate(drafted):
            if not chance.accept(min(1.0, p[i][x] / q[i][x])):
                return i, chance.choose(p[i], position)
        return len(drafted), chance.choose(p[len(drafted)], position)

    return speculative(target, DRAFT, prompt, verify=redraw, **options)


def test_what_is_found_at_the_limit_is_a_lower_bound_of_the_distance():
    whole = exact.check(redrawing, TARGET, max_new_tokens=4, eos=None)
    assert whole.complete and whole.distance > 0.1
    bounds = []
    for limit in (50, 400, 2000, whole.paths - 1):
        report = exact.check(redrawing, TARGET, max_new_tokens=4, eos=None, max_paths=limit)
        assert not report.passed and not report.complete and report.paths == limit
        assert report.distance <= whole.distance + 1e-12
        assert "lower max_new_tokens" in report.hints[0] and "at least" in str(report)
        bounds.append(report.distance)
    assert bounds[-1] > 0.9 * whole.distance  # the likeliest paths come first
    assert bounds == sorted(bounds)


def test_a_right_decoder_at_the_limit_is_not_decided():
    report = exact.check(decoder, TARGET, max_new_tokens=4, max_paths=100)
    assert not report.passed and report.distance == pytest.approx(0, abs=1e-12)
    assert "NOT DECIDED" in str(report)


laws = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any)


@given(laws, laws, st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_the_least_distance_is_one_that_the_whole_laws_exceed(a, b, known):
    """Whatever part of each probability is known."""
    a, b = ([x / sum(law) for x in law] for law in (a, b))
    parts = [p * share for p, share in zip((*a, *b), known)]
    least = exact.least_variation(dict(enumerate(parts[:4])), dict(enumerate(parts[4:])))
    assert least <= exact.total_variation(dict(enumerate(a)), dict(enumerate(b))) + 1e-12


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_first_position_at_which_laws_part(position):
    def program(wrong):
        def run(chance):
            return [chance.accept(0.3 if wrong and i == position else 0.5) for i in range(3)]

        return run

    report = exact.compare(program(True), program(False))
    assert report.parting() == position
    assert f"part at position {position}" in str(report)


def test_a_text_that_ends_early_parts_where_it_ends():
    report = exact.compare(lambda chance: [0, 1], lambda chance: [0, 1, 2])
    assert report.parting() == 2
    assert report.hints == (
        "the program took no choice from chance: it is greedy, or draws from a randomness of its "
        "own, such as a generator that was made before",
        "the program gave one token fewer than asked (2, not 3)",
    )


def test_laws_that_agree_or_are_not_of_texts_part_nowhere():
    assert exact.compare(four_paths, four_paths).parting() is None
    assert exact.compare(lambda c: "a", lambda c: "b").parting() is None


def test_the_worst_outcomes_stand_first():
    got, wanted = {(0,): 0.5, (1,): 0.5}, {(0,): 0.4, (1,): 0.3, (2,): 0.3}
    report = exact.compare(lambda chance: [chance.choose([1, 1], 0)], wanted)
    assert report.law == got
    assert report.worst() == ((2,), 0.0, 0.3)  # an outcome that never came
    assert report.worst_outcomes(2) == [((2,), 0.0, 0.3), ((1,), 0.5, 0.3)]
    assert len(report.worst_outcomes()) == 3
    assert str(report).splitlines()[2].split() == ["outcome", "got", "wanted"]
    assert "(2,)" in str(report).splitlines()[3]


def test_an_outcome_that_should_never_come_is_the_worst():
    report = exact.compare(lambda chance: [chance.choose([1, 3], 0)], {(0,): 1.0})
    assert report.worst() in {((0,), 0.25, 1.0), ((1,), 0.75, 0.0)}
    assert dict.fromkeys(x for x, *_ in report.worst_outcomes()) == {(0,): None, (1,): None}


def test_a_decoder_that_gives_one_token_more_is_told_so():
    def longer(target, prompt, *, max_new_tokens, **options):
        return sample(target, prompt, max_new_tokens=max_new_tokens + 1, **options)

    report = exact.check(longer, TARGET, max_new_tokens=2)
    assert report.parting() == 2
    assert "the program gave one token more than asked (3, not 2)" in report.hints


def test_a_decoder_with_dice_of_its_own_is_told_so():
    def own(target, prompt, *, chance, **options):
        return [0, 1]

    assert "took no choice from chance" in exact.check(own, TARGET, max_new_tokens=2).hints[0]
    certain = exact.check(own, TableModel([[0.0, 1.0], [1.0, 0.0]]), [1], max_new_tokens=2)
    assert certain.passed and certain.hints == ()


def test_an_exact_report_says_so_in_one_line():
    report = exact.check(decoder, TARGET, max_new_tokens=2)
    assert str(report).startswith("exact: total variation") and "\n" not in str(report)
