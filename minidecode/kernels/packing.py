"""Weights laid out for decoding, one class for each storage type.

A matrix [n_in, n_out] lies in panels of 16 output columns, each read once and in order:

    float32, float64    panels [p, n_in, 16], p = ceil(n_out / 16)
    float16, bfloat16   the same, two bytes a number; widened to float32 where they are used
    int8                panels [p, g, 8, 16, 4], g = ceil(n_in / 32): groups of 32 inputs, in each
                        8 quads of inputs for each of the 16 outputs. A byte is the weight plus 128.
    int4                panels [p, g, 4, 16, 4]: a byte holds two weights, each plus 8. The low
                        halves are the quads 0 to 3 of the group, the high halves 4 to 7.

int8 and int4 have one scale for each group and output, scales [p, g, 16], in bfloat16, which has
the range of float32 and widens by a shift. A weight stands for scale * whole number. Columns past
n_out and inputs past n_in are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from ..lazy import lazy
from .memory import aligned

__all__ = ["DTYPES", "LAYOUT", "Packed", "from_arrays", "pack", "to_arrays", "unpack"]

PANEL = 16  # output columns a panel: one 512-bit or two 256-bit vectors of float32
GROUP = 32  # inputs that share one scale
LAYOUT = 1  # version of what the table above says; bytes of another version mean something else
_CHUNK = 1 << 18  # elements packed at a time: bounds the temporary memory, and fits the cache


@dataclass(frozen=True, eq=False)
class Packed:
    """A matrix [n_in, n_out] in panels. Its subclasses are the storage types."""

    panels: np.ndarray
    n_in: int
    n_out: int

    dtype: ClassVar[str]  # as `pack` and `load` call it
    stored: ClassVar[type]  # of the elements of panels
    scales = None

    @classmethod
    def shapes(cls, n_in: int, n_out: int) -> dict[str, tuple[tuple[int, ...], type]]:
        """Shape and type of each array that a matrix [n_in, n_out] is stored in."""
        return {"panels": ((-(-n_out // PANEL), n_in, PANEL), cls.stored)}

    @classmethod
    def encode(cls, block: np.ndarray) -> tuple[np.ndarray, ...]:
        """Some panels [p, n_in, 16] as they are stored: a part of each array of `shapes`."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in _arrays(self).values())

    @lazy
    def matrix(self) -> np.ndarray:
        """`unpack`: only the NumPy kernels ask for it, and once for each matrix."""
        matrix = np.ascontiguousarray(self.columns(np.arange(self.n_out)).T)
        matrix.flags.writeable = False
        return matrix

    def columns(self, ids: np.ndarray) -> np.ndarray:
        """Columns `ids` as rows, [len(ids), n_in]: of the transposed embedding, its lookup."""
        raise NotImplementedError


