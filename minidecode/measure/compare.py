"""Decoders side by side: the same prompts, the same measures, and how far chance alone moves them.

A method is written as its name and options: `greedy`, `beam:4`, `sample:temperature=0.7,top_p=0.9`,
`contrastive:alpha=0.1`, `speculative:k=4`, or the last two in one, `contrastive:alpha=0.1,k=4`. It
writes a text for every prompt, once a seed. Measures (metrics.py, of whitespace words) are averaged
over the prompts; reported is the mean of these over the seeds, with its standard error. A method
without chance runs once and has none.
"""

import dataclasses
import functools
import math
import statistics
from dataclasses import dataclass

import numpy as np

from ..decoding.chance import Dice
from ..decoding.contrastive import Contrast
from ..decoding.warp import SETTINGS, Warp
from ..errors import InputError
from ..generation import generate
from ..speculation.rounds import acceptance
from . import metrics
from .metrics import token_logprobs

PROMPTS = (
    "Once upon a time there was a little girl who",
    "One day, a boy and his dog went to the park.",
    "Long ago, in a small house by the forest, lived an old woman.",
    "The king had three sons, and the youngest",
    "Tom was sad because he could not find his",
    "A bird sat in the tall tree and looked down at the garden.",
    "Mother said to the children,",
    "It was a cold winter night when the fox",
)

_WARP = {name: row.kind.parse for name, row in SETTINGS.items()}
_PENALTIES = {name: _WARP[name] for name, row in SETTINGS.items() if not row.shapes}
_CONTRAST = {f.name: float for f in dataclasses.fields(Contrast)}
_BEAM = {
    "num_beams": int,
    "length_penalty": float,
    "early_stopping": {"true": True, "false": False, "never": "never"}.__getitem__,
}
_DRAFTS = {"k": int, "schedule": str, "verify": str}
OPTIONS = {  # what each method takes: option -> from text to its value
    "greedy": _PENALTIES,
    "beam": {**_BEAM, **_PENALTIES},
    "sample": _WARP,
    "contrastive": {**_CONTRAST, **_DRAFTS, **_WARP},
    "speculative": {**_DRAFTS, **_WARP},
}
MEASURES = {  # of the words of one text
    "entropy_1": functools.partial(metrics.ngram_entropy, n=1),
    "entropy_2": functools.partial(metrics.ngram_entropy, n=2),
    "entropy_3": functools.partial(metrics.ngram_entropy, n=3),
    "distinct_1": functools.partial(metrics.distinct, n=1),
    "distinct_2": functools.partial(metrics.distinct, n=2),
    "repeats": functools.partial(metrics.share_in_repeats, n=4),
}
COLUMNS = (*MEASURES, "perplexity", "tokens", "tokens_per_second", "acceptance_rate")


@dataclass(frozen=True)
class Method:
    """A decoder: `settings` are those of its `Warp`, `options` what it is given besides."""

    label: str
    kind: str
    settings: dict
    options: dict

    @property
    def draws(self):
        """Whether chance has a part in its texts."""
        greedy_unless_warped = self.kind == "contrastive" and not self.settings
        always_greedy = self.kind in ("greedy", "beam") or self.settings.get("temperature") == 0
        return not (always_greedy or greedy_unless_warped)


@dataclass(frozen=True)
class Estimate:
    """A mean over the seeds; the standard error is None for fewer than two, both for none."""

    mean: float | None
    standard_error: float | None

    @classmethod
    def of(cls, values):
        values = [value for value in values if value is not None]
        if len(values) < 2:
            return cls(values[0] if values else None, None)
        return cls(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))


def parse_method(label):
    """The `Method` that a string like `sample:temperature=0.7,top_p=0.9` stands for.

    `beam:4` is short for `beam:num_beams=4`. Errors: `InputError` for an unknown name or option.
    """
    kind, colon, rest = label.partition(":")
    if kind not in OPTIONS:
        raise InputError(f"method {label!r}: got {kind!r}, one of {', '.join(OPTIONS)} was wanted")
    if kind == "beam" and "=" not in rest.partition(",")[0]:
        rest = f"num_beams={rest}"
    found = {}
    for part in rest.split(",") if colon or kind == "beam" else ():
        name, _, text = part.partition("=")
        if name not in OPTIONS[kind]:
            known = ", ".join(OPTIONS[kind])
            raise InputError(f"method {label!r}: got option {name!r}, one of {known} was wanted")
        try:
            found[name] = OPTIONS[kind][name](text)
        except (ValueError, KeyError):
            raise InputError(f"method {label!r}: got {text!r} for {name}") from None
    settings = {n: value for n, value in found.items() if n in _WARP and kind != "beam"}
    options = {name: value for name, value in found.items() if name not in settings}
    return Method(label, kind, settings, options)


