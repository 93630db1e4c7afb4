"""Beam search: follow the num_beams likeliest beginnings of a text at once, instead of one.

Each step extends every running hypothesis by every token. Of these candidates the num_beams best
that have not ended run on; one that has ended is finished if it is among the num_beams best. Score:

    sum of log-probabilities / length ** length_penalty

over the generated tokens, the end token included (Wu et al. 2016, section 7, as in transformers).
Exact: scores, in float64; the stop with early_stopping="never", which loses nothing that would be
returned; then also the search, once num_beams holds every beginning. A narrower beam may miss even
the greedy text.
"""

import sys
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from ..checks import real, shown, whole
from ..errors import InputError
from .context import Context
from .contracts import EndIds, Model, Prompt, StopStrings, Tokenizer
from .contrastive import Contrast, both
from .logprobs import TokenLogprobs, rescored
from .narrow import reader_of
from .run import FROM_MODEL, Run
from .settings import BAN, PENALTY
from .stream import TextStream
from .warp import Warp, log_softmax, unshaped


@dataclass(frozen=True)
class Hypothesis:
    """A finished text of the search.

    tokens         the new ids, the end token included, the prompt not
    score          sum(logprobs) / len(tokens) ** length_penalty; 0 where there are no tokens
    logprobs       the log-probability of each token, after the repetition penalty; in a contrastive
                   search its contrastive score
    finish_reason  eos, stop, length, context or blocked (see `Run`)
    token_logprobs  one `TokenLogprobs` per token where they were asked for, else ()
    """

    tokens: list[int]
    score: float
    logprobs: list[float]
    finish_reason: str
    token_logprobs: tuple[TokenLogprobs, ...] = ()


MOST_BEAMS = 10_000  # far more than any search gains from, and few enough to end


@dataclass(frozen=True)
class Branch:
    """One candidate of one step, as `trace` keeps it.

    parent  what it extends: the place among the running branches of the step before
    token   None for a hypothesis that was blocked, and so ended as it was
    total   the sum of its log-probabilities
    fate    running, finished or dropped
    group   its number in diverse beam search, from 1
    """

    parent: int
    token: int | None
    total: float
    fate: str
    group: int | None = None


@dataclass(frozen=True)
class _Beam:
    """A running hypothesis.

    caches  one for each model, which hold all of it but the last token
    stream  its text, where a stop string is looked for; None where there are none
    """

    tokens: list[int]
    logprobs: list[float]
    total: float
    caches: list
    stream: TextStream | None

    def extended(self, token, row):
        """The tokens and log-probabilities with one more token; row [V]: what it may add."""
        return [*self.tokens, token], [*self.logprobs, float(row[token])]

    def unread(self, prompt, i):
        """The tokens of its text that model i has not read: the newest, or first the prompt."""
        return self.tokens[-1:] or prompt[self.caches[i].length :]

    def read(self, token):
        """The text with one more token."""
        if self.stream is None:
            return None
        stream = self.stream.fork()
        stream.feed(token)
        return stream


