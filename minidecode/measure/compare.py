"""Decoders side by side: the same prompts, the same measures, and how far chance alone moves them.

A method is written as its name and options: `greedy`, `beam:4`, `beam:4,num_beam_groups=2` (diverse
beam search), `stochastic:4` (stochastic beam search, of which the first text counts),
`sample:temperature=0.7,top_p=0.9`, `search:0.6,top_k=4` (contrastive search),
`contrastive:alpha=0.1`, `speculative:k=4`, or the last two in one, `contrastive:alpha=0.1,k=4`.

It writes a text for every prompt, once a seed. Measures (metrics.py, of whitespace words) are
averaged over the prompts; reported is the mean of these over the seeds, with its standard error. A
method without chance runs once and has none.
"""

import dataclasses
import functools
import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import whole
from ..decoding.chance import Dice
from ..decoding.contrastive import Contrast
from ..decoding.warp import OPTIONS as WARP_OPTIONS
from ..errors import InputError
from ..generation import choose, generate
from ..speculation.rounds import acceptance
from . import metrics
from .metrics import token_logprobs
from .prompts import PROMPTS as PROMPTS
from .quality import TEXTS, split_documents

_WARP = {name: row.parse for name, row in WARP_OPTIONS.items()}
_PENALTIES = {name: _WARP[name] for name, row in WARP_OPTIONS.items() if not row.shapes}
_TEXTS = [name for name, row in WARP_OPTIONS.items() if row.kind.parse is str]  # need a tokenizer
_CONTRAST = {f.name: float for f in dataclasses.fields(Contrast)}
_BEAM = {
    "num_beams": int,
    "length_penalty": float,
    "early_stopping": {"true": True, "false": False, "never": "never"}.__getitem__,
    "num_beam_groups": int,
    "diversity_penalty": float,
}
_DRAFTS = {"k": int, "schedule": str, "verify": str}
OPTIONS = {  # what each method takes: option -> from text to its value
    "greedy": _PENALTIES,
    "beam": {**_BEAM, **_PENALTIES},
    "stochastic": {"num_beams": int, **_WARP},
    "sample": _WARP,
    "search": {"penalty_alpha": float, **_PENALTIES, "top_k": _WARP["top_k"]},
    "contrastive": {**_CONTRAST, **_DRAFTS, **_WARP},
    "speculative": {**_DRAFTS, **_WARP},
}
# The option whose name may be left out where it comes first
SHORT = {"beam": "num_beams", "stochastic": "num_beams", "search": "penalty_alpha"}
MEASURES = {  # of the words of one text
    "entropy_1": functools.partial(metrics.ngram_entropy, n=1),
    "entropy_2": functools.partial(metrics.ngram_entropy, n=2),
    "entropy_3": functools.partial(metrics.ngram_entropy, n=3),
    "distinct_1": functools.partial(metrics.distinct, n=1),
    "distinct_2": functools.partial(metrics.distinct, n=2),
    "repeats": functools.partial(metrics.share_in_repeats, n=4),
}
HEADINGS = {  # of each column: as the head of a table, and in words
    "entropy_1": ("entropy-1", "entropy of words (bits)"),
    "entropy_2": ("entropy-2", "entropy of 2-grams (bits)"),
    "entropy_3": ("entropy-3", "entropy of 3-grams (bits)"),
    "distinct_1": ("distinct-1", "distinct words / words"),
    "distinct_2": ("distinct-2", "distinct 2-grams / all"),
    "repeats": ("repeats", "share in repeated 4-grams"),
    "perplexity": ("perplexity", "perplexity"),
    "tokens": ("tokens", "tokens a text"),
    "tokens_per_second": ("tokens/s", "tokens/s"),
    "acceptance_rate": ("accepted", "drafts accepted"),
}
COLUMNS = tuple(HEADINGS)
OPENING = 6  # tokens of a human text that are given, as many as a short prompt has