def arguments(method, *, draft=None, amateur=None, chance=None):
    """The arguments of `generate` that make it decode by `method`."""
    found = dict(method.options)
    if "k" in found:
        found["num_draft_tokens"] = found.pop("k")
    if method.kind == "beam":
        return found
    if method.kind == "greedy":
        return {"warp": Warp(temperature=0, **method.settings)}
    if method.kind == "contrastive":
        found["amateur"] = _need(method, "an amateur", amateur)
        if method.options.keys() & _DRAFTS.keys():
            found["draft"] = amateur  # speculative contrastive decoding
    if method.kind == "speculative":
        found["draft"] = _need(method, "a draft", draft)
    if method.draws:
        found["chance"] = chance
    if method.settings or method.draws:
        found["warp"] = Warp(**method.settings)
    return found


def _need(method, what, model):
    if model is None:
        raise InputError(f"method {method.label!r}: needs {what}, none was given")
    return model


def compare(
    methods,
    prompts,
    *,
    target,
    tokenizer,
    draft=None,
    amateur=None,
    seeds=3,
    on_text=None,
    **limits,
):
    """[(method, {column: Estimate})] for every method, in order; columns as in COLUMNS.

    methods: strings or `Method`s. prompts: texts. seeds: how many. on_text() is called after every
    text. limits: max_new_tokens, eos. All settings are checked before the first text is written.
    """
    methods = [parse_method(m) if isinstance(m, str) else m for m in methods]
    if not prompts:
        raise InputError("prompts: got none, at least one was wanted")
    if seeds < 1:
        raise InputError(f"seeds: got {seeds!r}, at least 1 was wanted")

    def write(prompt, options, **limits):
        result = generate(target, prompt, tokenizer=tokenizer, **options, **limits)
        return result, token_logprobs(target, tokenizer.encode(prompt), result.tokens)

    models = {"draft": draft, "amateur": amateur}
    for method in methods:  # where no token is wanted, everything is checked and nothing is run
        for prompt in prompts:
            write(prompt, arguments(method, **models), **{**limits, "max_new_tokens": 0})
    compared = []
    for method in methods:
        runs = []
        for seed in range(seeds if method.draws else 1):
            options, texts = arguments(method, chance=Dice(seed), **models), []
            for prompt in prompts:
                texts.append(write(prompt, options, **limits))
                if on_text is not None:
                    on_text()
            runs.append(summary(texts))
        estimates = {name: Estimate.of([run[name] for run in runs]) for name in COLUMNS}
        compared.append((method, estimates))
    return compared


def n_texts(methods, prompts, seeds):
    """How many texts `compare` writes."""
    return sum(seeds if method.draws else 1 for method in methods) * len(prompts)


def summary(texts):
    """The COLUMNS of one run over all prompts: [(Result, log-probabilities)] -> {column: value}.

    Measures are means over the texts that are long enough for them; the others are of all texts
    together: perplexity by token, speed by second, acceptance by drafted token.
    """
    results = [result for result, _ in texts]
    logprobs = np.concatenate([found for _, found in texts])
    n_tokens = sum(len(result.tokens) for result in results)
    seconds = sum(result.stats["seconds"] for result in results)
    counts = [(r.stats.get("drafted", 0), r.stats.get("accepted", 0)) for r in results]
    found = {}
    for name, measure in MEASURES.items():
        values = [measure(metrics.words(result.text)) for result in results]
        found[name] = Estimate.of(values).mean
    with np.errstate(over="ignore"):
        found["perplexity"] = float(np.exp(-logprobs.mean())) if n_tokens else None
    found["tokens"] = n_tokens / len(results)
    found["tokens_per_second"] = n_tokens / seconds if n_tokens else None
    _, _, found["acceptance_rate"] = acceptance(counts)
    return found
