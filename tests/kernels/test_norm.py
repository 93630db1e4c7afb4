"""Layer norm against the formula in long double."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kernels.cases import both, no_warnings, rows_of_numbers, search

pytestmark = no_warnings


@both
@search(120)
@given(arguments=rows_of_numbers(), epsilon=st.sampled_from([1e-5, 1e-3]))
def test_layer_norm_has_mean_0_and_variance_1(kernels, arguments, epsilon):
    x, weight, bias = arguments
    before = x.copy()
    out = kernels.layer_norm(x, weight, bias, epsilon)
    wide = x.astype(np.longdouble)
    centred = wide - wide.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
    right = centred / deviation * weight + bias
    # A sum of d numbers is off by d roundings at most; weight / deviation magnifies what it leaves.
    rounding = (16 + len(weight)) * np.finfo(x.dtype).eps
    room = np.abs(wide).max(axis=1, keepdims=True) / deviation * (1 + np.abs(weight).max()) + 1
    assert (np.abs(out - right) <= rounding * (room + np.abs(right))).all()
    assert out.dtype == x.dtype and out.shape == x.shape
    assert np.array_equal(x, before)
