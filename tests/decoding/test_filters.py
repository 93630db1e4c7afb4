"""Each filter with four numbers."""

import numpy as np
import pytest

from minidecode import Warp
from minidecode.decoding import filters
from minidecode.kernels import reference

FOUR = np.array([0.5, 0.3, 0.15, 0.05])


def test_epsilon_keeps_what_is_not_below_it_and_the_likeliest():
    assert filters.epsilon(FOUR, 0.15).tolist() == [True, True, True, False]
    assert filters.epsilon(FOUR, 0.9).tolist() == [True, False, False, False]


@pytest.mark.parametrize("least", [1e-4, 0.001, 0.01, 0.1, 0.9])
def test_epsilon_is_the_kernels(least):
    logits = np.random.default_rng(0).normal(0, 3, (50, 200))
    for row in logits:
        kept = filters.epsilon(Warp()(row, []), least)
        assert kept.tolist() == (reference.sampling_filter(row, epsilon=least) > 0).tolist()
