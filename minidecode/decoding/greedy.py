"""Greedy decoding: always the likeliest token, the lowest id among equals.

It is sampling at temperature 0, where the distribution is one-hot and nothing is left to chance.
"""

from collections.abc import Iterator
from dataclasses import replace

from .contracts import EndIds, Model, Prompt, StopStrings, Tokenizer
from .run import FROM_MODEL
from .sampling import sample
from .step import Step
from .warp import Warp, unshaped


def greedy(
    model: Model,
    prompt: Prompt,
    *,
    repetition_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    warp: Warp | None = None,
    logprobs: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
) -> Iterator[Step]:
    """Yield one `Step` per token. The limits are those of `Run`.

    warp: penalties and bans, of which two can be given by themselves.
    """
    if isinstance(warp, Warp) and warp.temperature == 0:
        warp = replace(warp, temperature=1.0)  # said twice
    warp = unshaped(
        "greedy decoding",
        warp,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    return sample(
        model,
        prompt,
        warp=replace(warp, temperature=0),
        logprobs=logprobs,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
    )
