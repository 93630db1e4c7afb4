"""The tensors of a GPT-2 checkpoint, by name, read from safetensors files one at a time.

Names are those of GPT-2 without what some programs put before them, `transformer.`, `module.` and
`_orig_mod.`: `wte.weight`, `h.0.attn.c_attn.weight`, `lm_head.weight`. A head stored without an
embedding is the tied matrix under its other name and goes by `wte.weight`. The causal
masks that old files store as `.attn.bias` and `.attn.masked_bias` are no parameters and are left
out (`.attn.c_attn.bias` is one and stays).

Memory: a float32 tensor is a view of its file, mapped when it is asked for and unmapped with the
last reference to it; other types are widened into an array of their own. Who takes one tensor,
makes of it what is needed and lets go of it, never holds more than that one besides.

Only safetensors files are read: a pickle can run any program.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from ..errors import CheckpointError
from .config import read_json

_PREFIXES = ("transformer.", "module.", "_orig_mod.")  # the model; two ways of wrapping it
_BUFFERS = (".attn.bias", ".attn.masked_bias")
_STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}  # NumPy has no bfloat16
_EMBEDDING, _HEAD = "wte.weight", "lm_head.weight"


class _Entry(NamedTuple):
    """Where one tensor lies."""

    file: Path
    stored_name: str
    dtype: str  # as safetensors spells it
    shape: tuple[int, ...]
    offset: int  # bytes from the beginning of the file


class Checkpoint(Mapping):
    """The tensors of a model directory: name -> float32 array, read anew at every access.

    `on_read(n)` is told the number of parameters of each tensor as it is read; set it to follow.
    Errors: `CheckpointError` for a directory without safetensors, a damaged file, a missing shard,
    a tensor that is there twice or has a type other than F32, F16, BF16 and F64.
    """

    def __init__(self, directory):
        self.directory = Path(directory)
        self.on_read = lambda n: None
        self._entries = {}
        for entry in _find_entries(self.directory):
            self._add(entry)
        if _EMBEDDING not in self._entries and _HEAD in self._entries:
            self._entries[_EMBEDDING] = self._entries.pop(_HEAD)

    def _add(self, entry):
        name = plain_name(entry.stored_name)
        if name.endswith(_BUFFERS):
            return
        if name in self._entries:
            raise CheckpointError(
                f"{entry.file}: tensor {name} is there twice, as {entry.stored_name} and as "
                f"{self._entries[name].stored_name}"
            )
        if entry.dtype not in _STORED:
            wanted = ", ".join(_STORED)
            raise CheckpointError(
                f"{entry.file}: tensor {name}: got dtype {entry.dtype}, one of {wanted} was wanted"
            )
        self._entries[name] = entry

    def __getitem__(self, name):
        """The tensor as a float32 array, read-only where it is a view of the file."""
        entry = self._entries[name]
        self.on_read(math.prod(entry.shape))
        return _read(entry)

    def __contains__(self, name):  # Mapping's own would read the tensor
        return name in self._entries

    def __iter__(self):
        return iter(self._entries)

    def __len__(self):
        return len(self._entries)

    @property
    def dtype(self):
        """The types the tensors are stored in, such as "F16" or "F16, F32"."""
        return ", ".join(sorted({entry.dtype for entry in self._entries.values()}))

    @property
    def n_parameters(self):
        """How many numbers the tensors hold together."""
        return sum(math.prod(entry.shape) for entry in self._entries.values())

    def facts(self, config):
        """What `minidecode info` tells of the tensors, by name."""
        head = self.head_name(config)
        return {"parameters": self.n_parameters, "stored as": self.dtype, "head": head}

    def head_name(self, config):
        """The tensor that turns the last hidden state into logits: the embedding again, or a head.

        A stored head counts where `tie_word_embeddings` is false. Where it is true the two are one
        matrix by declaration, and the embedding is it, even if the file holds another head.
        """
        untied = _HEAD in self._entries and not config.tie_word_embeddings
        return _HEAD if untied else _EMBEDDING

    def check(self, config):
        """Raise `CheckpointError` unless these are the tensors of the GPT-2 in `config`.

        Each that it needs must be there in its shape, and none beyond: if one were left unused, the
        model might be another than the one that was trained.
        """
        self._check_layers(config)
        wanted = parameter_shapes(config)
        for name, shape in wanted.items():
            self._check_shape(name, shape)
        if _HEAD in self._entries:
            self._check_shape(_HEAD, wanted[_EMBEDDING])
        elif not config.tie_word_embeddings and self._renamed_head():
            raise CheckpointError(
                f"{self.directory}: tensor {_EMBEDDING} is missing: only {_HEAD} is stored, "
                "and tie_word_embeddings is false"
            )
        for name in sorted(self._entries.keys() - wanted.keys() - {_HEAD}):
            raise CheckpointError(
                f"{self._entries[name].file}: tensor {name} has no place in "
                f"a GPT-2 of {config.n_layer} layers"
            )

    def _check_layers(self, config):
        """Before any name is made up: a config may speak of more layers than memory could list."""
        held = {name.split(".")[1] for name in self._entries if name.startswith("h.")}
        if held and config.n_layer > len(held):
            missing = next(i for i in range(len(held) + 1) if str(i) not in held)
            raise CheckpointError(
                f"{self.directory}: tensor h.{missing}.ln_1.weight is missing: got {len(held)} "
                f"layers, {config.n_layer!s:.50} as n_layer says were wanted"
            )

    def _check_shape(self, name, wanted):
        if name not in self._entries:
            found = ", ".join(e.stored_name for e in list(self._entries.values())[:3]) or "none"
            raise CheckpointError(
                f"{self.directory}: tensor {name} is missing, one of shape {wanted!s:.90} was "
                f"wanted; found: {found:.200} ..."
            )
        entry = self._entries[name]
        if entry.shape != wanted:
            raise CheckpointError(
                f"{entry.file}: tensor {name}: got shape {entry.shape!s:.90}, "
                f"{wanted!s:.90} was wanted"
            )

    def _renamed_head(self):
        return plain_name(self._entries[_EMBEDDING].stored_name) == _HEAD


def plain_name(stored_name: str) -> str:
    """GPT-2's own name of a tensor, without what stands before it."""
    for prefix in _PREFIXES:
        if stored_name.startswith(prefix):
            return plain_name(stored_name.removeprefix(prefix))
    return stored_name


