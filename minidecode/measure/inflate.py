"""A small GPT-2 grown to the shape and cost of a large one, with the same next-token distribution.

How much speculation gains hangs on two things: what a pass costs, and how often drafts are
accepted. Random weights of full size have the cost but no acceptance, a small trained pair has the
acceptance but not the cost. Growing the trained target gives both. With r = new width / old width:

Width. Every vector of the residual stream is held r times over: [x, x, ..]. Its mean and variance
are those of x, so layer norm, epsilon included, gives [norm(x), norm(x), ..]. A matrix that reads
such a vector sums r equal parts, so its rows are repeated and divided by r; columns are repeated
for the next reader. Heads are repeated whole: head width, and with it the scale, stay.

Head. The embedding must not be divided by r, and as the tied head it must be. The final layer norm
makes up for it: its weight and bias are divided by r instead.

Depth. Further blocks have random weights but for the two matrices (and biases) that write to the
residual stream: those are zero. They cost what any block costs and add nothing.

Vocabulary. Further ids must stay out of the way, with one finite logit far below all others. In a
row [-s .. -s, s .. s, 0 .. 0] of the head, the first two copies of any vector cancel. It sees only
what tells them apart: a constant s added to the final bias in the first copy and taken from it in
the second. Old rows, alike in all copies, cannot see that; the new ones have the logit
-2 * s * s * (old width), always. (A row s / weight would do without copies, since a normalised
vector has mean zero. But its logit is s * sum(bias / weight): 0 if there is no bias, and infinite
weights where the norm has a 0.)

Positions. Further ones repeat the old ones, so that the text beyond is still text. The distribution
is the small model's as far as that one's positions reach.

What differs is rounding only: dividing by 3 or 5, and longer sums.
"""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Mapping

import numpy as np

from ..errors import InputError
from ..lazy import lazy
from ..models.checkpoint import Checkpoint, parameter_shapes
from ..models.config import Config
from ..models.gpt2 import GPT2
from ..models.loading import find
from ..models.saving import new_directory, write_checkpoint
from ..models.tokenizer import FILES, Tokenizer
from .shapes import RandomTensors, find_shape

MARGIN = 30.0  # the new ids' logit lies so far below any other: 50,000 times exp(-30) is nothing


def inflate(config, tensors, shape):
    """The model `config`, `tensors` grown to `shape`: (Config, Inflated), the arguments of GPT2.

    shape: gpt2, gpt2-medium, gpt2-large, or a `Shape`. Errors: `InputError` where its width and
    heads are not the same multiple of the model's, or anything else of it is less than the model's.
    """
    shape = find_shape(shape)
    copies = _copies(config, shape)
    grown = dataclasses.replace(config, **shape._asdict(), n_inner=copies * config.n_inner)
    return grown, Inflated(config, tensors, grown)


def inflate_model(name, shape):
    """`inflate` for an embedded name, a directory or a Hugging Face id."""
    directory = find(name)
    config = Config.read(directory)
    checkpoint = Checkpoint(directory)
    checkpoint.check(config)
    return inflate(config, checkpoint, shape)


def load_inflated(name, shape, *, dtype="float32", progress=None):
    """As `loading.load`, grown: (GPT2, Tokenizer). No more memory than the weights, and one tensor.

    The matrices are stored as `dtype`.
    The tokenizer is the small model's: ids beyond it are never chosen here.
    """
    config, tensors = inflate_model(name, shape)
    tokenizer = Tokenizer.read(find(name))
    with tensors.follow(progress, f"growing {name}"):
        model = GPT2(config, tensors, tokenizer.unknown_ids(config.vocab_size), dtype)
    model.tokenizer = tokenizer
    return model, tokenizer


def write_inflated(name, shape, path, *, progress=None):
    """Write the grown model to the new or empty directory `path`, with the small one's tokenizer.

    Returns (Config, bytes written). Any program that reads Hugging Face's layout can load it.
    """
    config, tensors = inflate_model(name, shape)
    source = find(name)
    Tokenizer.read(source)  # complains before anything is written
    directory = new_directory(path)
    with tensors.follow(progress, f"writing {path}"):
        write_checkpoint(directory, config, tensors)
    for file in FILES:
        if (source / file).exists():
            shutil.copyfile(source / file, directory / file)
    return config, sum(file.stat().st_size for file in directory.iterdir())


