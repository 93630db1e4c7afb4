"""Speculative decoders that look right and are not: what the proof in exact.py is for.

Each is the real loop with one mistake that has been made in public. Run on the tables below, every
one has an output law other than the target's; `report` says by how much. LOSSY holds rules whose
authors say so.
"""

import numpy as np

from ..decoding.chance import inverse_cdf
from ..decoding.warp import Warp
from ..models.table import TableCache, TableModel
from ..speculation.drafts import ModelDraft
from ..speculation.loop import speculative
from ..speculation.verify import residual, verify, verify_block
from . import exact

ROWS = np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.3, 0.6, 0.1], [0.2, 0.2, 0.6]])


def target_row(history):
    """p of a target whose distribution depends on all that came before, and on the order."""
    return ROWS[sum((i + 1) * token for i, token in enumerate(history)) % len(ROWS)]


TARGET = TableModel(target_row)
DRAFT = TableModel([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.6, 0.3]])
# Ratios p/q of 0 and 2 and probabilities in quarters, for decoders whose uniforms are coarse.
QUARTERS_TARGET = TableModel([[0.5, 0.5, 0.0, 0.0]] * 4)
QUARTERS_DRAFT = TableModel([[0.25, 0.25, 0.5, 0.0]] * 4)
# The first draft has the ratio 0.6, and behind it 0.6 p - q and p - q differ in where they are 0.
BLOCK_TARGET = TableModel([[0.0, 0.4, 0.6]] * 3)
BLOCK_DRAFT = TableModel([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.64, 0.0, 0.36]])


def _speculative(**fixed):
    """The real loop with some of its arguments fixed, as a decoder for `exact.check`."""

    def decoder(target, prompt, **options):
        draft = fixed["draft"]() if "draft" in fixed else DRAFT
        return speculative(target, prompt=prompt, **{**options, **fixed, "draft": draft})

    return decoder


def _verify(accept, residual, bonus=lambda p, q: p[len(q)]):
    """A verification from its three formulas; the right ones are min(1, p/q), p - q and p."""

    def verify(p, q, drafted, chance, position=0):
        p = np.array([p[i] for i in range(len(drafted) + 1)], np.float64)
        q = np.array(q, np.float64)
        for i, x in enumerate(drafted):
            if not chance.accept(min(1.0, accept(p, q, i, x))):
                left = np.maximum(residual(p, q, i), 0)
                return i, chance.choose(left if left.any() else p[i], position + i)
        left = np.maximum(bonus(p, q), 0)
        return len(drafted), chance.choose(left if left.any() else p[-1], position + len(drafted))

    return verify


def ratio(p, q, i, x):
    return p[i][x] / q[i][x]


def rest(p, q, i):
    return p[i] - q[i]


def softmax_of_rest(p, q, i):
    return np.exp(np.maximum(p[i] - q[i], 0))


def is_typical(p, q, i, x, threshold=0.3, factor=0.55):
    """1 where p(x) exceeds min(threshold, factor * exp(-entropy of p)), else 0; q has no say.

    Medusa's typical acceptance (Cai et al. 2024, section 2.3.2), after typical sampling. The
    paper's own threshold is 0.09: on three tokens next to nothing would be below it.
    """
    likely = p[i][p[i] > 0]
    entropy = -(likely * np.log(likely)).sum()
    return float(p[i][x] > min(threshold, factor * np.exp(-entropy)))


def lenient_ratio(p, q, i, x, lenience=0.5):
    """p(x) / (l q(x)) with l < 1: Leviathan et al. 2023, appendix A.5.

    No token then comes more often than with p(x) / l, and more drafts are accepted.
    """
    return p[i][x] / (lenience * q[i][x])


def block_with_residual_of_token(p, q, drafted, chance, position=0):
    """`verify_block` with its own coins, and corrections from max(0, p - q)."""

    def coins_right_residual_wrong(p, q, scale):
        return residual(p, q)[0], residual(p, q, scale)[1]

    return verify_block(p, q, drafted, chance, position, coins_right_residual_wrong)


class SoftDraft(ModelDraft):
    """Draws after a warp of its own, but reports the soft q that it did not draw from."""

    def __init__(self, model, drawn_by):
        super().__init__(model)
        self.drawn_by = drawn_by

    def propose(self, history, k, warp, chance):
        drafted, _ = super().propose(history, k, self.drawn_by, chance)
        before = [list(history) + drafted[:i] for i in range(len(drafted))]
        return drafted, [self.model.row(tokens) for tokens in before]


class FickleDraft(ModelDraft):
    """Takes back a token that it drew with q below 0.4."""

    def propose(self, history, k, warp, chance):
        drafted, q = super().propose(history, k, warp, chance)
        unsure = [row[x] < 0.4 for row, x in zip(q, drafted)]
        end = unsure.index(True) if True in unsure else len(drafted)
        return drafted[:end], q[:end]


class StaleCache(TableCache):
    """Leaves one token too many behind at each rollback, yet counts as if it had not."""

    stale = 0

    @property
    def length(self):
        return len(self.tokens) - self.stale

    def truncate(self, length):
        keep = length + self.stale
        if keep < len(self.tokens):
            keep, self.stale = keep + 1, self.stale + 1
        del self.tokens[keep:]