def parameter_shapes(config):
    """Name -> shape of every tensor a GPT-2 with tied head has; matrices are [in, out]."""
    d, n_inner = config.n_embd, config.n_inner
    shapes = {_EMBEDDING: (config.vocab_size, d), "wpe.weight": (config.n_positions, d)}
    for layer in range(config.n_layer):
        block = f"h.{layer}."
        for name in ("ln_1", "ln_2"):
            shapes[f"{block}{name}.weight"] = shapes[f"{block}{name}.bias"] = (d,)
        for name, n_in, n_out in (
            ("attn.c_attn", d, 3 * d),
            ("attn.c_proj", d, d),
            ("mlp.c_fc", d, n_inner),
            ("mlp.c_proj", n_inner, d),
        ):
            shapes[f"{block}{name}.weight"] = (n_in, n_out)
            shapes[f"{block}{name}.bias"] = (n_out,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (d,)
    return shapes


def _find_entries(directory):
    """The tensors that the index names, if there is one, else those of model.safetensors."""
    index = directory / "model.safetensors.index.json"
    single = directory / "model.safetensors"
    if index.exists():
        yield from _indexed_entries(index)
    elif single.exists():
        yield from file_entries(single)
    elif (directory / "packed.safetensors").exists():
        raise CheckpointError(
            f"{directory}: got packed weights, which are for running only; a checkpoint was wanted"
        )
    else:
        others = sorted(path.name for path in directory.glob("*.bin"))
        instead = f"only {others[0]} (a pickle, never read)" if others else "no weights"
        raise CheckpointError(
            f"{directory}: got {instead}, model.safetensors or {index.name} was wanted"
        )


def _indexed_entries(index):
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: has no weight_map that tells the file of each tensor")
    shards = {}
    for name, shard in weight_map.items():
        path = _shard_path(index, shard)
        if shard not in shards:
            shards[shard] = {entry.stored_name: entry for entry in file_entries(path)}
        if name not in shards[shard]:
            raise CheckpointError(f"{index}: tensor {name} is not in {shard}, as it says there")
        yield shards[shard][name]


def _shard_path(index, shard):
    """The file beside the index; an index from elsewhere must not open files elsewhere."""
    beside = isinstance(shard, str) and not set(shard) & set("/\\:\0") and len(shard) <= 200
    if not beside or not shard.endswith(".safetensors"):
        raise CheckpointError(
            f"{index}: got shard {shard!r:.50}, "
            "the name of a .safetensors file beside it was wanted"
        )
    path = index.with_name(shard)
    if not path.exists():
        raise CheckpointError(f"{path}: this shard is missing, {index.name} names it")
    return path


def file_entries(path):
    """The entries of one file, which the safetensors package has found sound."""
    return read_header(path)[0]


def read_header(path):
    """(the entries of one file, its metadata), once the safetensors package has found it sound."""
    try:
        with safe_open(path, framework="numpy"), open(path, "rb") as file:
            # The package tells no offsets, so its header is read once more. Format: 8 bytes length,
            # JSON of that length, data.
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError) as reason:
        raise CheckpointError(f"{path}: is not a sound safetensors file ({reason})") from None
    metadata = header.pop("__metadata__", None) or {}
    entries = []
    for name, tensor in header.items():
        begin, shape = tensor["data_offsets"][0], tuple(tensor["shape"])
        entries.append(_Entry(path, name, tensor["dtype"], shape, 8 + length + begin))
    return entries, metadata


def _read(entry):
    if 0 in entry.shape:  # nothing to map
        return np.zeros(entry.shape, np.float32)
    mapped = np.memmap(entry.file, _STORED[entry.dtype], "r", entry.offset, entry.shape)
    stored = np.asarray(mapped)  # a plain array, that keeps the mapping open while it lives
    if entry.dtype == "BF16":  # the upper half of a float32
        return (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, as rounding has it
        stored = stored.astype(np.float32, copy=False)
    return np.require(stored, requirements="A")  # a file may put its data at any byte
