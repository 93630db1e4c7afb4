"""Products with weights narrower than x: the same bits on both kernels and all processors."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.cases import (
    LAYOUTS,
    both,
    compiled,
    laid_out,
    native,
    no_warnings,
    printed_with,
    reference,
    search,
    whole_digests,
)

from minidecode.kernels import pack
from minidecode.kernels.packing import from_arrays, to_arrays, unpack

pytestmark = no_warnings
WHOLE = ("int8", "int4")
HALVES = ("float16", "bfloat16")


@st.composite
def arguments(draw, most_rows=20):
    n, n_in = draw(st.integers(0, most_rows)), draw(st.integers(1, 100))
    n_out = draw(st.integers(1, 100))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((n, n_in)) * draw(st.sampled_from([0, 1e-40, 1e-3, 1, 1e4, 1e30]))
    x = laid_out(x.astype(np.float32), draw(st.sampled_from(LAYOUTS)) if n else "plain")
    w = rng.standard_normal((n_in, n_out)).astype(np.float32) * draw(st.sampled_from([1e-3, 10]))
    bias = laid_out(rng.standard_normal(n_out).astype(np.float32), draw(st.sampled_from(LAYOUTS)))
    return x, w, draw(st.sampled_from([None, bias]))


def by_hand(x, weight, bias):
    """One output after the other, with Python's integers and single float32 steps."""
    f = np.float32
    whole, scales = weight.groups
    y = np.zeros((len(x), weight.n_out), f)
    for r, o in np.ndindex(y.shape):
        for g in range(len(whole)):
            inputs = x[r, 32 * g : 32 * g + 32]
            scale = f(np.abs(inputs).max() / f(127))
            if scale < 2.0**-126:
                continue
            rounded = [round(float(f(v / scale))) for v in inputs]  # ties to even
            total = sum(int(w) * v for w, v in zip(whole[g, :, o], rounded))
            y[r, o] = f(y[r, o] + f(f(scales[g, o] * scale) * f(total)))
        if bias is not None:
            y[r, o] = f(y[r, o] + bias[o])
    return y


@both
@pytest.mark.parametrize("dtype", WHOLE)
@search(25)
@given(given_=arguments(most_rows=3))
def test_whole_numbers_are_multiplied_as_the_formula_says(kernels, dtype, given_):
    x, w, bias = given_
    before = x.copy()
    weight = pack(w[:, :8], dtype)
    bias = None if bias is None else bias[:8]
    assert np.array_equal(kernels.linear(x, weight, bias), by_hand(x, weight, bias))
    assert np.array_equal(x, before)


@compiled
@pytest.mark.parametrize("dtype", WHOLE)
@search(100)
@given(given_=arguments())
def test_whole_numbers_give_the_bits_of_the_specification(dtype, given_):
    x, w, bias = given_
    weight = pack(w, dtype)
    ours, right = (k.linear(x, weight, bias) for k in (native, reference))
    assert ours.dtype == right.dtype == np.float32 and ours.shape == right.shape
    assert ours.tobytes() == right.tobytes()


@both
@pytest.mark.parametrize("dtype", WHOLE)
@search(30)
@given(given_=arguments())
def test_whole_numbers_give_a_row_the_same_bits_alone(kernels, dtype, given_):
    x, w, bias = given_
    weight = pack(w, dtype)
    together = kernels.linear(x, weight, bias)
    for i in range(len(x)):
        assert np.array_equal(kernels.linear(x[i : i + 1], weight, bias)[0], together[i])


@both
@pytest.mark.parametrize(("dtype", "room"), [("int8", 0.03), ("int4", 0.3)])
def test_whole_numbers_are_close_to_the_product(kernels, dtype, room):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((7, 500), (500, 70)))
    y = kernels.linear(x, pack(w, dtype))
    assert np.abs(y - x @ w).max() < room * np.abs(x @ w).std() * 4


@compiled
def test_every_instruction_set_gives_the_bits_of_the_specification():
    """In processes of their own: an instruction set is chosen once."""
    right = whole_digests(reference)
    for name in native.instruction_sets():
        used, *lines = printed_with(name, "whole_digests")
        assert used == name and lines == right


@compiled
@pytest.mark.parametrize("dtype", WHOLE)
def test_bits_of_whole_numbers_do_not_depend_on_threads(dtype):
    old = native.num_threads()
    try:
        seen = []
        for n in (1, 2, 3):
            native.set_num_threads(n)
            seen.append(whole_digests(native))
    finally:
        native.set_num_threads(old)
    assert seen[0] == seen[1] == seen[2]


@both
@pytest.mark.parametrize("dtype", HALVES)
@search(60)
@given(given_=arguments())
def test_16_bits_give_the_bits_of_float32_on_rounded_weights(kernels, dtype, given_):
    x, w, bias = given_
    weight = pack(w, dtype)
    with np.errstate(under="ignore"):
        right = kernels.linear(x, pack(unpack(weight)), bias)
        assert kernels.linear(x, weight, bias).tobytes() == right.tobytes()


@both
@pytest.mark.parametrize("dtype", HALVES)
def test_every_number_of_16_bits_is_widened_exactly(kernels, dtype):
    """All finite ones, subnormal ones too; one output each, so that sums keep them as they are."""
    bits = np.arange(65536, dtype=np.uint16)
    if dtype == "float16":
        wide = bits[bits & 0x7C00 != 0x7C00].view(np.float16).astype(np.float32)
    else:
        wide = (bits[bits & 0x7F80 != 0x7F80].astype(np.uint32) << 16).view(np.float32)
    out = kernels.linear(np.ones((1, 1), np.float32), pack(wide[None], dtype))
    assert np.array_equal(out[0], wide)
    odd = np.array([[np.inf, -np.inf, np.nan, 1]], np.float32)
    out = kernels.linear(np.ones((1, 1), np.float32), pack(odd, dtype))
    assert np.array_equal(out, odd, equal_nan=True)


