"""The kernels in NumPy: the specification that each compiled twin of the same name follows.

All take float32 or float64, any strides, read-only or not, leave their inputs alone and return new
arrays of the input's dtype. Another dtype is a TypeError, another shape a ValueError.
What overflows or underflows on the way is rounded as the processor does it, in silence, whatever
`np.seterr` says. Letters: n rows (new tokens), t tokens before them, h heads, V vocabulary.
"""

import functools
import math

import numpy as np

from .packing import GROUP, Whole, unpack

__all__ = [
    "attention",
    "gelu",
    "gelu_erf",
    "layer_norm",
    "linear",
    "relu",
    "residual",
    "sampling_filter",
    "silu",
    "softmax",
    "total",
]


def silent(kernel):
    """The kernel with NumPy's warnings of floating point switched off."""

    @functools.wraps(kernel)
    def quiet(*args, **kwargs):
        with np.errstate(all="ignore"):
            return kernel(*args, **kwargs)

    return quiet


@silent
def softmax(logits):
    """Probabilities [V] or [n, V]. The maximum is subtracted first, so exp never overflows."""
    logits = floats("logits", logits, ndim=(1, 2))
    check_logits(logits)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True, dtype=np.float64)
    return (weights / total).astype(logits.dtype)


@silent
def sampling_filter(logits, temperature=1.0, top_k=0, top_p=1.0, epsilon=0.0):
    """Temperature, then top-k, top-p and epsilon: the probabilities [V] or [n, V] that are left.

    temperature 0 is the one-hot at the lowest-id maximum; top_k 0, top_p 1 and epsilon 0 are off.
    top-k keeps exactly k, top-p the smallest set whose mass reaches top_p, both with ties to the
    lower id; epsilon drops what is below it after renormalising, but never the most likely.
    Inside all is float64; the order of tokens is that of (logit - max) / temperature.
    """
    logits = floats("logits", logits, ndim=(1, 2))
    check_settings(temperature, top_k, top_p, epsilon)
    check_logits(logits)
    if logits.ndim == 2:
        rows = [sampling_filter(row, temperature, top_k, top_p, epsilon) for row in logits]
        return np.array(rows, logits.dtype).reshape(logits.shape)
    probs = np.zeros(len(logits))
    if temperature == 0:
        probs[np.argmax(logits)] = 1
        return probs.astype(logits.dtype)
    scaled = (logits.astype(np.float64) - np.float64(logits.max())) / temperature
    weights = np.exp(scaled)
    order = np.argsort(-scaled, kind="stable")  # likeliest first, ties to the lower id
    kept = order[:top_k] if top_k else order
    if top_p < 1:
        mass = np.cumsum(weights[kept])
        reaches = np.searchsorted(mass, top_p * mass[-1])  # the token that reaches it stays
        kept = kept[: reaches + 1]
    if epsilon > 0:
        share = weights[kept] / weights[kept].sum()
        kept = kept[(share >= epsilon) | (np.arange(len(kept)) == 0)]
    probs[kept] = weights[kept] / weights[kept].sum()
    return probs.astype(logits.dtype)


@silent
def attention(q, pages, layer, start, scale):
    """Causal attention of n new queries over a KV cache that holds their own keys and values too.

    q [n, h, head_dim] at positions start .. start+n; pages [n_layer, 2, h, page, head_dim] in order
    (`KVCache.pages`); query i sees positions 0 .. start+i. Scores are multiplied by `scale`.
    Returns [n, h, head_dim].
    """
    q = floats("q", q, ndim=(3,))
    n, end = len(q), start + len(q)
    check_pages(q, pages, layer, start)
    keys, values = np.concatenate([page[layer] for page in pages], axis=2)[:, :, :end]
    scores = q.swapaxes(0, 1) @ keys.swapaxes(1, 2) * q.dtype.type(scale)  # [h, n, t+n]
    visible = np.arange(end) <= start + np.arange(n)[:, None]  # [n, t+n]
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    out = weights / weights.sum(axis=2, keepdims=True) @ values  # [h, n, head_dim]
    return np.ascontiguousarray(out.swapaxes(0, 1).astype(q.dtype))


@silent
def linear(x, weight, bias=None, norm=None, activation=None, added=None):
    """x [n, n_in] @ weight (`pack` of [n_in, n_out]) + bias [n_out], as [n, n_out].

    What a block does before and after it can be had in one call, with the same result: `norm`,
    (weight, bias, epsilon) of a layer norm that x goes through first; `activation`, the name of
    one; `added` [n, n_out], which is added last.
    A weight in int8 or int4 meets x in whole numbers (`linear_in_groups`); all others are widened
    to float32 first.
    """
    x = floats("x", x, ndim=(2,))
    check_linear(x, weight, bias, norm, activation, added)
    if norm is not None:
        x = layer_norm(x, *norm)
    product = linear_in_groups(x, weight) if isinstance(weight, Whole) else x @ unpack(weight)
    y = product + (x.dtype.type(0) if bias is None else bias)
    if activation is not None:
        y = FUNCTIONS[activation](y)
    return y if added is None else y + added


