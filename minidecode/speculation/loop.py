"""Speculative decoding (Leviathan et al., Chen et al., 2023): several tokens a pass of the target.

A cheap draft proposes k tokens, drawing each from its own distribution q. One pass of the target
gives its distributions p at those k places and one more. Draft x is accepted with probability
min(1, p(x)/q(x)); the first rejected one is replaced by a draw from norm(max(0, p - q)), and where
all were accepted a bonus token comes from the last row. Each token is then distributed exactly as
if the target had been sampled alone, whatever the draft, which only decides how many tokens a pass
brings.

Glossary: drafted, accepted, correction (after a rejection), bonus (after none).
"""

import time

import numpy as np

from ..checks import check_same_vocabulary
from ..decoding.chance import Dice
from ..decoding.run import Run
from ..decoding.warp import Blocked, Warp
from ..errors import InputError
from ..speculation.rounds import Round
from .drafts import ModelDraft
from .schedules import make_schedule
from .verify import verify, verify_coupled


def speculative(target, draft, prompt, **options):
    """Yield a `Round` for each pass of the target.

    draft: a model, or an object as in draft.py. Keyword arguments:
    warp              settings of target and draft alike; plain sampling unless given
    chance            Dice, or GumbelDice for the text of plain sampling with that seed
    num_draft_tokens  k, or what the schedule begins with (4)
    schedule          constant, heuristic or auto, or an object as in schedule.py
    verify            another verification, with the arguments of `verify`
    distribution      (logits [V], history) -> p [V], in place of the warped target
    clock             tells the seconds for statistics and `auto`
    and max_new_tokens, eos, stop, tokenizer as in `stopping.Run`.
    """
    one = Speculation(target, draft, prompt, **options)
    while not one.run.finish_reason:
        one.propose()
        started = one.clock()
        logits = target.forward(one.tokens, one.cache, n_logits=one.n_logits)
        yield one.settle(logits, one.clock() - started)


def speculative_many(target, drafts, prompts, *, chances=None, **options):
    """`speculative` for several prompts at once: yields (index of the prompt, its `Round`).

    One pass of the target serves all that still run. drafts: a model for all, or one draft a
    prompt; chances: one a prompt. Each sequence has its own cache, draft, length and end, and its
    text is that of the prompt alone with the same draft and chance.
    """
    drafts = list(drafts) if isinstance(drafts, list | tuple) else [drafts] * len(prompts)
    chances = list(chances) if chances is not None else [None] * len(prompts)
    if not len(drafts) == len(chances) == len(prompts):
        raise InputError(
            f"prompts: got {len(prompts)}, with {len(drafts)} drafts and {len(chances)} chances"
        )
    _check_own("drafts", [draft for draft in drafts if not hasattr(draft, "forward")])
    _check_own("chances", [c for c in chances if c is not None and not c.coupled])
    if hasattr(options.get("schedule"), "next"):
        _check_own("schedule", [options["schedule"] for _ in prompts])
    running = {
        i: Speculation(target, draft, prompt, chance=chance, **options)
        for i, (draft, prompt, chance) in enumerate(zip(drafts, prompts, chances))
    }
    while running := {i: one for i, one in running.items() if not one.run.finish_reason}:
        for one in running.values():
            one.propose()
        clock = next(iter(running.values())).clock
        started = clock()
        rows = target.forward_many(
            [(one.tokens, one.cache) for one in running.values()],
            n_logits=[one.n_logits for one in running.values()],
        )
        seconds = clock() - started
        for (i, one), logits in zip(running.items(), rows):
            yield i, one.settle(logits, seconds)


def _check_own(name, objects):
    """Objects with a state of their own must not serve two sequences."""
    if len({id(each) for each in objects}) < len(objects):
        raise InputError(f"{name}: one object stands for two prompts, one each was wanted")


