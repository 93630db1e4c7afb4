"""The hot path, twice: in NumPy (`reference`) and compiled (`native`). This file picks one.

MINIDECODE_BACKEND = numpy | native forces the choice; otherwise the compiled kernels are used where the
extension is there, and one warning says so where it is not.
Threads: MINIDECODE_THREADS, else OMP_NUM_THREADS, else all cores. They never change a result.
"""

import os
import warnings

from ..errors import BackendError, InputError
from .packing import Packed, pack

__all__ = [
    "Packed",
    "attention",
    "backend",
    "gelu",
    "instruction_set",
    "layer_norm",
    "linear",
    "num_threads",
    "pack",
    "sampling_filter",
    "set_num_threads",
    "softmax",
]


def _choose():
    wanted = os.environ.get("MINIDECODE_BACKEND") or None
    if wanted not in (None, "numpy", "native"):
        raise BackendError(f"MINIDECODE_BACKEND: got {wanted!r}, numpy or native was wanted")
    if wanted != "numpy":
        try:
            from . import native

            return "native", native
        except ImportError as error:
            if wanted == "native":
                raise BackendError(
                    f"MINIDECODE_BACKEND=native: the compiled kernels are missing ({error})"
                ) from None
            warnings.warn(
                "minidecode: the compiled kernels are missing, the slower NumPy kernels are in use",
                RuntimeWarning,
                stacklevel=3,
            )
    from . import reference

    return "numpy", reference


def _threads_wanted():
    for name in ("MINIDECODE_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name)
        if value:
            first = value.split(",")[0]  # OMP_NUM_THREADS may be a list, one number a nesting level
            if not first.strip().isdigit() or int(first) == 0:
                raise InputError(f"{name}: got {value!r}, a whole number of at least 1 was wanted")
            return int(first)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


backend, _kernels = _choose()

attention = _kernels.attention
gelu = _kernels.gelu
layer_norm = _kernels.layer_norm
linear = _kernels.linear
sampling_filter = _kernels.sampling_filter
softmax = _kernels.softmax


def set_num_threads(n):
    """Use n threads from now on (compiled kernels; NumPy's own threads are its BLAS's affair)."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"threads: got {n!r}, a whole number of at least 1 was wanted")
    if backend == "native":
        from . import _native

        _native.set_num_threads(n)


def num_threads():
    """Threads of the compiled kernels; None with the NumPy ones."""
    if backend == "numpy":
        return None
    from . import _native

    return _native.num_threads()


def instruction_set():
    """avx512, avx2, neon or plain; None with the NumPy kernels."""
    if backend == "numpy":
        return None
    from . import _native

    return _native.instruction_set()


set_num_threads(min(_threads_wanted(), 1024))
