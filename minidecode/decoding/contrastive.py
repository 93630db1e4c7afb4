"""Contrastive decoding: write what a strong model finds likely and a weak one does not.

Both models read the same text. Plausible are the tokens whose expert probability is at least alpha
times the largest; among these the score is, in nats,

    log p_expert - log p_amateur                          Li et al. 2022, equations 2 and 3
    (1 + beta) log p_expert - beta log p_amateur          O'Brien and Lewis 2023, when beta is given

Greedy takes the best score. Sampling takes the scores for logits: their softmax over the plausible
set, after any `Warp`. Both are exact but for one floor: an amateur probability below `FLOOR` counts
as that, because log 0 would make the score infinite.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from ..checks import check_model, check_same_vocabulary, real
from .chance import as_chance, chances_for
from .context import Context
from .contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from .logprobs import noted
from .narrow import reader_of
from .run import FROM_MODEL, Run
from .sampling import draw_many, draw_tokens
from .settings import CUT, FILTER
from .step import Step
from .warp import Blocked, Warp, _at, log_softmax

FLOOR = -149 * math.log(2)  # -103.3 nats: the smallest float32 above 0; also for ids it lacks


@dataclass(frozen=True)
class Contrast:
    """The settings; `contrast(expert_logits, amateur_logits) -> scores`.

    alpha                above 0, to 1: how plausible a token must be; 1 leaves only the likeliest
    beta                 None for the form of Li et al., else the strength (0: the expert alone)
    amateur_temperature  divides the amateur's logits; above 1 softens what it has against a token

    A setting out of range is an `InputError`.
    """

    alpha: float = 0.1
    beta: float | None = None
    amateur_temperature: float = 1.0

    def __post_init__(self):
        real("alpha", self.alpha, "a number above 0 and at most 1", lambda x: 0 < x <= 1)
        if self.beta is not None:
            wanted = "a finite number of at least 0, or None"
            real("beta", self.beta, wanted, lambda x: 0 <= x < math.inf)
        wanted = "a finite number above 0"
        real("amateur_temperature", self.amateur_temperature, wanted, lambda x: 0 < x < math.inf)

    def __call__(self, expert_logits, amateur_logits, step=None):
        """Logits [V] and [V'] -> scores [V] in float64, -inf for tokens that are not plausible.

        Ids that only one model has: the amateur's are left out of the scores though not out of its
        probabilities, the expert's have amateur probability 0 (narrow.py says what the amateur
        makes of a text that holds one). Errors: `LogitsError`, with `step`.
        """
        expert = log_softmax(expert_logits, step)
        amateur = log_softmax(amateur_logits, step, self.amateur_temperature)
        bound = math.log(self.alpha) + expert.max() - 1e-12  # rounding must not drop an equal
        plausible = np.flatnonzero(expert >= bound)
        known = plausible[plausible < len(amateur)]  # a prefix: ids ascend
        ratio = expert[plausible] - FLOOR
        ratio[: len(known)] = expert[known] - np.maximum(amateur[known], FLOOR)
        scores = np.full(len(expert), -np.inf)
        scores[plausible] = ratio if self.beta is None else expert[plausible] + self.beta * ratio
        return scores

    def probs(self, expert_logits, amateur_logits, warp, history):
        """The distribution [V] that is sampled after the ids `history`, in float64.

        Ties, for temperature 0 as for top-k and top-p, fall to the expert's order and then to the
        lower id: so between equal models the expert decides. Errors: `LogitsError`; `Blocked`.
        """
        scores = self(expert_logits, amateur_logits, step=len(history))
        scores = warp.penalise(scores, history)
        plausible = np.flatnonzero(scores > -np.inf)
        # A filter gives ties to the lower index, so it gets the tokens in the expert's order.
        order = plausible[np.argsort(-np.asarray(expert_logits)[plausible], kind="stable")]
        if not len(order):
            raise Blocked(f"{_at(len(history))}every plausible token is banned")
        filters = warp.only(CUT, FILTER)
        probs = np.zeros(len(scores))
        probs[order] = filters(scores[order], history)
        return probs


def contrastive(
    expert: Model,
    amateur: Model,
    prompt: Prompt,
    *,
    alpha: float = 0.1,
    beta: float | None = None,
    amateur_temperature: float = 1.0,
    warp: Warp | None = None,
    chance: Chance | None = None,
    logprobs: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
    context: Context | None = None,
) -> Iterator[Step]:
    """Yield one `Step` per token: the best score unless `warp` is given, which samples.

    alpha, beta, amateur_temperature: as in `Contrast`. prompt, chance and the limits: as in
    `sample`. The context is the shorter of the two models'. Same ids must mean the same tokens to
    both. Errors: as from `sample`.
    """
    text = text_maker(
        expert,
        amateur,
        Contrast(alpha, beta, amateur_temperature),
        warp,
        logprobs,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
        context=context,
    )
    run, distribution, chance = text(prompt, chance)
    return draw_tokens(run, [expert, reader_of(amateur, expert)], distribution, chance)


def contrastive_many(
    expert: Model,
    amateur: Model,
    prompts: Sequence[Prompt],
    *,
    chances: Sequence[Chance | None] | None = None,
    alpha: float = 0.1,
    beta: float | None = None,
    amateur_temperature: float = 1.0,
    warp: Warp | None = None,
    logprobs: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int = 0,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    tokenizer: Tokenizer | None = None,
) -> Iterator[tuple[int, Step]]:
    """`contrastive` for several prompts at once: yields (index of the prompt, its `Step`).

    One pass of each model serves all that still run. chances: one for each prompt. Each text is
    that of the prompt alone with the same chance.
    """
    text = text_maker(
        expert,
        amateur,
        Contrast(alpha, beta, amateur_temperature),
        warp,
        logprobs,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        eos=eos,
        stop=stop,
        tokenizer=tokenizer,
    )
    chances = chances_for(prompts, chances)
    texts = [text(prompt, chance) for prompt, chance in zip(prompts, chances, strict=True)]
    return draw_many(texts, [expert, reader_of(amateur, expert)])


def text_maker(expert, amateur, contrast, warp, logprobs, **limits):
    """A function (prompt, chance) -> (run, distribution, chance) of one contrastive text."""
    reader = both(expert, amateur)

    def text(prompt, chance):
        run = Run(reader, prompt, **limits)
        settings = run.warped(warp, Warp(temperature=0))

        def distribution(expert_logits, amateur_logits, history):
            return contrast.probs(expert_logits, amateur_logits, settings, history)

        return run, noted(distribution, logprobs), as_chance(chance)

    return text


def both(expert, amateur):
    """The expert as a model that can go no further than both: with the shorter context.

    Errors: `InputError` where the models' tokenizers are known, and an id means two tokens.
    """
    check_model(expert)
    check_model(amateur, "amateur")
    check_same_vocabulary(expert, amateur, "amateur")
    return SimpleNamespace(
        expert=expert,
        forward=expert.forward,
        forward_many=expert.forward_many,
        new_cache=expert.new_cache,
        tokenizer=getattr(expert, "tokenizer", None),
        vocab_size=expert.vocab_size,
        n_positions=min(expert.n_positions, amateur.n_positions),
        eos=expert.eos,
        bos=expert.bos,
    )
