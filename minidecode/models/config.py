"""What a GPT-2 checkpoint says about itself: sizes, switches and the ids that begin and end a text.

A field either has its effect here or is refused, so that no model runs as something it is not. What
is read past in silence cannot change what the model computes:

- training (dropout rates, initialisation, `summary_*`) and bookkeeping (names, `torch_dtype`);
- `reorder_and_upcast_attn`: 32 bits for the attention of 16-bit models, which is the rule here;
- `n_ctx`: the older name of n_positions, which counts where both stand; n_ctx alone serves for it;
- what generation_config.json says about sampling: how to decode is the caller's choice. Only its
  `eos_token_id` and `bos_token_id` are read, and where it gives one, it has the last word.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import CheckpointError
from ..kernels import ACTIVATIONS

_SIZES = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
_FLAGS = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "tie_word_embeddings")
_OPTIONAL = ("n_inner", "layer_norm_epsilon", "activation_function", "bos_token_id", *_FLAGS)
_ALIASES = {  # the common names that transformers reads as GPT-2's own
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
}
_REFUSED = {  # field: why a model that sets it is not plain GPT-2
    "add_cross_attention": "layers that attend to an encoder",
    "is_encoder_decoder": "an encoder",
    "pruned_heads": "layers with heads cut out",
    "quantization_config": "quantised weights",
    "auto_map": "program code of its own, which is never run",
}


@dataclass(frozen=True)
class Config:
    """The fields of config.json under their own names; `n_inner` None becomes 4 * n_embd.

    `eos_token_ids` holds every id that ends a text (none: nothing does); `bos_token_id` is the id
    that an empty prompt starts from. Errors: `CheckpointError` for a value no GPT-2 can have.
    """

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int | None = None
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    activation_function: str = "gelu_new"

    def __post_init__(self):
        if self.n_inner is None and _is_int(self.n_embd):
            object.__setattr__(self, "n_inner", 4 * self.n_embd)
        for name in (*_SIZES, "n_inner"):
            self._want(name, lambda n: _is_int(n) and n >= 1, "a whole number of at least 1")
        self._want("n_embd", lambda d: d % self.n_head == 0, f"a multiple of n_head {self.n_head}")
        for name in _FLAGS:
            self._want(name, lambda flag: isinstance(flag, bool), "true or false")
        self._want("layer_norm_epsilon", _is_positive, "a number above 0")
        names = tuple(ACTIVATIONS)
        self._want("activation_function", names.__contains__, f"one of {', '.join(names)}")
        an_id = f"an id from 0 to {self.vocab_size - 1}"
        self._want("bos_token_id", lambda bos: bos is None or self._is_id(bos), an_id)
        self._want("eos_token_ids", lambda ids: all(map(self._is_id, ids)), f"each {an_id}")

    def _want(self, field, is_right, wanted):
        value = getattr(self, field)
        if not is_right(value):
            raise CheckpointError(f"{field}: got {value!r:.50}, {wanted} was wanted")

    def _is_id(self, value):
        return _is_int(value) and 0 <= value < self.vocab_size

    @property
    def head_dim(self):
        """Width of one attention head."""
        return self.n_embd // self.n_head

    @classmethod
    def from_dict(cls, fields, source="config.json"):
        """The config that the JSON object `fields` describes; `source` names it in errors.

        Errors: `CheckpointError` for a field that is missing, has a value no GPT-2 can have, or
        asks for what is not built here.
        """
        try:
            _refuse_other_models(fields)
            given = {name: fields[name] for name in _OPTIONAL if name in fields}
            given |= {name: _size(fields, name) for name in _SIZES}
            return cls(**given, eos_token_ids=_eos_ids(fields.get("eos_token_id")))
        except CheckpointError as error:
            raise CheckpointError(f"{source}: {error}") from None

    @classmethod
    def read(cls, directory):
        """The config of a model directory: its config.json, and the ids of generation_config.json.

        Errors: `CheckpointError` for a missing or broken file, and as `from_dict`.
        """
        source = Path(directory) / "config.json"
        if not source.exists():
            raise CheckpointError(
                f"{source}: there is no such file; a model directory holds config.json, weights "
                "(.safetensors), and tokenizer.json or vocab.json and merges.txt"
            )
        fields = read_json(source)
        generation = source.with_name("generation_config.json")
        if generation.exists():
            ids = read_json(generation)
            names = ("eos_token_id", "bos_token_id")
            ids = {name: ids[name] for name in names if ids.get(name) is not None}
            if ids:
                fields, source = fields | ids, f"{source} with {generation.name}"
        return cls.from_dict(fields, source)


def read_json(path, error=CheckpointError):
    """The JSON object in the file `path`, a dict; raises `error`, naming the file, without one."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise error(f"{path}: there is no such file") from None
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror})") from None
    except RecursionError:
        raise error(f"{path}: got JSON nested too deeply, a JSON object was wanted") from None
    except ValueError as reason:  # no UTF-8, or no JSON
        raise error(f"{path}: is not valid JSON ({reason})") from None
    if not isinstance(content, dict):
        raise error(f"{path}: got a {type(content).__name__}, a JSON object was wanted")
    return content


def _refuse_other_models(fields):
    model_type = fields.get("model_type", "gpt2")  # the oldest GPT-2 configs do not have the field
    if model_type != "gpt2":
        raise CheckpointError(f"model_type: got {model_type!r}, 'gpt2' was wanted")
    for name, meaning in _REFUSED.items():
        if fields.get(name):
            raise CheckpointError(f"{name}: got a model with {meaning}, plain GPT-2 was wanted")


def _size(fields, name):
    """A required size, under its own name or the one transformers uses for all models."""
    alias = _ALIASES.get(name, name)
    if name in fields and alias in fields and fields[alias] != fields[name]:
        raise CheckpointError(f"{name}: got {fields[name]!r}, but {alias} is {fields[alias]!r}")
    for key in (name, alias, *(["n_ctx"] if name == "n_positions" else [])):
        if key in fields:
            return fields[key]
    raise CheckpointError(f"{name}: is missing, a whole number of at least 1 was wanted")


def _eos_ids(value):
    """A tuple for what may be no id, one id or a list of them."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value):
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value <= sys.float_info.max  # an integer may be larger
