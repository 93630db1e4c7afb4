"""Greedy decoding: always the likeliest token, the lowest id among equals.

It is sampling at temperature 0, where the distribution is one-hot and nothing is left to chance.
"""

from collections.abc import Iterator

from .contracts import EndIds, Model, Prompt, StopStrings, Tokenizer
from .run import FROM_MODEL
from .sampling import sample
from .step import Step
from .warp import Warp


def greedy(
    model: Model,
    prompt: Prompt,
    *,
    repetition_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    max_new_tokens: int | None = None,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
) -> Iterator[Step]:
    """Yield one `Step` per token. The settings are those of `Warp`, the limits those of `Run`."""
    warp = Warp(
        temperature=0,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    return sample(
        model,
        prompt,
        warp=warp,
        max_new_tokens=max_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
    )
