"""Ancestral sampling: draw each token from the model's distribution given all before it.

With `warp` the distribution is first sharpened or cut (temperature, top-k, top-p, ...); without it
the text is an exact sample of the model's own distribution over texts.
"""

from .chance import Dice
from .run import Run
from .step import Step
from .warp import Blocked, Warp


def sample(model, prompt, *, warp=None, chance=None, **limits):
    """Yield a `Step` a token.

    prompt: ids, or text with `tokenizer=`. chance: `Dice` or `GumbelDice`, fresh unless given.
    limits: max_new_tokens, eos, stop, tokenizer, as in `stopping.Run`.
    """
    warp = warp or Warp()
    chance = Dice() if chance is None else chance
    run = Run(model, prompt, **limits)
    cache = model.new_cache()
    pending = run.prompt  # committed, but not yet seen by the model
    while not run.finish_reason:
        logits = model.forward(pending, cache)[-1]  # [V]
        try:
            probs = warp(logits, run.history)  # [V]
        except Blocked:
            run.block()
            pending = ()
        else:
            pending = run.commit([chance.choose(probs, len(run.history))])
        yield Step(pending, run.finish_reason)
