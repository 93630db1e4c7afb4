"""What speculation should gain, by hand and against the paper's equation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidecode.speculation.theory import expected_tokens, predicted_speedup


def test_expected_tokens_by_hand():
    assert expected_tokens([0.5, 0.5, 0.9], 2) == 1.75  # 1 + 1/2 + 1/4
    assert expected_tokens([0.8, 0.5], 2) == pytest.approx(2.2)  # 1 + 4/5 + 2/5
    assert expected_tokens([0.5, 0.8], 2) == pytest.approx(1.9)  # the order matters
    assert expected_tokens([1, 1, 1], 3) == 4
    assert expected_tokens([0, 1], 2) == 1
    assert expected_tokens([], 0) == 1


@given(st.floats(0, 0.99), st.integers(0, 12), st.floats(0, 0.5))
def test_with_one_acceptance_and_free_rows_it_is_the_papers(alpha, k, c):
    equation_1 = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert expected_tokens([alpha] * k, k) == pytest.approx(equation_1)
    passes = dict.fromkeys((1, k + 1), 2.0)
    assert predicted_speedup([alpha] * k, k, 2 * c, passes) == pytest.approx(
        equation_1 / (k * c + 1)  # theorem 3.8
    )


def test_predicted_speedup_by_hand():
    passes = {1: 10.0, 3: 12.0}
    # 1.75 tokens for 2 draft steps and a pass over 3: 14 s. Plain: 1.75 passes over 1, 17.5 s.
    assert predicted_speedup([0.5, 0.5], 2, 1.0, passes) == 1.25
    assert predicted_speedup([0.5, 0.5], 2, 4.0, passes) == 0.875  # a dear draft only loses


def test_what_is_not_known_is_not_predicted():
    passes = {1: 10.0, 3: 12.0}
    assert predicted_speedup([0.5, 0.5], 1, 1.0, passes) is None  # no pass over 2 was seen
    assert predicted_speedup([0.5], 2, 1.0, passes) is None
    assert predicted_speedup([0.5, None], 2, 1.0, passes) is None
    assert predicted_speedup([0.5, 0.5], 2, None, passes) is None
    assert predicted_speedup([0.5, 0.5], 2, 1.0, {3: 12.0}) is None
    # Behind a place that nothing passes there is nothing to know.
    assert predicted_speedup([0.0, None], 2, 1.0, passes) == predicted_speedup(
        [0.0], 2, 1.0, passes
    )
    assert predicted_speedup([0.0], 2, 1.0, passes) == 10 / 14
