"""The hot path, twice: in NumPy (`reference`) and compiled (`native`). This file picks one.

MINIDECODE_BACKEND = numpy | native forces the choice; otherwise the compiled kernels are used
where the extension is there, and one line on standard error says so where it is not.
MINIDECODE_ISA = vnni | avx512 | avxvnni | avx2 | neondot | neon | plain chooses what the compiled
kernels use of the processor, otherwise the first of them that it has. vnni is avx512 and avxvnni
is avx2 with instructions for products of bytes, neondot is neon with the same.
Threads: MINIDECODE_THREADS, else OMP_NUM_THREADS, else all processors that this process may use.
They never change a result.
A variable that cannot be followed is an error at the first use of a kernel, not at import; only
OMP_NUM_THREADS, which is not ours, is passed over with one line.
"""

import logging
import os
from types import SimpleNamespace

from ..checks import whole
from ..errors import BackendError
from .packing import DTYPES, Packed, from_arrays, pack, to_arrays
from .processors import usable_processors
from .reference import *  # noqa: F403  names and signatures; what is in use replaces them below
from .reference import __all__ as KERNELS

__all__ = [
    *KERNELS,
    "ACTIVATIONS",
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
    threads = _own_threads()
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
            native.set_num_threads(threads or _foreign_threads() or usable_processors())
            return "native", native
    from . import reference

    return "numpy", reference


def _one_of(names):
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _own_threads():
    """What MINIDECODE_THREADS says, None where it says nothing."""
    value = os.environ.get("MINIDECODE_THREADS")
    if not value:
        return None
    if not _is_thread_count(value):
        raise BackendError(f"MINIDECODE_THREADS: got {value!r}, 1 to {MAX_THREADS} was wanted")
    return int(value)


def _foreign_threads():
    """What OMP_NUM_THREADS says, if that makes sense."""
    value = os.environ.get("OMP_NUM_THREADS")
    if not value:
        return None
    first = value.split(",")[0].strip()  # it may list one for each level of nesting
    if _is_thread_count(first):
        return int(first)
    logging.getLogger(__name__).warning(
        "minidecode: OMP_NUM_THREADS=%s is no number of threads, it is passed over", value
    )
    return None


def _is_thread_count(text):
    text = text.strip()
    return text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MAX_THREADS


def _refusing(error):
    """Kernels that raise `error`: a wrong variable must not forbid to import the package."""

    def kernel(*args, **kwargs):
        raise error

    return SimpleNamespace(**dict.fromkeys(KERNELS, kernel))


_refusal = None  # why no kernels can be used
try:
    backend, _kernels = _choose(os.environ.get("MINIDECODE_BACKEND") or None)
except BackendError as error:
    _refusal = error
    backend, _kernels = "none", _refusing(error)

globals().update({name: getattr(_kernels, name) for name in KERNELS})

# The kernel of each name in config.json
ACTIVATIONS = {
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu"),
    **dict.fromkeys(("gelu", "gelu_python"), "gelu_erf"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    "relu": "relu",
}


def _compiled():
    """The compiled kernels if they are in use, else None; an error if none can be."""
    if _refusal is not None:
        raise _refusal
    return _kernels if backend == "native" else None


def set_num_threads(n):
    """Use n threads from now on (compiled kernels; NumPy's own threads are its BLAS's affair)."""
    n = whole("threads", n, 1, MAX_THREADS)
    if native := _compiled():
        native.set_num_threads(n)


def num_threads():
    """Threads of the compiled kernels; None with the NumPy ones."""
    native = _compiled()
    return native and native.num_threads()


def instruction_set():
    """The one of `INSTRUCTION_SETS` that is in use; None with the NumPy kernels."""
    native = _compiled()
    return native and native.instruction_set()
