"""minidecode: how text is decoded from a language model, from scratch, on GPT-2.

model, tokenizer = minidecode.load("storyteller-6m")
result = minidecode.generate(model, "Once upon a time", tokenizer=tokenizer)
"""

from .decoding.beam import beam_search
from .decoding.chance import Dice, GumbelDice
from .decoding.contrastive import contrastive
from .decoding.greedy import greedy
from .decoding.sampling import sample
from .decoding.step import Step
from .decoding.warp import Warp
from .errors import (
    BackendError,
    CheckpointError,
    ContextError,
    InputError,
    LogitsError,
    MinidecodeError,
    TokenizerError,
)
from .generation import Result, generate, generate_many
from .models.loading import load
from .models.table import TableModel
from .proof import exact
from .speculation.contrastive import speculative_contrastive
from .speculation.drafts import ModelDraft, PromptLookupDraft
from .speculation.loop import speculative, speculative_many, verify
from .speculation.rounds import Round

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