def beam_search(
    model: Model,
    prompt: Prompt,
    *,
    num_beams: int,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    num_return_sequences: int = 1,
    no_repeat_ngram_size: int = 0,
    repetition_penalty: float = 1.0,
    warp: Warp | None = None,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
    context: Context | None = None,
    amateur: Model | None = None,
    contrast: Contrast | None = None,
    logprobs: int | None = None,
    trace: list[list[Branch]] | None = None,
) -> list[Hypothesis]:
    """The `num_return_sequences` best hypotheses, best first; fewer where fewer exist.

    prompt, max_new_tokens, min_new_tokens, eos, stop, tokenizer: as in `Run`. A hypothesis ends
    with the token that completes a stop string, as it does with an end token.
    early_stopping: "never" stops when no running hypothesis can still be returned. False stops too
    when num_beams are finished and the best running one, ending now, would be worse than all: as in
    transformers, and a guess if length_penalty is positive. True stops when num_beams are finished.
    A single beam always ends with its first end token, which makes it greedy decoding.
    warp: penalties and bans, of which repetition_penalty and no_repeat_ngram_size can be given by
    themselves. Log-probabilities are those after the penalties; bans leave those of others as they
    are.
    With an `amateur` the scores of `contrast` (a `contrastive.Contrast`) replace log-probabilities.
    logprobs: how many alternatives to tell in the `TokenLogprobs` of each hypothesis, for one more
    pass over it. trace: a list that receives the `Branch`es of every step, best first.
    Ties fall to the hypothesis finished first, the better parent, the lower id.
    Errors: `InputError`; `ContextError`; `LogitsError`, naming the step.
    """
    _check(num_beams, num_return_sequences, length_penalty, early_stopping)
    if logprobs is not None:
        whole("logprobs", logprobs, 0)
    warp = unshaped(
        "beam search",
        warp,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    reader = model if amateur is None else both(model, amateur)
    models, contrast = _models(model, amateur, contrast)
    run = Run(
        reader,
        prompt,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
        context=context,
    )
    warp = run.warped(warp)
    penalties, bans = warp.only(PENALTY), warp.only(BAN)
    if run.finish_reason:
        return [Hypothesis([], 0.0, [], run.finish_reason)]
    finished = _Finished(num_beams, num_return_sequences, length_penalty, early_stopping)

    beams = [
        _Beam([], [], 0.0, [run.new_cache(m, role) for role, m in enumerate(models)], run.stream)
    ]
    for length in range(1, run.limit + 1):
        scores = [  # b of [V]
            _token_scores(rows, run.prompt + beam.tokens, penalties, bans, contrast)
            for beam, rows in zip(beams, _advance(models, beams, run.prompt))
        ]
        at_limit = run.full if length == run.limit else None
        branches = _sort_out(beams, scores, run.eos, at_limit, finished)
        beams = _inherit(beams, scores, [b for b in branches if b.fate == "running"])
        if trace is not None:
            trace.append(branches)
        if not beams or finished.suffice(beams[0].total, length):
            break
        shortest = length if warp != Warp() else length + 1  # one may yet be blocked as it is
        if contrast is None and finished.out_of_reach(beams[0].total, shortest, run.limit):
            break
    best = finished.best[:num_return_sequences]
    if logprobs is None:
        return best

    def distribution(*rows_and_history):
        *rows, history = rows_and_history
        return np.exp(_token_scores(rows, history, penalties, bans, contrast))

    return [
        replace(h, token_logprobs=rescored(models, run.prompt, h.tokens, distribution, logprobs))
        for h in best
    ]


def _advance(models, beams, prompt):
    """For each beam the logits [V] of each model after its text; one pass for each model."""
    rows = [
        model.forward_many([(beam.unread(prompt, i), beam.caches[i]) for beam in beams])
        for i, model in enumerate(models)
    ]
    return [[row[-1] for row in one_beam] for one_beam in zip(*rows)]


def _token_scores(rows, history, penalties, bans, contrast):
    """What each token [V] would add to the total of a beam; -inf for what it may not be."""
    step = len(history)
    if contrast is None:
        scores = log_softmax(penalties.penalise(rows[0], history), step)
    else:
        scores = penalties.penalise(contrast(*rows, step), history)
    return bans.penalise(scores, history)


def _sort_out(beams, scores, eos, at_limit, finished):
    """The branches of one step, best first; those that end go to `finished`."""
    branches = []
    for parent, (beam, row) in enumerate(zip(beams, scores)):
        if row.max() == -np.inf:
            finished.add(beam.tokens, beam.logprobs, beam.total, "blocked")
            branches.append(Branch(parent, None, beam.total, "finished"))
    num_beams = finished.num_beams
    candidates, ends = _candidates(beams, scores, eos, num_beams)
    # Where no more than num_beams are open, nothing competes for a place, and every end counts;
    # but not where the search stops at num_beams ends, which then might be any.
    contested = ends.count(None) > num_beams or num_beams == 1 or finished.early_stopping is True
    places = num_beams
    for rank, ((parent, token, total), end) in enumerate(zip(candidates, ends)):
        reason = end or at_limit
        fate = "dropped"
        if reason is None and places:
            fate = "running"
            places -= 1
        elif reason is not None and (rank < num_beams or not contested):
            fate = "finished"
            finished.add(*beams[parent].extended(token, scores[parent]), total, reason)
        branches.append(Branch(parent, token, total, fate))
    return branches


def _candidates(beams, scores, eos, num_beams):
    """The best (beam, token, total), best first, and why each ends: eos, stop or None.

    As many as it takes that more than num_beams of them have not ended, or all there are. Each beam
    has one candidate for each end token at most, so where no stop string can end one, the first
    guess is enough.
    """
    count = num_beams * (1 + len(eos)) + 1
    while True:
        candidates = _best_candidates(beams, scores, count)
        ends = [_end(beams[parent], token, eos) for parent, token, _ in candidates]
        if ends.count(None) > num_beams or len(candidates) < count:
            return candidates, ends
        count *= 2


def _end(beam, token, eos):
    """Why a beam ends with this token: eos, stop or None."""
    if token in eos:
        return "eos"
    return "stop" if beam.stream is not None and beam.read(token).stopped else None


def _best_candidates(beams, scores, count):
    """The `count` best (beam, token, total), best first; ties to the better beam, the lower id."""
    parents, tokens, totals = [], [], []
    lowest = -sys.float_info.max  # what is below the count-th best so far is out; so is -inf
    for parent, (beam, row) in enumerate(zip(beams, scores)):
        total = beam.total + row  # [V]
        kept = np.flatnonzero(total >= lowest)
        if len(kept) > count:  # a partition is several times faster than a sort
            lowest = np.partition(total[kept], -count)[-count]
            kept = kept[total[kept] >= lowest]
        parents += [parent] * len(kept)
        tokens.append(kept)
        totals.append(total[kept])
    tokens, totals = np.concatenate(tokens), np.concatenate(totals)
    best = np.argsort(-totals, kind="stable")[:count]
    return [(parents[i], int(tokens[i]), float(totals[i])) for i in best]


def _inherit(beams, scores, branches):
    """The beams that run on. Of several children of one beam all but the last fork its caches."""
    children = Counter(branch.parent for branch in branches)
    running = []
    for branch in branches:
        parent = beams[branch.parent]
        children[branch.parent] -= 1
        last = children[branch.parent] == 0
        caches = parent.caches if last else [cache.fork() for cache in parent.caches]
        extended = parent.extended(branch.token, scores[branch.parent])
        running.append(_Beam(*extended, branch.total, caches, parent.read(branch.token)))
    return running


class _Finished:
    """The best num_beams finished hypotheses, best first; decides when there are enough."""

    def __init__(self, num_beams, num_return_sequences, length_penalty, early_stopping):
        self.num_beams = num_beams
        self.num_return_sequences = num_return_sequences
        self.length_penalty = length_penalty
        self.early_stopping = early_stopping
        self.best = []

    def score(self, total, length):
        return total / float(length) ** self.length_penalty if length else 0.0

    def add(self, tokens, logprobs, total, reason):
        score = self.score(total, len(tokens))
        self.best.append(Hypothesis(tokens, score, logprobs, reason))
        self.best.sort(key=lambda hypothesis: -hypothesis.score)  # stable: first come, first
        del self.best[self.num_beams :]

    def suffice(self, total, length):
        """Whether early_stopping ends the search; `total` is the best of the running ones."""
        if len(self.best) < self.num_beams:
            return False
        if self.early_stopping is True or self.num_beams == 1:
            return True
        guess = self.early_stopping is False
        return guess and self.score(total, length) <= self.best[-1].score

    def out_of_reach(self, total, shortest, longest):
        """Whether no running hypothesis, of total at most `total`, can still be returned.

        More tokens only lower a total, so at length n it scores total / n ** length_penalty at
        best. That rises or falls with n all the way, by the penalty's sign: one end is highest.
        """
        returned = self.num_return_sequences
        if len(self.best) < returned:
            return False
        highest = max(self.score(total, shortest), self.score(total, longest))
        return highest <= self.best[returned - 1].score


def _models(model, amateur, contrast):
    if amateur is None:
        if contrast is not None:
            raise InputError("contrast: has no effect without an amateur")
        return (model,), None
    return (model, reader_of(amateur, model)), contrast or Contrast()


def _check(num_beams, num_return_sequences, length_penalty, early_stopping):
    whole("num_beams", num_beams, 1, MOST_BEAMS)
    whole("num_return_sequences", num_return_sequences, 1, int(num_beams))
    # So that no power of a length overflows.
    real("length_penalty", length_penalty, "a number from -50 to 50", lambda x: abs(x) <= 50)
    if not isinstance(early_stopping, bool) and early_stopping != "never":
        raise InputError(
            f"early_stopping: got {shown(early_stopping)}, True, False or 'never' was wanted"
        )