class Speculation:
    """One sequence: `propose` says what the target has to score, `settle` what came of it.

    After a round the target's cache holds the committed tokens but the newest.
    """

    def __init__(
        self,
        target,
        draft,
        prompt,
        *,
        warp=None,
        chance=None,
        num_draft_tokens=4,
        schedule="constant",
        verify=verify,
        distribution=None,
        clock=time.perf_counter,
        **limits,
    ):
        check_same_vocabulary(target, getattr(draft, "model", draft), "draft")
        self.run = Run(target, prompt, **limits)
        self.target = target
        self.warp = warp or Warp()
        self.chance = Dice() if chance is None else chance
        self.distribution = distribution or self.warp
        self.verify = verify_coupled if self.chance.coupled else verify
        self.schedule = make_schedule(schedule, num_draft_tokens)
        self.clock = clock
        self.cache = target.new_cache()
        self.draft = ModelDraft(draft) if hasattr(draft, "forward") else draft
        self.draft.rollback(0)  # nothing of an earlier run

    def propose(self):
        """Draft; sets `tokens` to feed to the target and `n_logits`, the rows it must return."""
        history = self.run.history
        self.reads_prompt = self.cache.length == 0
        self.k = self.schedule.next()
        self.cut = self.k > self.run.remaining - 1  # one token always comes from the target
        k = min(self.k, self.run.remaining - 1)
        started = self.clock()
        drafted, self.q = self.draft.propose(history, k, self.warp, self.chance) if k else ([], [])
        self.draft_seconds = self.clock() - started
        if len(drafted) != len(self.q) or len(drafted) > k:
            raise InputError(
                f"draft: got {len(drafted)} tokens and {len(self.q)} rows, up to {k} were wanted"
            )
        for x, row in zip(drafted, self.q):
            if not (0 <= x < len(row) and row[x] > 0):
                raise InputError(f"draft: got token {x}, which its q gives no probability")
        # An id the target does not have is certain to be rejected: it and what follows is not fed.
        known = [x < self.target.vocab_size for x in drafted]
        fed = known.index(False) if False in known else len(drafted)
        self.drafted = drafted[: fed + 1]
        self.tokens = history[self.cache.length :] + drafted[:fed]
        self.n_logits = fed + 1

    def settle(self, logits, target_seconds):
        """Verify the drafts against the target's rows [n_logits, V], commit, roll back."""
        run, history = self.run, list(self.run.history)
        size = max([logits.shape[1], *map(len, self.q)])
        p = TargetRows(
            logits, size, lambda row, i: self.distribution(row, history + self.drafted[:i])
        )
        q = [widen(row, size) for row in self.q]
        try:
            accepted, token = self.verify(p, q, self.drafted, self.chance, len(history))
            following = [token]
        except Blocked:  # at the first row that is asked for after all accepted drafts
            accepted, following = p.reached, []
        if not self.cut:
            seconds = (self.draft_seconds, target_seconds) if not self.reads_prompt else None
            self.schedule.observe(self.k, len(self.drafted), accepted, seconds)
        tokens = run.commit(self.drafted[:accepted] + following)
        if not following and not run.finish_reason:
            run.block()
        self.cache.truncate(len(run.history) - 1)
        self.draft.rollback(len(run.history) - 1)
        whole = len(tokens) == accepted + 1  # else the run ended among the accepted drafts
        return Round(
            tokens,
            run.finish_reason,
            drafted=tuple(self.drafted if whole else self.drafted[: len(tokens)]),
            accepted=min(accepted, len(tokens)),
            next_token=tokens[-1] if whole else None,
            draft_seconds=self.draft_seconds,
            target_seconds=target_seconds,
        )


class TargetRows:
    """p, row by row as it is asked for: rows behind a rejection are never computed.

    `reached`: the last row asked for, which is the number of drafts accepted so far.
    """

    def __init__(self, logits, size, distribution):
        self.logits, self.size, self.distribution = logits, size, distribution
        self.reached = 0

    def __getitem__(self, i):
        self.reached = i
        return widen(self.distribution(self.logits[i], i), self.size)


def widen(row, size):
    """row [V] with probability 0 for ids up to size: a padded vocabulary's missing ids."""
    if len(row) == size:
        return row
    wide = np.zeros(size)
    wide[: len(row)] = row
    return wide