class Floats(Packed):
    """As they are: float32 or float64."""

    def columns(self, ids: np.ndarray) -> np.ndarray:
        return self.panels[ids // PANEL, :, ids % PANEL]

    @classmethod
    def encode(cls, block: np.ndarray) -> tuple[np.ndarray, ...]:
        return (block,)


class Float32(Floats):
    dtype, stored = "float32", np.float32


class Float64(Floats):
    dtype, stored = "float64", np.float64


class Float16(Packed):
    """IEEE binary16: 11 bits of precision, up to 65504."""

    dtype, stored = "float16", np.uint16

    @classmethod
    def encode(cls, block: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(over="ignore", under="ignore"):
            rounded = block.astype(np.float16)
        _refuse_overflow(block, np.isinf(rounded), cls.dtype, 65504)
        return (rounded.view(np.uint16),)

    def columns(self, ids: np.ndarray) -> np.ndarray:
        return self.panels[ids // PANEL, :, ids % PANEL].view(np.float16).astype(np.float32)


class BFloat16(Packed):
    """The upper half of a float32: its range, 8 bits of precision."""

    dtype, stored = "bfloat16", np.uint16

    @classmethod
    def encode(cls, block: np.ndarray) -> tuple[np.ndarray, ...]:
        rounded = to_bfloat16(block)
        _refuse_overflow(block, rounded & 0x7FFF == 0x7F80, cls.dtype, "3.39e+38")
        return (rounded,)

    def columns(self, ids: np.ndarray) -> np.ndarray:
        return from_bfloat16(self.panels[ids // PANEL, :, ids % PANEL])


@dataclass(frozen=True, eq=False)
class Whole(Packed):
    """Whole numbers in groups of 32 inputs with one scale each."""

    scales: np.ndarray

    stored: ClassVar[type] = np.uint8
    zero: ClassVar[int]  # what is added to a weight, so that none is negative
    steps: ClassVar[int]  # quads of one group that lie behind each other

    @classmethod
    def shapes(cls, n_in: int, n_out: int) -> dict[str, tuple[tuple[int, ...], type]]:
        panels, groups = -(-n_out // PANEL), -(-n_in // GROUP)
        return {
            "panels": ((panels, groups, cls.steps, PANEL, 4), np.uint8),
            "scales": ((panels, groups, PANEL), np.uint16),
        }

    @classmethod
    def encode(cls, block: np.ndarray) -> tuple[np.ndarray, ...]:
        if not np.isfinite(block).all():
            wrong = block[~np.isfinite(block)][0]
            raise ValueError(f"got {wrong}, finite numbers were wanted for {cls.dtype}")
        panels, n_in, _ = block.shape
        groups = np.zeros((panels, -(-n_in // GROUP), GROUP, PANEL), np.float32)
        groups.reshape(panels, groups.shape[1] * GROUP, PANEL)[:, :n_in] = block
        scales = cls.choose_scales(groups)  # [p, g, 16]
        whole = cls.round(groups, from_bfloat16(scales)[:, :, None])  # [p, g, 32, 16]
        split = (panels, groups.shape[1], GROUP // 4, 4, PANEL)
        quads = whole.reshape(split).swapaxes(3, 4)  # [p, g, 8, 16, 4]
        return cls.join((quads + cls.zero).astype(np.uint8)), scales

    @classmethod
    def round(cls, groups: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """The whole numbers nearest to groups / scales, ties to even; 0 where the scale is 0."""
        with np.errstate(under="ignore"):
            whole = np.divide(groups, scales, out=np.zeros_like(groups), where=scales != 0)
        return np.clip(np.rint(whole, out=whole), cls.least, cls.most, out=whole)

    def columns(self, ids: np.ndarray) -> np.ndarray:
        whole, scales = self.whole_columns(ids)
        with np.errstate(under="ignore"):
            rows = whole * scales[:, :, None]  # [len(ids), g, 32]
        return rows.reshape(len(ids), rows.shape[1] * GROUP)[:, : self.n_in]

    def whole_columns(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Columns `ids` as whole numbers [len(ids), g, 32] and scales [len(ids), g], float32."""
        panel, lane = ids // PANEL, ids % PANEL
        quads = self.split(self.panels[panel, :, :, lane])  # [len(ids), g, 8, 4]
        whole = quads.astype(np.float32) - np.float32(self.zero)
        scales = from_bfloat16(self.scales[panel, :, lane])
        return whole.reshape(*scales.shape, GROUP), scales

    @lazy
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Whole numbers [g, 32, n_out] and scales [g, n_out], float32: for the NumPy kernels."""
        whole, scales = self.whole_columns(np.arange(self.n_out))
        return np.ascontiguousarray(whole.transpose(1, 2, 0)), np.ascontiguousarray(scales.T)


class Int8(Whole):
    """-127 to 127; the scale is that of the largest."""

    dtype, zero, steps, least, most = "int8", 128, 8, -127, 127

    @staticmethod
    def choose_scales(groups: np.ndarray) -> np.ndarray:
        """The least scale in bfloat16 with which no weight of its group is beyond 127."""
        largest = np.abs(groups).max(axis=2)
        with np.errstate(under="ignore"):
            exact = largest / np.float32(127)
        return ((exact.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)).astype(np.uint16)

    @staticmethod
    def join(quads: np.ndarray) -> np.ndarray:
        return quads

    @staticmethod
    def split(quads: np.ndarray) -> np.ndarray:
        return quads


class Int4(Whole):
    """-8 to 7; the scale is searched for the least squared error."""

    dtype, zero, steps, least, most = "int4", 8, 4, -8, 7

    places = (-8.0, -7.5, -8.5, -7.0, -9.0)  # more of them gain less than a thousandth

    @classmethod
    def choose_scales(cls, groups: np.ndarray) -> np.ndarray:
        """The scale [p, g, 16] of least squared error among some, each refitted.

        With whole numbers q the error is least for the scale (w . q) / (q . q), and smaller than
        w . w by (w . q)^2 / (q . q). The tried scales put the largest weight at one of `places`;
        then the best is tried once more.
        """
        at = np.abs(groups).argmax(axis=2, keepdims=True)
        largest = np.take_along_axis(groups, at, axis=2)  # [p, g, 1, 16], with its sign
        best = np.zeros(largest.shape, np.float32)
        gain = np.zeros(largest.shape, np.float64)
        with np.errstate(under="ignore"):
            for place in (*cls.places, None):
                tried = best if place is None else largest / np.float32(place)
                whole = cls.round(groups, tried)
                product = np.einsum("pgio,pgio->pgo", groups, whole, dtype=np.float64)[:, :, None]
                square = np.einsum("pgio,pgio->pgo", whole, whole)[:, :, None]
                square[square == 0] = np.inf  # even the largest weight is too small for a scale
                better = product * product / square > gain
                np.copyto(best, product / square, where=better, casting="same_kind")
                np.copyto(gain, product * product / square, where=better)
        return to_bfloat16(best[:, :, 0])

    @staticmethod
    def join(quads: np.ndarray) -> np.ndarray:
        return quads[:, :, :4] | quads[:, :, 4:] << 4

    @staticmethod
    def split(quads: np.ndarray) -> np.ndarray:
        return np.concatenate([quads & 15, quads >> 4], axis=2)


_CLASSES = {c.dtype: c for c in (Float32, Float16, BFloat16, Int8, Int4, Float64)}
DTYPES = ("float32", "float16", "bfloat16", "int8", "int4")  # that a model's weights may have


def pack(matrix: np.ndarray, dtype: str | None = None) -> Packed:
    """`matrix` [n_in, n_out] (float32 or float64, any strides, unchanged) stored as `dtype`.

    `dtype` is one of `DTYPES`, or float64; None is the matrix's own. Temporary memory is some
    megabytes, however large the matrix. A number that the type cannot hold is a ValueError.
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix: got shape {matrix.shape}, [n_in, n_out] was wanted")
    if matrix.dtype not in (np.float32, np.float64):
        raise TypeError(f"matrix: got dtype {matrix.dtype}, float32 or float64 was wanted")
    kind = _class(matrix.dtype.name if dtype is None else dtype)
    arrays = {name: aligned(*spec) for name, spec in kind.shapes(*matrix.shape).items()}
    for begin, end, block in _blocks(matrix, np.float64 if kind is Float64 else np.float32):
        for array, part in zip(arrays.values(), kind.encode(block), strict=True):
            array[begin:end] = part
    return kind(n_in=matrix.shape[0], n_out=matrix.shape[1], **arrays)


def unpack(weight: Packed) -> np.ndarray:
    """The matrix [n_in, n_out] that `weight` stands for, read-only; unpacked once and then kept."""
    return weight.matrix


def to_arrays(weight: Packed) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `weight` is, in numbers and words, and the arrays that hold it: to be saved."""
    shape = {"n_in": weight.n_in, "n_out": weight.n_out}
    return {"layout": LAYOUT, "dtype": weight.dtype, **shape}, _arrays(weight)


def from_arrays(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> Packed:
    """The weight that `to_arrays` described; the arrays are not copied, and may be read-only.

    A ValueError says what does not fit: another layout, a wrong shape or type, an array with gaps.
    """
    if description.get("layout") != LAYOUT:
        got = description.get("layout")
        raise ValueError(f"layout: got {got!r}, version {LAYOUT} was wanted")
    kind = _class(description.get("dtype"))
    sizes = {name: description.get(name) for name in ("n_in", "n_out")}
    for name, size in sizes.items():
        if type(size) is not int or size < 0:
            raise ValueError(f"{name}: got {size!r}, a whole number of at least 0 was wanted")
    wanted = kind.shapes(**sizes)
    if arrays.keys() != wanted.keys():
        raise ValueError(f"arrays: got {sorted(arrays)}, {sorted(wanted)} was wanted")
    for name, (shape, stored) in wanted.items():
        got = arrays[name]
        if got.shape != shape or got.dtype != stored:
            raise ValueError(
                f"{name}: got {got.dtype} {list(got.shape)}, "
                f"{np.dtype(stored)} {list(shape)} was wanted"
            )
        if not (got.flags.c_contiguous and got.flags.aligned):
            raise ValueError(f"{name}: got an array with gaps, a contiguous one was wanted")
    return kind(**arrays, **sizes)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bfloat16, ties to even, as its bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    return np.where(np.isnan(x), np.uint32(0x7FC0), rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _class(dtype: object) -> type[Packed]:
    if not isinstance(dtype, str) or dtype not in _CLASSES:
        raise ValueError(f"dtype: got {dtype!r}, one of {', '.join(DTYPES)} was wanted")
    return _CLASSES[dtype]


def _arrays(weight: Packed) -> dict[str, np.ndarray]:
    values = {field.name: getattr(weight, field.name) for field in fields(weight)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _blocks(matrix: np.ndarray, dtype: type) -> Iterator[tuple[int, int, np.ndarray]]:
    """(begin, end, panels begin to end of the matrix as [end - begin, n_in, 16]), padded with 0."""
    n_in, n_out = matrix.shape
    panels, step = -(-n_out // PANEL), max(1, _CHUNK // max(1, n_in * PANEL))
    for begin in range(0, panels, step):
        end = min(begin + step, panels)
        columns = np.zeros((n_in, (end - begin) * PANEL), dtype)
        held = matrix[:, begin * PANEL : end * PANEL]
        with np.errstate(over="ignore", under="ignore"):
            columns[:, : held.shape[1]] = held
        if matrix.dtype != dtype:
            narrowed = columns[:, : held.shape[1]]
            _refuse_overflow(held, np.isinf(narrowed), "float32", "3.4e+38")
        yield begin, end, columns.reshape(n_in, end - begin, PANEL).transpose(1, 0, 2)


def _refuse_overflow(block: np.ndarray, infinite: np.ndarray, dtype: str, most: object) -> None:
    lost = infinite & np.isfinite(block)
    if lost.any():
        raise ValueError(f"got {block[lost][0]}, at most {most} fits into {dtype}")
