"""A grown model has the small one's distribution, the large one's cost, and loads anywhere."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest
from builders import oracle_logits, random_gpt2, toy_tokenizer, write
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import InputError, TokenizerError, Warp, cli, load, sample, speculative
from minidecode.measure.inflate import MARGIN, inflate, inflate_model, load_inflated, write_inflated
from minidecode.measure.shapes import SHAPES, Shape, find_shape
from minidecode.measure.speed import weight_bytes
from minidecode.models.checkpoint import Checkpoint, parameter_shapes
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.saving import write_checkpoint, write_safetensors

SMALL = {"V": 26, "n_layer": 2, "n_head": 2, "d": 8, "n_positions": 16}
WIDER = Shape(n_layer=3, n_head=6, n_embd=24, vocab_size=40, n_positions=32)


def grow(fields, tensors, shape):
    return inflate(Config.from_dict(fields), tensors, shape)


def softmax(x):
    x = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def all_logits(model, tokens):
    return model.forward(tokens, model.new_cache(), n_logits=len(tokens))


# The same distribution


@st.composite
def small_models(draw):
    """(fields, tensors) of a tiny GPT-2 with anything a checkpoint may have, and a larger shape."""
    n_head, head_dim = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    sizes = {
        "V": draw(st.integers(2, 9)),
        "n_layer": draw(st.integers(1, 2)),
        "n_head": n_head,
        "d": n_head * head_dim,
        "n_positions": draw(st.integers(3, 6)),
    }
    fields, tensors = random_gpt2(
        draw(st.integers(0, 999)),
        **sizes,
        n_inner=draw(st.sampled_from([None, 5])),
        layer_norm_epsilon=draw(st.sampled_from([1e-5, 1e-2, 1.0])),
        scale_attn_weights=draw(st.booleans()),
        scale_attn_by_inverse_layer_idx=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )
    if not fields["tie_word_embeddings"] and draw(st.booleans()):
        tensors["lm_head.weight"] = tensors["wte.weight"][::-1].copy()
    for zeroed in draw(st.sets(st.integers(0, sizes["d"] - 1))):  # s / weight would be infinite
        tensors["ln_f.weight"][zeroed] = 0
    tensors["ln_f.weight"] *= draw(st.sampled_from([1, -1, 1e-6]))
    tensors["ln_f.bias"] *= draw(st.sampled_from([0, 1, 20]))  # s * sum(bias / weight) would be 0
    copies = draw(st.integers(1, 5))
    shape = Shape(
        n_layer=sizes["n_layer"] + draw(st.integers(0, 2)),
        n_head=copies * n_head,
        n_embd=copies * sizes["d"],
        vocab_size=sizes["V"] + (draw(st.integers(0, 5)) if copies > 1 else 0),
        n_positions=sizes["n_positions"] + draw(st.integers(0, 8)),
    )
    return fields, tensors, shape


@settings(max_examples=150, deadline=None)
@given(small_models(), st.integers(0, 999))
def test_any_model_keeps_its_distribution_in_any_larger_shape(model, seed):
    fields, tensors, shape = model
    grown, larger = grow(fields, tensors, shape)
    assert {name: getattr(grown, name) for name in Shape._fields} == shape._asdict()
    shapes = {name: tensor.shape for name, tensor in larger.items() if name != "lm_head.weight"}
    assert shapes == parameter_shapes(grown)
    assert all(tensor.dtype == np.float32 for tensor in larger.values())
    V = fields["vocab_size"]
    tokens = np.random.default_rng(seed).integers(0, V, fields["n_positions"])
    small = oracle_logits(fields, tensors, tokens)
    large = oracle_logits(dataclasses.asdict(grown), larger, tokens)
    np.testing.assert_allclose(large[:, :V], small, atol=1e-4, rtol=1e-5)
    np.testing.assert_allclose(softmax(large)[:, :V], softmax(small), atol=1e-4)
    if shape.vocab_size > V:
        new = large[:, V:]
        assert np.ptp(new) < 1e-3 and np.isfinite(new).all()
        assert new.max() < small.min() - MARGIN + 1e-3
        assert softmax(large)[:, V:].sum() < 1e-6


@pytest.fixture(scope="module")
def story():
    """The embedded target, and 48 tokens that it wrote itself."""
    model, tokenizer = load("storyteller-6m")
    tokens = tokenizer.encode("The king said")
    tokens += [t for step in sample(model, tokens, max_new_tokens=45) for t in step.tokens]
    return model, tokens


@pytest.mark.parametrize(
    "shape",
    ["gpt2", Shape(7, 16, 1024, 5000, 600), Shape(6, 20, 1280, 4096, 512), Shape(8, 4, 256, 4096)],
)
def test_the_embedded_target_keeps_its_distribution(story, shape):
    small, tokens = story
    large, tokenizer = load_inflated("storyteller-6m", shape)
    assert large.vocab_size == find_shape(shape).vocab_size
    assert tokenizer.vocab_size == small.vocab_size == 4096
    p, q = (softmax(all_logits(model, tokens)) for model in (small, large))  # at every length
    np.testing.assert_allclose(q[:, :4096], p, atol=1e-4)
    assert not q[:, 4096:].any()  # the tokenizer knows nothing of them


def test_ids_beyond_the_tokenizer_have_one_finite_logit_far_below_all_others(story):
    small, tokens = story
    large = GPT2(*inflate_model("storyteller-6m", Shape(6, 8, 512, 5000, 512)))
    logits = all_logits(large, tokens)
    assert np.ptp(logits[:, 4096:]) < 1e-2
    assert logits[:, 4096:].max() < min(-50, all_logits(small, tokens).min() - MARGIN)
    assert logits[:, 4096:].min() > -1000


def test_further_positions_repeat_the_old_ones():
    fields, tensors = random_gpt2(1, **SMALL)
    _, larger = grow(fields, tensors, WIDER)
    old = np.tile(tensors["wpe.weight"], (1, 3))
    np.testing.assert_array_equal(larger["wpe.weight"], np.concatenate([old, old]))


def test_added_blocks_compute_everything_and_write_nothing():
    fields, tensors = random_gpt2(1, **SMALL)
    _, larger = grow(fields, tensors, WIDER)
    added = {name: tensor for name, tensor in larger.items() if name.startswith("h.2.")}
    assert len(added) == 12
    for name, tensor in added.items():
        assert np.any(tensor) != ("c_proj" in name), name


def test_speculation_on_the_grown_target_writes_the_small_ones_text(story):
    small, tokens = story
    large, _ = load_inflated("storyteller-6m", Shape(7, 8, 512, 5000))
    draft, _ = load("storyteller-1m")
    greedily = {"warp": Warp(temperature=0), "max_new_tokens": 24}
    texts = [
        [token for step in steps for token in step.tokens]
        for steps in (
            sample(small, tokens[:9], **greedily),
            sample(large, tokens[:9], **greedily),
            speculative(large, draft, tokens[:9], **greedily),
        )
    ]
    assert texts[0] == texts[1] == texts[2]


def test_transformers_sees_the_same_distribution(story, tmp_path):
    torch = pytest.importorskip("torch", reason="torch, which runs the other program, is missing")
    transformers = pytest.importorskip("transformers", reason="transformers is missing")
    small, tokens = story
    write_inflated("storyteller-6m", Shape(7, 12, 768, 4200, 600), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        q = model(torch.tensor([tokens])).logits[0].double().softmax(-1).numpy()
    np.testing.assert_allclose(q[:, :4096], softmax(all_logits(small, tokens)), atol=1e-4)
    assert q[:, 4096:].max() < 1e-12
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("The king said").input_ids == tokens[:3]


# Memory


def test_tensors_are_made_one_at_a_time():
    shape = Shape(12, 8, 512, 4200)
    config, tensors = inflate_model("storyteller-6m", shape)
    read = []
    tensors.on_read = read.append
    assert "wte.weight" in tensors and len(tensors) == len(list(tensors)) and not read
    tracemalloc.start()
    try:
        model = GPT2(config, tensors)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(read) == sum(np.prod(s) for s in parameter_shapes(config).values())  # each once
    assert peak < 1.1 * weight_bytes(model)


# Written directories


def small_directory(path, tokenizer=None, **fields):
    return write(path, *random_gpt2(1, **SMALL, **fields), tokenizer or toy_tokenizer(26))


@pytest.mark.parametrize("fields", [{}, {"tie_word_embeddings": False}, {"bos_token_id": 3}])
@pytest.mark.parametrize("eos", [None, 5, [1, 2]])
def test_a_written_directory_is_the_grown_model(tmp_path, fields, eos):
    source = small_directory(tmp_path / "small", **fields, eos_token_id=eos)
    if "tie_word_embeddings" in fields:
        config, tensors = random_gpt2(1, **SMALL, **fields, eos_token_id=eos)
        tensors["lm_head.weight"] = tensors["wte.weight"][::-1].copy()
        write(source, config, tensors)
    config, size = write_inflated(source, WIDER, tmp_path / "a" / "large")
    stored, wanted = Checkpoint(tmp_path / "a" / "large"), inflate_model(source, WIDER)[1]
    assert config == Config.read(tmp_path / "a" / "large") == inflate_model(source, WIDER)[0]
    assert set(stored) == set(wanted)
    for name in wanted:
        np.testing.assert_array_equal(stored[name], wanted[name])
    assert size == sum(f.stat().st_size for f in (tmp_path / "a" / "large").iterdir())
    tokens = list(range(10))
    model, tokenizer = load(tmp_path / "a" / "large")
    again, _ = load_inflated(source, WIDER)
    np.testing.assert_array_equal(all_logits(model, tokens), all_logits(again, tokens))
    assert tokenizer.same_vocabulary(again.tokenizer) is None


def test_the_older_pair_of_tokenizer_files_is_copied_too(tmp_path):
    source = write(tmp_path / "small", *random_gpt2(1, **SMALL | {"V": 300}))
    vocab = toy_tokenizer(specials=()).get_vocab()
    (source / "vocab.json").write_text(json.dumps(vocab))
    (source / "merges.txt").write_text("#version: 0.2\n")
    (source / "added_tokens.json").write_text(json.dumps({"<|user|>": 299}))
    write_inflated(source, WIDER._replace(vocab_size=400), tmp_path / "large")
    assert load(tmp_path / "large")[1].encode("cab<|user|>") == [2, 0, 1, 299]


def test_the_bar_is_told_of_every_parameter(tmp_path):
    class Bar:
        def __init__(self, total, **kwargs):
            self.total, self.seen = total, 0
            bars.append(self)

        def update(self, n):
            self.seen += n

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    bars = []
    source = small_directory(tmp_path / "small")
    load_inflated(source, WIDER, progress=Bar)
    write_inflated(source, WIDER, tmp_path / "large", progress=Bar)
    n_parameters = Checkpoint(tmp_path / "large").n_parameters
    assert [(bar.total, bar.seen) for bar in bars] == [(n_parameters, n_parameters)] * 2


def test_what_fails_on_the_way_leaves_no_half_a_file(tmp_path):
    def tensors():
        yield np.zeros((2, 2), np.float32)
        raise KeyboardInterrupt

    path = tmp_path / "model.safetensors"
    with pytest.raises(KeyboardInterrupt):
        write_safetensors(path, {"a": ("F32", (2, 2)), "b": ("F32", (2,))}, tensors(), {})
    with pytest.raises(InputError, match=r"tensor b: got shape \(3,\), \(2,\) was wanted"):
        write_safetensors(path, {"b": ("F32", (2,))}, iter([np.zeros(3)]), {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a", "bb", "ccc", "dddd", "eeeee"])
def test_the_data_of_a_written_file_is_aligned(tmp_path, name):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {name: ("F32", (3,))}, [np.arange(3)], {})
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 64 == 0 and len(data) == 8 + length + 12
    assert Checkpoint(tmp_path)[name].tolist() == [0, 1, 2]


def test_any_model_can_be_written(tmp_path):
    fields, tensors = random_gpt2(2, **SMALL, layer_norm_epsilon=0.25, n_inner=12)
    write_checkpoint(tmp_path, Config.from_dict(fields), tensors)
    assert Config.read(tmp_path) == Config.from_dict(fields)
    for name, tensor in Checkpoint(tmp_path).items():
        np.testing.assert_array_equal(tensor, tensors[name])


def test_a_written_config_has_every_field_that_other_programs_ask_for(tmp_path):
    fields, tensors = random_gpt2(2, **SMALL)
    (tmp_path / "any").mkdir()
    write_checkpoint(tmp_path / "any", Config.from_dict(fields), tensors)
    write_inflated(small_directory(tmp_path / "small"), WIDER, tmp_path / "large")
    for name, n_positions in (("any", fields["n_positions"]), ("large", WIDER.n_positions)):
        written = json.loads((tmp_path / name / "config.json").read_text())
        # what llama.cpp's convert_hf_to_gguf.py reads of a GPT-2
        for key in ("n_ctx", "n_embd", "n_layer", "n_head", "layer_norm_epsilon", "vocab_size"):
            assert key in written, key
        assert written["architectures"] == ["GPT2LMHeadModel"]
        assert written["n_ctx"] == written["n_positions"] == n_positions


# Errors


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_embd": 20}, "n_embd: got 8, a divisor of 20 was wanted"),
        ({"n_embd": 4, "n_head": 1}, "n_embd: got 8, a divisor of 4 was wanted"),
        ({"n_head": 12}, "n_head: got 2 for a width of 8, 12 for 24 or as many a width"),
        ({"n_layer": 1}, "n_layer: got 2, at most 1 was wanted"),
        ({"vocab_size": 25}, "vocab_size: got 26, at most 25 was wanted"),
        ({"n_positions": 15}, "n_positions: got 16, at most 15 was wanted"),
        ({"n_embd": 8, "n_head": 2}, "n_embd: got 8, half of 8 or less was wanted, since"),
    ],
)
def test_a_shape_that_the_model_does_not_fit_into_is_refused(change, message):
    fields, tensors = random_gpt2(1, **SMALL)
    with pytest.raises(InputError, match=message):
        grow(fields, tensors, WIDER._replace(**change))


def run(capsys, *argv):
    code = cli.main([str(word) for word in argv])
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return code, captured.out, captured.err


def test_the_command_writes_and_says_what(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SHAPES, "gpt2", WIDER)
    small_directory(tmp_path / "small")
    out = tmp_path / "large"
    code, text, said = run(capsys, "inflate", tmp_path / "small", "--like", "gpt2", "--out", out)
    assert (code, text) == (0, "")
    assert "3 layers of width 24 and 40 ids" in said
    assert load(out)[0].config.n_layer == 3


def test_the_command_refuses_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SHAPES, "gpt2", WIDER)
    small_directory(tmp_path / "small")
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "precious.txt").write_text("mine")
    file.write_text("mine")

    def refused(code, message, **options):
        options = {"--like": "gpt2", "--out": tmp_path / "new"} | options
        words = [word for pair in options.items() for word in pair]
        got = run(capsys, "inflate", tmp_path / "small", *words)
        assert got[:2] == (code, "") and message in got[2]
        assert not (tmp_path / "new").exists()

    refused(2, "is not empty, a new or empty directory was wanted", **{"--out": full})
    refused(2, "got a file, a new or empty directory was wanted", **{"--out": file})
    refused(2, "shape: got 'gpt3', one of gpt2, gpt2-medium, gpt2-large", **{"--like": "gpt3"})
    monkeypatch.setitem(SHAPES, "gpt2-medium", WIDER._replace(n_embd=20))
    refused(2, "n_embd: got 8, a divisor of 20 was wanted", **{"--like": "gpt2-medium"})
    (tmp_path / "small" / "tokenizer.json").unlink()
    refused(1, "got no tokenizer")
    assert {path.name for path in full.iterdir()} == {"precious.txt"}
    with pytest.raises(TokenizerError):
        load_inflated(tmp_path / "small", WIDER)