class Inflated(Mapping):
    """Name -> float32 tensor of the grown model, made anew each time it is asked for.

    source, grown: the two configs; tensors: the small model's. `on_read(n)` is told the number of
    parameters of each tensor as it is made; set it to follow.
    """

    def __init__(self, source, tensors, grown):
        self.source, self.tensors = source, tensors
        self.copies = grown.n_embd // source.n_embd
        self.shapes = parameter_shapes(grown)
        self.head = "wte.weight"
        if not source.tie_word_embeddings and "lm_head.weight" in tensors:
            self.head = "lm_head.weight"
            self.shapes[self.head] = self.shapes["wte.weight"]
        self.random = RandomTensors(grown)
        self.on_read = lambda n: None

    def __getitem__(self, name):
        self.on_read(math.prod(self.shapes[name]))
        match name.split("."):
            case ["wte" | "lm_head", _]:
                return self._vocabulary(name)
            case ["wpe", _]:
                rows = np.arange(self.shapes[name][0]) % self.source.n_positions
                return repeat(self.tensors[name][rows], self.copies)
            case ["ln_f", part]:
                return self._final_norm(name, part)
            case ["h", layer, *_, part, _] if int(layer) >= self.source.n_layer:
                if part == "c_proj":
                    return np.zeros(self.shapes[name], np.float32)
                return self.random[name]
            case ["h", _, *_, part, "weight"] if part.startswith("c_"):
                columns = repeat(self.tensors[name], self.copies, 3 if part == "c_attn" else 1)
                return np.tile(columns / np.float32(self.copies), (self.copies, 1))
            case ["h", _, *_, part, _]:  # a bias, or a layer norm's weight
                return repeat(self.tensors[name], self.copies, 3 if part == "c_attn" else 1)

    def _vocabulary(self, name):
        """Embedding or head, [V, d] of the grown model."""
        rows = np.zeros(self.shapes[name], np.float32)
        rows[: self.source.vocab_size] = repeat(self.tensors[name], self.copies)
        new = rows[self.source.vocab_size :]
        if len(new):
            d = self.source.n_embd
            new[:, :d] = -self._spread
            new[:, d : 2 * d] = self._spread
        return rows

    def _final_norm(self, name, part):
        values = repeat(self.tensors[name] / np.float32(self.copies), self.copies)
        if part == "bias" and self.shapes["wte.weight"][0] > self.source.vocab_size:
            d = self.source.n_embd
            values[:d] += self._spread
            values[d : 2 * d] -= self._spread
        return values

    @lazy
    def _spread(self):
        """The s of the docstring, from a bound on the small model's logits: float32.

        A normalised vector is no longer than sqrt(d) (Cauchy and Schwarz do the rest).
        """
        head, weight, bias = (
            self.tensors[name].astype(np.float64)
            for name in (self.head, "ln_f.weight", "ln_f.bias")
        )
        d = len(weight)
        largest = np.linalg.norm(head * weight, axis=1) * math.sqrt(d) + np.abs(head @ bias)  # [V]
        return np.float32(math.sqrt((largest.max() + MARGIN) / (2 * d)))

    def __contains__(self, name):  # Mapping's own would make the tensor
        return name in self.shapes

    def __iter__(self):
        return iter(self.shapes)

    def __len__(self):
        return len(self.shapes)

    @contextlib.contextmanager
    def follow(self, progress, doing):
        """Show on a bar, of the class `progress` (tqdm or None), each tensor made meanwhile."""
        if progress is None:
            yield
            return
        total = sum(map(math.prod, self.shapes.values()))
        with progress(total=total, desc=doing, unit=" parameters", unit_scale=True) as bar:
            self.on_read = bar.update
            yield


def repeat(x, copies, parts=1):
    """x [..., parts * m] -> [..., parts * copies * m]: each part so many times over.

    Queries, keys and values come out of one matrix side by side: three parts.
    """
    *rows, width = x.shape
    return np.tile(x.reshape(*rows, parts, width // parts), copies).reshape(*rows, copies * width)


def _copies(config, shape):
    """How many times over the vectors are held; an error if the model does not fit into shape."""
    copies, rest = divmod(shape.n_embd, config.n_embd)
    if rest or copies < 1:
        raise InputError(f"n_embd: got {config.n_embd}, a divisor of {shape.n_embd} was wanted")
    if config.n_head * copies != shape.n_head:
        raise InputError(
            f"n_head: got {config.n_head} for a width of {config.n_embd}, {shape.n_head} for "
            f"{shape.n_embd} or as many a width was wanted"
        )
    for name in ("n_layer", "vocab_size", "n_positions"):
        got, most = getattr(config, name), getattr(shape, name)
        if got > most:
            raise InputError(f"{name}: got {got}, at most {most} was wanted")
    if copies == 1 and shape.vocab_size > config.vocab_size:
        raise InputError(
            f"n_embd: got {config.n_embd}, half of {shape.n_embd} or less was wanted, "
            "since further ids need a second copy of each vector"
        )
    return copies