# Limits of rounding x


def one_by_one(n):
    """A weight that shows each of n inputs: scale * whole number of x, as far as exact."""
    return pack(np.eye(n, dtype=np.float32), "int8")


@both
def test_x_is_rounded_to_the_nearest_127th_ties_to_even(kernels):
    x = np.zeros((1, 40), np.float32)
    x[0, :8] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49]
    x[0, 32:36] = [254, 1, 3, 5]  # the second group has the scale 2
    out = kernels.linear(x, one_by_one(40))[0] / kernels.linear(x, one_by_one(40))[0, 0] * 127
    assert out[:8].tolist() == pytest.approx([127, 0, 2, 2, 0, -2, -2, 0])
    assert out[32:36].tolist() == pytest.approx([254, 0, 4, 4])


@both
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", WHOLE)
def test_a_row_with_what_is_not_finite_is_nan_and_no_other_row(kernels, dtype, odd):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((9, 70), (70, 33)))
    w[:, 5] = 0
    clean = kernels.linear(x, pack(w, dtype))
    x[4, 66] = odd
    out = kernels.linear(x, pack(w, dtype))
    assert np.isnan(out[4]).all()
    rest = np.arange(9) != 4
    assert np.array_equal(out[rest], clean[rest])


@both
@pytest.mark.parametrize("dtype", WHOLE)
def test_a_group_of_zeros_or_next_to_nothing_adds_nothing(kernels, dtype):
    least = np.float32(2.0**-126)  # the smallest scale that counts
    w = pack(np.ones((32, 5), np.float32), dtype)
    ones = np.ones((1, 32), np.float32)
    for nothing in (0.0, -0.0, 1e-45, 1e-39, least, least * 126):
        assert not kernels.linear(ones * np.float32(nothing), w).any()
    assert (kernels.linear(ones * (least * 127), w) > 0).all()
    bias = np.arange(5, dtype=np.float32)
    assert np.array_equal(kernels.linear(ones * 0, w, bias)[0], bias)


@both
@pytest.mark.parametrize("dtype", WHOLE)
def test_the_largest_numbers_overflow_to_infinity_in_silence(kernels, dtype):
    top = np.finfo(np.float32).max
    with np.errstate(all="raise"):
        w = pack(np.full((32, 3), 1e3, np.float32), dtype)
        assert (kernels.linear(np.full((1, 32), top), w) == np.inf).all()
        assert (kernels.linear(np.full((1, 32), -top), w) == -np.inf).all()


# What is refused


@compiled
@pytest.mark.parametrize("dtype", ["float32", *HALVES, *WHOLE, "float64"])
def test_twins_refuse_the_wrong_width_of_x_in_the_same_words(dtype):
    weight = pack(np.ones((4, 5)), dtype)
    odd = np.ones((2, 4), np.float32 if dtype == "float64" else np.float64)

    def words(kernels, *arguments):
        with pytest.raises((TypeError, ValueError)) as caught:
            kernels.linear(*arguments)
        return type(caught.value), str(caught.value)

    fits = np.ones((2, 4), np.float64 if dtype == "float64" else np.float32)
    assert words(native, odd, weight) == words(reference, odd, weight)
    assert f"for a weight in {dtype}" in words(native, odd, weight)[1]
    wide = np.ones((2, 5), fits.dtype)
    assert words(native, wide, weight) == words(reference, wide, weight)
    assert words(native, fits, weight, odd[0, :4])[0] is TypeError
    assert words(reference, fits, weight, odd[0, :4])[0] is TypeError
    assert words(native, fits, weight, fits[0])[0] is ValueError


@compiled
@pytest.mark.parametrize("dtype", ["float32", *HALVES, *WHOLE])
def test_arrays_that_do_not_fit_their_weight_are_refused_and_never_read(dtype):
    weight = pack(np.ones((40, 20), np.float32), dtype)
    x = np.ones((1, 40), np.float32)
    wrong = [{"panels": weight.panels[:1]}, {"panels": weight.panels[:, :-1]}]
    wrong += [{"panels": weight.panels.astype(np.float64)}, {"n_out": 33}, {"n_out": -1}]
    wrong += [{"panels": [[1], [1, 2]]}, {"n_in": -40}, {"n_in": 2**63 - 1}, {"n_out": 2**62}]
    wrong += [{"n_out": 2**63 - 1}, {"n_out": 2**40}]
    if dtype in WHOLE:
        wrong += [{"scales": weight.scales[:, :1]}, {"scales": None}, {"panels": None}]
        wrong += [{"scales": weight.scales.astype(np.float32)}, {"n_in": 96}]
    for change in wrong:
        with pytest.raises((TypeError, ValueError)):
            native.linear(x, dataclasses.replace(weight, **change))


@both
@pytest.mark.parametrize("dtype", [*HALVES, *WHOLE])
def test_weights_in_bytes_that_begin_anywhere_and_cannot_be_written_will_do(kernels, dtype):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 70), (70, 33)))
    weight = pack(w, dtype)
    description, arrays = to_arrays(weight)
    moved = {}
    for name, array in arrays.items():
        data = bytes(array.itemsize) + array.tobytes()
        moved[name] = np.frombuffer(data, array.dtype)[1:].reshape(array.shape)
    again = from_arrays(description, moved)
    assert np.array_equal(kernels.linear(x, again), kernels.linear(x, weight))
