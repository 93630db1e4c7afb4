"""Contrastive search: a likely token whose hidden state is unlike all that the text holds already.

Of the top_k likeliest tokens v the one with the best score is taken:

    (1 - penalty_alpha) p(v) - penalty_alpha max_j cos(h_v, h_j)      Su et al. 2022, section 3.2

h_v is the last layer's hidden state of v, as if it were taken; h_j are those of the text so far,
prompt and all. Text that repeats itself has states that are alike, and is punished before it comes
to that. One pass over the candidates tells both their states and the logits after each, so a token
costs one pass of top_k rows. Nothing is left to chance; exact but for rounding. (`contrastive.py`
is another thing: there two models are compared.)
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..checks import real, whole
from ..errors import InputError, LogitsError
from .contracts import EndIds, Model, Prompt, StopStrings, Tokenizer
from .logprobs import noted, records_of
from .run import FROM_MODEL, Run
from .step import Step
from .warp import Blocked, Warp, _at, unshaped


@dataclass(frozen=True)
class Look:
    """One step's candidates, likeliest first, and what spoke for each; logits [V] before them."""

    logits: np.ndarray
    tokens: list[int]
    probs: np.ndarray  # [top_k]
    likeness: np.ndarray  # [top_k], the largest cosine to a state of the text
    scores: np.ndarray  # [top_k]


def contrastive_search(
    model: Model,
    prompt: Prompt,
    *,
    penalty_alpha: float = 0.6,
    top_k: int = 4,
    warp: Warp | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
    logprobs: int | None = None,
    trace: list[Look] | None = None,
) -> Iterator[Step]:
    """Yield one `Step` per token.

    penalty_alpha: from 0 to 1, the weight of the likeness; 0 is greedy decoding, as is top_k = 1.
    top_k: how many candidates are looked at. Ties fall to the likelier one, then to the lower id.
    warp: penalties and bans; p is the distribution after them. logprobs: with how many alternatives
    each step holds its `TokenLogprobs`. trace: a list that gets a `Look` for each step. The limits
    are those of `Run`.
    model: one with hidden states, `hidden_size` and the option `hidden` of `forward_many`.
    Errors, at the call: `InputError`, `ContextError`. While it runs: `LogitsError`.
    """
    real("penalty_alpha", penalty_alpha, "a number from 0 to 1", lambda x: 0 <= x <= 1)
    whole("top_k", top_k, 1)
    run = Run(
        model,
        prompt,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
    )
    if getattr(model, "hidden_size", None) is None:
        kind = type(model).__name__
        raise InputError(f"model: got a {kind}, one with hidden states was wanted, as GPT2 has")
    if isinstance(warp, Warp) and warp.top_k:
        raise InputError("top_k: got it in a warp, it was wanted by itself")
    warp = run.warped(unshaped("contrastive search", warp))
    return _search(run, model, float(penalty_alpha), int(top_k), noted(warp, logprobs), trace)


def _search(run, model, penalty_alpha, top_k, distribution, trace):
    if run.finish_reason:
        return
    seen = np.empty((len(run.prompt) + run.limit, model.hidden_size))  # directions [t, d]
    cache = model.new_cache()
    logits, states = model.forward_many([(run.history, cache)], hidden=True)[0]
    seen[: len(states)] = _directions(states)
    while not run.finish_reason:
        t = len(run.history)
        try:
            tokens, probs = candidates(distribution(logits[-1], run.history), top_k)
        except Blocked:
            run.block()
            yield Step((), run.finish_reason)
            return
        caches = [cache.fork() for _ in tokens]
        passes = model.forward_many([([i], c) for i, c in zip(tokens, caches)], hidden=True)
        states = _directions(np.concatenate([state for _, state in passes]))  # [top_k, d]
        likeness = (states @ seen[:t].T).max(axis=1)  # [top_k]
        scores = (1 - penalty_alpha) * probs - penalty_alpha * likeness
        if not np.isfinite(scores).all():
            raise LogitsError(f"{_at(t)}a hidden state is not finite")
        if trace is not None:
            trace.append(Look(logits[-1], tokens, probs, likeness, scores))
        best = int(scores.argmax())
        cache, (logits, _), seen[t] = caches[best], passes[best], states[best]
        taken = run.commit([tokens[best]])
        yield Step(taken, run.finish_reason, records_of(distribution, t, taken))


def candidates(probs, top_k):
    """The top_k likeliest ids and their probabilities [top_k]; none of probability 0."""
    least = np.partition(probs, -top_k)[-top_k] if top_k < len(probs) else 0
    kept = np.flatnonzero((probs >= least) & (probs > 0))  # few: a sort of all is far slower
    order = kept[np.argsort(-probs[kept], kind="stable")][:top_k]
    return order.tolist(), probs[order].astype(np.float64)


def _directions(states):
    """Hidden states [n, d] as vectors of length 1, in float64; a zero vector stays."""
    states = states.astype(np.float64)
    lengths = np.sqrt((states**2).sum(axis=1, keepdims=True))
    return states / np.where(lengths == 0, 1, lengths)
