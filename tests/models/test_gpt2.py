"""The forward pass against float64 arithmetic, against transformers, and bit by bit to itself."""

import functools
import hashlib
import json
import math
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from builders import bigram, oracle_logits, random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

import minidecode
from minidecode import kernels
from minidecode.errors import ContextError, InputError
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.loading import EMBEDDED

NATIVE = kernels.backend == "native"
GOLDEN = Path(__file__).parents[1] / "golden"
compiled = pytest.mark.skipif(not NATIVE, reason="only the compiled kernels promise equal bits")


def search(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True)


def gpt2(fixture, **options):
    config, tensors = fixture
    return GPT2(Config.from_dict(config), tensors, **options)


def read(model, tokens, cache=None):
    """The logits [n, V] after each of `tokens`."""
    cache = model.new_cache() if cache is None else cache
    return model.forward(tokens, cache, n_logits=len(tokens))


def same(ours, theirs):
    """Equal bits with the compiled kernels, 1e-4 with NumPy's."""
    if NATIVE:
        return np.array_equal(ours, theirs)
    return np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@functools.lru_cache
def embedded(name):
    return minidecode.load(name)


def golden(name):
    return json.loads((GOLDEN / name).read_text())


# Against others


SHAPES = [  # V, n_layer, n_head, d, n_positions: widths of a head 1, 3, 5, 8, 16, 17, 48, 130
    (5, 1, 1, 1, 8),
    (31, 2, 3, 9, 40),
    (17, 2, 1, 5, 64),
    (31, 2, 2, 16, 64),
    (33, 3, 4, 64, 40),
    (64, 2, 2, 34, 100),
    (100, 1, 2, 96, 70),
    (16, 1, 1, 130, 40),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n_inner": 7, "layer_norm_epsilon": 1e-2},
        {"layer_norm_epsilon": 1},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
    ],
    ids=str,
)
def test_forward_computes_what_the_paper_says(shape, fields):
    fixture = random_gpt2(7, *shape, **fields)
    V, n = shape[0], shape[-1]
    tokens = np.random.default_rng(0).integers(V, size=n)
    logits = read(gpt2(fixture), tokens)
    right = oracle_logits(*fixture, tokens)
    assert logits.dtype == np.float32 and logits.shape == (n, V)
    assert np.abs(logits - right).max() < 2e-5 * max(1, np.abs(right).max()) * (1 + shape[1])


def test_an_untied_head_is_used_and_the_embedding_still_read():
    config, tensors = random_gpt2(1, 31, 2, 2, 16, 64, tie_word_embeddings=False)
    tensors["lm_head.weight"] = np.random.default_rng(9).standard_normal((31, 16)).astype("f4")
    right = oracle_logits(config, tensors, range(31))
    np.testing.assert_allclose(read(gpt2((config, tensors)), range(31)), right, atol=5e-4)
    tied = gpt2((config | {"tie_word_embeddings": True}, tensors))
    assert np.abs(read(tied, range(31)) - right).max() > 1


@pytest.mark.parametrize("V", [3, 12])
def test_a_table_of_probabilities_comes_out_as_it_went_in(V):
    P = np.random.default_rng(V).dirichlet(np.ones(V), size=V)
    logits = read(gpt2(bigram(P)), range(V)).astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(log_p, np.log(P), atol=5e-4)


@pytest.mark.parametrize("name", EMBEDDED)
def test_logits_are_those_of_transformers(name):
    model, tokenizer = embedded(name)
    for case in golden("logits.json")[name]:
        logits = read(model, case["prompt"])
        np.testing.assert_allclose(logits[:, :64], case["first64"], rtol=0, atol=2e-4)
        logsumexp = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
        np.testing.assert_allclose(logsumexp, case["logsumexp"], rtol=0, atol=2e-4)
    for case in golden("greedy.json")["models"][name]:
        assert tokenizer.encode(case["text"]) == case["prompt"]
        last = model.forward(case["prompt"], model.new_cache())[0]
        ids, right = zip(*case["top"])
        assert np.argsort(-last)[:32].tolist() == list(ids)
        np.testing.assert_allclose(last[list(ids)], right, rtol=0, atol=2e-4)


def test_logits_after_a_long_prompt_are_those_of_transformers():
    case = golden("logits.json")["long"]
    model, _ = embedded(case["model"])
    last = model.forward(case["prompt"], model.new_cache())[0]
    ids, right = zip(*case["top_last"])
    np.testing.assert_allclose(last[list(ids)], right, rtol=0, atol=2e-4)


# Against itself


