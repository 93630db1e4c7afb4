"""From a name or a directory to a model, and that what it computes is what the files say."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import bigram, cycle, oracle_logits, penalty, random_gpt2, toy_tokenizer, write
from tokenizers import AddedToken

from minidecode import CheckpointError, MinidecodeError, TokenizerError, load
from minidecode.models.checkpoint import Checkpoint
from minidecode.models.loading import EMBEDDED, convert, find

SMALL = {"V": 26, "n_layer": 2, "n_head": 2, "d": 8, "n_positions": 16}


def small_model(directory, tokenizer=None, **fields):
    return write(directory, *random_gpt2(1, **SMALL, **fields), tokenizer or toy_tokenizer(26))


def logits_of(directory, tokens):
    """The logits [n, V] after each of `tokens`, by the model in the directory."""
    model, _ = load(directory)
    return model.forward(list(tokens), model.new_cache(), n_logits=len(tokens))


def log_softmax(x):
    x = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


# Embedded models and directories


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_models_load_by_name_from_anywhere(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = load(name)
    assert model.config.vocab_size == tokenizer.vocab_size == 4096
    assert model.config.eos_token_ids == (0,)
    logits = model.forward(tokenizer.encode("Once upon a"), model.new_cache())
    assert tokenizer.decode([int(logits[0].argmax())]) == " time"


def test_a_directory_may_be_given_as_text_or_path(tmp_path, monkeypatch):
    small_model(tmp_path / "model")
    assert load(tmp_path / "model")[1].vocab_size == 26
    monkeypatch.chdir(tmp_path)
    assert find("model") == find("./model") == Path("model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find("~/model") == tmp_path / "model"


@pytest.mark.parametrize("name", ["./model", "../model", "/no/model", "a/b/c", "~/model", "a/"])
def test_what_looks_like_a_path_is_never_sought_elsewhere(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CheckpointError, match=f"^{name}: there is no such directory$"):
        find(name)
    with pytest.raises(CheckpointError, match="there is no such directory"):
        find(Path("model"))


def test_a_file_and_an_empty_name_are_no_models(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="got a file"):
        find(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="empty name"):
        find("")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_what_a_directory_lacks_is_named(tmp_path, missing):
    (small_model(tmp_path) / missing).unlink()
    with pytest.raises(MinidecodeError, match=missing.replace(".", r"\.")) as error:
        load(tmp_path)
    assert isinstance(error.value, TokenizerError if "tok" in missing else CheckpointError)


SIZES = ["vocab_size", "n_positions", "n_embd", "n_inner", "n_layer"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [10**18, 10**400], ids=["10**18", "10**400"])
@pytest.mark.parametrize("field", SIZES)
def test_sizes_that_no_memory_could_hold_are_refused_at_once(tmp_path, field, size, packed):
    """Before anything is counted up to them: the weights are of other sizes."""
    directory = small_model(tmp_path / "model", toy_tokenizer())
    if packed:
        convert(directory, tmp_path / "packed", dtype="int8")
        directory = tmp_path / "packed"
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: size}))
    with pytest.raises(CheckpointError, match=str(directory)):
        load(directory)


def test_loading_checks_tensors_against_the_config(tmp_path):
    config, tensors = random_gpt2(1, **SMALL)
    write(tmp_path, config | {"n_layer": 3}, tensors, toy_tokenizer(26))
    with pytest.raises(CheckpointError, match=r"h\.2\..* is missing"):
        load(tmp_path)


# What is computed


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n_inner": 24},
        {"n_ctx": 1024},
        {"layer_norm_epsilon": 1e-3},
        {"layer_norm_epsilon": 1.0},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
        {"reorder_and_upcast_attn": True},
    ],
)
def test_every_field_of_the_config_has_its_effect(tmp_path, fields):
    config, tensors = random_gpt2(1, **SMALL, **fields)
    tokens = np.random.default_rng(0).integers(0, 26, 16)
    expected = oracle_logits(config, tensors, tokens)
    logits = logits_of(small_model(tmp_path, **fields), tokens)
    np.testing.assert_allclose(logits, expected, atol=2e-4)


@pytest.mark.parametrize("how", [{"dtype": "F64"}, {"prefix": "transformer."}, {"shards": 3}])
def test_how_the_tensors_are_stored_changes_no_bit(tmp_path, how):
    plain = logits_of(small_model(tmp_path / "plain"), range(16))
    other = write(tmp_path / "other", *random_gpt2(1, **SMALL), toy_tokenizer(26), **how)
    np.testing.assert_array_equal(logits_of(other, range(16)), plain)


def test_a_bigram_model_gives_its_table(tmp_path):
    table = np.random.default_rng(5).dirichlet(np.ones(12), 12)
    directory = write(tmp_path, *bigram(table), toy_tokenizer(12))
    for prompt in ([], [3, 7]):  # what came before does not matter
        tokens = [*prompt, *range(12)]
        log_p = log_softmax(logits_of(directory, tokens))[len(prompt) :]
        np.testing.assert_allclose(log_p, np.log(table), atol=1e-3)


def test_the_other_fixtures_are_what_they_say(tmp_path):
    directory = write(tmp_path / "cycle", *cycle(), toy_tokenizer(6))
    assert logits_of(directory, range(6)).argmax(axis=1).tolist() == [1, 2, 5, 4, 0, 3]
    directory = write(tmp_path / "penalty", *penalty(), toy_tokenizer(4))
    np.testing.assert_allclose(logits_of(directory, [0])[0], [-1.5, 1.5, 0.5, -0.5], atol=1e-4)


# Ids of model and tokenizer


def test_ids_that_the_tokenizer_does_not_know_are_never_likely(tmp_path):
    write(tmp_path, *bigram(np.full((8, 8), 1 / 8)), toy_tokenizer(6))
    logits = logits_of(tmp_path, [0, 7])
    assert np.isneginf(logits[:, 6:]).all()
    np.testing.assert_allclose(log_softmax(logits[:, :6]), np.log(1 / 6), atol=1e-4)


def test_a_tokenizer_may_know_more_ids_until_one_is_used(tmp_path):
    backend = toy_tokenizer(6)
    backend.add_special_tokens([AddedToken("[end]", special=True)])
    fields = bigram(np.full((6, 6), 1 / 6), eos_token_id=5)
    model, tokenizer = load(write(tmp_path, *fields, backend))
    assert tokenizer.encode("abc") == [0, 1, 2]
    assert model.forward(tokenizer.encode("abc"), model.new_cache()).shape == (1, 6)
    with pytest.raises(ValueError, match="6"):
        model.forward(tokenizer.encode("abc[end]"), model.new_cache())


def test_an_end_id_beyond_the_model_is_an_error_at_once(tmp_path):
    backend = toy_tokenizer(6)
    backend.add_special_tokens([AddedToken("[end]", special=True)])
    write(tmp_path, *bigram(np.full((6, 6), 1 / 6), eos_token_id=6), backend)
    with pytest.raises(CheckpointError, match=r"eos_token_id.*6"):
        load(tmp_path)


# Progress


def test_progress_shows_every_parameter_as_it_is_read(tmp_path):
    made = []

    class Bar:
        def __init__(self, total, **kwargs):
            self.total, self.done = total, 0
            made.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.closed = True

        def update(self, n):
            self.done += n

    load(small_model(tmp_path), progress=Bar)
    (bar,) = made
    assert bar.done == bar.total == Checkpoint(tmp_path).n_parameters
    assert bar.closed


def test_importing_takes_only_what_reading_needs():
    code = """
import sys
import minidecode.models.loading
slow = {"huggingface_hub", "tqdm", "torch", "transformers", "requests", "matplotlib"}
print(sorted(slow & set(sys.modules)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
