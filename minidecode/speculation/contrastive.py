"""Contrastive decoding, several tokens a pass of the expert: the amateur is also the draft.

The contrastive distribution of expert and amateur takes the place of p in `verify` (Yuan et al.
2023). The amateur has computed its rows while it drafted, so a round costs one pass of the expert
and one step of the amateur for the row behind the last draft. Exact as all speculation is: the law
is that of `contrastive` with the same warp, and its greedy text the same.
"""

import time
from collections.abc import Callable, Iterator

from ..decoding.context import Context
from ..decoding.contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from ..decoding.contrastive import Contrast, both
from ..decoding.narrow import reader_of
from ..decoding.run import FROM_MODEL, Run
from ..decoding.warp import Warp
from .drafts import ModelDraft
from .loop import Rule, speculative
from .rounds import Round
from .schedules import Schedule


class AmateurDraft(ModelDraft):
    """A draft that keeps the logits it drafted from, for the target to be contrasted with."""

    def __init__(self, model):
        super().__init__(model)
        self.rows = {}  # number of tokens before -> logits [V]

    def next_logits(self, tokens):
        logits = super().next_logits(tokens)
        self.rows[len(tokens)] = logits
        return logits

    def logits(self, history):
        """The amateur's logits after `history`; computed only where it has not drafted."""
        if len(history) not in self.rows:
            self.next_logits(history)
        return self.rows[len(history)]

    def rollback(self, length):
        super().rollback(length)
        self.rows.clear()

    def _skip_unknown(self, history):
        """Skip nothing: the contrast is with the amateur's logits after the whole text."""


def speculative_contrastive(
    expert: Model,
    amateur: Model,
    prompt: Prompt,
    *,
    alpha: float = 0.1,
    beta: float | None = None,
    amateur_temperature: float = 1.0,
    warp: Warp | None = None,
    chance: Chance | None = None,
    num_draft_tokens: int = 4,
    schedule: str | Schedule = "constant",
    verify: str | Rule | None = None,
    clock: Callable[[], float] = time.perf_counter,
    logprobs: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
    context: Context | None = None,
) -> Iterator[Round]:
    """Yield one `Round` for each pass of the expert.

    alpha, beta, amateur_temperature, warp: as in `contrastive` (the best score unless `warp` is
    given); the amateur drafts with the same warp. The other arguments and the errors are those of
    `speculative`.
    """
    contrast = Contrast(alpha, beta, amateur_temperature)
    target = both(expert, amateur)
    run = Run(
        target,
        prompt,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        tokenizer=tokenizer,
    )
    warp = run.warped(warp, Warp(temperature=0))
    draft = AmateurDraft(reader_of(amateur, expert))

    def distribution(logits, history):
        return contrast.probs(logits, draft.logits(history), warp, history)

    return speculative(
        target,
        draft,
        prompt,
        warp=warp,
        chance=chance,
        num_draft_tokens=num_draft_tokens,
        schedule=schedule,
        verify=verify,
        distribution=distribution,
        clock=clock,
        logprobs=logprobs,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
        context=context,
    )
