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
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..checks import check_same_vocabulary, is_whole, shown
from ..decoding.chance import as_chance, is_coupled
from ..decoding.context import Context
from ..decoding.contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from ..decoding.logprobs import noted, records_of
from ..decoding.run import FROM_MODEL, Run
from ..decoding.warp import Blocked, Warp
from ..errors import InputError, LogitsError
from .drafts import Draft, ModelDraft, as_draft, draft_together
from .rounds import Round
from .schedules import Schedule, make_schedule
from .verify import verify, verify_block, verify_coupled

Rule = Callable  # (p, q, drafted, chance, position) -> (accepted, next_token), as `verify`


def verify_block_fast(p, q, drafted, chance, position=0):
    """`verify_block` with the residual of the kernels in use."""
    return verify_block(p, q, drafted, chance, position, kernels.residual)


RULES = {"token": verify, "block": verify_block_fast}
DEFAULT_RULE = "block"  # as exact as the ratio test, and never fewer tokens a pass


def speculative(
    target: Model,
    draft: Model | Draft,
    prompt: Prompt,
    *,
    warp: Warp | None = None,
    chance: Chance | None = None,
    num_draft_tokens: int = 4,
    schedule: str | Schedule = "constant",
    verify: str | Rule | None = None,
    distribution: Callable | None = None,
    clock: Callable[[], float] = time.perf_counter,
    logprobs: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
    context: Context | None = None,
) -> Iterator[Round]:
    """Yield one `Round` for each pass of the target.

    draft             a model, or an object as in drafts.py
    warp              settings of target and draft alike; plain sampling unless given
    chance            Dice, or GumbelDice for the text of plain sampling with that seed
    num_draft_tokens  k, or what the schedule begins with
    schedule          constant, heuristic or auto, or an object as in schedules.py
    verify            the rule: block (as by default), token (the ratio test), or a function of your
                      own with the arguments of `verify.verify`. GumbelDice has a rule of its own
    distribution      (logits [V], history) -> p [V], in place of the warped target
    clock             tells the seconds for statistics and `auto`
    logprobs          how many alternatives to tell in each round's `TokenLogprobs`
    and max_new_tokens, min_new_tokens, eos, stop, tokenizer as in `run.Run`.

    Errors, at the call: `InputError`, `ContextError`. While it runs: `LogitsError` at the step at
    which plain sampling would raise it; `InputError` for a draft or rule that breaks its contract.
    """
    limits = Limits(max_new_tokens, min_new_tokens, eos, stop, tokenizer, context)
    settings = Settings(
        warp, num_draft_tokens, schedule, verify, distribution, clock, logprobs, limits
    )
    return _rounds(target, Speculation(target, draft, prompt, chance, settings))


def _rounds(target, one):
    while not one.run.finish_reason:
        proposal = one.propose()
        started = one.clock()
        logits = target.forward(proposal.tokens, one.cache, n_logits=proposal.n_logits)
        yield one.settle(proposal, logits, one.clock() - started)


def speculative_many(
    target: Model,
    drafts: Model | Sequence[Model | Draft],
    prompts: Sequence[Prompt],
    *,
    chances: Sequence[Chance | None] | None = None,
    warp: Warp | None = None,
    num_draft_tokens: int = 4,
    schedule: str | Schedule = "constant",
    verify: str | Rule | None = None,
    distribution: Callable | None = None,
    clock: Callable[[], float] = time.perf_counter,
    logprobs: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
) -> Iterator[tuple[int, Round]]:
    """`speculative` for several prompts at once: yields (index of the prompt, its `Round`).

    One pass of the target serves all that still run, and each pass of a draft all that it drafts
    for. drafts: a model for all, or one draft for each prompt; chances: one for each prompt. Each
    sequence has its own cache, draft, length and end, and its text is that of the prompt alone with
    the same draft and chance. The other arguments and the errors are those of `speculative`.
    """
    each = _one_each(prompts, drafts, chances)
    if hasattr(schedule, "next"):
        _check_own("schedule", [schedule for _ in each])
    limits = Limits(max_new_tokens, min_new_tokens, eos, stop, tokenizer)
    settings = Settings(
        warp, num_draft_tokens, schedule, verify, distribution, clock, logprobs, limits
    )
    running = {
        i: Speculation(target, draft, prompt, chance, settings)
        for i, (prompt, draft, chance) in enumerate(each)
    }
    return _rounds_of_many(target, running, clock)


