"""What is no argument is refused, in the same words and without a crash."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
from kernels.cases import both, compiled, native, no_warnings, reference

from minidecode.kernels import pack

pytestmark = no_warnings


def calls():
    """(name, arguments) that no kernel may take, for both dtypes that it would take otherwise."""
    x = np.zeros((2, 4))
    q, page = np.zeros((2, 3, 4)), np.zeros((1, 2, 3, 8, 4))
    w, v = pack(np.zeros((4, 5))), np.zeros(4)
    single = np.float32
    for odd in (">f4", ">f8", np.float16, np.int64, bool, complex, object, "U1"):
        yield "softmax", (np.zeros(4, odd),)
        yield "sampling_filter", (np.zeros(4, odd),)
        yield "linear", (x.astype(odd), w)
        yield "linear", (x, w, np.zeros(5, odd))
        yield "layer_norm", (x.astype(odd), v, v, 1e-5)
        yield "layer_norm", (x, v.astype(odd), v, 1e-5)
        for name in ("gelu", "gelu_erf", "relu", "silu"):
            yield name, (x.astype(odd),)
        yield "residual", (v.astype(odd), v)
        yield "residual", (v, v.astype(odd))
        yield "total", (x.astype(odd),)
        yield "attention", (q.astype(odd), [page], 0, 0, 1.0)
        yield "attention", (q, [page.astype(odd)], 0, 0, 1.0)
    yield "residual", (v.astype(single), v)
    yield "residual", (v, v.astype(single))
    for shape in ((), (3,), (5,), (1, 4), (4, 1)):
        yield "residual", (v, np.zeros(shape))
        yield "residual", (np.zeros(shape), v)
    yield "linear", (x.astype(single), w)
    yield "linear", (x, w, np.zeros(5, single))
    yield "layer_norm", (x, v.astype(single), v, 1e-5)
    yield "layer_norm", (x, v, v.astype(single), 1e-5)
    yield "attention", (q.astype(single), [page], 0, 0, 1.0)
    yield "attention", (q, [page, page.astype(single)], 0, 0, 1.0)
    for shape in ((), (1, 1, 4)):
        yield "softmax", (np.zeros(shape),)
        yield "sampling_filter", (np.zeros(shape),)
        yield "linear", (np.zeros(shape), w)
        yield "layer_norm", (np.zeros(shape), v, v, 1e-5)
    yield "linear", (v, w)
    yield "linear", (np.zeros((2, 3)), w)
    yield "linear", (np.zeros((2, 5)), w)
    for shape in ((), (4,), (6,), (1, 5), (5, 1)):
        yield "linear", (x, w, np.zeros(shape))
    for norm in (5, "ab", [], (v,), (v, v), (v, v, None), (v, v, 1e-5, 1), {}):
        yield "linear", (x, w, None, norm)
    for shape in ((), (1,), (3,), (5,), (1, 4)):
        yield "linear", (x, w, None, (np.zeros(shape), v, 1e-5))
        yield "linear", (x, w, None, (v, np.zeros(shape), 1e-5))
    yield "linear", (x, w, None, (v.astype(single), v, 1e-5))
    yield "linear", (x, w, None, (v, v.astype(single), 1e-5))
    for activation in ("", "tanh", "gelu_new", 1, v.sum()):
        yield "linear", (x, w, None, None, activation)
    for shape in ((), (5,), (10,), (1, 5), (2, 4), (5, 2), (2, 5, 1)):
        yield "linear", (x, w, None, None, None, np.zeros(shape))
    yield "linear", (x, w, None, None, None, np.zeros((2, 5), single))
    for shape in ((), (1,), (3,), (5,), (1, 4)):
        yield "layer_norm", (x, np.zeros(shape), v, 1e-5)
        yield "layer_norm", (x, v, np.zeros(shape), 1e-5)
    for shape in ((4,), (3, 4), (1, 2, 3, 4), (2, 2, 4), (2, 3, 5), (0, 3, 4)):
        yield "attention", (np.zeros(shape), [page], 0, 0, 1.0)
    for shape in ((2, 3, 8, 4), (1, 1, 3, 8, 4), (1, 2, 4, 8, 4), (1, 2, 3, 8, 5), (0, 2, 3, 8, 4)):
        yield "attention", (q, [np.zeros(shape)], 0, 0, 1.0)
    yield "attention", (q, [], 0, 0, 1.0)
    for layer in (-1, 1, 2**40, -(2**63)):
        yield "attention", (q, [page], layer, 0, 1.0)
    for start in (-1, 7, 8, 2**63 - 1, -(2**63)):
        yield "attention", (q, [page], 0, start, 1.0)


@both
@pytest.mark.parametrize("name", sorted({*reference.__all__} - {"sampling_filter"}))
def test_wrong_arguments_are_refused(kernels, name):
    for kernel, arguments in calls():
        if kernel == name:
            with pytest.raises((TypeError, ValueError)):
                getattr(kernels, name)(*arguments)
                pytest.fail(f"{name} took {arguments}")


@both
def test_filter_refuses_wrong_arguments(kernels):
    for kernel, arguments in calls():
        if kernel == "sampling_filter":
            with pytest.raises((TypeError, ValueError)):
                kernels.sampling_filter(*arguments)
    for wrong in ((None,), (1.0, 2.5), (1.0, "3"), (1.0, 0, None)):
        with pytest.raises((TypeError, ValueError)):
            kernels.sampling_filter(np.zeros(3), *wrong)


@pytest.mark.parametrize("odd", [">f4", np.float16, np.int64, object])
def test_pack_refuses_other_types(odd):
    with pytest.raises(TypeError, match="float32 or float64"):
        pack(np.zeros((2, 3), odd))
    with pytest.raises(ValueError, match=r"\[n_in, n_out\]"):
        pack(np.zeros(3))


RAGGED = [[1.0], [1.0, 2.0]]


@compiled
@pytest.mark.parametrize(
    "call",
    [
        f"native.linear(np.ones((1, 3)), pack(np.zeros((3, 2))), {RAGGED})",
        f"native.attention(np.ones((1, 2, 4)), [{RAGGED}], 0, 0, 1.0)",
    ],
)
def test_what_cannot_become_an_array_does_not_crash(call):
    code = f"import numpy as np\nfrom minidecode.kernels import native, pack\n{call}\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "Error" in done.stderr


@compiled
@pytest.mark.parametrize("name", reference.__all__)
def test_twins_have_one_signature(name):
    """Whoever calls one by the names of its parameters can call the other so."""
    arguments = {
        "softmax": {"logits": np.zeros(3)},
        "sampling_filter": {"logits": np.zeros(3), "top_k": 2},
        "attention": {
            "q": np.zeros((1, 1, 2)),
            "pages": [np.zeros((1, 2, 1, 1, 2))],
            "layer": 0,
            "start": 0,
            "scale": 1.0,
        },
        "linear": {
            "x": np.zeros((1, 2)),
            "weight": pack(np.zeros((2, 3))),
            "bias": np.zeros(3),
            "norm": (np.zeros(2), np.zeros(2), 1e-5),
            "activation": "gelu",
            "added": np.zeros((1, 3)),
        },
        "layer_norm": {
            "x": np.zeros((1, 2)),
            "weight": np.zeros(2),
            "bias": np.zeros(2),
            "epsilon": 1e-5,
        },
        **{name: {"x": np.zeros(2)} for name in ("gelu", "gelu_erf", "relu", "silu")},
        "residual": {"p": np.zeros(2), "q": np.zeros(2), "scale": 0.5},
        "total": {"x": np.zeros(2)},
    }[name]
    assert arguments.keys() <= inspect.signature(getattr(reference, name)).parameters.keys()
    for kernels in (reference, native):
        getattr(kernels, name)(**arguments)


EXTREMES = [0.0, -0.0, 1e-40, -1e-40, 1e-30, -90.0, 90.0, -3e38, 3e38]


@both
def test_no_kernel_raises_what_numpy_was_told_to_raise(kernels):
    """`np.seterr(all="raise")` is for the caller's own sums: here it changes no result."""
    x = np.array([EXTREMES, EXTREMES[::-1]], np.float32)
    q, page = x.reshape(2, 1, 9), np.full((1, 2, 1, 4, 9), 1e25, np.float32)
    page[..., ::2] = 1e-30

    def results():
        ones = np.ones(9, np.float32)
        yield kernels.softmax(x)
        yield kernels.sampling_filter(x, 1e-3, 0, 0.9, 0.1)
        yield kernels.layer_norm(x, ones, ones, 1e-5)
        yield kernels.attention(q, [page], 0, 1, 1.0)
        yield from (
            kernels.linear(x, pack(np.tile(x.T, 3), dtype)) for dtype in ("float32", "int8")
        )
        yield from (getattr(kernels, f)(x) for f in ("gelu", "gelu_erf", "relu", "silu"))
        yield kernels.residual(x[0], x[1], 1e-300)[0]
        yield np.array(kernels.total(x))

    quiet = list(results())
    with np.errstate(all="raise"):
        aloud = list(results())
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(quiet, aloud, strict=True))
