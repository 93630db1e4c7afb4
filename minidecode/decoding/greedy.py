"""Greedy decoding: always the likeliest token, the lowest id among equals.

It is sampling at temperature 0, where the distribution is one-hot and nothing is left to chance.
"""

from .sampling import sample
from .warp import Warp


def greedy(model, prompt, *, repetition_penalty=1.0, no_repeat_ngram_size=0, **limits):
    """Yield a `Step` a token. limits: max_new_tokens, eos, stop, tokenizer (`stopping.Run`)."""
    warp = Warp(
        temperature=0,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    return sample(model, prompt, warp=warp, **limits)
