"""Writes model directories in the Hugging Face layout, one tensor at a time.

The safetensors package wants all tensors of a file in memory at once. The format is simple enough
to do without: eight bytes with the length of a header, the header (JSON: type, shape and place of
each tensor), and the tensors' bytes one after the other.
"""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np

from ..errors import InputError
from .checkpoint import parameter_shapes

STORED = {"F32": "<f4", "U16": "<u2", "U8": "u1"}  # the types that are written


def new_directory(path):
    """`path` as a Path, created where it is missing; `InputError` where anything is in the way."""
    if str(path) == "":  # which Path would read as the current directory
        raise InputError("directory: got an empty name, a new or empty directory was wanted")
    directory = Path(path).expanduser()
    try:
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{path}: got a file, a new or empty directory was wanted")
        directory.mkdir(parents=True, exist_ok=True)
        empty = not any(directory.iterdir())
    except OSError as error:
        raise InputError(
            f"{path}: got a place that cannot be written to ({error.strerror}), "
            "a new or empty directory was wanted"
        ) from None
    if not empty:
        raise InputError(f"{path}: is not empty, a new or empty directory was wanted")
    return directory


def write_checkpoint(directory, config, tensors):
    """Write config.json and model.safetensors (float32); the tokenizer is the caller's affair.

    tensors: name (without `transformer.`) -> array, each asked for once.
    """
    shapes = parameter_shapes(config)
    if not config.tie_word_embeddings and "lm_head.weight" in tensors:
        shapes["lm_head.weight"] = shapes["wte.weight"]
    stored = {n: n if n.startswith("lm_head") else f"transformer.{n}" for n in shapes}
    write_safetensors(
        Path(directory) / "model.safetensors",
        {stored[name]: ("F32", shape) for name, shape in shapes.items()},
        (tensors[name] for name in shapes),
        {"format": "pt"},  # transformers insists on a format
    )
    write_config(directory, config)


def write_config(directory, config):
    """Write config.json."""
    fields = dataclasses.asdict(config)
    ids = fields.pop("eos_token_ids")
    fields["eos_token_id"] = list(ids) if len(ids) > 1 else next(iter(ids), None)
    fields = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **fields}
    fields["n_ctx"] = config.n_positions  # the older name, the one that llama.cpp's converter reads
    text = json.dumps(fields, indent=1) + "\n"
    (Path(directory) / "config.json").write_text(text, encoding="utf-8")


def write_safetensors(path, entries, tensors, metadata):
    """Write `tensors`, arrays in the order of `entries` (name -> (type, shape)), cast to the type.

    The types are those of `STORED`, metadata {str: str}. What was written is removed again if that
    fails or is interrupted.
    """
    header, end = {"__metadata__": metadata}, 0
    for name, (code, shape) in entries.items():
        begin, end = end, end + np.dtype(STORED[code]).itemsize * math.prod(shape)
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)  # so that the data begins at a cache line
    try:
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for (name, (code, shape)), tensor in zip(entries.items(), tensors, strict=True):
                if tensor.shape != shape:
                    raise InputError(f"tensor {name}: got shape {tensor.shape}, {shape} was wanted")
                file.write(np.ascontiguousarray(tensor, STORED[code]).data)
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise
