"""Weights in narrow types: packed while they are loaded, or written once and mapped into memory."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from builders import random_gpt2, toy_tokenizer, write

from minidecode import CheckpointError, InputError, kernels, load
from minidecode.cli import main
from minidecode.kernels import DTYPES, pack
from minidecode.kernels.packing import unpack
from minidecode.models.config import Config, read_json
from minidecode.models.gpt2 import GPT2
from minidecode.models.loading import convert
from minidecode.models.packed_file import PACKED, PackedFile

SHAPE = {"V": 300, "n_layer": 2, "n_head": 2, "d": 24, "n_positions": 32}  # 24: no whole group
FORMS = [{}, {"tie_word_embeddings": False}]
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module", params=FORMS, ids=["tied", "untied"])
def source(request, tmp_path_factory):
    config, tensors = random_gpt2(5, **SHAPE, **request.param)
    if request.param:
        rng = np.random.default_rng(6)
        tensors["lm_head.weight"] = rng.standard_normal((300, 24)).astype(np.float32)
    return write(tmp_path_factory.mktemp("source"), config, tensors, toy_tokenizer())


def logits(model):
    return model.forward(TOKENS, model.new_cache(), n_logits=len(TOKENS))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_converted_model_has_the_logits_of_the_loaded_one_bit_for_bit(source, tmp_path, dtype):
    loaded, tokenizer = load(source, dtype=dtype)
    assert convert(source, tmp_path / "out", dtype=dtype).dtype == loaded.dtype == dtype
    mapped, same = load(tmp_path / "out")
    assert (mapped.dtype, same.encode("abc")) == (dtype, tokenizer.encode("abc"))
    np.testing.assert_array_equal(logits(mapped), logits(loaded))
    assert mapped.config == loaded.config


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_matrix_is_packed_as_its_type_and_the_rest_is_float32(source, dtype):
    model, _ = load(source, dtype=dtype)
    for name, weight in model.named_weights():
        if isinstance(weight, np.ndarray):
            assert weight.dtype == np.float32, name
        else:
            of_head = dtype == "int4" and not name.startswith("h.")
            assert weight.dtype == ("int8" if of_head else dtype), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_are_the_model_of_the_rounded_weights(dtype):
    config, tensors = random_gpt2(7, **SHAPE)
    rounded = {
        name: unpack(pack(t, dtype)) if t.ndim == 2 and name != "wpe.weight" else t
        for name, t in tensors.items()
    }
    config = Config.from_dict(config)
    narrow, wide = GPT2(config, tensors, dtype=dtype), GPT2(config, rounded)
    np.testing.assert_array_equal(logits(narrow), logits(wide))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_has_the_same_bits_alone_and_in_a_block(source, dtype):
    model, _ = load(source, dtype=dtype)
    cache = model.new_cache()
    alone = np.array([model.forward([token], cache)[-1] for token in TOKENS])
    if kernels.backend == "native":
        np.testing.assert_array_equal(alone, logits(model))
    else:
        np.testing.assert_allclose(alone, logits(model), rtol=1e-3, atol=1e-3)


def test_a_number_that_float16_cannot_hold_is_refused_by_the_name_of_its_tensor(tmp_path):
    config, tensors = random_gpt2(1, **SHAPE)
    tensors["h.1.mlp.c_fc.weight"][3, 4] = 1e6
    write(tmp_path, config, tensors, toy_tokenizer())
    with pytest.raises(CheckpointError, match=r"h\.1\.mlp\.c_fc\.weight: got 1e\+?06|1000000"):
        load(tmp_path, dtype="float16")
    load(tmp_path, dtype="bfloat16")


@pytest.mark.parametrize("dtype", ["int2", "", 8, "INT8", ["int8"], "float64"])
def test_a_type_that_is_none_is_refused_before_anything_is_read(dtype):
    with pytest.raises(InputError, match="dtype: got"):
        load("storyteller-1m", dtype=dtype)


def test_packed_weights_are_not_another_type(source, tmp_path):
    convert(source, tmp_path / "out", dtype="int8")
    load(tmp_path / "out", dtype="int8")
    with pytest.raises(CheckpointError, match="got weights in int8, int4 was wanted"):
        load(tmp_path / "out", dtype="int4")
    with pytest.raises(CheckpointError, match="got weights in int8, int4 was wanted"):
        convert(tmp_path / "out", tmp_path / "again", dtype="int4")


def test_nothing_is_written_over(source, tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(InputError, match="new or empty"):
        convert(source, tmp_path, dtype="int8")


def test_a_model_without_tokenizer_files_takes_ids(tmp_path):
    config, tensors = random_gpt2(1, **SHAPE)
    write(tmp_path, config, tensors)
    model, tokenizer = load(tmp_path, tokenizer=None)
    assert tokenizer is None
    assert logits(model).shape == (8, 300)


def test_the_header_of_a_file_is_parsed_once(source, tmp_path, monkeypatch):
    """With a thousand matrices it is long."""
    convert(source, tmp_path / "out", dtype="int8")
    parsed, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text: parsed.append(text) or loads(text))
    PackedFile(tmp_path / "out", Config.from_dict(read_json(tmp_path / "out" / "config.json")))
    assert sum("data_offsets" in str(text) for text in parsed) == 1


# Files that are not what they should be


def rewritten(path, change):
    """The packed file with its header changed by `change`, a function of the parsed JSON."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    described = json.loads(header["__metadata__"]["minidecode"])
    change(header, described)
    if "__metadata__" in header and "minidecode" in header["__metadata__"]:
        header["__metadata__"]["minidecode"] = json.dumps(described)
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def swapped(header, described):
    a, b = (f"h.{i}.mlp.c_fc.weight" for i in (0, 1))
    matrices = described["matrices"]
    matrices[a] = {**matrices[b], "n_in": 25}


