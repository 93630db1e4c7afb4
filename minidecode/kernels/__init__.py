"""The hot path, twice: in NumPy (`reference`) and compiled (`native`). This file picks one.

MINIDECODE_BACKEND = numpy | native forces the choice; otherwise the compiled kernels are used
where the extension is there, and one line on standard error says so where it is not.
MINIDECODE_ISA = vnni | avx512 | avxvnni | avx2 | neondot | neon | plain chooses what the compiled
kernels use of the processor, otherwise the first of them that it has. vnni is avx512 and avxvnni
is avx2 with instructions for products of bytes, neondot is neon with the same.
Threads: MINIDECODE_THREADS, else OMP_NUM_THREADS, else all cores. They never change a result.
A variable that cannot be followed is an error at the first use of a kernel, not at import.
"""

import logging
import os
from types import SimpleNamespace

from ..checks import whole
from ..errors import BackendError
from .packing import DTYPES, Packed, from_arrays, pack, to_arrays
from .reference import *  # noqa: F403  names and signatures; what is in use replaces them below
from .reference import __all__ as KERNELS

__all__ = [
    *KERNELS,
    "DTYPES",
    "Packed",
    "backend",
    "from_arrays",
    "instruction_set",
    "num_threads",
    "pack",
    "set_num_threads",
    "to_arrays",
]

MAX_THREADS = 1024
INSTRUCTION_SETS = ("vnni", "avx512", "avxvnni", "avx2", "neondot", "neon", "plain")


def _choose(wanted):
    if wanted not in (None, "numpy", "native"):
        raise BackendError(f"MINIDECODE_BACKEND: got {wanted!r}, numpy or native was wanted")
    isa = os.environ.get("MINIDECODE_ISA") or None
    if isa is not None and isa not in INSTRUCTION_SETS:
        raise BackendError(f"MINIDECODE_ISA: got {isa!r}, {_one_of(INSTRUCTION_SETS)} was wanted")
    threads = _threads_wanted()
    if wanted != "numpy":
        try:
            from . import native
        except ImportError:
            missing = "the compiled kernels are missing"
            if wanted == "native":
                raise BackendError(f"MINIDECODE_BACKEND=native: {missing}") from None
            logging.getLogger(__name__).warning(
                "minidecode: %s, the slower NumPy kernels are in use", missing
            )
        else:
            here = native.instruction_sets()
            if isa is not None and isa not in here:
                raise BackendError(
                    f"MINIDECODE_ISA: got {isa!r}, which this processor has not; "
                    f"{_one_of(here)} was wanted"
                )
            native.set_num_threads(threads)
            return "native", native
    from . import reference

    return "numpy", reference


def _one_of(names):
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _threads_wanted():
    for name in ("MINIDECODE_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name)
        if value:
            first = value.split(",")[0].strip()  # OMP_NUM_THREADS may list one a nesting level
            if not first.isdecimal() or not 1 <= int(first) <= MAX_THREADS:
                raise BackendError(f"{name}: got {value!r}, 1 to {MAX_THREADS} was wanted")
            return int(first)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _refusing(error):
    """Kernels that raise `error`: a wrong variable must not forbid to import the package."""

    def kernel(*args, **kwargs):
        raise error

    return SimpleNamespace(**dict.fromkeys(KERNELS, kernel))


try:
    backend, _kernels = _choose(os.environ.get("MINIDECODE_BACKEND") or None)
except BackendError as error:
    backend, _kernels = "none", _refusing(error)

globals().update({name: getattr(_kernels, name) for name in KERNELS})


def set_num_threads(n):
    """Use n threads from now on (compiled kernels; NumPy's own threads are its BLAS's affair)."""
    n = whole("threads", n, 1, MAX_THREADS)
    if backend == "native":
        _kernels.set_num_threads(n)


def num_threads():
    """Threads of the compiled kernels; None with the NumPy ones."""
    return _kernels.num_threads() if backend == "native" else None


def instruction_set():
    """The one of `INSTRUCTION_SETS` that is in use; None with the NumPy kernels."""
    return _kernels.instruction_set() if backend == "native" else None
