"""One call for a whole text: runs a decoder to its end and gathers what it yielded."""

import time
from dataclasses import dataclass

from .sampling import sample
from .stream import TextStream


@dataclass(frozen=True)
class Result:
    """A finished run.

    tokens         the new ids, the end token included, the prompt not
    finish_reason  eos, stop, length, context or blocked (see `stopping.Run`)
    text           the new text without end token and stop string; None without a tokenizer
    stats          new_tokens; seconds, of which seconds_to_first until the first step;
                   tokens_per_second of the steps after the first, None where there are none
    """

    tokens: list[int]
    finish_reason: str
    text: str | None
    stats: dict


def generate(
    model, prompt, *, warp=None, chance=None, tokenizer=None, on_step=None, on_text=None, **limits
):
    """Sample a text (temperature 0 in `warp` gives the greedy one) and return its `Result`.

    prompt: ids, or text when `tokenizer` is given. on_step is called with each `Step`, on_text with
    each piece of text as it becomes certain. limits: max_new_tokens, eos, stop, as in
    `stopping.Run`.
    """
    if tokenizer is not None:
        limits["tokenizer"] = tokenizer
    steps = sample(model, prompt, warp=warp, chance=chance, **limits)
    return collect(steps, tokenizer, limits.get("stop", ()), on_step, on_text)


def collect(steps, tokenizer=None, stop=(), on_step=None, on_text=None):
    """The `Result` of a decoder's steps."""
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    stream = TextStream(tokenizer, stop) if tokenizer is not None else None
    pieces, tokens = [], []
    reason = "length"  # a decoder that yields nothing was asked for 0 tokens

    def show(piece):
        pieces.append(piece)
        if piece and on_text is not None:
            on_text(piece)

    started, first, first_tokens = time.perf_counter(), None, 0
    for step in steps:
        if first is None:
            first, first_tokens = time.perf_counter(), len(step.tokens)
        tokens.extend(step.tokens)
        reason = step.finish_reason
        if stream is not None:  # an end token may be an ordinary one, but is no text
            for token in step.tokens[:-1] if reason == "eos" else step.tokens:
                show(stream.feed(token))
        if on_step is not None:
            on_step(step)
    ended = time.perf_counter()
    if stream is not None:
        show(stream.finish())
    later = len(tokens) - first_tokens
    stats = {
        "new_tokens": len(tokens),
        "seconds": ended - started,
        "seconds_to_first": None if first is None else first - started,
        "tokens_per_second": later / (ended - first) if later > 0 else None,
    }
    return Result(tokens, reason, "".join(pieces) if stream is not None else None, stats)
