"""A model directory whose matrices are packed already: written once, then mapped into memory.

`packed.safetensors` holds each array of the packed matrices as its bytes, and the vectors in
float32. Nothing is copied or converted when it is read, so a large model is ready at once, and
processes that read the same file share its memory. Its metadata describe each matrix and the
version of the layout (kernels/packing.py), for the bytes mean something in that layout only.
"""

import json
import mmap
import shutil
from pathlib import Path

import numpy as np

from ..errors import CheckpointError
from ..kernels import Packed, from_arrays, to_arrays
from .checkpoint import parameter_shapes, read_header
from .config import Config
from .saving import STORED, new_directory, write_config, write_safetensors
from .tokenizer import FILES
from .weights import EMBEDDING, HEAD

PACKED = "packed.safetensors"
_CODES = {"float32": "F32", "uint16": "U16", "uint8": "U8"}


class PackedFile:
    """The weights of `directory`, each a view of the mapped file. Names as in `Weights`.

    Errors: `CheckpointError` for a damaged file, one of another kind or of another layout, and for
    one that does not hold the GPT-2 of `config`.
    """

    def __init__(self, directory: Path, config: Config):
        self.path = Path(directory) / PACKED
        entries, metadata = read_header(self.path)
        self._entries = {entry.stored_name: entry for entry in entries}
        self._described, self.dtype = self._read_description(metadata)
        self._check(config)
        with open(self.path, "rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __contains__(self, name: str) -> bool:
        return name in self._described or name in self._entries

    def vector(self, name: str) -> np.ndarray:
        return self._array(name)

    def matrix(self, name: str) -> Packed:
        """The packed matrix of that name."""
        description = self._described[name]
        arrays = {key: self._array(f"{name}.{key}") for key in description["arrays"]}
        try:
            return from_arrays(description, arrays)
        except ValueError as error:
            raise CheckpointError(f"{self.path}: tensor {name}: {error}") from None

    rows = matrix

    def facts(self, config: Config) -> dict:
        """What `minidecode info` tells of the weights, by name."""
        head = HEAD if HEAD in self else EMBEDDING
        kind = self._described[head]["dtype"]
        stored = self.dtype if kind == self.dtype else f"{self.dtype}, head {kind}"
        n = sum(int(np.prod(shape)) for shape in parameter_shapes(config).values())
        return {"parameters": n, "stored as": f"{stored}, packed", "head": head}

    def _array(self, name):
        try:
            entry = self._entries[name]
            code = STORED[entry.dtype]
        except KeyError:
            raise CheckpointError(f"{self.path}: tensor {name} is missing") from None
        count = int(np.prod(entry.shape))
        return np.frombuffer(self._bytes, code, count, entry.offset).reshape(entry.shape)

    def _read_description(self, metadata):
        """({name of a matrix: its description}, the type of the model's weights)."""
        try:
            description = json.loads(metadata["minidecode"])
            layout, dtype, matrices = (description[n] for n in ("layout", "dtype", "matrices"))
            described = {
                name: {**fields, "layout": layout, "arrays": list(fields["arrays"])}
                for name, fields in matrices.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise CheckpointError(f"{self.path}: does not say how its weights are packed") from None
        return described, dtype

    def _check(self, config):
        """Each matrix and vector that the GPT-2 of `config` needs must be there in its shape."""
        tied = HEAD not in self._described
        if tied and not config.tie_word_embeddings and EMBEDDING not in self._described:
            raise CheckpointError(f"{self.path}: tensor {HEAD} is missing")
        held = {name.split(".")[1] for name in self._described if name.startswith("h.")}
        if config.n_layer != len(held):
            raise CheckpointError(
                f"{self.path}: got {len(held)} layers, {config.n_layer!s:.50} were wanted"
            )
        shapes = parameter_shapes(config)
        if not tied:
            shapes[HEAD] = shapes[EMBEDDING]
        for name, shape in shapes.items():
            got = self._shape(name)
            if got != shape:
                raise CheckpointError(
                    f"{self.path}: tensor {name}: got shape {got}, {shape!s:.90} was wanted"
                )

    def _shape(self, name):
        """The shape of a tensor as a checkpoint would store it, None where it is missing."""
        if name in self._described:
            sizes = tuple(self._described[name].get(size) for size in ("n_in", "n_out"))
            return sizes[::-1] if name in (HEAD, EMBEDDING) else sizes
        return self._entries[name].shape if name in self._entries else None


def write_packed(directory: str | Path, model, source: Path) -> Path:
    """Write `model`, a `GPT2`, to a new directory, with the tokenizer's files of `source`.

    Errors: `InputError` where the directory is not new or empty.
    """
    out = new_directory(directory)
    matrices: dict[str, dict] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, weight in model.named_weights():
        if isinstance(weight, Packed):
            fields, parts = to_arrays(weight)
            layout = fields.pop("layout")
            matrices[name] = fields | {"arrays": sorted(parts)}
            arrays |= {f"{name}.{key}": part for key, part in parts.items()}
        else:
            arrays[name] = weight
    # Arrays of whole cache lines first: so all of these begin at one, without gaps between them.
    order = sorted(arrays, key=lambda name: arrays[name].nbytes % 64 != 0)
    description = {"layout": layout, "dtype": model.dtype, "matrices": matrices}
    write_safetensors(
        out / PACKED,
        {name: (_CODES[arrays[name].dtype.name], arrays[name].shape) for name in order},
        (arrays[name] for name in order),
        {"minidecode": json.dumps(description)},
    )
    write_config(out, model.config)
    for file in FILES:
        if (source / file).exists():
            shutil.copyfile(source / file, out / file)
    return out