@st.composite
def models(draw):
    n_head, head_dim = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 8, 15, 16, 17, 33]))
    V, n_layer = draw(st.integers(2, 50)), draw(st.integers(1, 3))
    seed = draw(st.integers(0, 2**32 - 1))
    return gpt2(random_gpt2(seed, V, n_layer, n_head, n_head * head_dim, 80))


@st.composite
def splits(draw, model, most=80):
    """A sequence of tokens in pieces, [[...], [...], ...], none empty."""
    n = draw(st.integers(1, most))
    tokens = np.random.default_rng(draw(st.integers(0, 999))).integers(model.vocab_size, size=n)
    cuts = sorted(draw(st.sets(st.integers(1, n), max_size=6)) | {n})
    return [tokens[a:b].tolist() for a, b in zip([0, *cuts], cuts)]


def read_in_pieces(model, pieces):
    cache = model.new_cache()
    return np.concatenate([read(model, piece, cache) for piece in pieces])


@search(80)
@given(st.data())
def test_logits_do_not_depend_on_how_tokens_are_split(data):
    model = data.draw(models())
    pieces = data.draw(splits(model))
    assert same(read_in_pieces(model, pieces), read(model, [*chain(*pieces)]))


@search(60)
@given(st.data())
def test_logits_do_not_depend_on_the_neighbours(data):
    """Sequences of unlike lengths, at unlike places, each with its own number of logits."""
    model = data.draw(models())
    alone, batch, counts = [], [], []
    for _ in range(data.draw(st.integers(1, 4))):
        pieces = data.draw(splits(model))
        n = data.draw(st.integers(0, len(pieces[-1])))
        whole = read(model, [*chain(*pieces)])
        alone.append(whole[len(whole) - n :])
        cache = model.new_cache()
        for piece in pieces[:-1]:
            model.forward(piece, cache)
        batch.append((pieces[-1], cache))
        counts.append(n)
    together = model.forward_many(batch, counts)
    assert [len(logits) for logits in together] == counts
    assert all(same(ours, theirs) for ours, theirs in zip(together, alone))


@compiled
def test_logits_do_not_depend_on_the_number_of_threads():
    fixture = random_gpt2(3, 500, 2, 3, 144, 80)  # wide enough to be shared out
    tokens = np.random.default_rng(0).integers(500, size=80)
    old, seen = kernels.num_threads(), []
    try:
        for n in (1, 2, 3, 4):
            kernels.set_num_threads(n)
            model = gpt2(fixture)
            seen.append(read(model, tokens))
            seen.append(read_in_pieces(model, np.split(tokens, [1, 2, 7, 50])))
    finally:
        kernels.set_num_threads(old)
    assert all(np.array_equal(logits, seen[0]) for logits in seen)


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_models_read_alike_however_they_are_called(name):
    model, tokenizer = embedded(name)
    tokens = tokenizer.encode("Once upon a time there was a king who had three sons, and one day")
    whole = read(model, tokens)
    assert same(read_in_pieces(model, [[t] for t in tokens]), whole)
    assert same(read_in_pieces(model, [tokens[:7], tokens[7:12], tokens[12:]]), whole)
    others = [(tokens[i:], model.new_cache()) for i in (0, 3, 9)]
    assert same(model.forward_many(others, [len(tokens), 1, 1])[0], whole)


def digest():
    """A digest of logits of a random model of odd sizes and, in pieces, of the embedded ones."""
    rows = [read(gpt2(random_gpt2(5, 97, 3, 3, 51, 70)), np.arange(70) % 97)]
    for name in EMBEDDED:
        tokens = np.arange(40) * 7
        rows.append(read_in_pieces(embedded(name)[0], [tokens[:5], tokens[5:6], tokens[6:]]))
    return hashlib.sha256(b"".join(r.tobytes() for r in rows)).hexdigest()


def in_a_process(code, **env):
    """What a new Python with the modules found here prints."""
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | env
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@compiled
def test_logits_do_not_depend_on_the_instruction_set():
    from minidecode.kernels import native

    names = [name for name in native.instruction_sets() if name != "plain"]  # which has no FMA
    if len(names) < 2:
        pytest.skip(f"this processor has one instruction set with FMA or none: {names}")
    code = "import test_gpt2 as t; print(t.kernels.instruction_set(), t.digest())"
    seen = {}
    for name in names:
        used, seen[name] = in_a_process(code, MINIDECODE_ISA=name)
        assert used == name
    assert len(set(seen.values())) == 1, seen


# What a call may see and compute


def test_a_token_does_not_see_those_after_it():
    model = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    one, other = read(model, [7, 8, 9]), read(model, [7, 8, 1])
    assert same(one[:2], other[:2])
    assert not np.allclose(one[2], other[2], atol=0.1)


def test_a_token_sees_all_before_it_and_its_place():
    model = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    assert not np.allclose(read(model, [7, 8, 9])[2], read(model, [1, 8, 9])[2], atol=0.1)
    assert not np.allclose(read(model, [8, 9])[1], read(model, [8, 8, 9])[2], atol=0.1)
    repeated = read(model, [4, 4])
    assert not np.allclose(repeated[0], repeated[1], atol=0.1)


def test_only_the_rows_asked_for_meet_the_head(monkeypatch):
    model = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    rows = []

    def linear(x, weight, *rest, **options):
        if weight is model.head:
            rows.append(len(x))
        return kernels.linear(x, weight, *rest, **options)

    monkeypatch.setattr("minidecode.models.gpt2.linear", linear)
    model.forward(range(20), model.new_cache())
    model.forward(range(20), model.new_cache(), n_logits=5)
    model.forward_many([(range(9), model.new_cache()), ([1], model.new_cache())], [3, 1])
    assert rows == [1, 5, 4]


def test_the_last_rows_are_those_of_the_whole():
    model = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    whole = read(model, range(20))
    for n in (0, 1, 2, 19, 20):
        logits = model.forward(range(20), model.new_cache(), n_logits=n)
        assert logits.shape == (n, 31) and logits.dtype == np.float32
        assert same(logits, whole[20 - n :])


def test_no_logits_at_all_still_fill_the_cache():
    model = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    batch = [([1, 2], model.new_cache()), ([3], model.new_cache())]
    assert [logits.shape for logits in model.forward_many(batch, n_logits=0)] == [(0, 31)] * 2
    assert [cache.length for _, cache in batch] == [2, 1]
    assert same(model.forward([4], batch[1][1]), read(model, [3, 4])[1:])


def test_a_batch_of_none_is_none():
    assert gpt2(random_gpt2(1, 31, 1, 2, 16, 64)).forward_many([]) == []


def test_ids_may_come_in_any_kind_of_sequence():
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 64))
    right = read(model, [3, 1, 30])
    for kind in (tuple, np.array, lambda t: np.array(t, np.uint8), lambda t: np.array(t)[::1]):
        assert same(read(model, kind([3, 1, 30])), right)
    assert same(model.forward(range(3), model.new_cache()), read(model, [0, 1, 2])[2:])


def test_logits_handed_out_are_the_callers_own():
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 64))
    cache = model.new_cache()
    first = model.forward([1], cache)
    kept = first.copy()
    model.forward([2], cache)
    assert np.array_equal(first, kept)
    first[:] = 0
    assert np.array_equal(model.forward([1], model.new_cache()), kept)


def test_unknown_ids_have_no_probability():
    fixture = random_gpt2(1, 31, 1, 2, 16, 64)
    logits = read(gpt2(fixture, unknown_ids=[3, 30]), range(31))
    right = read(gpt2(fixture), range(31))
    assert (logits[:, [3, 30]] == -np.inf).all()
    others = np.delete(np.arange(31), [3, 30])
    assert same(logits[:, others], right[:, others])


def test_each_tensor_is_read_once():
    config, tensors = random_gpt2(1, 31, 2, 2, 16, 64)
    seen = []

    class Watched(dict):
        def __getitem__(self, name):
            seen.append(name)
            return super().__getitem__(name)

    gpt2((config, Watched(tensors)))
    assert sorted(seen) == sorted(tensors)


def test_the_tensors_may_change_or_go_once_the_model_is_made():
    config, tensors = random_gpt2(1, 31, 2, 2, 16, 64)
    model = gpt2((config, tensors))
    right = read(model, range(10))
    for tensor in tensors.values():
        tensor.fill(np.nan)
    assert same(read(model, range(10)), right)


def test_weights_may_be_read_only_and_of_any_layout():
    config, tensors = random_gpt2(1, 31, 2, 2, 16, 64)
    right = read(gpt2((config, tensors)), range(10))
    for name, tensor in tensors.items():
        file = np.frombuffer(b"\0" + tensor.tobytes(), np.uint8)[1:]  # as mapped at an odd place
        view = np.ndarray(tensor.shape, np.float32, file, strides=tensor.strides)
        assert not view.flags.writeable
        tensors[name] = view if tensor.ndim == 1 else np.asfortranarray(view)
    assert same(read(gpt2((config, tensors)), range(10)), right)


# Errors


BAD_IDS = [-1, 31, 2**40, 2**70, -(2**63), 1.5, 1.0, True, None, "1", np.float32(1), np.True_]