def _rounds_of_many(target, running, clock):
    while running := {i: one for i, one in running.items() if not one.run.finish_reason}:
        proposals = _propose_all(running, clock)
        started = clock()
        rows = target.forward_many(
            [(proposals[i].tokens, one.cache) for i, one in running.items()],
            n_logits=[proposal.n_logits for proposal in proposals.values()],
        )
        seconds = clock() - started
        for (i, one), logits in zip(running.items(), rows, strict=True):
            yield i, one.settle(proposals[i], logits, seconds)


def _propose_all(running, clock):
    """The proposals of all sequences; drafts of one model are drafted together."""
    wishes = {i: one.wish() for i, one in running.items()}
    proposals, groups = {}, {}
    for i, one in running.items():
        alone = wishes[i].n == 0 or type(one.draft) is not ModelDraft
        groups.setdefault(i if alone else ("model", id(one.draft.model)), []).append(i)
    for members in groups.values():
        found, seconds = _draft_all([(running[i], wishes[i]) for i in members], clock)
        for i, (drafted, q) in zip(members, found, strict=True):
            proposals[i] = running[i].proposal(wishes[i], drafted, q, seconds)
    return {i: proposals[i] for i in running}


def _draft_all(group, clock):
    """([(drafted, q)], seconds): one sequence, or several whose drafts are of one model."""
    if group[0][1].n == 0:
        return [([], [])], 0.0
    started = clock()
    if len(group) == 1:
        [(one, wish)] = group
        found = [one.draft.propose(*one.order(wish))]
    else:
        found = draft_together([(one.draft, *one.order(wish)) for one, wish in group])
    return found, clock() - started


def _one_each(prompts, drafts, chances):
    """[(prompt, draft, chance)] of the sequences."""
    if isinstance(prompts, str):
        raise InputError(f"prompts: got {prompts!r:.50}, a list of prompts was wanted")
    prompts = list(prompts)
    drafts = list(drafts) if isinstance(drafts, list | tuple) else [drafts] * len(prompts)
    chances = list(chances) if chances is not None else [None] * len(prompts)
    if not len(drafts) == len(chances) == len(prompts):
        raise InputError(
            f"prompts: got {len(prompts)}, with {len(drafts)} drafts and {len(chances)} chances"
        )
    own = [d for d in drafts if not (hasattr(d, "forward") or getattr(d, "stateless", False))]
    _check_own("drafts", own)
    _check_own("chances", [c for c in chances if c is not None and not is_coupled(c)])
    return list(zip(prompts, drafts, chances))


def _check_own(name, objects):
    """Objects with a state of their own must not serve two sequences."""
    if len({id(each) for each in objects}) < len(objects):
        raise InputError(f"{name}: one object stands for two prompts, one each was wanted")


class Limits(NamedTuple):
    """What ends a text, as in `run.Run`."""

    max_new_tokens: int | None
    min_new_tokens: int
    eos: EndIds
    stop: StopStrings
    tokenizer: Tokenizer | None
    context: Context | None = None


class Settings(NamedTuple):
    """What all sequences of one call share; the fields are arguments of `speculative`."""

    warp: Warp | None
    num_draft_tokens: int
    schedule: str | Schedule
    verify: str | Rule | None
    distribution: Callable | None
    clock: Callable[[], float]
    logprobs: int | None
    limits: Limits


class Wish(NamedTuple):
    """What one sequence wants drafted.

    k             how many the schedule asked for
    n             how many there is room for
    limited       there was no room for k
    reads_prompt  it is the first round
    """

    k: int
    n: int
    limited: bool
    reads_prompt: bool


class Proposal(NamedTuple):
    """What one sequence has drafted, for the target to score.

    k              how many the schedule asked for
    n_proposed     how many the draft gave
    drafted        those of them that are verified
    q              the distribution [V] that each of these was drawn from
    tokens         what the target is fed: what it has not read yet, then drafts
    n_logits       how many rows of logits it must return
    limited        there was no room for k drafts
    reads_prompt   it is the first round
    draft_seconds  spent drafting
    """

    k: int
    n_proposed: int
    drafted: list[int]
    q: list[np.ndarray]
    tokens: list[int]
    n_logits: int
    limited: bool
    reads_prompt: bool
    draft_seconds: float


