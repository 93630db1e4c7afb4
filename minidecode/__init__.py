"""minidecode: how text is decoded from a language model, from scratch, on GPT-2.

model, tokenizer = minidecode.load("storyteller-6m")
result = minidecode.generate(model, "Once upon a time", tokenizer=tokenizer)
"""

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:  # what editors and type checkers read
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
    from .measure.scoring import Score, score
    from .models.loading import load
    from .models.table import TableModel
    from .proof import exact
    from .speculation.contrastive import speculative_contrastive
    from .speculation.drafts import ModelDraft, PromptLookupDraft
    from .speculation.loop import speculative, speculative_many, verify
    from .speculation.rounds import Round
    from .trace.tracing import traced

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
    "Score",
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
    "score",
    "speculative",
    "speculative_contrastive",
    "speculative_many",
    "traced",
    "verify",
]

_HOMES = {  # where each name is imported from when it is first asked for: the package opens at once
    "decoding.beam": ["beam_search"],
    "decoding.chance": ["Dice", "GumbelDice"],
    "decoding.contrastive": ["contrastive"],
    "decoding.greedy": ["greedy"],
    "decoding.sampling": ["sample"],
    "decoding.step": ["Step"],
    "decoding.warp": ["Warp"],
    "errors": [
        "BackendError",
        "CheckpointError",
        "ContextError",
        "InputError",
        "LogitsError",
        "MinidecodeError",
        "TokenizerError",
    ],
    "generation": ["Result", "generate", "generate_many"],
    "measure.scoring": ["Score", "score"],
    "models.loading": ["load"],
    "models.table": ["TableModel"],
    "proof": ["exact"],
    "speculation.contrastive": ["speculative_contrastive"],
    "speculation.drafts": ["ModelDraft", "PromptLookupDraft"],
    "speculation.loop": ["speculative", "speculative_many", "verify"],
    "speculation.rounds": ["Round"],
    "trace.tracing": ["traced"],
}


def __getattr__(name):
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("minidecode")
        except PackageNotFoundError:  # run from a checkout
            return "unknown"
    for home, names in _HOMES.items():
        if name in names:
            if home == "proof":  # a module
                return importlib.import_module(f"{__name__}.{home}.{name}")
            globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__, "__version__"})