CHANGES = {
    "another layout": lambda header, described: described.update(layout=99),
    "no description": lambda header, described: header.pop("__metadata__"),
    "foreign metadata": lambda header, described: header.update(__metadata__={"format": "pt"}),
    "matrices missing": lambda header, described: described.pop("matrices"),
    "a matrix missing": lambda header, described: described["matrices"].pop("wte.weight"),
    "an array missing": lambda header, described: header.update(
        {"x": header.pop("h.0.attn.c_proj.weight.panels")}
    ),
    "another shape": swapped,
    "another type": lambda header, described: described["matrices"]["wte.weight"].update(
        dtype="int4"
    ),
    "no number": lambda header, described: described["matrices"]["wte.weight"].update(n_in="24"),
    "no object": lambda header, described: described["matrices"].update({"wte.weight": 3}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_does_not_describe_the_model_is_refused(tmp_path, change):
    source = write(tmp_path / "a", *random_gpt2(5, **SHAPE), toy_tokenizer())
    convert(source, tmp_path / "out", dtype="int8")
    rewritten(tmp_path / "out" / PACKED, change)
    with pytest.raises(CheckpointError, match=PACKED) as error:
        load(tmp_path / "out")
    if change is CHANGES["another layout"]:
        assert "layout: got 99, version" in str(error.value)


@pytest.mark.parametrize("length", [0, 7, 100, -1, -64])
def test_a_truncated_file_is_refused(tmp_path, length):
    source = write(tmp_path / "a", *random_gpt2(5, **SHAPE), toy_tokenizer())
    convert(source, tmp_path / "out", dtype="int4")
    path = tmp_path / "out" / PACKED
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match="is not a sound safetensors file"):
        load(tmp_path / "out")


@pytest.mark.parametrize("n_layer", [1, 3, 10**8])
def test_a_config_with_other_sizes_is_refused(tmp_path, n_layer):
    source = write(tmp_path / "a", *random_gpt2(5, **SHAPE), toy_tokenizer())
    convert(source, tmp_path / "out", dtype="int8")
    path = tmp_path / "out" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"n_layer": n_layer}))
    with pytest.raises(CheckpointError, match="got 2 layers"):
        load(tmp_path / "out")


PEAK = """
import sys
from minidecode import load
from minidecode.models.loading import find
def peak():
    return 1024 * next(int(l.split()[1]) for l in open("/proc/self/status") if "VmHWM" in l)
load("storyteller-1m", dtype="int8")
before = peak()
model, _ = load(sys.argv[1], dtype="int4")
print(peak() - before, sum(w.nbytes for _, w in model.named_weights()))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the peak")
def test_narrowing_never_holds_the_wide_model(tmp_path):
    """Wide it is 51 MB; narrow 8, and the largest tensor 12."""
    shape = {"V": 4000, "n_layer": 4, "n_head": 8, "d": 768, "n_positions": 64, "n_inner": 1024}
    source = write(tmp_path / "a", *random_gpt2(5, **shape), toy_tokenizer())
    done = subprocess.run(
        [sys.executable, "-c", PEAK, source], capture_output=True, text=True, check=True
    )
    grown, narrow = map(int, done.stdout.split())
    largest = 4 * 4000 * 768
    assert grown < 1.15 * narrow + largest + 8e6  # what is packed at a time


# The command line


def test_the_command_line_takes_types(tmp_path, capsys):
    out = str(tmp_path / "narrow")
    assert main(["convert", "storyteller-1m", "--dtype", "int4", "--out", out]) == 0
    assert "int4" in capsys.readouterr().err
    texts = set()
    for argv in (["--model", out], ["--model", "storyteller-1m", "--dtype", "int4"]):
        words = ["generate", "Once", "--greedy", "--max-new-tokens", "8", *argv]
        assert main([*words, "--draft", "storyteller-1m", "--draft-dtype", "int8"]) == 0
        texts.add(capsys.readouterr().out)
        assert main(words) == 0
        texts.add(capsys.readouterr().out)
    assert len(texts) == 1
    assert main(["info", out]) == 0
    assert "int4, head int8, packed" in capsys.readouterr().out
    assert main(["generate", "x", "--draft-dtype", "int8"]) == 2


def test_a_conversion_that_fails_leaves_no_directory_behind(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "given").mkdir()
    for out in ("new", "given"):
        with pytest.raises(CheckpointError, match=r"config\.json"):
            convert(tmp_path / "source", tmp_path / out, dtype="int8")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["given", "source"]