class Speculation:
    """One sequence: `propose` says what the target has to score, `settle` what came of it.

    After a round the target's cache holds the committed tokens but the newest.
    """

    def __init__(self, target, draft, prompt, chance, settings):
        limits = settings.limits
        self.run = Run(
            target,
            prompt,
            max_new_tokens=limits.max_new_tokens,
            min_new_tokens=limits.min_new_tokens,
            eos=limits.eos,
            stop=limits.stop,
            tokenizer=limits.tokenizer,
            context=limits.context,
        )
        self.draft = draft = as_draft(draft)
        check_same_vocabulary(target, getattr(draft, "model", draft), "draft")
        self.vocab_size = target.vocab_size
        self.warp = self.run.warped(settings.warp)
        self.chance = as_chance(chance)
        self.distribution = noted(settings.distribution or self.warp, settings.logprobs)
        self.rule = choose_rule(settings.verify, self.chance)
        self.schedule = make_schedule(settings.schedule, settings.num_draft_tokens)
        self.clock = settings.clock
        self.cache = self.run.new_cache(target)
        self.begun = False

    def propose(self) -> Proposal:
        """Draft what the schedule asks for, as far as there is room."""
        wish = self.wish()
        started = self.clock()
        drafted, q = self.draft.propose(*self.order(wish)) if wish.n else ([], [])
        return self.proposal(wish, drafted, q, self.clock() - started if wish.n else 0.0)

    def wish(self) -> "Wish":
        """How many tokens to draft in this round."""
        reads_prompt, self.begun = not self.begun, True
        if reads_prompt:
            self._begin()
        k = self.schedule.next()
        room = self.run.remaining - 1  # one token always comes from the target
        return Wish(k, min(k, room), k > room, reads_prompt)

    def _begin(self):
        """Nothing of an earlier run, but for what a context keeps of it."""
        self.draft.rollback(0)
        kept = self.run.context is not None and isinstance(self.draft, ModelDraft)
        if kept and self.draft.model.vocab_size >= self.vocab_size:  # else it does not read all
            self.draft.cache = self.run.new_cache(self.draft.model, 1)

    def order(self, wish):
        """The arguments that the draft is called with."""
        # A copy of the history: whoever appends to what it is given must not write the text.
        return list(self.run.history), wish.n, self.warp, self.chance

    def proposal(self, wish, drafted, q, seconds) -> Proposal:
        """What the target has to score of what was drafted."""
        drafted, q = check_draft(drafted, q, wish.n)
        n_drafted, n_fed = self._worth_scoring(drafted)
        return Proposal(
            k=wish.k,
            n_proposed=len(drafted),
            drafted=drafted[:n_drafted],
            q=q[:n_drafted],
            tokens=self.run.history[self.cache.length :] + drafted[:n_fed],
            n_logits=n_fed + 1,
            limited=wish.limited,
            reads_prompt=wish.reads_prompt,
            draft_seconds=seconds,
        )

    def _worth_scoring(self, drafted):
        """How many drafts to verify, and how many of these to feed to the target.

        No text goes on behind an end token: accepted it ends the run, rejected it takes with it all
        that was drafted behind it. The same holds for an id that the target lacks: it is certain to
        be rejected, so it need not even be fed.
        """
        for i, x in enumerate(drafted):
            if x >= self.vocab_size:
                return i + 1, i
            if x in self.run.eos:
                return i + 1, i + 1
        return len(drafted), len(drafted)

    def settle(self, proposal: Proposal, logits: np.ndarray, seconds: float) -> Round:
        """Verify the drafts against the target's logits [n_logits, V], commit, roll back.

        seconds: of the target's pass.
        """
        started = self.clock()
        p, q, error = self._rows(proposal, logits)
        drafted = proposal.drafted[: len(p) - 1]
        answer = self.rule(p, q, drafted, self.chance, len(self.run.history))
        accepted, token = check_answer(answer, p, self.vocab_size)
        start = len(self.run.history)
        tokens = self._commit(drafted[:accepted], token, error)
        self.cache.truncate(len(self.run.history) - 1)
        self.draft.rollback(len(self.run.history) - 1)
        self._teach(proposal, accepted, seconds + self.clock() - started)
        whole = len(tokens) == accepted + 1  # else the run ended among the accepted drafts
        return Round(
            tokens,
            self.run.finish_reason,
            records_of(self.distribution, start, tokens),
            drafted=tuple(proposal.drafted if whole else drafted[: len(tokens)]),
            accepted=min(accepted, len(tokens)),
            next_token=tokens[-1] if whole else None,
            draft_seconds=proposal.draft_seconds,
            target_seconds=seconds,
        )

    def _rows(self, proposal, logits):
        """p [k + 1, V] and q [k, V] in float64, and the error that ends p early, or None.

        Where every token is banned, or the logits are no distribution, p ends with a row of zeros.
        The error counts only if the text comes to that row, as it would in plain sampling.
        """
        history, drafted = list(self.run.history), proposal.drafted
        vocab_size = logits.shape[1]
        size = max([vocab_size, *map(len, proposal.q)])  # a padded vocabulary's missing ids
        p, q = np.zeros((len(drafted) + 1, size)), np.zeros((len(drafted), size))
        for i, row in enumerate(proposal.q):
            q[i, : len(row)] = row
        for i, row in enumerate(logits):
            try:
                p[i, :vocab_size] = self.distribution(row, history + drafted[:i])
            except (Blocked, LogitsError) as error:
                return p[: i + 1], q[:i], error
        return p, q, None

    def _teach(self, proposal, accepted, seconds):
        """Tell the schedule of the round, unless a limit cut it short."""
        if not proposal.limited:
            typical = not proposal.reads_prompt and proposal.n_logits == proposal.n_proposed + 1
            times = (proposal.draft_seconds, seconds) if typical else None
            self.schedule.observe(proposal.k, proposal.n_proposed, accepted, times)

    def _commit(self, accepted, token, error):
        """Append to the text the accepted drafts and the token that follows them, if any."""
        tokens = self.run.commit([*accepted, *([] if token is None else [token])])
        if token is None and not self.run.finish_reason:
            if isinstance(error, LogitsError):
                raise error
            self.run.block()
        return tokens


