"""Diverse beam search: groups of beams, each held off the tokens that the groups before it chose.

Plain beams often differ in a word. Here num_beams are split into num_beam_groups. In each step the
groups extend their beams one after the other, and a token that beams of earlier groups were
extended by in this very step costs

    diversity_penalty x the number of those beams         Vijayakumar et al. 2016, Hamming diversity

which stays in the total, as in transformers. Within a group all is as in `beam_search`. So the
first group is a beam search of its own size, and a single group is beam search. The texts returned
are the best of all groups by their penalised scores.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..checks import real, whole
from ..errors import InputError
from .beam import (
    Branch,
    Hypothesis,
    _advance,
    _Beam,
    _check,
    _Finished,
    _inherit,
    _sort_out,
    _token_scores,
)
from .context import Context
from .contracts import EndIds, Model, Prompt, StopStrings, Tokenizer
from .logprobs import rescored
from .run import FROM_MODEL, Run
from .settings import BAN, PENALTY
from .warp import Warp, unshaped

DIVERSITY = 0.5  # unless given; the paper found 0.2 to 0.8 to serve most tasks


@dataclass
class _Group:
    """The running hypotheses of one group, none once it is over, and those that it finished."""

    beams: list[_Beam]
    finished: _Finished
    number: int  # from 1


def diverse_beam_search(
    model: Model,
    prompt: Prompt,
    *,
    num_beams: int,
    num_beam_groups: int,
    diversity_penalty: float | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    num_return_sequences: int = 1,
    warp: Warp | None = None,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
    context: Context | None = None,
    logprobs: int | None = None,
    trace: list[list[Branch]] | None = None,
) -> list[Hypothesis]:
    """The `num_return_sequences` best hypotheses of all groups, best first.

    num_beams: a multiple of num_beam_groups. diversity_penalty: above 0; `DIVERSITY` unless given.
    All else, and the errors: as in `beam_search`, in each group. Scores and log-probabilities are
    less what diversity cost, but not so the `TokenLogprobs`. Two groups may return the same text.
    trace: a list that gets the branches of each step, those of all groups in order.
    """
    _check(num_beams, num_return_sequences, length_penalty, early_stopping)
    if logprobs is not None:
        whole("logprobs", logprobs, 0)
    diversity_penalty = _check_groups(num_beams, num_beam_groups, diversity_penalty)
    warp = unshaped("beam search", warp)
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
    size = int(num_beams) // int(num_beam_groups)
    rules = (size, min(size, num_return_sequences), length_penalty, early_stopping)
    first = _first_beams(model, run, num_beam_groups)
    groups = [_Group([beam], _Finished(*rules), i) for i, beam in enumerate(first, 1)]

    for length in range(1, run.limit + 1):
        running = [group for group in groups if group.beams]
        if not running:
            break
        scores = iter(_scores(model, run, warp, [beam for g in running for beam in g.beams]))
        taken = np.zeros(model.vocab_size)  # by how many beams, in this step
        seen, place = [], 0  # for the trace; the place of the group's first beam among all
        for group in running:
            costs, size = diversity_penalty * taken, len(group.beams)
            own = [next(scores) - costs for _ in group.beams]
            branches, tokens = _extend(group, own, run, length)
            np.add.at(taken, tokens, 1)
            if _over(group, warp, run, length):
                group.beams = []
            if trace is not None:
                seen += _placed(branches, place, group)
            place += size
        if trace is not None:
            trace.append(seen)
    found = [hypothesis for group in groups for hypothesis in group.finished.best]
    best = sorted(found, key=lambda h: -h.score)[:num_return_sequences]  # stable: earlier groups
    if logprobs is None:
        return best

    def distribution(logits, history):
        return np.exp(_token_scores([logits], history, warp.only(PENALTY), warp.only(BAN), None))

    return [
        replace(h, token_logprobs=rescored([model], run.prompt, h.tokens, distribution, logprobs))
        for h in best
    ]


def _check_groups(num_beams, num_beam_groups, diversity_penalty):
    """The diversity penalty that counts; `InputError` for groups and penalties that cannot be."""
    whole("num_beam_groups", num_beam_groups, 1, int(num_beams))
    if num_beams % num_beam_groups:
        raise InputError(
            f"num_beam_groups: got {num_beam_groups}, a divisor of num_beams ({num_beams}) "
            "was wanted"
        )
    if diversity_penalty is None:
        return DIVERSITY
    if num_beam_groups == 1:
        raise InputError("diversity_penalty: has no effect with a single group")
    return real("diversity_penalty", diversity_penalty, "a number above 0, at most 1e6", _fits)


def _fits(penalty):
    return 0 < penalty <= 1e6  # so that no total overflows


def _first_beams(model, run, count):
    """A beam without tokens for each group; the prompt is read once, all but its last token."""
    cache = run.new_cache(model)
    if unread := run.prompt[cache.length : -1]:
        model.forward(unread, cache, 0)
    return [_Beam([], [], 0.0, [cache.fork()], run.stream) for _ in range(count)]


def _scores(model, run, warp, beams):
    """What each token [V] would add to each beam, before any group held another off; one pass."""
    penalties, bans = warp.only(PENALTY), warp.only(BAN)
    return [
        _token_scores(rows, run.prompt + beam.tokens, penalties, bans, None)
        for beam, rows in zip(beams, _advance((model,), beams, run.prompt))
    ]


def _placed(branches, first, group):
    """The branches as a trace has them: parents counted over all groups, `group` by its number.

    Where the group is over, what would have run on is dropped.
    """
    return [
        replace(
            branch,
            parent=first + branch.parent,
            fate="dropped" if branch.fate == "running" and not group.beams else branch.fate,
            group=group.number,
        )
        for branch in branches
    ]


def _extend(group, scores, run, length):
    """One step of one group: its branches, and the tokens of its beams, ends left out."""
    at_limit = run.full if length == run.limit else None
    branches = _sort_out(group.beams, scores, run.eos, at_limit, group.finished)
    running = [branch for branch in branches if branch.fate == "running"]
    group.beams = _inherit(group.beams, scores, running)
    if at_limit is None:
        return branches, [branch.token for branch in running]
    # Nothing runs on, but what would have holds the later groups off all the same.
    best = [branch.token for branch in branches if branch.token is not None]
    return branches, [token for token in best if token not in run.eos][: group.finished.num_beams]


def _over(group, warp, run, length):
    """Whether no beam of the group has to run on; see `early_stopping` of `beam_search`."""
    if not group.beams or group.finished.suffice(group.beams[0].total, length):
        return True
    shortest = length if warp != Warp() else length + 1  # one may yet be blocked as it is
    return group.finished.out_of_reach(group.beams[0].total, shortest, run.limit)
