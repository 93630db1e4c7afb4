"""Which tensors make a GPT-2: their names, their shapes, and the head that may be tied."""

import numpy as np
import pytest
from builders import (
    assert_same_tensors,
    encode,
    oracle_logits,
    random_gpt2,
    toy_tokenizer,
    write,
    write_safetensors,
)

from minidecode import CheckpointError, load
from minidecode.models.checkpoint import Checkpoint
from minidecode.models.config import Config

CONFIG, TENSORS = random_gpt2(1, V=31, n_layer=2, n_head=2, d=16, n_positions=8)
HEAD = np.random.default_rng(2).standard_normal((31, 16)).astype(np.float32)
TOKENS = [3, 1, 4, 1, 5]


PREFIXES = [
    "",
    "transformer.",
    "module.transformer.",
    "_orig_mod.",
    "_orig_mod.module.transformer.",
]


def logits(config, tensors, directory, **how):
    """After each of TOKENS, by the model that `load` makes of the written directory."""
    model, _ = load(write(directory, config, tensors, toy_tokenizer(31), **how))
    return model.forward(TOKENS, model.new_cache(), n_logits=len(TOKENS))


# Names


@pytest.mark.parametrize("prefix", PREFIXES)
def test_tensors_have_the_same_names_with_and_without_prefix(tmp_path, prefix):
    tensors = TENSORS | {"lm_head.weight": HEAD}
    checkpoint = Checkpoint(write(tmp_path, CONFIG, tensors, prefix=prefix))
    assert_same_tensors(checkpoint, tensors)
    checkpoint.check(Config.from_dict(CONFIG))


def test_both_forms_of_names_may_stand_in_one_file(tmp_path):
    mixed = {("transformer." if i % 2 else "") + n: t for i, (n, t) in enumerate(TENSORS.items())}
    assert_same_tensors(Checkpoint(write(tmp_path, CONFIG, mixed)), TENSORS)


def test_both_forms_of_one_tensor_are_refused(tmp_path):
    twice = TENSORS | {"transformer.ln_f.bias": TENSORS["ln_f.bias"]}
    with pytest.raises(CheckpointError, match=r"ln_f\.bias is there twice"):
        Checkpoint(write(tmp_path, CONFIG, twice))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_stored_masks_are_left_out_but_no_bias_is(tmp_path, prefix):
    masks = {f"h.{i}.attn.bias": np.tri(8, dtype=np.float32)[None, None] for i in range(2)}
    masks |= {f"h.{i}.attn.masked_bias": np.full((1,), -1e4, np.float32) for i in range(2)}
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS | masks, prefix=prefix))
    assert "h.0.attn.c_attn.bias" in checkpoint
    assert_same_tensors(checkpoint, TENSORS)
    checkpoint.check(Config.from_dict(CONFIG))


def test_masks_may_have_any_type(tmp_path):
    entries = {name: ("F32", t.shape, encode(t, "F32")) for name, t in TENSORS.items()}
    entries["h.0.attn.bias"] = ("BOOL", (1, 1, 2, 2), bytes(4))
    write_safetensors(tmp_path / "model.safetensors", entries)
    assert_same_tensors(Checkpoint(tmp_path), TENSORS)


# What GPT-2 needs


@pytest.mark.parametrize("name", sorted(TENSORS))
def test_a_missing_tensor_is_named(tmp_path, name):
    rest = {other: tensor for other, tensor in TENSORS.items() if other != name}
    checkpoint = Checkpoint(write(tmp_path, CONFIG, rest))
    with pytest.raises(CheckpointError, match=rf"{name} is missing"):
        checkpoint.check(Config.from_dict(CONFIG))


@pytest.mark.parametrize("name", sorted(TENSORS))
def test_a_wrong_shape_is_named_with_what_was_got_and_wanted(tmp_path, name):
    shape = TENSORS[name].shape
    wrong = TENSORS[name].T if len(set(shape)) == 2 else np.zeros((*shape, 1), np.float32)
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS | {name: wrong}))
    with pytest.raises(CheckpointError) as error:
        checkpoint.check(Config.from_dict(CONFIG))
    assert all(part in str(error.value) for part in (name, str(wrong.shape), str(shape)))


@pytest.mark.parametrize("name", ["h.2.ln_1.bias", "score.weight", "lm_head.bias", "v_head.bias"])
def test_a_tensor_without_a_place_is_named(tmp_path, name):
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS | {name: np.ones(16, np.float32)}))
    with pytest.raises(CheckpointError, match=rf"{name} has no place"):
        checkpoint.check(Config.from_dict(CONFIG))


@pytest.mark.parametrize("n_layer", [3, 10**7, 10**30])
def test_more_layers_than_the_file_holds_are_refused_at_once(tmp_path, n_layer):
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS))
    with pytest.raises(CheckpointError, match=r"h\.2\.ln_1\.weight is missing: got 2 layers"):
        checkpoint.check(Config.from_dict(CONFIG | {"n_layer": n_layer}))