def choose_rule(verify, chance):
    """The rule of verification for this chance; `verify` is a name, one of the user's own, None."""
    if is_coupled(chance):
        if verify not in (None, verify_coupled):
            raise InputError(
                "verify: has no effect with a coupled chance such as GumbelDice, under which a "
                "draft is accepted where it equals the target's own draw"
            )
        return verify_coupled
    if verify is None:
        return RULES[DEFAULT_RULE]
    if isinstance(verify, str) and verify in RULES:
        return RULES[verify]
    if not callable(verify):
        names = ", ".join(RULES)
        raise InputError(f"verify: got {shown(verify)}, one of {names} or a rule was wanted")
    return verify


def check_draft(drafted, q, k):
    """(drafted, q) as lists of ids and of arrays [V].

    `InputError` where a draft gave more than it was asked for, or what it cannot have drawn.
    """
    drafted, q = list(drafted), [np.asarray(row) for row in q]
    if len(drafted) != len(q) or len(drafted) > k:
        raise InputError(
            f"draft: got {len(drafted)} tokens and {len(q)} rows, up to {k} were wanted"
        )
    for x, row in zip(drafted, q):
        if not is_whole(x):
            raise InputError(f"draft: got token {shown(x)}, a whole number was wanted")
        if row.ndim != 1 or row.dtype.kind not in "fiu":
            raise InputError(f"draft: got a q of shape {row.shape}, {row.dtype}; [V] was wanted")
        if not (0 <= x < len(row) and row[x] > 0):
            raise InputError(f"draft: got token {x}, which its q gives no probability")
    return [int(x) for x in drafted], q


def check_answer(answer, p, vocab_size):
    """What a rule answered, (accepted, next_token), checked against its contract."""
    accepted, token = answer
    if not 0 <= accepted < len(p):
        raise InputError(f"verify: got {accepted} accepted drafts of {len(p) - 1}")
    possible = np.count_nonzero(p[accepted])
    if token is None and possible:
        raise InputError(f"verify: got no next token after {accepted} drafts, where p has some")
    if token is not None and not (0 <= token < vocab_size and possible):
        raise InputError(f"verify: got next token {token}, which the target cannot say")
    return int(accepted), None if token is None else int(token)