@dataclass(frozen=True)
class Method:
    """A decoder: `settings` are those of its `Warp`, `options` what it is given besides."""

    label: str
    kind: str
    settings: dict
    options: dict

    @property
    def draws(self) -> bool:
        """Whether chance has a part in its texts."""
        somebody: Any = object()  # whichever the models are
        options = arguments(self, draft=somebody, amateur=somebody)
        return choose(somebody, {n: v for n, v in options.items() if n not in _TEXTS}).draws


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
    short = SHORT.get(kind)
    if short and "=" not in rest.partition(",")[0]:
        rest = f"{short}={rest}"
    found = {}
    for part in rest.split(",") if colon or short else ():
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
    found = {"num_draft_tokens" if n == "k" else n: value for n, value in method.options.items()}
    found |= method.settings
    if method.kind == "greedy":
        found["temperature"] = 0
    if method.kind == "stochastic":
        found["stochastic"] = True
    if method.kind == "contrastive":
        found["amateur"] = _need(method, "an amateur", amateur)
        if method.options.keys() & _DRAFTS.keys():
            found["draft"] = amateur  # speculative contrastive decoding
    if method.kind == "speculative":
        found["draft"] = _need(method, "a draft", draft)
    if method.kind not in ("beam", "search"):
        found["chance"] = chance
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
    executor=None,
    **limits,
):
    """[(method, {column: Estimate})] for every method, in order; columns as in COLUMNS.

    methods: strings or `Method`s. prompts: texts. seeds: how many. on_text() is called after every
    text. executor: a `concurrent.futures.Executor`, which takes one method and seed at a time; runs
    at the same time slow one another, which `tokens_per_second` shows. limits: max_new_tokens, eos.
    All settings are checked before the first text is written.
    """
    methods = [parse_method(m) if isinstance(m, str) else m for m in methods]
    if not prompts:
        raise InputError("prompts: got none, at least one was wanted")
    seeds = whole("seeds", seeds, 1)
    writer = Writer(target, tokenizer, draft, amateur, tuple(prompts), limits)
    for method in methods:  # where no token is wanted, everything is checked and nothing is run
        dataclasses.replace(writer, limits={**limits, "max_new_tokens": 0}).texts(method)
    runs = [(i, seed) for i, m in enumerate(methods) for seed in range(seeds if m.draws else 1)]
    written = _written(writer, [(methods[i], seed) for i, seed in runs], on_text, executor)
    summaries = [[] for _ in methods]
    for (i, _), texts in zip(runs, written, strict=True):
        summaries[i].append(summary(texts))
    return [
        (method, {name: Estimate.of([run[name] for run in found]) for name in COLUMNS})
        for method, found in zip(methods, summaries)
    ]


@dataclass(frozen=True)
class Writer:
    """Writes the texts of one method and seed: an object, so that it can go to another process."""

    target: object
    tokenizer: object
    draft: object
    amateur: object
    prompts: tuple
    limits: dict

    def texts(self, method, seed=None, on_text=None):
        """[(Result, its log-probabilities under the target)] of the prompts, with one chance."""
        chance = None if seed is None else Dice(seed)
        options = arguments(method, draft=self.draft, amateur=self.amateur, chance=chance)
        texts = []
        for prompt in self.prompts:
            texts.append(self._text(prompt, options))
            if on_text is not None:
                on_text()
        return texts

    def _text(self, prompt, options):
        tokenizer = self.tokenizer
        result = generate(self.target, prompt, tokenizer=tokenizer, **options, **self.limits)
        return result, token_logprobs(self.target, tokenizer.encode(prompt), result.tokens)


def _written(writer, runs, on_text, executor):
    """The texts of each (method, seed), in order."""
    if executor is None:
        yield from (writer.texts(method, seed, on_text) for method, seed in runs)
        return
    for future in [executor.submit(writer.texts, method, seed) for method, seed in runs]:
        texts = future.result()
        if on_text is not None:
            for _ in texts:
                on_text()
        yield texts


def n_texts(methods, prompts, seeds):
    """How many texts `compare` writes."""
    return sum(seeds if method.draws else 1 for method in methods) * len(prompts)


def summary(texts):
    """The COLUMNS of one run over all prompts: [(Result, log-probabilities)] -> {column: value}.

    Measures are means over the texts that are long enough for them; the others are of all texts
    together: perplexity by token, speed by second, acceptance by drafted token.
    """
    results = [result for result, _ in texts]
    n_tokens = sum(len(result.tokens) for result in results)
    seconds = sum(result.stats["seconds"] for result in results)
    counts = [(r.stats.get("drafted", 0), r.stats.get("accepted", 0)) for r in results]
    found = _likeness([result.text for result in results], [found for _, found in texts])
    found["tokens_per_second"] = n_tokens / seconds if n_tokens else None
    _, _, found["acceptance_rate"] = acceptance(counts)
    return found


def human(target, tokenizer, *, texts=8, max_new_tokens=100):
    """{column: Estimate} of text that people wrote, measured as that of a decoder.

    Of each of the first held-out stories of measure/texts, as many as `texts`, the first OPENING
    tokens are the prompt and up to max_new_tokens after them the text. Nobody decoded it, so it has
    no speed, and it is one, so it has no error. Errors: `InputError` where the tokenizer cannot
    spell the stories.
    """
    opening = min(OPENING, target.n_positions - 1)
    most = min(max_new_tokens, target.n_positions - opening)
    continuations, logprobs = [], []
    for document in split_documents(TEXTS["stories"].read_text(encoding="utf-8"))[:texts]:
        ids = tokenizer.encode(document)
        prompt, rest = ids[:opening], ids[opening : opening + most]
        continuations.append(tokenizer.decode(rest))
        logprobs.append(token_logprobs(target, prompt, rest))
    found = dict.fromkeys(COLUMNS) | _likeness(continuations, logprobs)
    return {name: Estimate(value, None) for name, value in found.items()}


def _likeness(texts, logprobs):
    """What texts are like: all of COLUMNS that does not depend on who wrote them, and how."""
    found = {}
    for name, measure in MEASURES.items():
        values = [measure(metrics.words(text)) for text in texts]
        found[name] = Estimate.of(values).mean
    together = np.concatenate(logprobs)
    with np.errstate(over="ignore"):
        found["perplexity"] = float(np.exp(-together.mean())) if len(together) else None
    found["tokens"] = len(together) / len(texts)
    return found
