"""GELU against its formula and far out."""

import math

import numpy as np
import pytest
from hypothesis import given
from kernels.cases import FLOATS, both, compiled, native, no_warnings, rows_of_numbers, search

pytestmark = no_warnings


@both
@search(80)
@given(arguments=rows_of_numbers())
def test_gelu_is_the_tanh_form(kernels, arguments):
    x = arguments[0]
    before = x.copy()
    out = kernels.gelu(x)
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    tolerance = 1e-6 if x.dtype == np.float32 else 1e-14
    right = wide * (1 + np.tanh(inner)) / 2
    np.testing.assert_allclose(out, right, rtol=tolerance, atol=8 * tolerance)
    assert out.dtype == x.dtype and out.shape == x.shape
    assert np.array_equal(x, before)


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_is_not_the_erf_form(kernels, dtype):
    out = kernels.gelu(np.array([1, -1, -2, 3], dtype))
    assert out == pytest.approx([0.8411920, -0.1588080, -0.0454023, 2.9963626], abs=2e-7)


@both
@pytest.mark.parametrize(("dtype", "big"), [(np.float32, 1e12), (np.float64, 1e100)])
def test_gelu_far_out_is_x_or_0(kernels, dtype, big):
    out = kernels.gelu(np.array([big, -big, 60, -60], dtype))
    assert out.tolist() == pytest.approx([dtype(big), 0, 60, 0], rel=1e-6, abs=1e-20)


@compiled
@pytest.mark.parametrize(("dtype", "big"), [(np.float32, 3e38), (np.float64, 1e308)])
def test_gelu_of_the_most_negative_numbers_is_0(dtype, big):
    assert native.gelu(np.array([-big], dtype))[0] == 0
