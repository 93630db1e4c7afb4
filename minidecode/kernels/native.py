"""The compiled kernels behind the signatures of `reference`, which says what each computes."""

from . import _native
from ._native import (  # noqa: F401
    attention,
    gelu,
    gelu_erf,
    instruction_set,
    instruction_sets,
    layer_norm,
    num_threads,
    relu,
    residual,
    set_num_threads,
    silu,
    softmax,
    total,
)


def sampling_filter(logits, temperature=1.0, top_k=0, top_p=1.0, epsilon=0.0):
    return _native.sampling_filter(logits, temperature, top_k, top_p, epsilon)


def linear(x, weight, bias=None, norm=None, activation=None, added=None):
    return _native.linear(
        x,
        weight.dtype,
        weight.panels,
        weight.scales,
        weight.n_in,
        weight.n_out,
        bias,
        norm,
        activation,
        added,
    )
