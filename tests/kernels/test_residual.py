"""What a target has left where a draft was judged: the same bits on both kernels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.cases import (
    FLOATS,
    LAYOUTS,
    SIZES,
    both,
    compiled,
    laid_out,
    native,
    no_warnings,
    reference,
    search,
)

pytestmark = no_warnings


@st.composite
def residual_arguments(draw):
    V = draw(st.integers(0, 40) | st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(FLOATS))
    rows = (rng.random((2, V)) * draw(st.sampled_from([1, 1e-3, 1e-300]))).astype(dtype)
    p, q = (laid_out(row, draw(st.sampled_from(LAYOUTS))) for row in rows)
    return p, q, draw(st.sampled_from([1.0, 0.0, 0.3, 1 / 3]) | st.floats(0, 2))


@both
@search(80)
@given(arguments=residual_arguments())
def test_residual_is_what_p_has_above_q(kernels, arguments):
    p, q, scale = arguments
    before = p.copy(), q.copy()
    left, mass = kernels.residual(*arguments)
    right = np.maximum(np.float64(scale) * p.astype(np.float64) - q, 0)
    assert np.array_equal(left, right) and left.dtype == np.float64
    assert type(mass) is float and mass == pytest.approx(math.fsum(right), rel=1e-12)
    assert np.array_equal(p, before[0]) and np.array_equal(q, before[1])


@compiled
@search(80)
@given(arguments=residual_arguments())
def test_residual_has_the_same_bits_on_both(arguments):
    ours, theirs = native.residual(*arguments), reference.residual(*arguments)
    assert np.array_equal(ours[0], theirs[0]) and ours[1] == theirs[1]


@both
def test_residual_hides_no_nan(kernels):
    left, mass = kernels.residual(np.array([0.5, np.nan, 0.5]), np.array([0.2, 0.3, 0.5]))
    assert left[0] == 0.3 and np.isnan(left[1]) and left[2] == 0 and np.isnan(mass)
