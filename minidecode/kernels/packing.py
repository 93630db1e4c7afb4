"""Weights laid out for decoding: in panels of 16 output columns, each read once and in order."""

import contextlib
import mmap
import threading
from dataclasses import dataclass

import numpy as np

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
    panels = _aligned((full + (rest > 0), n_in, PANEL), matrix.dtype)
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


_HUGE = 1 << 21  # bytes of a huge page
_BLOCK = 1 << 26
_lock = threading.Lock()
_free = np.empty(0, np.uint8)  # what is left of the newest block


def _aligned(shape, dtype):
    """An empty array that begins at a cache line, in huge pages where the system has them.

    With small pages, decoding loses speed to address translation. Matrices share blocks: huge pages
    of its own would waste one on each.
    """
    global _free
    size = int(np.prod(shape)) * dtype.itemsize
    room = -(-size // 64) * 64
    with _lock:
        if room > len(_free):
            _free = _block(max(room, _BLOCK))
        taken, _free = _free[:size], _free[room:]
    return taken.view(dtype).reshape(shape)


def _block(size):
    """Fresh memory [size] of bytes; what is never touched of it costs nothing."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = np.empty(size + 64, np.uint8)
        return memory[-memory.ctypes.data % 64 :]
    block = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel built without huge pages
        block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8)
    return memory[-memory.ctypes.data % _HUGE :]
