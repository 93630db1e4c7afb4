"""The compiled kernels behind the signatures of `reference`, which says what each computes."""

from . import _native
from .packing import pack

__all__ = [
    "attention",
    "gelu",
    "layer_norm",
    "linear",
    "pack",
    "sampling_filter",
    "softmax",
    "total",
]

attention = _native.attention
gelu = _native.gelu
layer_norm = _native.layer_norm
softmax = _native.softmax
total = _native.total

instruction_set = _native.instruction_set
num_threads = _native.num_threads
set_num_threads = _native.set_num_threads


def sampling_filter(logits, temperature=1.0, top_k=0, top_p=1.0, epsilon=0.0):
    return _native.sampling_filter(logits, temperature, top_k, top_p, epsilon)


def linear(x, weight, bias=None):
    return _native.linear(x, weight.panels, weight.n_out, bias)
