"""How weights are stored: what each type keeps, where each number lies, what is refused."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.cases import LAYOUTS, laid_out, no_warnings, search

from minidecode.kernels import pack, packing
from minidecode.kernels.packing import DTYPES, from_arrays, to_arrays, unpack

pytestmark = no_warnings
WHOLE = ("int8", "int4")


@st.composite
def matrices(draw, widest=100):
    n_in, n_out = draw(st.integers(1, 100)), draw(st.integers(1, widest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0, 1e-42, 1e-30, 1e-3, 1, 300, 1e30]))
    w = rng.standard_normal((n_in, n_out)) * scale * rng.choice([1, 1e-3], (1, n_out))
    return laid_out(w.astype(np.float32), draw(st.sampled_from(LAYOUTS)))


def small_enough(w, dtype):
    return np.clip(w, -60000, 60000) if dtype == "float16" else w


def nearest_bfloat16(w):
    """By arithmetic: 8 significant bits, ties to even, not finer than 2**-133."""
    wide = w.astype(np.float64)
    exponent = np.maximum(np.frexp(wide)[1] - 8, -133)
    return np.ldexp(np.rint(np.ldexp(wide, -exponent)), exponent)


@pytest.mark.parametrize("dtype", DTYPES)
@search(40)
@given(w=matrices(), chunk=st.sampled_from([1, 3000, 1 << 18]))
def test_packed_columns_are_those_of_the_matrix_as_the_type_rounds_it(dtype, w, chunk):
    w = small_enough(w, dtype)
    before = w.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_CHUNK", chunk)
        packed = pack(w, dtype)
    columns = packed.columns(np.arange(w.shape[1]))
    assert np.array_equal(w, before) and packed.dtype == dtype
    assert (packed.n_in, packed.n_out) == w.shape == unpack(packed).shape
    assert columns.dtype == unpack(packed).dtype == np.float32
    assert np.array_equal(columns, unpack(packed).T)
    assert np.array_equal(packed.columns(np.array([w.shape[1] - 1])), columns[-1:])
    if dtype in WHOLE:
        groups = np.arange(w.shape[0]) // 32
        scales = np.abs(packed.groups[1].astype(np.float64))[groups]  # [n_in, n_out]
        lost = np.abs(w - columns.T.astype(np.float64))
        if dtype == "int8":  # half a step, and the rounding of the quotient and the product
            assert (lost <= scales * 0.50002 + 1e-40).all()
        else:  # no worse than what scales from the largest weight alone would lose
            assert (lost**2).sum() <= (w.astype(np.float64) ** 2).sum()
    else:
        rounded = {
            "float32": lambda: w,
            "float16": lambda: w.astype(np.float16),
            "bfloat16": lambda: nearest_bfloat16(w),
        }[dtype]()
        assert np.array_equal(columns, rounded.T.astype(np.float32))


@pytest.mark.parametrize("dtype", WHOLE)
@search(30)
@given(w=matrices())
def test_whole_numbers_lie_where_the_layout_says(dtype, w):
    packed = pack(w, dtype)
    whole, scales = packed.groups  # [g, 32, n_out], [g, n_out]
    assert packed.panels.shape[1:] == (len(whole), 8 if dtype == "int8" else 4, 16, 4)
    for i, o in np.random.default_rng(0).integers(w.shape, size=(20, 2)):
        panel, lane = divmod(o, 16)
        group, place = divmod(i, 32)
        quad, byte = divmod(place, 4)
        if dtype == "int8":
            stored = int(packed.panels[panel, group, quad, lane, byte]) - 128
        else:
            both = int(packed.panels[panel, group, quad % 4, lane, byte])
            stored = (both >> 4 if quad >= 4 else both & 15) - 8
        assert stored == whole[group, place, o]
        bits = int(packed.scales[panel, group, lane]) << 16
        assert np.array([bits], np.uint32).view(np.float32)[0] == scales[group, o]
        assert unpack(packed)[i, o] == np.float32(stored) * scales[group, o]


@pytest.mark.parametrize(("dtype", "nothing"), [("int8", 128), ("int4", 0x88)])
def test_what_pads_a_matrix_is_zero(dtype, nothing):
    packed = pack(np.ones((33, 17), np.float32), dtype)
    assert (packed.panels[1, :, :, 1:] == nothing).all()
    assert (packed.panels[0, 1, 1:] == nothing).all()
    assert not packed.scales[1, :, 1:].any()


@pytest.mark.parametrize("dtype", WHOLE)
def test_the_largest_weight_of_a_group_is_not_cut(dtype):
    w = np.zeros((64, 3), np.float32)
    w[5], w[40] = [3, -3, 1e-3], [0, 100, -7]
    close = 0.01 if dtype == "int8" else 0.08
    np.testing.assert_allclose(unpack(pack(w, dtype)), w, rtol=close)


def test_the_error_of_int4_is_below_that_of_the_largest_weight_as_scale():
    """Normal weights: 8.1 % of their size are lost, 8.9 % with the scale max |w| / 7."""
    w = np.random.default_rng(0).standard_normal((1024, 64)).astype(np.float32)
    groups = w.reshape(-1, 32, 64)
    plain = np.abs(groups).max(axis=1, keepdims=True) / 7
    simple = np.rint(groups / plain) * plain

    def error(rounded):
        return np.sqrt(((rounded.reshape(w.shape) - w) ** 2).mean())

    assert error(unpack(pack(w, "int4"))) < 0.083 < 0.088 < error(simple)
    assert error(unpack(pack(w, "int8"))) < 0.006


@pytest.mark.parametrize(
    ("dtype", "fits", "too_much"),
    [("float16", 65519, 65520), ("bfloat16", 3.3895e38, 3.3962e38)],
)
def test_a_number_that_a_type_cannot_hold_is_refused(dtype, fits, too_much):
    w = np.ones((3, 20), np.float32)
    w[1, 17] = -fits
    assert np.isfinite(unpack(pack(w, dtype))).all()
    w[1, 17] = -too_much
    with pytest.raises(ValueError, match=rf"^got -[\d.e+]+, at most [\d.e+]+ fits into {dtype}"):
        pack(w, dtype)
    with pytest.raises(ValueError, match="fits into float32"):
        pack(np.full((2, 2), 1e39), dtype)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_16_bits_and_is_refused_in_fewer(odd):
    w = np.ones((40, 20), np.float32)
    w[35, 17] = odd
    for dtype in ("float32", "float16", "bfloat16"):
        assert np.array_equal(unpack(pack(w, dtype)), w, equal_nan=True)
    for dtype in WHOLE:
        with pytest.raises(ValueError, match=f"^got {odd}, finite numbers were wanted for {dtype}"):
            pack(w, dtype)


def test_the_odd_payload_of_a_nan_stays_a_nan():
    bits = np.array([[0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF]], np.uint32)
    assert np.isnan(unpack(pack(bits.view(np.float32), "bfloat16"))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_packing_takes_little_more_memory_than_its_result(dtype):
    w = np.ones((1024, 4096), np.float32)  # 16 MiB
    pack(w[:, :16], dtype)
    tracemalloc.start()
    try:
        packed = pack(w, dtype)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * 2**20 and packed.nbytes < peak + w.nbytes + 1


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float32", 32), ("float16", 16), ("bfloat16", 16), ("int8", 8.5), ("int4", 4.5)],
)
def test_a_weight_takes_so_many_bits(dtype, bits):
    assert pack(np.ones((64, 32), np.float32), dtype).nbytes * 8 == bits * 64 * 32


@pytest.mark.parametrize("dtype", ["int5", "", "Float32", 8, None, np.float16, ["int8"]])
def test_a_type_that_there_is_not_is_refused_by_name(dtype):
    w = np.ones((2, 2), np.float64)
    if dtype is None:
        assert pack(w, dtype).dtype == "float64"
        return
    with pytest.raises(ValueError, match=r"dtype: got .*, one of float32, float16, bfloat16, int8"):
        pack(w, dtype)


# Saved and read again


@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
@pytest.mark.parametrize("shape", [(33, 17), (1, 1), (64, 32)])
def test_arrays_as_plain_bytes_become_the_same_weight_without_a_copy(dtype, shape):
    w = np.random.default_rng(0).standard_normal(shape)
    packed = pack(w, dtype)
    description, arrays = to_arrays(packed)
    assert description == {"layout": 1, "dtype": dtype, "n_in": shape[0], "n_out": shape[1]}
    stored = {name: (a.tobytes(), a.dtype, a.shape) for name, a in arrays.items()}
    read = {n: np.frombuffer(data, d).reshape(s) for n, (data, d, s) in stored.items()}
    again = from_arrays(description, read)
    assert type(again) is type(packed) and again.nbytes == packed.nbytes
    assert np.array_equal(unpack(again), unpack(packed))
    for name, array in read.items():
        assert np.shares_memory(getattr(again, name), array)
        assert not getattr(again, name).flags.writeable


def changed(description, arrays):
    """What is said and given, each with one fault."""
    panels = arrays["panels"]
    yield "layout: got 2", description | {"layout": 2}, arrays
    yield "layout: got None", {}, arrays
    yield "dtype: got 'int7'", description | {"dtype": "int7"}, arrays
    yield "arrays: got", description | {"dtype": "float16"}, arrays
    yield "n_in: got -1", description | {"n_in": -1}, arrays
    yield "n_out: got '17'", description | {"n_out": "17"}, arrays
    yield "n_out: got True", description | {"n_out": True}, arrays
    yield "panels: got", description | {"n_in": 65}, arrays
    yield "panels: got", description | {"n_out": 33}, arrays
    yield "panels: got", description, arrays | {"panels": panels.view(np.int8)}
    yield "panels: got", description, arrays | {"panels": panels[:-1]}
    yield "gaps", description, arrays | {"panels": np.repeat(panels, 2, axis=0)[::2]}
    yield "scales: got", description, arrays | {"scales": arrays["scales"].view(np.int16)}
    yield "arrays: got", description, {"panels": panels}
    yield "arrays: got", description, arrays | {"more": panels}


def test_arrays_that_are_no_weight_are_refused():
    description, arrays = to_arrays(pack(np.ones((33, 17), np.float32), "int8"))
    for message, told, given_ in changed(description, arrays):
        with pytest.raises(ValueError, match=message):
            from_arrays(told, given_)
