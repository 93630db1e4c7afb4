"""Attention over the pages of a cache against one query after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.cases import (
    FLOATS,
    LAYOUTS,
    attention_by_hand,
    both,
    compiled,
    laid_out,
    native,
    no_warnings,
    search,
)

pytestmark = no_warnings


@st.composite
def attention_arguments(draw):
    n, h = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    head_dim = draw(st.integers(1, 20) | st.sampled_from([31, 32, 33, 64, 65, 80, 128, 130]))
    start = draw(st.integers(0, 70))
    sizes = draw(st.lists(st.integers(0, 33), max_size=3))
    sizes.append(max(0, start + n - sum(sizes)) + draw(st.integers(0, 3)))
    dtype = draw(st.sampled_from(FLOATS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_layer = draw(st.integers(1, 2))
    shape = (n_layer, 2, h, sum(sizes), head_dim)
    held = rng.standard_normal(shape).astype(dtype) * draw(st.sampled_from([0, 1, 5]))
    held[:, :, :, start + n :] = np.nan  # past the end: never read
    cuts = np.cumsum(sizes)[:-1]
    pages = [
        laid_out(page, draw(st.sampled_from(["plain", "strided", "unaligned", "read-only"])))
        for page in np.split(held, cuts, axis=3)
    ]
    q = rng.standard_normal((n, h, head_dim)).astype(dtype)
    q = laid_out(q, draw(st.sampled_from(LAYOUTS)))
    layer = draw(st.integers(0, n_layer - 1))
    return q, pages, layer, start, draw(st.sampled_from([head_dim**-0.5, 1.0, 0.0]))


def inside_qkv(q):
    """q as it lies beside k and v in one product: rows three times as far apart."""
    qkv = np.full((len(q), 3, *q.shape[1:]), np.nan, q.dtype)
    qkv[:, 0] = q
    return qkv[:, 0]


@both
@search(150)
@given(arguments=attention_arguments())
def test_attention_sees_what_came_before_and_nothing_else(kernels, arguments):
    q, pages, layer, start, scale = arguments
    before = q.copy()
    out = kernels.attention(q, pages, layer, start, scale)
    tolerance = 2e-4 if q.dtype == np.float32 else 1e-11
    right = attention_by_hand(*arguments)
    np.testing.assert_allclose(out, right, rtol=tolerance, atol=tolerance)
    assert out.dtype == q.dtype and out.shape == q.shape
    assert np.array_equal(q, before)
    again = kernels.attention(inside_qkv(q), pages, layer, start, scale)
    np.testing.assert_allclose(again, out, rtol=tolerance, atol=tolerance)


@compiled
@search(60)
@given(arguments=attention_arguments())
def test_attention_of_a_query_is_the_same_bits_alone(arguments):
    q, pages, layer, start, scale = arguments
    together = native.attention(q, pages, layer, start, scale)
    for i in range(len(q)):
        alone = native.attention(q[i : i + 1], pages, layer, start + i, scale)
        assert np.array_equal(alone[0], together[i])


@compiled
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_many_queries_share_pages_and_keep_their_bits(threads):
    """Full blocks, ragged pages, and more queries than share one read."""
    rng = np.random.default_rng(5)
    sizes, start, n = [32, 32, 1, 0, 50, 32, 32, 7, 40], 130, 70
    pages = [rng.standard_normal((1, 2, 3, size, 72)).astype(np.float32) for size in sizes]
    q = rng.standard_normal((n, 3, 72)).astype(np.float32)
    old = native.num_threads()
    try:
        native.set_num_threads(threads)
        together = native.attention(q, pages, 0, start, 0.2)
    finally:
        native.set_num_threads(old)
    for i in range(n):
        alone = native.attention(q[i : i + 1], pages, 0, start + i, 0.2)
        assert np.array_equal(alone[0], together[i])


@both
def test_attention_does_not_overflow_the_exponential(kernels):
    q = np.full((1, 1, 2), 100, np.float32)
    pages = [np.array([[[[[100, 100], [99, 100]]], [[[1, 2], [3, 4]]]]] * 1, np.float32)]
    pages = [pages[0].reshape(1, 2, 1, 2, 2)]
    assert kernels.attention(q, pages, 0, 1, 1.0).tolist() == [[[1, 2]]]


@both
def test_offsets_go_beyond_32_bits(kernels, tmp_path):
    """The second row of q begins 2**31 + 10 numbers after the first, in a file with a hole."""
    far = 2**31 + 10
    held = np.memmap(tmp_path / "q", np.float32, "w+", shape=far + 2)
    held[:2], held[far:] = [1, 2], [3, 4]
    q = np.lib.stride_tricks.as_strided(held, (2, 1, 2), (4 * far, 8, 4))
    page = np.array([[[1, 0], [0, 1]], [[5, 6], [7, 8]]], np.float32).reshape(1, 2, 1, 2, 2)
    out = kernels.attention(q, [page], 0, 0, 1.0)
    right = attention_by_hand(np.array([[[1, 2]], [[3, 4]]]), [page], 0, 0, 1.0)
    assert out == pytest.approx(right, rel=1e-6)