@pytest.mark.parametrize("bad", BAD_IDS, ids=repr)
def test_what_is_no_id_is_named_before_anything_is_computed(bad):
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 64))
    cache = model.new_cache()
    model.forward([1, 2], cache)
    for tokens in ([bad], [3, bad, 4]):
        with pytest.raises(InputError, match=r"token id: got .* from 0 to 30"):
            model.forward(tokens, cache)
    assert cache.length == 2


@pytest.mark.parametrize(
    "ids", [np.array([-1]), np.array([31], np.uint64), np.array([1.5]), np.array([[1, 2]])], ids=str
)
def test_arrays_that_hold_no_ids_are_refused(ids):
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 64))
    with pytest.raises(InputError, match="token id: got"):
        model.forward(ids, model.new_cache())


def test_no_tokens_are_refused():
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 64))
    for none in ([], np.array([], int)):
        with pytest.raises(InputError, match="tokens: got none"):
            model.forward(none, model.new_cache())


@pytest.mark.parametrize("n_logits", [-1, 4, [1, 1], [4], []], ids=str)
def test_more_logits_than_tokens_are_refused(n_logits):
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 64))
    cache = model.new_cache()
    with pytest.raises(InputError, match="n_logits: got"):
        model.forward([1, 2, 3], cache, n_logits)
    assert cache.length == 0


def test_positions_end_where_the_model_says():
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 12))
    cache = model.new_cache()
    with pytest.raises(ContextError, match=r"0 in the cache and 13 new .* 12 positions"):
        model.forward(range(13), cache)
    model.forward(range(12), cache)
    with pytest.raises(ContextError, match="12 in the cache and 1 new"):
        model.forward([0], cache)
    assert cache.length == 12


def test_an_error_for_one_sequence_leaves_all_caches_as_they_were():
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 12))
    good, full = model.new_cache(), model.new_cache()
    model.forward([5, 6], good)
    model.forward(range(12), full)
    with pytest.raises(ContextError):
        model.forward_many([([7], good), ([1], full)])
    with pytest.raises(InputError):
        model.forward_many([([7], good), ([99], model.new_cache())])
    assert (good.length, full.length) == (2, 12)
    assert same(model.forward([7], good), read(model, [5, 6, 7])[2:])


def test_one_cache_cannot_stand_for_two_sequences():
    model = gpt2(random_gpt2(1, 31, 1, 2, 16, 64))
    cache = model.new_cache()
    with pytest.raises(InputError, match="one cache stands in it twice"):
        model.forward_many([([1], cache), ([2], cache)])


@pytest.mark.parametrize(("kernel", "call"), [("attention", 1), ("linear", 6), ("layer_norm", 1)])
def test_an_interrupt_leaves_the_cache_as_it_was(monkeypatch, kernel, call):
    """In the first layer, in the second, and at the head."""
    model = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    cache = model.new_cache()
    model.forward([5, 6], cache)
    calls = []

    def interrupted(*arguments, **options):
        calls.append(kernel)
        if len(calls) == call:
            raise KeyboardInterrupt
        return getattr(kernels, kernel)(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(f"minidecode.models.gpt2.{kernel}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.forward([1, 2, 3], cache)
    assert cache.length == 2
    assert same(model.forward([7], cache), read(model, [5, 6, 7])[2:])


# Memory


PREFILL = """
import resource, sys
import numpy as np
from builders import random_gpt2
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

def peak():
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024

config, tensors = random_gpt2(1, 50_257, 1, 1, 8, 1024)
model = GPT2(Config.from_dict(config), tensors)
del tensors
model.forward([1, 2, 3], model.new_cache())
before = peak()
model.forward(np.arange(1000), model.new_cache())
print(peak() - before)
"""


def test_prefill_does_not_hold_logits_that_nobody_asked_for():
    """1000 rows of 50,257 logits are 201 MB; what a prefill of this small model needs is 10."""
    pytest.importorskip("resource", reason="this system does not tell the peak of memory")
    (grown,) = in_a_process(PREFILL)
    assert int(grown) < 50e6


# Activations


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("gelu", lambda u: u * (1 + np.vectorize(math.erf)(u / math.sqrt(2))) / 2),
        ("relu", lambda u: np.maximum(u, 0)),
        ("silu", lambda u: u / (1 + np.exp(-u))),
    ],
)
def test_the_activation_of_the_config_is_the_one_that_is_used(name, function):
    config, tensors = random_gpt2(4, 11, 1, 1, 4, 8, activation_function=name)
    model = GPT2(Config.from_dict(config), tensors)
    logits = model.forward([3, 1, 4], model.new_cache(), n_logits=3)
    wanted = oracle_logits(config, tensors, [3, 1, 4], function)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
