"""Ancestral sampling: draw each token from the model's distribution given all before it.

With `warp` the distribution is first sharpened or cut (temperature, top-k, top-p, ...); without it
the text is an exact sample of the model's own distribution over texts.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .chance import as_chance
from .contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from .logprobs import noted, records_of
from .mirostat import Mirostat, as_mirostat
from .run import FROM_MODEL, Run
from .step import Step
from .warp import Blocked, Warp


def sample(
    model: Model,
    prompt: Prompt,
    *,
    warp: Warp | None = None,
    chance: Chance | None = None,
    mirostat: float | Mirostat | None = None,
    logprobs: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
) -> Iterator[Step]:
    """Yield one `Step` per token.

    prompt: ids, or text with `tokenizer`. warp: the settings; plain sampling unless given. chance:
    a `Dice` or `GumbelDice`, fresh unless given. mirostat: the surprise to keep to, in bits.
    logprobs: with how many alternatives each step holds its `TokenLogprobs`. The other arguments:
    as in `Run`.
    Errors, at the call: `InputError`, `ContextError`. While it runs: `LogitsError`.
    """
    run = Run(
        model,
        prompt,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
    )
    distribution = noted(as_mirostat(mirostat, run.warped(warp)), logprobs)
    return draw_tokens(run, [model], distribution, as_chance(chance))


def draw_tokens(
    run: Run,
    models: Sequence[Model],
    distribution: Callable[..., np.ndarray],
    chance: Chance,
) -> Iterator[Step]:
    """Draw tokens until the run ends: `distribution(logits of each model ..., history)` -> [V]."""
    caches = [model.new_cache() for model in models]
    while not run.finish_reason:
        rows = [  # one [V] per model, after the tokens that it has not seen yet
            model.forward(run.history[cache.length :], cache)[-1]
            for model, cache in zip(models, caches)
        ]
        yield draw_token(run, rows, distribution, chance)


def draw_token(run, rows, distribution, chance):
    """Draw the next token and commit it: its `Step`."""
    try:
        probs = distribution(*rows, run.history)  # [V]
    except Blocked:
        run.block()
        return Step((), run.finish_reason)
    start = len(run.history)
    tokens = run.commit([chance.choose(probs, start)])
    return Step(tokens, run.finish_reason, records_of(distribution, start, tokens))
