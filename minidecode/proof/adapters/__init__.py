"""Decoders of other libraries under the proof, unchanged.

    with choices(chance):
        ...     # random calls of torch, NumPy and `random` are choices of `chance` in here

One file per library, and each imports its library only when it is used: `random.py`, `numpy.py`,
`torch.py`, `transformers.py`. `uniform.py` is the number in [0, 1) that nobody has looked at.
"""

from .choices import choices
from .transformers import TableLM
from .uniform import Uniform

__all__ = ["TableLM", "Uniform", "choices"]
