"""Stochastic beam search: num_beams different texts, drawn from the model without replacement.

Add to the log-probability of every text of the model independent Gumbel noise: the text of the
largest sum G is an exact sample, and the k largest are k samples without replacement, in the order
in which they would have been drawn. No text need be written for that (Kool et al. 2019): the
largest G below a beginning of texts is its own log-probability plus Gumbel noise. So the tree is
walked down from its root, and the children's sums are drawn so that the largest equals the
parent's,

    G_child = -log(exp(-G_parent) - exp(-Z) + exp(-G'_child)),      Z = max G'       appendix B

with G' the child's log-probability plus fresh noise. As no child exceeds its parent, the num_beams
largest of each step lose nothing that belongs to the largest at the end. Exact: the law of the
texts and their order, under the model's distribution after any `Warp`.
"""

from dataclasses import replace

import numpy as np

from ..checks import shown, whole
from ..errors import InputError
from .beam import MOST_BEAMS, Branch, Hypothesis, _advance, _Beam, _end, _inherit
from .chance import as_chance
from .context import Context
from .contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from .logprobs import rescored
from .run import FROM_MODEL, Run
from .warp import Blocked, Warp


def stochastic_beam_search(
    model: Model,
    prompt: Prompt,
    *,
    num_beams: int,
    num_return_sequences: int | None = None,
    warp: Warp | None = None,
    chance: Chance | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
    context: Context | None = None,
    logprobs: int | None = None,
) -> list[Hypothesis]:
    """The first `num_return_sequences` samples, all num_beams unless given; fewer where fewer are.

    `score` of a `Hypothesis` is here its G, which falls along the list; `logprobs` are those of its
    tokens under the distribution drawn from. (A text of log-probability phi is among the first n
    with probability 1 - exp(-exp(phi - kappa)), kappa the G of the next: its weight in estimates.)
    warp: the settings; none unless given. chance: a `Dice`, fresh unless given. logprobs: how many
    alternatives to tell in the `TokenLogprobs` of each text, for one more pass over it. The limits
    and context: as in `Run`. Errors: `InputError`; `ContextError`; `LogitsError`, naming the step.
    """
    num_beams = whole("num_beams", num_beams, 1, MOST_BEAMS)
    if num_return_sequences is not None:
        whole("num_return_sequences", num_return_sequences, 1, num_beams)
    if logprobs is not None:
        whole("logprobs", logprobs, 0)
    chance = as_chance(chance)
    draw = getattr(chance, "gumbel", None)
    if draw is None:
        raise InputError(f"chance: got {shown(chance)}, a Dice was wanted: it has Gumbel noise")
    run = Run(
        model,
        prompt,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
        context=context,
    )
    warp = run.warped(warp)
    if run.finish_reason:
        return [Hypothesis([], 0.0, [], run.finish_reason)]

    root = float(draw(1)[0])  # the largest G of all, of log-probability 0
    beams, ended = [_Beam([], [], root, [run.new_cache(model)], run.stream)], []
    for length in range(1, run.limit + 1):
        if not beams:
            break
        rows, branches = [], []
        for parent, (logits,) in enumerate(_advance((model,), beams, run.prompt)):
            beam = beams[parent]
            rows.append(_log_probs(warp, logits, run.prompt + beam.tokens))
            if rows[-1] is None:
                ended.append(Hypothesis(beam.tokens, beam.total, beam.logprobs, "blocked"))
            else:
                branches += _children(parent, beam, rows[-1], chance, num_beams)
        ended, branches = _largest(ended, branches, num_beams)
        at_limit = run.full if length == run.limit else None
        beams = _sort_out(beams, rows, branches, run.eos, at_limit, ended)
    first = sorted(ended, key=lambda h: -h.score)[:num_return_sequences]
    if logprobs is None:
        return first
    return [
        replace(h, token_logprobs=rescored([model], run.prompt, h.tokens, warp, logprobs))
        for h in first
    ]


def _sort_out(beams, rows, branches, eos, at_limit, ended):
    """The beams that run on; those that end go to `ended`."""
    running = []
    for branch in branches:
        beam = beams[branch.parent]
        reason = _end(beam, branch.token, eos) or at_limit
        if reason is None:
            running.append(branch)
        else:
            text = beam.extended(branch.token, rows[branch.parent])
            ended.append(Hypothesis(text[0], branch.total, text[1], reason))
    return _inherit(beams, rows, running)


def _log_probs(warp, logits, history):
    """The log-probabilities [V] of the next token, or None where every token is banned."""
    try:
        probs = warp(np.asarray(logits, dtype=np.float64), history)
    except Blocked:
        return None
    with np.errstate(divide="ignore"):
        return np.log(probs)


def _children(parent, beam, row, chance, count):
    """The `count` largest children of one beam."""
    tokens = np.flatnonzero(row > -np.inf)
    log_probs = sum(beam.logprobs) + row[tokens]  # of the whole texts
    sums = with_maximum(log_probs + chance.gumbel(len(tokens)), beam.total)
    best = np.argsort(-sums, kind="stable")[:count]
    return [Branch(parent, int(tokens[i]), float(sums[i]), "running") for i in best]


def with_maximum(sums, largest):
    """Gumbel sums [V], drawn freely, as they are given that their maximum is `largest`.

    The published formula, written so that no exponential overflows.
    """
    with np.errstate(divide="ignore"):
        v = largest - sums + np.log(-np.expm1(sums - sums.max()))
    return largest - np.maximum(0, v) - np.log1p(np.exp(-np.abs(v)))


def _largest(ended, branches, count):
    """Of texts that ended and branches those of the `count` largest sums; the rest is out."""
    sums = [h.score for h in ended] + [branch.total for branch in branches]
    kept = np.argsort(-np.array(sums), kind="stable")[:count]
    return (
        [ended[i] for i in kept if i < len(ended)],
        [branches[i - len(ended)] for i in kept if i >= len(ended)],
    )
