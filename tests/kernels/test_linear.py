"""Products with packed weights, and what packing keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.cases import (
    LAYOUTS,
    both,
    compiled,
    laid_out,
    linear_arguments,
    native,
    no_warnings,
    search,
)

from minidecode.kernels import pack

pytestmark = no_warnings


@both
@search(150)
@given(arguments=linear_arguments())
def test_linear_is_the_product_plus_bias(kernels, arguments):
    x, w, bias = arguments
    copies = x.copy(), w.copy()
    out = kernels.linear(x, pack(w), bias)
    wide = x.astype(np.float64), w.astype(np.float64)
    right = wide[0] @ wide[1] + (0 if bias is None else bias.astype(np.float64))
    tolerance = 2e-5 if x.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(out, right, rtol=tolerance, atol=tolerance * (1 + x.shape[1]))
    assert out.dtype == x.dtype and out.shape == (len(x), w.shape[1])
    assert np.array_equal(x, copies[0]) and np.array_equal(w, copies[1])


@both
def test_linear_reads_its_weights_as_in_by_out(kernels):
    w = pack(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert kernels.linear(np.array([[1.0, 0.0]]), w).tolist() == [[1, 2]]


@both
@pytest.mark.parametrize("bias", [None, np.zeros(5)])
def test_linear_of_no_rows_is_no_rows(kernels, bias):
    assert kernels.linear(np.zeros((0, 3)), pack(np.zeros((3, 5))), bias).shape == (0, 5)


@compiled
@search(60)
@given(arguments=linear_arguments())
def test_linear_of_a_row_is_the_same_bits_alone(arguments):
    x, w, bias = arguments
    together = native.linear(x, pack(w), bias)
    for i in range(len(x)):
        assert np.array_equal(native.linear(x[i : i + 1], pack(w), bias)[0], together[i])


@both
@search(80)
@given(
    arguments=linear_arguments(),
    layout=st.sampled_from(LAYOUTS),
    activation=st.sampled_from([None, "gelu", "gelu_erf", "relu", "silu"]),
    dtype=st.sampled_from([None, "float16", "int8", "int4"]),
    seed=st.integers(0, 99),
)
def test_what_a_block_does_around_a_product_is_the_same_in_one_call(
    kernels, arguments, layout, activation, dtype, seed
):
    x, w, bias = arguments
    if dtype is not None:
        x, w, bias = (None if a is None else a.astype(np.float32) for a in arguments)
    weight, rng = pack(w, dtype), np.random.default_rng(seed)
    n_in, n_out = w.shape
    gain, shift = (laid_out(rng.standard_normal(n_in).astype(x.dtype), layout) for _ in range(2))
    added = laid_out(rng.standard_normal((len(x), n_out)).astype(x.dtype), layout)
    copies = [a.copy() for a in (x, gain, shift, added)]

    y = kernels.linear(kernels.layer_norm(x, gain, shift, 1e-5), weight, bias)
    y = added + (y if activation is None else getattr(kernels, activation)(y))
    norm = (gain, shift, 1e-5)
    at_once = kernels.linear(x, weight, bias, norm=norm, activation=activation, added=added)
    assert np.array_equal(at_once, y) and at_once.dtype == x.dtype
    assert all(map(np.array_equal, (x, gain, shift, added), copies))


@both
def test_a_column_far_behind_is_not_lost(kernels):
    """The widest vocabulary in use, its last column in a panel of its own."""
    w = np.zeros((1, 70_001), np.float32)
    w[0, -1] = 3
    out = kernels.linear(np.ones((1, 1), np.float32), pack(w))
    assert out[0, -1] == 3 and not out[0, :-1].any()
