"""Several drafts for one place: with each rule the token has the target's law."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import exact
from minidecode.speculation.multidraft import (
    draw_distinct,
    verify_distinct,
    verify_independent,
)

weights = st.lists(st.sampled_from([0.0, 0.0, 1e-9, 1.0, 1.0, 3.0]), min_size=4, max_size=4)
rows = weights.filter(any).map(lambda w: np.array(w) / sum(w))


def draw_independent(q, width, chance, position=0):
    return [chance.choose(q, position) for _ in range(width)]


RULES = [(draw_independent, verify_independent), (draw_distinct, verify_distinct)]


@settings(deadline=None, max_examples=80)
@given(rows, rows, st.integers(0, 4), st.sampled_from(RULES))
def test_one_place_has_the_law_of_p(p, q, width, rule):
    draw, verify = rule

    def program(chance):
        return verify(p, q, draw(q, width, chance), chance)[1]

    wanted = {x: float(mass) for x, mass in enumerate(p) if mass}
    assert exact.total_variation(exact.law(program), wanted) < 1e-12


@settings(deadline=None, max_examples=25)
@given(st.lists(rows, min_size=5, max_size=5), st.lists(rows, min_size=5, max_size=5), *[
    st.sampled_from(RULES), st.sampled_from([(2, 1), (1, 2), (2, 2)])
])  # fmt: skip
def test_a_tree_of_two_levels_has_the_law_of_two_tokens(p, q, rule, widths):
    """Row 4 is that of the first place, row x that behind token x."""
    draw, verify = rule

    def program(chance):
        first = draw(q[4], widths[0], chance)
        below = [draw(q[x], widths[1], chance) for x in first]  # before the target is asked
        j, x = verify(p[4], q[4], first, chance)
        drafted = [] if j is None else below[j]
        return x, verify(p[x], q[x], drafted, chance)[1]

    wanted = {(x, y): float(p[4][x] * p[x][y]) for x in range(4) for y in range(4)}
    assert exact.total_variation(exact.law(program), wanted) < 1e-12


def test_without_replacement_no_token_is_drawn_twice_and_none_that_q_lacks():
    law = exact.law(lambda chance: draw_distinct([0.5, 0.0, 0.3, 0.2], 4, chance))
    assert {tuple(sorted(drafted)) for drafted in law} == {(0, 2, 3)}
    assert law[0, 2, 3] == pytest.approx(0.5 * 0.3 / 0.5)


def test_more_drafts_are_accepted_more_often_and_distinct_ones_most():
    p, q = [0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]

    def acceptance(rule, width):
        draw, verify = rule

        def program(chance):
            return verify(p, q, draw(q, width, chance), chance)[0] is not None

        return exact.law(program)[True]

    for rule in RULES:
        assert acceptance(rule, 1) == pytest.approx(np.minimum(p, q).sum())
        assert acceptance(rule, 1) < acceptance(rule, 2) < acceptance(rule, 3)
    assert acceptance(RULES[0], 3) < acceptance(RULES[1], 3)
