"""What the tests of plain decoding and of runs share: a cycle of six tokens, and small helpers."""

import numpy as np
from builders import toy_tokenizer

from minidecode import TableModel
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.tokenizer import Tokenizer

CYCLE = {0: 1, 1: 2, 2: 5, 5: 3, 3: 4, 4: 0}
CYCLE_TABLE = np.array([np.eye(6)[CYCLE[token]] for token in range(6)])


def gpt2(fixture):
    config, tensors = fixture
    return GPT2(Config.from_dict(config), tensors)


def ring(**fields):
    """The cycle 0 1 2 5 3 4 0 ... as a table, without an end unless `eos` says so."""
    return TableModel(CYCLE_TABLE, **fields)


def letters(n=26):
    """A tokenizer with an id for each of a, b, c ..."""
    return Tokenizer(toy_tokenizer(n))


def ids(steps):
    return [token for step in steps for token in step.tokens]


def reason(steps):
    return list(steps)[-1].finish_reason


class Counted:
    """A model that counts its passes and keeps what it was given."""

    def __init__(self, model):
        self.model, self.passes = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def forward(self, tokens, cache, n_logits=1):
        self.passes.append((list(tokens), cache.length))
        return self.model.forward(tokens, cache, n_logits)
