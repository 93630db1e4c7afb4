"""The activations against their formulas and far out."""

import math

import numpy as np
import pytest
from hypothesis import given
from kernels.cases import (
    FLOATS,
    both,
    compiled,
    native,
    no_warnings,
    reference,
    rows_of_numbers,
    search,
)

from minidecode import kernels
from minidecode.kernels import ACTIVATIONS

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


def erf_form(x):
    return x * math.erfc(-x / math.sqrt(2)) / 2


def sigmoid_form(x):
    e = math.exp(-abs(x))
    return (x * e if x < 0 else x) / (1 + e)


FORMS = {"gelu_erf": erf_form, "silu": sigmoid_form, "relu": lambda x: max(x, 0.0)}


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FORMS)
def test_other_activations_are_their_formulas_to_the_last_places(kernels, name, dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate([scale * rng.standard_normal(400) for scale in (1e-4, 1, 4, 12)])
    x = np.append(x, [0.0, 1e-40, -1e-40, 37, -37, 103, -103]).astype(dtype)
    right = np.array([FORMS[name](float(value)) for value in x])
    out = getattr(kernels, name)(x)
    if dtype == np.float32:  # inside all is float64
        np.testing.assert_array_max_ulp(out, right.astype(dtype), 1)
    else:  # erfc magnifies the rounding of its argument
        np.testing.assert_allclose(out, right, rtol=1e-12 if name == "gelu_erf" else 2e-15)


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["gelu", *FORMS])
def test_activations_pass_on_nan_and_have_their_limits(kernels, name, dtype):
    big = np.finfo(dtype).max / 4
    with np.errstate(all="raise"):
        out = getattr(kernels, name)(np.array([np.nan, np.inf, -big], dtype))
    assert np.isnan(out[0]) and out[1] == np.inf and out[2] == 0


@compiled
@pytest.mark.parametrize("name", ["gelu", *FORMS])
def test_activations_of_minus_infinity_are_the_same_on_both(name):
    x = np.array([-np.inf])
    assert np.array_equal(getattr(native, name)(x), getattr(reference, name)(x), equal_nan=True)


def test_activations_have_the_names_of_config_json():
    def called(name):
        return getattr(kernels, ACTIVATIONS[name])(np.array([-1.0, 1.0]))

    for name in ("gelu_new", "gelu_fast", "gelu_pytorch_tanh"):
        assert called(name) == pytest.approx([-0.158808, 0.841192], abs=1e-6)
    assert called("gelu") == pytest.approx([-0.158655, 0.841345], abs=1e-6)
    assert called("relu").tolist() == [0, 1]
    assert called("silu") == pytest.approx([-0.268941, 0.731059], abs=1e-6)
    assert ACTIVATIONS["swish"] == ACTIVATIONS["silu"]
