"""Weights laid out for decoding: in panels of 16 output columns, each read once and in order."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .memory import aligned

__all__ = ["PANEL", "Packed", "pack", "unpack"]

PANEL = 16  # output columns a panel: one 512-bit or two 256-bit vectors of float32
_CHUNK = 1 << 22  # elements packed at a time: bounds the temporary memory


@dataclass(frozen=True)
class Packed:
    """A matrix [n_in, n_out] as `panels` [ceil(n_out / 16), n_in, 16], 0 past n_out.

    The storage type is the panels' dtype. Kernels never look at more than this object offers, so
    narrower storage can be added beside float32 and float64.
    """

    panels: np.ndarray
    n_out: int

    @property
    def n_in(self):
        return self.panels.shape[1]

    @cached_property
    def matrix(self):
        """`unpack`: only the NumPy kernels ask for it, and once for each matrix."""
        wide = self.panels.swapaxes(0, 1).reshape(self.n_in, -1)  # with what pads the last panel
        matrix = np.ascontiguousarray(wide[:, : self.n_out])
        matrix.flags.writeable = False
        return matrix

    def columns(self, ids):
        """Columns `ids` as rows, [len(ids), n_in]: of the transposed embedding, its lookup."""
        return self.panels[ids // PANEL, :, ids % PANEL]


def pack(matrix):
    """`matrix` [n_in, n_out] (float32 or float64, any strides, unchanged) as `Packed`."""
    matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix: got shape {matrix.shape}, [n_in, n_out] was wanted")
    if matrix.dtype not in (np.float32, np.float64):
        raise TypeError(f"matrix: got dtype {matrix.dtype}, float32 or float64 was wanted")
    n_in, n_out = matrix.shape
    full, rest = divmod(n_out, PANEL)
    panels = aligned((full + (rest > 0), n_in, PANEL), matrix.dtype)
    step = max(1, _CHUNK // max(1, n_in * PANEL))
    for i in range(0, full, step):
        columns = matrix[:, i * PANEL : min(i + step, full) * PANEL]
        panels[i : i + step][: columns.shape[1] // PANEL] = columns.reshape(
            n_in, -1, PANEL
        ).transpose(1, 0, 2)
    if rest:
        panels[full, :, :rest] = matrix[:, full * PANEL :]
        panels[full, :, rest:] = 0
    return Packed(panels, n_out)


def unpack(weight):
    """The matrix [n_in, n_out] that `pack` was given, read-only; unpacked once and then kept."""
    return weight.matrix
