"""config.json and generation_config.json: every field has its effect or is refused by name."""

import json
import math

import pytest
from builders import config_dict

from minidecode import CheckpointError
from minidecode.kernels import ACTIVATIONS
from minidecode.models.config import Config

PLAIN = config_dict(10, n_layer=1, n_head=2, n_embd=8, n_positions=16)


def config(**fields):
    return Config.from_dict(PLAIN | fields)


def refuse(match, without=(), **fields):
    fields = {name: value for name, value in (PLAIN | fields).items() if name not in without}
    with pytest.raises(CheckpointError, match=match):
        Config.from_dict(fields)


def write_configs(directory, fields, generation=None):
    (directory / "config.json").write_text(json.dumps(fields))
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    return directory


def test_the_fields_of_a_plain_config():
    c = config()
    assert (c.vocab_size, c.n_positions, c.n_embd, c.n_layer, c.n_head) == (10, 16, 8, 1, 2)
    assert c.head_dim == 4
    assert (c.bos_token_id, c.eos_token_ids) == (None, ())
    assert c.layer_norm_epsilon == 1e-5
    assert c.scale_attn_weights and c.tie_word_embeddings
    assert not c.scale_attn_by_inverse_layer_idx


def test_n_inner_is_four_times_the_width_unless_given():
    assert config().n_inner == config(n_inner=None).n_inner == 32
    assert config(n_inner=24).n_inner == 24


def test_n_positions_counts_and_n_ctx_serves_alone():
    assert config(n_ctx=1024).n_positions == 16
    alone = {name: value for name, value in PLAIN.items() if name != "n_positions"}
    assert Config.from_dict(alone | {"n_ctx": 12}).n_positions == 12
    refuse("n_positions: is missing", without=["n_positions"])


@pytest.mark.parametrize(
    "field, value",
    [
        ("layer_norm_epsilon", 1e-3),
        ("layer_norm_epsilon", 1),
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
        ("tie_word_embeddings", False),
        *(("activation_function", name) for name in ACTIVATIONS),
        ("bos_token_id", 3),
    ],
)
def test_a_field_is_taken_as_it_is(field, value):
    assert getattr(config(**{field: value}), field) == value


def test_the_names_that_transformers_uses_for_all_models_serve():
    names = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }
    common = {"vocab_size": 10} | {alias: PLAIN[name] for alias, name in names.items()}
    assert Config.from_dict(common) == config()
    refuse("n_embd: got 8, but hidden_size is 16", hidden_size=16)


def test_what_only_concerns_training_or_16_bit_models_changes_nothing():
    harmless = {
        "attn_pdrop": 0.1,
        "summary_type": "cls_index",
        "torch_dtype": "float16",
        "reorder_and_upcast_attn": True,
        "use_cache": False,
        "task_specific_params": {"text-generation": {"do_sample": True}},
    }
    assert config(**harmless) == config()


@pytest.mark.parametrize(
    "field, value",
    [
        ("model_type", "llama"),
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("pruned_heads", {"0": [1]}),
        ("quantization_config", {"bits": 4}),
        ("auto_map", {"AutoModelForCausalLM": "modeling.Custom"}),
        ("activation_function", "tanh"),
        ("activation_function", ["gelu"]),
        ("activation_function", None),
        ("layer_norm_epsilon", 0),
        ("layer_norm_epsilon", -1e-5),
        ("layer_norm_epsilon", float("nan")),
        ("layer_norm_epsilon", float("inf")),
        ("layer_norm_epsilon", "1e-5"),
        ("layer_norm_epsilon", True),
        ("scale_attn_weights", None),
        ("scale_attn_by_inverse_layer_idx", 1),
        ("tie_word_embeddings", "true"),
        ("bos_token_id", 10),
        ("bos_token_id", -1),
        ("bos_token_id", 1.0),
        ("eos_token_id", 10),
        ("eos_token_id", -1),
        ("eos_token_id", [3, 10]),
        ("eos_token_id", [3, [4]]),
        ("eos_token_id", True),
        ("eos_token_id", "3"),
        ("n_embd", 9),
    ],
)
def test_a_value_that_is_not_built_here_is_refused_by_name(field, value):
    refuse(rf"config\.json: {field}", **{field: value})


@pytest.mark.parametrize("field", ["vocab_size", "n_positions", "n_embd", "n_layer", "n_head"])
def test_a_size_is_never_guessed(field):
    refuse(f"{field}: is missing", without=[field])
    for wrong in (0, -1, 8.0, "8", True, None, [8]):
        refuse(f"{field}: got", **{field: wrong})


@pytest.mark.parametrize("wrong", [0, -4, 2.5, "32", True])
def test_n_inner_is_a_size_too(wrong):
    refuse("n_inner: got", n_inner=wrong)


def test_heads_that_do_not_divide_the_width_are_refused_with_both_numbers():
    refuse("n_embd: got 10, a multiple of n_head 3", n_embd=10, n_head=3)


def test_end_ids_may_be_one_several_or_none():
    assert config(eos_token_id=5).eos_token_ids == (5,)
    assert config(eos_token_id=[5, 3]).eos_token_ids == (5, 3)
    assert config(eos_token_id=[]).eos_token_ids == ()
    assert config(eos_token_id=None).eos_token_ids == ()


def test_generation_config_has_the_last_word_on_ids(tmp_path):
    fields = PLAIN | {"eos_token_id": 5, "bos_token_id": 1}
    assert Config.read(write_configs(tmp_path, fields)).eos_token_ids == (5,)
    given = {"eos_token_id": [5, 3], "bos_token_id": 2, "do_sample": True, "top_k": 7}
    c = Config.read(write_configs(tmp_path, fields, given))
    assert (c.eos_token_ids, c.bos_token_id) == ((5, 3), 2)
    c = Config.read(write_configs(tmp_path, fields, {"eos_token_id": None}))
    assert (c.eos_token_ids, c.bos_token_id) == ((5,), 1)
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id.*10"):
        Config.read(write_configs(tmp_path, fields, {"eos_token_id": 10}))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff\xfe{}"])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json: "):
        Config.read(tmp_path)


@pytest.mark.parametrize("size", ["n_embd", "n_layer", "n_head", "n_positions", "vocab_size"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30, -(10**400)])
def test_a_size_that_is_no_size_is_refused_by_name(tmp_path, size, value):
    write_configs(tmp_path, PLAIN | {size: value})
    with pytest.raises(CheckpointError, match=f"{size}: got") as error:
        Config.read(tmp_path)
    assert len(str(error.value)) < 300


def test_two_names_for_one_size_may_not_differ_even_by_nan(tmp_path):
    with pytest.raises(CheckpointError, match="n_embd: got"):
        config(n_embd=math.nan, hidden_size=math.nan)


@pytest.mark.parametrize("epsilon", [10**400, math.nan, math.inf, 0, -1, "1", True])
def test_an_epsilon_beyond_all_numbers_is_refused(epsilon):
    refuse("layer_norm_epsilon", layer_norm_epsilon=epsilon)


def test_json_nested_beyond_all_use_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(CheckpointError, match=r"config\.json: "):
        Config.read(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json: there is no such file"):
        Config.read(tmp_path)


def test_a_config_built_by_hand_is_checked_as_well():
    with pytest.raises(CheckpointError, match="n_embd: got 10"):
        Config(vocab_size=10, n_positions=16, n_embd=10, n_layer=1, n_head=3)


def test_a_directory_without_a_model_is_told_what_one_holds(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json: there is no such file; a model"):
        Config.read(tmp_path)
