"""Where the panels of weights lie: at cache lines, and in huge pages where the system has them.

With small pages, decoding loses speed to the translation of addresses.
"""

import contextlib
import mmap
import os
import threading

import numpy as np

__all__ = ["LINE", "aligned"]

LINE = 64  # bytes of a cache line
_HUGE = 1 << 21  # bytes of a huge page
_BLOCK = 1 << 26
_lock = threading.Lock()


def _renew_lock():
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # a child has no thread that would ever give the lock back
    os.register_at_fork(after_in_child=_renew_lock)
_free = np.empty(0, np.uint8)  # what is left of the newest block


def aligned(shape, dtype):
    """An empty array that begins at a cache line.

    Matrices share blocks of huge pages: pages of its own would waste one on each.
    """
    global _free
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    room = -(-size // LINE) * LINE
    with _lock:
        if room > len(_free):
            _free = _block(max(room, _BLOCK))
        taken, _free = _free[:size], _free[room:]
    return taken.view(dtype).reshape(shape)


def _block(size):
    """Fresh memory [size] of bytes; what is never touched of it costs nothing."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = np.empty(size + LINE, np.uint8)
        return memory[-memory.ctypes.data % LINE :]
    block = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel built without huge pages
        block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8)
    return memory[-memory.ctypes.data % _HUGE :]
