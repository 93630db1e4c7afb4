"""The benchmark of the forward pass: that it runs; nothing here depends on how fast."""

import json
import math

import numpy as np
import pytest
from builders import random_gpt2

from minidecode import cli, load
from minidecode.measure import peers, speed
from minidecode.measure.shapes import SHAPES, Shape, shape_config
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

SIZES = {"V": 26, "n_layer": 1, "n_head": 2, "d": 8, "n_positions": 320}


def random_model(seed=0, **fields):
    fields, tensors = random_gpt2(seed, **SIZES | fields)
    return GPT2(Config.from_dict(fields), tensors)


@pytest.fixture
def quick(monkeypatch):
    """No waiting, and no large read of memory."""
    monkeypatch.setattr(speed.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(speed, "memory_speed", lambda: 10.0)


def test_the_forward_pass_is_measured(quick):
    measured = speed.measure_model([speed.Ours(random_model())], repeats=1)
    ours = measured["results"]["minidecode"]
    wanted = {"tokens/s", "pass over 5 / 1", "8 sequences / 1", "prefill 256, ms"}
    assert wanted | {"weights read / memory read"} <= set(ours)
    assert all(math.isfinite(value) and value > 0 for value in ours.values())
    assert ours["share of time outside kernels"] < 1
    json.dumps(measured)


def test_engines_of_one_run_stand_side_by_side(quick):
    class Passes(speed.Engine):
        name = "other"

        def decode(self, n):
            return [0.5, 0.25, 0.125]

        def prefill(self):
            pass

    both = [speed.Ours(random_model(0)), speed.Ours(random_model(1), "second", context=300)]
    results = speed.measure_model(both, [Passes()], repeats=1)["results"]
    assert list(results) == ["minidecode", "second", "other"]
    assert results["other"]["tokens/s"] == 4
    assert set(results["other"]) == {"tokens/s", "prefill 256, ms"}
    assert set(results["second"]) == set(results["minidecode"])
    assert "peak memory, MB" not in results["second"]  # there is one of the process, not of each


@pytest.mark.parametrize("context", [1, 64, 296])
def test_passes_and_decoding_begin_with_the_context_in_the_cache(context):
    engine = speed.Ours(random_model(), context=context)
    lengths = []
    forward = engine.model.forward
    engine.model.forward = lambda tokens, cache, **options: (
        lengths.append((cache.length, len(tokens))) or forward(tokens, cache, **options)
    )
    assert len(engine.decode(24)) == 23
    engine.forward(5)
    engine.forward(1)
    fed = [(0, context), *((context + i, 1) for i in range(23)), (context, 5), (context, 1)]
    assert lengths == fed


def test_memory_speed_is_a_number():
    assert 0 < speed.memory_speed(megabytes=1, repeats=2) < math.inf


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_gpt2s(name):
    config = shape_config(name)
    millions = {"gpt2": 124.4, "gpt2-medium": 354.8, "gpt2-large": 774.0}  # as published
    assert speed.n_parameters(config) / 1e6 == pytest.approx(millions[name], abs=0.05)
    assert config.head_dim == 64


def run(capsys, *argv):
    code = cli.main(["bench", *(str(word) for word in argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    "options, message",
    [
        (("--shape", "gpt3"), "shape: got 'gpt3'"),
        (("--repeats", "0"), "--repeats: got 0, at least 1 was wanted"),
        (("--dtype", "int3"), "--dtype: got 'int3', some of float32"),
        (("--dtype", "int8,,"), "--dtype: got ''"),
        (("--context", "0"), "--context: got 0, 1 to 1000 was wanted"),
        (("--context", "1001"), "--context: got 1001, 1 to 1000 was wanted"),
    ],
)
def test_the_model_benchmark_refuses_in_one_line(capsys, options, message):
    code, text, said = run(capsys, "model", *options)
    assert (code, text, said.count("\n")) == (2, "", 1)
    assert message in said


def test_the_command_prints_a_table_or_json(quick, capsys, monkeypatch):
    monkeypatch.setitem(SHAPES, "gpt2", Shape(1, 2, 8, 40, 320))
    options = ("--repeats", 1, "--context", 9)
    code, text, _ = run(capsys, "model", *options)
    assert code == 0
    assert "9 tokens in the cache" in text and "pass over 5 / 1" in text
    code, text, _ = run(capsys, "model", *options, "--json")
    assert code == 0 and json.loads(text)["results"]["minidecode"]["tokens/s"] > 0


def test_every_storage_type_is_an_engine(quick, capsys, monkeypatch):
    monkeypatch.setitem(SHAPES, "gpt2", Shape(1, 2, 64, 40, 320))
    types = "float32,int8,float16,int8"
    code, text, _ = run(capsys, "model", "--repeats", 1, "--dtype", types, "--json")
    results = json.loads(text)["results"]
    assert code == 0 and list(results) == ["minidecode", "minidecode int8", "minidecode float16"]
    sizes = [found["weights, GB"] for found in results.values()]
    assert sizes[0] == 2 * sizes[2] > 3 * sizes[1]
    for found in results.values():
        assert found["pass over 5 / 1"] > 0 and found["outside kernels, ms"] > 0


def test_peers_without_a_package_are_named(capsys, monkeypatch):
    monkeypatch.setattr(peers, "is_installed", lambda peer: False)
    code, text, said = run(capsys, "model", "--peers")
    assert (code, text, said.count("\n")) == (1, "", 1)
    assert "--peers: transformers and ctranslate2 are missing (extra `peers`)" in said


def test_peers_run_on_a_directory_with_random_weights(quick, tmp_path):
    for package in ("torch", "transformers", "ctranslate2"):
        pytest.importorskip(package, reason=f"{package}, which a peer needs, is missing")
    config = Config(vocab_size=300, n_positions=320, n_embd=16, n_layer=1, n_head=2)
    peers.write_random(tmp_path, config, speed.RandomTensors(config))
    ours = speed.Ours(load(tmp_path)[0])
    tokens = np.arange(1, 300).tolist()
    measured = speed.measure_model([ours], peers.start(tmp_path, 1, tokens, 64), repeats=1)
    assert list(measured["results"]) == ["minidecode", "transformers", "ctranslate2"]
    for found in measured["results"].values():
        assert found["tokens/s"] > 0
