"""The weights of a model as its kernels want them: vectors in float32, matrices packed.

`Weights` packs them from a checkpoint's tensors, one at a time; `PackedFile` (packed_file.py) finds
them packed already. A model asks either for the same names.
"""

from collections.abc import Mapping

import numpy as np

from ..errors import CheckpointError, InputError
from ..kernels import DTYPES, Packed, pack

HEAD, EMBEDDING = "lm_head.weight", "wte.weight"


def check_dtype(dtype: str) -> str:
    """`dtype`, if weights can be stored so; else an `InputError`."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError(f"dtype: got {dtype!r:.50}, one of {', '.join(DTYPES)} was wanted")
    return dtype


def head_dtype(dtype: str) -> str:
    """What the head is stored as: 8 bits at least, since the last step's errors all count."""
    return "int8" if dtype == "int4" else dtype


class Weights:
    """`tensors` (name -> float32 array) packed as `dtype`; each is read once."""

    def __init__(self, tensors: Mapping[str, np.ndarray], dtype: str = "float32"):
        self._tensors = tensors
        self.dtype = check_dtype(dtype)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def vector(self, name: str) -> np.ndarray:
        """A vector, or the positions [n_positions, d]: float32, whatever the matrices are."""
        return np.array(self._tensors[name])

    def matrix(self, name: str) -> Packed:
        """The matrix [n_in, n_out] of that name."""
        return self._pack(name, self._tensors[name], self.dtype)

    def rows(self, name: str) -> Packed:
        """The transposed matrix [d, V] of a head or an embedding [V, d]."""
        return self._pack(name, self._tensors[name].T, head_dtype(self.dtype))

    def _pack(self, name, matrix, dtype):
        try:
            return pack(matrix, dtype)
        except ValueError as error:
            raise CheckpointError(f"tensor {name}: {error}") from None
