"""minidecode: how text is decoded from a language model, from scratch, on GPT-2.

model, tokenizer = minidecode.load("storyteller-6m")
result = minidecode.generate(model, "Once upon a time", tokenizer=tokenizer)
"""

from .chance import Dice, GumbelDice
from .errors import (
    BackendError,
    CheckpointError,
    ContextError,
    InputError,
    LogitsError,
    MinidecodeError,
    TokenizerError,
)
from .generate import Result, generate
from .greedy import greedy
from .loading import load
from .sampling import sample
from .step import Step
from .tables import TableModel
from .warp import Warp

__all__ = [
    "BackendError",
    "CheckpointError",
    "ContextError",
    "Dice",
    "GumbelDice",
    "InputError",
    "LogitsError",
    "MinidecodeError",
    "Result",
    "Step",
    "TableModel",
    "TokenizerError",
    "Warp",
    "generate",
    "greedy",
    "load",
    "sample",
]
