"""Contrastive decoding, several tokens a pass of the expert: the amateur is also the draft.

The contrastive distribution of expert and amateur takes the place of p in `verify` (Yuan et al.
2023). The amateur has computed its rows while it drafted, so a round costs one pass of the expert
and, after full acceptance, one more step of the amateur. Exact as all speculation is: the law is
that of `contrastive` with the same warp, and its greedy text the same.
"""

from ..decoding.contrastive import Contrast, both
from ..decoding.warp import Warp
from .drafts import ModelDraft
from .loop import speculative


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


def speculative_contrastive(
    expert, amateur, prompt, *, alpha=0.1, beta=None, amateur_temperature=1.0, warp=None, **options
):
    """Yield a `Round` for each pass of the expert.

    alpha, beta, amateur_temperature, warp: as in `contrastive` (the best score unless `warp` is
    given); the amateur drafts with the same warp. options: chance, num_draft_tokens, schedule,
    clock and the limits, as in `speculative`.
    """
    contrast = Contrast(alpha, beta, amateur_temperature)
    warp = warp or Warp(temperature=0)
    draft = AmateurDraft(amateur)

    def distribution(logits, history):
        return contrast.probs(logits, draft.logits(history), warp, history)

    return speculative(
        both(expert, amateur), draft, prompt, warp=warp, distribution=distribution, **options
    )
