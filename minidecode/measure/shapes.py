"""The sizes GPT-2 was published in, and random weights for a model of any size."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..models.checkpoint import parameter_shapes
from ..models.config import Config


class Shape(NamedTuple):
    """What a GPT-2's cost depends on; the fields are named as in config.json."""

    n_layer: int
    n_head: int
    n_embd: int
    vocab_size: int = 50257
    n_positions: int = 1024


SHAPES = {
    "gpt2": Shape(12, 12, 768),
    "gpt2-medium": Shape(24, 16, 1024),
    "gpt2-large": Shape(36, 20, 1280),
}


def find_shape(shape):
    """The `Shape` of that name; one of the caller's own passes."""
    if isinstance(shape, Shape):
        return shape
    if shape not in SHAPES:
        raise InputError(f"shape: got {shape!r}, one of {', '.join(SHAPES)} was wanted")
    return SHAPES[shape]


def shape_config(shape):
    """The `Config` of a GPT-2 of that shape."""
    return Config(**find_shape(shape)._asdict())


class RandomTensors(Mapping):
    """Every tensor of a config with random float32 values, made anew each time it is asked for."""

    def __init__(self, config, seed=0):
        self._shapes = parameter_shapes(config)
        self._seed = seed

    def __getitem__(self, name):
        number = list(self._shapes).index(name)
        values = np.random.default_rng([self._seed, number]).random(self._shapes[name], np.float32)
        values -= 0.5
        values *= 0.07  # the standard deviation 0.02 that GPT-2 starts from
        return values + 1 if name.split(".")[-2].startswith("ln_") and "weight" in name else values

    def __iter__(self):
        return iter(self._shapes)

    def __len__(self):
        return len(self._shapes)
