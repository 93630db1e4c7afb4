"""minidecode: how text is decoded from a language model, from scratch, on GPT-2.

model, tokenizer = minidecode.load("storyteller-6m")
result = minidecode.generate(model, "Once upon a time", tokenizer=tokenizer)
"""

from . import exact
from .beam import beam_search
from .chance import Dice, GumbelDice
from .contrastive import contrastive
from .draft import ModelDraft, PromptLookupDraft
from .errors import (
    BackendError,
    CheckpointError,
    ContextError,
    InputError,
    LogitsError,
    MinidecodeError,
    TokenizerError,
)
from .generate import Result, generate, generate_many
from .greedy import greedy
from .loading import load
from .sampling import sample
from .speculative import speculative, speculative_many, verify
from .speculative_contrastive import speculative_contrastive
from .step import Round, Step
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
    "ModelDraft",
    "PromptLookupDraft",
    "Result",
    "Round",
    "Step",
    "TableModel",
    "TokenizerError",
    "Warp",
    "beam_search",
    "contrastive",
    "exact",
    "generate",
    "generate_many",
    "greedy",
    "load",
    "sample",
    "speculative",
    "speculative_contrastive",
    "speculative_many",
    "verify",
]