def test_names_that_are_not_gpt2s_are_told(tmp_path):
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS, prefix="model.decoder."))
    with pytest.raises(CheckpointError, match=r"found: model\.decoder\."):
        checkpoint.check(Config.from_dict(CONFIG))


def test_sizes_come_from_the_config(tmp_path):
    config, tensors = random_gpt2(3, V=7, n_layer=1, n_head=1, d=4, n_positions=5, n_inner=6)
    checkpoint = Checkpoint(write(tmp_path, config, tensors))
    checkpoint.check(Config.from_dict(config))
    for field, name in (("n_inner", "c_fc"), ("vocab_size", "wte"), ("n_positions", "wpe")):
        with pytest.raises(CheckpointError, match=name):
            checkpoint.check(Config.from_dict(config | {field: 3}))


def test_the_models_logits_are_those_of_an_independent_forward_pass(tmp_path):
    expected = oracle_logits(CONFIG, TENSORS, TOKENS)
    np.testing.assert_allclose(logits(CONFIG, TENSORS, tmp_path), expected, atol=1e-4)


# The head


def head_cases():
    no_wte = {name: tensor for name, tensor in TENSORS.items() if name != "wte.weight"}
    equal = TENSORS | {"lm_head.weight": TENSORS["wte.weight"]}
    other = TENSORS | {"lm_head.weight": HEAD}
    return {
        "no head": (TENSORS, True, "wte.weight"),
        "no head, not tied": (TENSORS, False, "wte.weight"),
        "equal head": (equal, True, "wte.weight"),
        "equal head, not tied": (equal, False, "lm_head.weight"),
        "another head, tied": (other, True, "wte.weight"),
        "another head, not tied": (other, False, "lm_head.weight"),
        "head alone": (no_wte | {"lm_head.weight": TENSORS["wte.weight"]}, True, "wte.weight"),
    }


@pytest.mark.parametrize("case", head_cases())
def test_which_head_makes_the_logits(tmp_path, case):
    tensors, tied, name = head_cases()[case]
    config = CONFIG | {"tie_word_embeddings": tied}
    directory = write(tmp_path, config, tensors)
    assert Checkpoint(directory).head_name(Config.from_dict(config)) == name
    untied = case == "another head, not tied"
    used = TENSORS | ({"lm_head.weight": HEAD} if untied else {})
    expected = oracle_logits(config, used, TOKENS)
    np.testing.assert_allclose(logits(config, tensors, tmp_path), expected, atol=1e-4)


def test_a_head_alone_that_is_not_tied_leaves_the_embedding_missing(tmp_path):
    alone = {n: t for n, t in TENSORS.items() if n != "wte.weight"} | {"lm_head.weight": HEAD}
    checkpoint = Checkpoint(write(tmp_path, CONFIG, alone))
    with pytest.raises(CheckpointError, match=r"wte\.weight is missing.*tie_word_embeddings"):
        checkpoint.check(Config.from_dict(CONFIG | {"tie_word_embeddings": False}))


def test_a_head_of_the_wrong_shape_is_refused_even_if_it_is_not_used(tmp_path):
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS | {"lm_head.weight": HEAD.T}))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: got shape \(16, 31\)"):
        checkpoint.check(Config.from_dict(CONFIG))


# What else is asked of a checkpoint


def test_a_bf16_file_is_the_same_model_as_its_values_in_f32(tmp_path):
    rounded = {name: np.frombuffer(encode(t, "BF16"), "<u2") for name, t in TENSORS.items()}
    rounded = {
        name: (bits.astype("<u4") << 16).view("<f4").reshape(TENSORS[name].shape)
        for name, bits in rounded.items()
    }
    narrow = logits(CONFIG, TENSORS, tmp_path / "bf16", dtype="BF16")
    wide = logits(CONFIG, rounded, tmp_path / "f32")
    np.testing.assert_array_equal(narrow, wide)


def test_the_stored_types_and_the_parameters_are_told(tmp_path):
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS, dtype="F16"))
    assert checkpoint.dtype == "F16"
    assert checkpoint.n_parameters == sum(tensor.size for tensor in TENSORS.values())
    entries = {"wte.weight": ("F32", (1,), bytes(4)), "wpe.weight": ("BF16", (1,), bytes(2))}
    write_safetensors(tmp_path / "model.safetensors", entries)
    assert Checkpoint(tmp_path).dtype == "BF16, F32"


def test_reading_can_be_followed(tmp_path):
    checkpoint = Checkpoint(write(tmp_path, CONFIG, TENSORS))
    sizes = []
    checkpoint.on_read = sizes.append
    for name in checkpoint:
        assert name in checkpoint  # reads nothing
        checkpoint[name]
    assert sum(sizes) == checkpoint.n_parameters
