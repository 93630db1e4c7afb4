"""What the tests of all kernels share: both twins, layouts in memory, and arguments to try."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from minidecode.kernels import pack, reference

try:
    from minidecode.kernels import native
except ImportError:
    native = None

compiled = pytest.mark.skipif(native is None, reason="the compiled kernels are not built")
BOTH = [pytest.param(reference, id="numpy"), pytest.param(native, id="native", marks=compiled)]
both = pytest.mark.parametrize("kernels", BOTH)
no_warnings = pytest.mark.filterwarnings("error::RuntimeWarning")

SIZES = (1, 2, 15, 16, 17, 255, 257, 1023, 1025, 4096, 50_257, 70_000)
LAYOUTS = ("plain", "reversed", "strided", "transposed", "broadcast", "unaligned", "read-only")
FLOATS = (np.float32, np.float64)


def search(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True)


def laid_out(x, layout):
    """`x` in another place of memory; "broadcast" repeats its first row with a stride of 0."""
    if layout == "reversed":
        backwards = (slice(None, None, -1),) * x.ndim
        return x[backwards].copy()[backwards]
    if layout == "strided":
        spread = np.full([3 * size for size in x.shape], np.nan, x.dtype)
        spread[(slice(1, None, 3),) * x.ndim] = x
        return spread[(slice(1, None, 3),) * x.ndim]
    if layout == "transposed":
        return x.T.copy().T
    if layout == "broadcast":
        return np.broadcast_to(x[:1], x.shape)
    if layout == "unaligned":
        y = np.ndarray(x.shape, x.dtype, bytearray(x.nbytes + 1), offset=1)
        y[...] = x
        return y
    x = x.copy()
    x.flags.writeable = layout != "read-only"
    return x


@st.composite
def logits(draw, most=70_000, rows=False):
    """Logits [V] or [n, V]: wide or narrow, with ties and -inf, never without a finite one."""
    V = draw(st.integers(1, 40) | st.sampled_from([size for size in SIZES if size <= most]))
    n = draw(st.integers(0, 3)) if rows and V < 5000 else None
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal(V if n is None else (n, V)) * draw(st.sampled_from([0, 0.01, 3, 50]))
    if draw(st.booleans()):
        x = np.round(x * 2) / 2  # many ties
    layout = draw(st.sampled_from(LAYOUTS))
    if draw(st.booleans()):
        x = np.where(rng.random(x.shape) < draw(st.sampled_from([0.1, 0.9])), -np.inf, x)
        x[..., 0 if layout == "broadcast" else rng.integers(V)] = rng.standard_normal()
    return laid_out(x.astype(draw(st.sampled_from(FLOATS))), layout)


@st.composite
def rows_of_numbers(draw):
    n, d = draw(st.integers(0, 6)), draw(st.integers(1, 70) | st.sampled_from([768, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((n, d)) * draw(st.sampled_from([0, 1e-3, 1, 8])) + rng.normal()
    x = x.astype(draw(st.sampled_from(FLOATS)))
    weight, bias = rng.standard_normal((2, d)).astype(x.dtype)
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in range(3)]
    return [laid_out(a, layout) for a, layout in zip((x, weight, bias), layouts)]


@st.composite
def linear_arguments(draw):
    n, n_in = draw(st.integers(1, 20)), draw(st.integers(1, 70))
    n_out = draw(st.integers(1, 100) | st.sampled_from([160, 257]))
    dtype = draw(st.sampled_from(FLOATS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = laid_out(rng.standard_normal((n, n_in)).astype(dtype), draw(st.sampled_from(LAYOUTS)))
    w = rng.standard_normal((n_in, n_out)).astype(dtype)
    w = laid_out(w, draw(st.sampled_from(LAYOUTS)))
    bias = laid_out(rng.standard_normal(n_out).astype(dtype), draw(st.sampled_from(LAYOUTS)))
    return x, w, draw(st.sampled_from([None, bias]))


def attention_by_hand(q, pages, layer, start, scale):
    """One query and head after the other, in float64."""
    keys, values = np.concatenate([page[layer] for page in pages], axis=2).astype(np.float64)
    out = np.empty(q.shape)
    for i, h in np.ndindex(q.shape[:2]):
        scores = keys[h, : start + i + 1] @ q[i, h].astype(np.float64) * scale
        weights = np.exp(scores - scores.max())
        out[i, h] = weights / weights.sum() @ values[h, : start + i + 1]
    return out


def large_calls():
    """Calls large enough for several threads to share, some with a ragged end."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    rows = numbers(7, 50_257)
    yield "softmax", (rows,)
    yield "sampling_filter", (rows, 0.8, 50, 0.9, 1e-4)
    yield "sampling_filter", (rows, 0.8, 0, 0.9)
    yield "linear", (numbers(1, 300), pack(numbers(300, 1001)), numbers(1001))
    yield "linear", (numbers(29, 300), pack(numbers(300, 1001)))
    yield "linear", (numbers(29, 300).astype(float), pack(numbers(300, 1001).astype(float)))
    norm = (numbers(300), numbers(300), 1e-5)
    yield "linear", (numbers(9, 300), pack(numbers(300, 999)), None, norm, "gelu", numbers(9, 999))
    yield "attention", (numbers(65, 3, 40), [numbers(1, 2, 3, 100, 40)], 0, 30, 0.1)
    yield "layer_norm", (numbers(300, 768), numbers(768), numbers(768), 1e-5)
    for name in ("gelu", "gelu_erf", "relu", "silu"):
        yield name, (numbers(3, 33_333),)
    yield "residual", (np.abs(numbers(50_257)), np.abs(numbers(50_257)), 0.7)
    yield "total", (numbers(3, 300_000),)


def digests(kernels):
    """A line for each call: its name and a digest of its result."""
    return [f"{name} {digest(getattr(kernels, name)(*rest))}" for name, rest in large_calls()]


def digest(result):
    parts = result if isinstance(result, tuple) else (result,)
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest()


def whole_digests(kernels):
    """The same for products with whole numbers: large ones, odd ones, one of many rows."""
    rng = np.random.default_rng(1)
    lines = []
    for n, n_in, n_out in ((1, 320, 1001), (5, 33, 17), (29, 300, 100), (67, 96, 500)):
        x, w = (rng.standard_normal(s).astype(np.float32) for s in ((n, n_in), (n_in, n_out)))
        bias = rng.standard_normal(n_out).astype(np.float32)
        for dtype in ("int8", "int4"):
            result = kernels.linear(x, pack(w, dtype), bias)
            lines.append(f"{dtype} {hashlib.sha256(result.tobytes()).hexdigest()}")
    return lines


def printed_with(instruction_set, digest):
    """The instruction set in use and the lines of `digest`, by a process that asks for one."""
    code = (
        f"from kernels.cases import {digest}, native\n"
        f"print(native.instruction_set(), *{digest}(native), sep='\\n')"
    )
    paths = [str(Path(__file__).parent.parent), *filter(None, sys.path)]
    env = os.environ | {"MINIDECODE_ISA": instruction_set, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