def linear_in_groups(x, weight):
    """y = sum over groups of 32 inputs of (s_w * s_x) * (sum of w * x), w and x whole numbers.

    The inner sum is exact in float32, whatever its order: it is below 32 * 128 * 127 < 2**24. The
    outer one adds the groups in order, each product and each sum rounded. So these are the same
    bits on every machine, for any number of rows.
    """
    rounded, x_scales = round_in_groups(x)  # [n, g, 32], [n, g]
    whole, scales = weight.groups  # [g, 32, n_out], [g, n_out]
    y = np.zeros((len(x), weight.n_out), np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # as the processor does it
        for g in range(len(whole)):
            y += scales[g] * x_scales[:, g, None] * (rounded[:, g] @ whole[g])
    return y


def round_in_groups(x):
    """x [n, n_in] as whole numbers -127 to 127 [n, g, 32], and a scale for each group [n, g].

    scale = max |x| / 127, whole = x / scale, ties to even; inputs past n_in are 0. A group whose
    scale is below the normal numbers (all of it is below 1.5e-36) counts as zero. One that holds a
    NaN or an infinity has the scale NaN, and so all outputs of its row are NaN.
    """
    n, n_in = x.shape
    groups = np.zeros((n, -(-n_in // GROUP), GROUP), np.float32)
    groups.reshape(n, groups.shape[1] * GROUP)[:, :n_in] = x
    largest = np.abs(groups).max(axis=2, initial=0)
    with np.errstate(under="ignore"):
        scales = largest / np.float32(127)
    sound = np.isfinite(largest) & (scales >= np.finfo(np.float32).tiny)
    with np.errstate(under="ignore"):
        shape = sound[:, :, None]
        whole = np.divide(groups, scales[:, :, None], out=np.zeros_like(groups), where=shape)
    scales = np.where(sound, scales, np.where(np.isfinite(largest), 0, np.nan))
    return np.rint(whole), scales.astype(np.float32)


@silent
def layer_norm(x, weight, bias, epsilon):
    """Each row of x [n, d] to mean 0 and variance 1, times weight [d] plus bias [d]."""
    x = floats("x", x, ndim=(2,))
    if weight.shape != x.shape[1:] or bias.shape != x.shape[1:]:
        raise ValueError(f"weight and bias: [{x.shape[1]}] was wanted, as x has {x.shape}")
    if weight.dtype != x.dtype or bias.dtype != x.dtype:
        raise TypeError(f"weight and bias: got another dtype, {x.dtype} as in x was wanted")
    centred = x - x.mean(axis=1, keepdims=True)
    variance = np.mean(centred * centred, axis=1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(epsilon)) * weight + bias


@silent
def gelu(x):
    """The tanh form that GPT-2 was trained with, elementwise (Hendrycks and Gimpel 2016)."""
    x = floats("x", x)
    c = x.dtype.type(np.sqrt(2 / np.pi))
    return x * (np.tanh(c * (x + x.dtype.type(0.044715) * x * x * x)) + 1) / 2


@silent
def gelu_erf(x):
    """The form without an approximation, elementwise: x P(N < x) = x erfc(-x / sqrt 2) / 2."""
    x = floats("x", x)
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    wide = x.astype(np.float64)
    return (wide * erfc(-wide / math.sqrt(2)) / 2).astype(x.dtype)


@silent
def relu(x):
    """max(0, x) elementwise; NaN stays NaN."""
    x = floats("x", x)
    return np.where(x < 0, x.dtype.type(0), x)


@silent
def silu(x):
    """x / (1 + exp(-x)) elementwise, with an exponential that cannot overflow."""
    x = floats("x", x)
    wide = x.astype(np.float64)
    e = np.exp(-np.abs(wide))
    return (np.where(wide < 0, wide * e, wide) / (1 + e)).astype(x.dtype)


FUNCTIONS = {"gelu": gelu, "gelu_erf": gelu_erf, "relu": relu, "silu": silu}


@silent
def residual(p, q, scale=1.0):
    """max(0, scale p - q) [V] in float64, and the sum of it: (left, mass).

    p, q [V]. Each product and each difference is rounded, and the sum has one order: number i goes
    to the sum i % 16, and then the second half of the 16 sums is added to the first, four times.
    So these are the same bits on every machine.
    """
    p, q = floats("p", p, ndim=(1,)), floats("q", q)
    check_rows(p, q)
    left = np.multiply(p, scale, dtype=np.float64)
    left -= q
    left = np.where(left < 0, 0.0, left)
    padded = np.zeros((1 + -(-len(left) // 16), 16))
    padded.reshape(-1)[16 : 16 + len(left)] = left
    sums = np.cumsum(padded, axis=0)[-1]  # in order
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return left, float(sums[0])


@silent
def total(x):
    """The sum of all elements, a float. It does little but read, so it times the memory."""
    return float(floats("x", x).sum(dtype=np.float64))


# Checks: what is wrong with the arguments, in the words of the compiled twins


def floats(name, x, ndim=None):
    """x as an array, or the TypeError or ValueError that says what is wrong with it."""
    x = np.asarray(x)
    if x.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name}: got dtype {x.dtype}, float32 or float64 was wanted")
    if ndim is not None and x.ndim not in ndim:
        wanted = " or ".join(map(str, ndim))
        raise ValueError(f"{name}: got {x.ndim} dimensions, {wanted} was wanted")
    return x


def check_logits(logits):
    """Refuse rows that are no distribution. -inf (probability 0) is fine, but not everywhere."""
    for row in logits.reshape(-1, logits.shape[-1]):
        bad = np.flatnonzero(np.isnan(row) | (row == np.inf))
        if len(bad):
            raise ValueError(f"logits: {row[bad[0]]} at id {bad[0]}, finite or -inf was wanted")
        if len(row) == 0 or row.max() == -np.inf:
            raise ValueError("logits: all are -inf, at least one finite was wanted")


def check_rows(p, q):
    if q.dtype != p.dtype:
        raise TypeError(f"q: got dtype {q.dtype}, {p.dtype} as in the first argument was wanted")
    if q.shape != p.shape:
        raise ValueError(f"q: got shape {q.shape}, [{len(p)}] was wanted")


def check_settings(temperature, top_k, top_p, epsilon):
    if not 0 <= temperature < np.inf:
        raise ValueError(f"temperature: got {temperature}, finite and at least 0 was wanted")
    if top_k < 0:
        raise ValueError(f"top_k: got {top_k}, a number of at least 0 was wanted")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p: got {top_p}, a number above 0 and at most 1 was wanted")
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon: got {epsilon}, a number of at least 0 and below 1 was wanted")


def check_pages(q, pages, layer, start):
    n, h, head_dim = q.shape
    held = 0
    for page in pages:
        if page.dtype != q.dtype:
            raise TypeError(f"pages: got dtype {page.dtype}, {q.dtype} as in q was wanted")
        if page.ndim != 5 or page.shape[1:3] != (2, h) or page.shape[4] != head_dim:
            raise ValueError(
                f"pages: got shape {page.shape}, [n_layer, 2, {h}, page, {head_dim}] was wanted"
            )
        if not 0 <= layer < len(page):
            raise ValueError(f"layer: got {layer}, 0 to {len(page) - 1} was wanted")
        held += page.shape[3]
    if start < 0 or n == 0 or start + n > held:
        raise ValueError(f"start: got {start} with {n} queries, pages of {held} positions given")


def check_linear(x, weight, bias, norm, activation, added):
    wanted = np.float64 if weight.dtype == "float64" else np.float32
    if x.dtype != wanted:
        raise TypeError(
            f"x: got dtype {x.dtype}, {np.dtype(wanted)} was wanted for a weight in {weight.dtype}"
        )
    if x.shape[1] != weight.n_in:
        raise ValueError(f"x: got shape {x.shape}, [n, {weight.n_in}] was wanted")
    if bias is not None:
        check_like(x, "bias", bias, (weight.n_out,))
    if norm is not None:
        if not isinstance(norm, tuple) or len(norm) != 3 or not isinstance(norm[2], float):
            raise TypeError(f"norm: got {norm}, (weight, bias, epsilon) was wanted")
        check_like(x, "norm's weight", norm[0], (weight.n_in,))
        check_like(x, "norm's bias", norm[1], (weight.n_in,))
    if activation is not None and activation not in FUNCTIONS:
        raise ValueError(f"activation: got {activation}, {' or '.join(FUNCTIONS)} was wanted")
    if added is not None:
        check_like(x, "added", added, (len(x), weight.n_out))


def check_like(x, name, a, shape):
    """Refuse an array of another dtype than x, or of another shape."""
    if a.dtype != x.dtype:
        raise TypeError(f"{name}: got dtype {a.dtype}, {x.dtype} as in x was wanted")
    if a.shape != shape:
        raise ValueError(f"{name}: got shape {a.shape}, {list(shape)} was wanted")
