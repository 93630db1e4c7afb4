"""Measures the forward pass and the kernels on GPT-2's real shapes, with random weights.

Decoding is bound by reading the weights once a pass, so the yardstick is a plain read of memory in
the same run, and the number that decides whether speculation pays is the time of a pass over n
tokens against a pass over one. All times are medians; compare them as ratios within one run.
"""

import itertools
import math
import resource
import statistics
import sys
import time
from contextlib import contextmanager

import numpy as np

from .. import kernels
from ..decoding.greedy import greedy
from ..models import gpt2
from ..models.checkpoint import parameter_shapes
from ..models.gpt2 import GPT2
from .shapes import RandomTensors, shape_config

PASSES = (1, 2, 4, 5, 8, 16)  # tokens
SEQUENCES = 8  # in one pass
PREFILL = 256
DECODED = 24  # tokens written one by one
CONTEXT = 64  # tokens in the cache when timed passes and decoding begin
FILTERS = {"top-k 50, top-p 0.9": {"top_k": 50, "top_p": 0.9}, "top-p 0.9": {"top_p": 0.9}}


class Engine:
    """Something measured. It offers `decode` and `prefill`, and of the rest what it can."""

    name = ""

    def visit(self, repeats, logits):
        """Measure whatever this engine offers: {figure: values}."""
        seen = {"tokens/s": [1 / seconds for seconds in self.decode(DECODED)]}

        def add(figure, value):
            seen.setdefault(figure, []).append(value)

        if hasattr(self, "forward"):
            self.forward(1)
            for n, _ in itertools.product(PASSES, range(repeats)):
                several, one = _seconds(self.forward, n), _seconds(self.forward, 1)
                add(f"pass over {n}, ms", 1e3 * several)
                if n > 1:
                    add(f"pass over {n} / 1", several / one)
        if hasattr(self, "forward_many"):
            for _ in range(repeats):
                several, one = _seconds(self.forward_many), _seconds(self.forward, 1)
                add(f"{SEQUENCES} sequences, tokens/s", SEQUENCES / several)
                add(f"{SEQUENCES} sequences / 1", SEQUENCES * one / several)
        for _ in range(repeats):
            add(f"prefill {PREFILL}, ms", 1e3 * _seconds(self.prefill))
        if hasattr(self, "filter"):
            for _ in range(10 * repeats):
                add("softmax, ms", 1e3 * _seconds(self.softmax, logits))
                for name, settings in FILTERS.items():
                    add(f"{name}, ms", 1e3 * _seconds(self.filter, logits, settings))
        return seen


class Ours(Engine):
    """minidecode itself, with weights of one storage type."""

    def __init__(self, model, name="minidecode", context=CONTEXT):
        self.model, self.name, self.context = model, name, context
        rng = np.random.default_rng(0)
        self.tokens = rng.integers(0, model.vocab_size, model.n_positions).tolist()
        self.cache = model.new_cache()
        model.forward(self.tokens[:context], self.cache)
        self.caches = [self.cache.fork() for _ in range(SEQUENCES)]

    def decode(self, n):
        """n greedy tokens after the context; the seconds of each but the first."""
        times = [time.perf_counter()]
        prompt = self.tokens[: self.context]
        for _ in greedy(self.model, prompt, max_new_tokens=n, eos=None):
            times.append(time.perf_counter())
        return np.diff(times[1:]).tolist()

    def forward(self, n):
        """One pass over n tokens after the context, all n rows of logits."""
        self.model.forward(self.tokens[:n], self.cache, n_logits=n)
        self.cache.truncate(self.context)

    def forward_many(self):
        """One pass over a token of each of the sequences."""
        self.model.forward_many([(self.tokens[:1], cache) for cache in self.caches])
        for cache in self.caches:
            cache.truncate(self.context)

    def prefill(self):
        self.model.forward(self.tokens[:PREFILL], self.model.new_cache())

    def filter(self, logits, settings):
        kernels.sampling_filter(logits, **settings)

    def softmax(self, logits):
        kernels.softmax(logits)


def measure_model(ours, peers=(), repeats=9):
    """Measure engines in one run: {"results": {engine: {figure: value}}, ...}, all medians.

    ours: one `Ours` for each storage type; peers: other `Engine`s. Each is visited three times, in
    turn, since a machine's speed drifts, and alone, since the threads of another engine spin for a
    while after their work.
    """
    engines = [*ours, *peers]
    logits = np.random.default_rng(0).normal(scale=3, size=ours[0].model.vocab_size)
    logits = logits.astype(np.float32)
    seen = {engine.name: {} for engine in engines}
    for _, engine in itertools.product(range(3), engines):
        time.sleep(0.5)
        for figure, values in engine.visit(-(-repeats // 3), logits).items():
            seen[engine.name].setdefault(figure, []).extend(values)
    results = {
        name: {figure: statistics.median(values) for figure, values in figures.items()}
        for name, figures in seen.items()
    }
    speed = memory_speed()
    for engine in ours:
        results[engine.name] |= _against_memory(engine, results[engine.name]["tokens/s"], speed)
    if len(engines) == 1:  # the process holds no other engine's memory
        results[engines[0].name]["peak memory, MB"] = peak_memory() / 1e6
    return {"threads": kernels.num_threads(), "backend": kernels.backend, "results": results}


def _against_memory(engine, tokens_per_second, memory_read):
    """What decoding reads, beside what a plain read of memory reaches (GB/s), and the rest."""
    size = weight_bytes(engine.model) / 1e9
    seconds, share = outside_kernels(engine)
    return {
        "weights, GB": size,
        "memory read, GB/s": memory_read,
        "weights read, GB/s": size * tokens_per_second,
        "weights read / memory read": size * tokens_per_second / memory_read,
        "outside kernels, ms": 1e3 * seconds,
        "share of time outside kernels": share,
    }


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
    return sum(matrix.nbytes for matrix in packed)


def memory_speed(megabytes=400, repeats=9):
    """GB/s of a plain read by all threads, far larger than any cache."""
    data = np.ones(megabytes * 250_000, np.float32)
    return (
        data.nbytes / 1e9 / statistics.median(_seconds(kernels.total, data) for _ in range(repeats))
    )


def outside_kernels(engine, repeats=9):
    """What a pass over one token spends in Python and NumPy, not in kernels: (seconds, share)."""
    with _timed_kernels() as spent:
        rest, shares = [], []
        for _ in range(repeats):
            spent[0] = 0.0
            seconds = _seconds(engine.forward, 1)
            rest.append(seconds - spent[0])
            shares.append(1 - spent[0] / seconds)
    return statistics.median(rest), statistics.median(shares)


@contextmanager
def _timed_kernels():
    """Wraps the kernels that the model calls; yields a list of one: the seconds spent in them."""
    spent = [0.0]
    plain = {name: getattr(gpt2, name) for name in ("attention", "layer_norm", "linear")}

    def timed(kernel):
        def call(*args, **kwargs):
            started = time.perf_counter()
            result = kernel(*args, **kwargs)
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


def n_parameters(config):
    """How many numbers a model of that config has, a tied head counted once."""
    return sum(map(math.prod, parameter_shapes(config).values()))


def random_model(shape, dtype="float32"):
    config = shape_config(shape)
    return GPT2(config, RandomTensors(config), dtype=dtype)


def engine_name(dtype):
    """What results call our engine with weights of that storage type."""
    return "minidecode" if dtype == "float32" else f"minidecode {dtype}"
