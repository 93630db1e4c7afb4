"""Measures the forward pass and the kernels on GPT-2's real shapes, with random weights.

Decoding is bound by reading the weights once a pass, so the yardstick is a plain read of memory in
the same run, and the number that decides whether speculation pays is the time of a pass over n
tokens against a pass over one. All times are medians; compare them as ratios within one run.
"""

import resource
import statistics
import sys
import time
from contextlib import contextmanager

import numpy as np

from .. import kernels
from ..decoding.greedy import greedy
from ..models import gpt2
from ..models.gpt2 import GPT2
from .inflate import inflate_model as inflate  # noqa: F401  (bench.inflate)
from .shapes import RandomTensors, shape_config

PASSES = (1, 2, 4, 5, 8, 16)  # tokens
PREFILL = 256
CONTEXT = 64  # tokens in the cache during the timed passes
FILTERS = {"top-k 50, top-p 0.9": {"top_k": 50, "top_p": 0.9}, "top-p 0.9": {"top_p": 0.9}}


class Ours:
    """The measured engine: minidecode itself. A peer offers the same methods where it can."""

    name = "minidecode"

    def __init__(self, model):
        self.model = model
        rng = np.random.default_rng(0)
        self.tokens = rng.integers(0, model.vocab_size, model.n_positions).tolist()
        self.cache = model.new_cache()
        model.forward(self.tokens[:CONTEXT], self.cache)

    def decode(self, n):
        """n greedy tokens after a prompt of 16; the seconds of each but the first."""
        times = [time.perf_counter()]
        for _ in greedy(self.model, self.tokens[:16], max_new_tokens=n, eos=None):
            times.append(time.perf_counter())
        return np.diff(times[1:]).tolist()

    def forward(self, n):
        """One pass over n tokens after CONTEXT others, all n rows of logits."""
        self.model.forward(self.tokens[:n], self.cache, n_logits=n)
        self.cache.truncate(CONTEXT)

    def prefill(self):
        self.model.forward(self.tokens[:PREFILL], self.model.new_cache())

    def filter(self, logits, settings):
        kernels.sampling_filter(logits, **settings)

    def softmax(self, logits):
        kernels.softmax(logits)


def measure_model(model, peers=(), repeats=9):
    """Measure minidecode and its peers in one run: {"results": {engine: {figure: value}}, ...}.

    Each engine is visited three times, in turn, so that all see the same weather, and alone, since
    the threads of another one spin for a while after their work.
    """
    engines = [Ours(model), *peers]
    logits = np.random.default_rng(0).normal(scale=3, size=model.vocab_size).astype(np.float32)
    seen = {engine.name: {} for engine in engines}
    for _ in range(3):
        for engine in engines:
            time.sleep(0.5)
            _visit(engine, logits, -(-repeats // 3), seen[engine.name])
    results = {
        name: {figure: statistics.median(values) for figure, values in figures.items()}
        for name, figures in seen.items()
    }
    ours, size = results[Ours.name], weight_bytes(model)
    ours["weights, GB"] = size / 1e9
    ours["memory read, GB/s"] = memory_speed()
    ours["weights read, GB/s"] = size / 1e9 * ours["tokens/s"]
    ours["weights read / memory read"] = ours["weights read, GB/s"] / ours["memory read, GB/s"]
    ours["share of time outside kernels"] = share_outside_kernels(engines[0])
    ours["peak memory, MB"] = peak_memory() / 1e6
    return {"threads": kernels.num_threads(), "backend": kernels.backend, "results": results}


def _visit(engine, logits, repeats, seen):
    """Measure everything that an engine offers; appends to the lists in `seen`."""

    def add(figure, value):
        seen.setdefault(figure, []).append(value)

    for seconds in engine.decode(24):
        add("tokens/s", 1 / seconds)
    if hasattr(engine, "forward"):
        engine.forward(1)
        for n in PASSES:
            for _ in range(repeats):
                several, one = _seconds(engine.forward, n), _seconds(engine.forward, 1)
                add(f"pass over {n}, ms", 1e3 * several)
                if n > 1:
                    add(f"pass over {n} / 1", several / one)
    for _ in range(repeats):
        add(f"prefill {PREFILL}, ms", 1e3 * _seconds(engine.prefill))
    if hasattr(engine, "filter"):
        for _ in range(10 * repeats):
            add("softmax, ms", 1e3 * _seconds(engine.softmax, logits))
            for name, settings in FILTERS.items():
                add(f"{name}, ms", 1e3 * _seconds(engine.filter, logits, settings))


def _seconds(function, *args):
    started = time.perf_counter()
    function(*args)
    return time.perf_counter() - started


def weight_bytes(model):
    """Bytes of weights that one decoding step reads: all packed matrices, the tied head once."""
    packed = [model.head] + [
        matrix
        for block in model.blocks
        for matrix, _ in (block.attn_c_attn, block.attn_c_proj, block.mlp_c_fc, block.mlp_c_proj)
    ]
    return sum(matrix.panels.nbytes for matrix in packed)


def memory_speed(megabytes=400, repeats=9):
    """GB/s of a plain read by all threads, far larger than any cache."""
    data = np.ones(megabytes * 250_000, np.float32)
    return (
        data.nbytes / 1e9 / statistics.median(_seconds(kernels.total, data) for _ in range(repeats))
    )


def share_outside_kernels(engine, repeats=9):
    """The part of a pass over one token that is spent in Python and NumPy, not in the kernels."""
    with _timed_kernels() as spent:
        shares = []
        for _ in range(repeats):
            spent[0] = 0.0
            seconds = _seconds(engine.forward, 1)
            shares.append(1 - spent[0] / seconds)
    return statistics.median(shares)


@contextmanager
def _timed_kernels():
    """Wraps the kernels that the model calls; yields a list of one: the seconds spent in them."""
    spent = [0.0]
    plain = {name: getattr(gpt2, name) for name in ("attention", "gelu", "layer_norm", "linear")}

    def timed(kernel):
        def call(*args):
            started = time.perf_counter()
            result = kernel(*args)
            spent[0] += time.perf_counter() - started
            return result

        return call

    try:
        for name, kernel in plain.items():
            setattr(gpt2, name, timed(kernel))
        yield spent
    finally:
        for name, kernel in plain.items():
            setattr(gpt2, name, kernel)


def peak_memory():
    """The most memory this process has held so far, bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def random_model(shape):
    config = shape_config(shape)
    return GPT2(config, RandomTensors(config))