class CoarseChance:
    """Wraps a chance so that uniforms are quarters: then u = 0 is no rarity.

    shared: `choose` reuses the uniform of its position, as draft and target would with one noise.
    """

    coupled = False

    def __init__(self, chance, *, or_equal=False, shared=False):
        self.chance, self.or_equal, self.shared = chance, or_equal, shared
        self.noise = {}

    def uniform(self):
        return self.chance.choose(np.full(4, 0.25), 0) / 4

    def choose(self, probs, position):
        if not self.shared:
            return self.chance.choose(probs, position)
        if position not in self.noise:
            self.noise[position] = self.uniform()
        return inverse_cdf(probs, self.noise[position])

    def accept(self, probability):
        u = self.uniform()
        return u <= probability if self.or_equal else u < probability


def _coarse(verify=verify, **coarse):
    def decoder(target, prompt, *, chance, **options):
        chance = CoarseChance(chance, **coarse)
        return speculative(target, QUARTERS_DRAFT, prompt, chance=chance, verify=verify, **options)

    return decoder


def _stale_cache(target, prompt, **options):
    stale = TableModel(target_row)
    stale.new_cache = StaleCache
    return speculative(stale, DRAFT, prompt, **options)


def _unfiltered_target(target, prompt, *, warp, **options):
    draft = ModelDraft(DRAFT)
    propose = draft.propose
    draft.propose = lambda history, k, _, chance: propose(history, k, warp, chance)
    return speculative(target, draft, prompt, **options)


WRONG = {  # the mistake: (decoder, target, warp)
    "accepts with the probability of rejection": (
        _speculative(verify=_verify(lambda p, q, i, x: 1 - min(1, ratio(p, q, i, x)), rest)),
        TARGET,
        None,
    ),
    "subtracts q from the bonus row": (
        _speculative(
            verify=_verify(ratio, rest, lambda p, q: p[len(q)] - (q[-1] if len(q) else 0))
        ),
        TARGET,
        None,
    ),
    "redraws from p after a rejection": (
        _speculative(verify=_verify(ratio, lambda p, q, i: p[i])),
        TARGET,
        None,
    ),
    "puts the residual through a softmax": (
        _speculative(verify=_verify(ratio, softmax_of_rest)),
        TARGET,
        None,
    ),
    "scores draft i with the row that contains it": (
        _speculative(
            verify=_verify(
                lambda p, q, i, x: p[i + 1][x] / q[i][x], lambda p, q, i: p[i + 1] - q[i]
            )
        ),
        TARGET,
        None,
    ),
    "tests argmax drafts against a soft q": (
        _speculative(draft=lambda: SoftDraft(DRAFT, Warp(temperature=0))),
        TARGET,
        None,
    ),
    "draws drafts after top-k, tests without": (
        _speculative(draft=lambda: SoftDraft(DRAFT, Warp(top_k=2))),
        TARGET,
        None,
    ),
    "filters the draft and not the target": (_unfiltered_target, TARGET, Warp(top_k=2)),
    "swaps p and q": (
        _speculative(
            verify=_verify(lambda p, q, i, x: q[i][x] / p[i][x], lambda p, q, i: q[i] - p[i])
        ),
        TARGET,
        None,
    ),
    "accepts where u <= p/q, with p = 0 and u = 0": (
        _coarse(verify=_verify(ratio, rest), or_equal=True),  # the right one asks for p > 0 first
        QUARTERS_TARGET,
        None,
    ),
    "accepts by one row, corrects by another": (
        _speculative(verify=_verify(ratio, lambda p, q, i: p[i + 1] - q[i])),
        TARGET,
        None,
    ),
    "takes back an unsure draft": (
        _speculative(draft=lambda: FickleDraft(DRAFT)),
        TARGET,
        None,
    ),
    "rolls the cache back one too few": (_stale_cache, TARGET, None),
    "shares the draft's noise under the ratio test": (_coarse(shared=True), QUARTERS_TARGET, None),
    "throws the coins of blocks, corrects as the ratio test": (
        _speculative(draft=lambda: ModelDraft(BLOCK_DRAFT), verify=block_with_residual_of_token),
        BLOCK_TARGET,
        None,
    ),
}


LOSSY = {  # rules that give up the target's distribution on purpose, for more accepted drafts
    "Medusa's typical acceptance": (
        _speculative(verify=_verify(is_typical, lambda p, q, i: p[i])),
        TARGET,
        None,
    ),
    "lenience 0.5: accepts with min(1, p / (0.5 q))": (
        _speculative(verify=_verify(lenient_ratio, rest)),
        TARGET,
        None,
    ),
}


def report(name, num_draft_tokens=2, max_new_tokens=3):
    """The `exact.Report` of one of the WRONG or LOSSY decoders."""
    decoder, target, warp = {**WRONG, **LOSSY}[name]
    return exact.check(
        lambda target, prompt, **options: decoder(
            target, prompt, num_draft_tokens=num_draft_tokens, **options
        ),
        target,
        warp=warp,
        max_new_tokens=max_new_tokens,
    )
