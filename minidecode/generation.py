"""One call for a whole text: picks the decoder, runs it to its end and gathers what it yielded."""

import dataclasses
import difflib
import functools
import html
import inspect
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .checks import shown, whole
from .decoding.beam import MOST_BEAMS, Hypothesis, beam_search
from .decoding.chance import Dice, GumbelDice, chances_for
from .decoding.context import Context
from .decoding.contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from .decoding.contrastive import Contrast, contrastive, contrastive_many
from .decoding.contrastive_search import contrastive_search
from .decoding.diverse_beam import diverse_beam_search
from .decoding.logprobs import TokenLogprobs
from .decoding.mirostat import Mirostat
from .decoding.run import FROM_MODEL
from .decoding.sampling import sample, sample_many
from .decoding.settings import encode_texts
from .decoding.step import Step
from .decoding.stochastic_beam import stochastic_beam_search
from .decoding.stream import TextStream
from .decoding.warp import SETTINGS, Warp, as_warp
from .errors import InputError
from .speculation.contrastive import speculative_contrastive
from .speculation.loop import speculative, speculative_many
from .speculation.rounds import Round, speculation_stats

NEEDS = {  # options that only have an effect beside another
    "draft": ("num_draft_tokens", "schedule", "verify", "clock"),
    "amateur": ("alpha", "beta", "amateur_temperature"),
    "penalty_alpha": (),
    "num_beam_groups": ("diversity_penalty",),
    "num_beams": (
        "length_penalty",
        "early_stopping",
        "num_beam_groups",
        "stochastic",
        "trace",
    ),
}


# Which decoder runs


@dataclass(frozen=True)
class Decoder:
    """A way of decoding: its title, what its models are called, and the function that runs it."""

    title: str
    roles: tuple[str, str | None]
    function: Callable


SAMPLING = Decoder("Ancestral sampling", ("model", None), sample)
GREEDY = Decoder("Greedy decoding", ("model", None), sample)
BEAMS = Decoder("Beam search", ("model", None), beam_search)
DIVERSE_BEAMS = Decoder("Diverse beam search", ("model", None), diverse_beam_search)
STOCHASTIC_BEAMS = Decoder("Stochastic beam search", ("model", None), stochastic_beam_search)
CONTRASTIVE_BEAMS = Decoder("Beam search", ("expert", "amateur"), beam_search)
CONTRASTIVE_SEARCH = Decoder("Contrastive search", ("model", None), contrastive_search)
SPECULATIVE = Decoder("Speculative decoding", ("target", "draft"), speculative)
CONTRASTIVE = Decoder("Contrastive decoding", ("expert", "amateur"), contrastive)
SPECULATIVE_CONTRASTIVE = Decoder(
    "Speculative contrastive decoding", ("expert", "amateur"), speculative_contrastive
)
# They return hypotheses, not steps.
BEAM_SEARCHES = (beam_search, diverse_beam_search, stochastic_beam_search)


@dataclass(frozen=True)
class Choice:
    """A decoder with all that it is called with but the prompt."""

    decoder: Decoder
    models: tuple
    options: dict[str, Any]

    @property
    def draws(self) -> bool:
        """Whether chance has a part in the text."""
        if self.decoder.function in (beam_search, diverse_beam_search, contrastive_search):
            return False
        return self.options["warp"].temperature != 0

    def start(self, prompt: Prompt) -> Any:
        """The steps of the decoder; of beam search, the hypotheses."""
        return self.decoder.function(*self.models, prompt, **self.options)


def choose(model: Model, options: dict[str, Any]) -> Choice:
    """The decoder that the options of `generate` choose. One that is None is not given.

    The settings of the warp may stand among them, or in `warp`.
    Errors: `InputError` for options that have no effect beside the others.
    """
    options = {n: value for n, value in options.items() if value is not None or n == "eos"}
    if "stochastic" in options and not _flag("stochastic", options["stochastic"]):
        del options["stochastic"]  # as if it were not given
    without = missing_need(options)
    if without is not None:
        raise InputError("{}: has no effect without {}".format(*without))
    draft, amateur = options.pop("draft", None), options.pop("amateur", None)
    others = {"draft": draft, "amateur": amateur}
    others |= {name: options.get(name) for name in ("num_beams", "penalty_alpha")}
    for name, value in others.items():  # its state could not be rolled back
        if "mirostat" in options and value is not None:
            raise InputError(f"mirostat: cannot be combined with {name}, it is for sampling alone")
    if "num_beams" in options:
        return _choose_beams(model, draft, amateur, options)
    if "penalty_alpha" in options:
        return _choose_search(model, draft, amateur, options)
    if "num_return_sequences" in options:  # of other decoders `generate` takes care
        raise InputError("num_return_sequences: has no effect without num_beams")
    _put_warp(options, contrastive=amateur is not None)
    if draft is None and amateur is None:
        greedy = options["warp"].temperature == 0
        return Choice(GREEDY if greedy else SAMPLING, (model,), options)
    if amateur is None:
        return Choice(SPECULATIVE, (model, draft), options)
    if draft is None:
        return Choice(CONTRASTIVE, (model, amateur), options)
    if draft is not amateur:
        raise InputError("draft: got another model than the amateur, which must be the draft here")
    return Choice(SPECULATIVE_CONTRASTIVE, (model, amateur), options)


def missing_need(options: dict[str, Any]) -> tuple[str, str] | None:
    """(an option that is given, the one beside which alone it has an effect), or None."""
    for name, dependants in NEEDS.items():
        for dependant in dependants:
            if options.get(name) is None and options.get(dependant) is not None:
                return dependant, name
    return None


def _put_warp(options, contrastive):
    """The settings of the warp that stand among the options become `warp`.

    With an amateur the best score is taken unless a setting shapes what is sampled.
    """
    settings = _settings(options)
    if "warp" not in options:
        best = contrastive and not any(SETTINGS[name].shapes for name in settings)
        options["warp"] = Warp(**({"temperature": 0} if best else {}), **settings)
    as_warp(options["warp"])  # refuses what is none


def _settings(options):
    """The settings of the warp that stand among the options, taken out and with ids for texts."""
    settings = {name: options.pop(name) for name in SETTINGS if name in options}
    if "warp" in options and settings:
        raise InputError(f"{next(iter(settings))}: got it beside a warp, one of them was wanted")
    return encode_texts(SETTINGS, settings, options.get("tokenizer"))


def _flag(name, value):
    if not isinstance(value, bool):
        raise InputError(f"{name}: got {shown(value)}, True or False was wanted")
    return value


def _refuse(given, names, decoder):
    for name in names:
        if given.get(name) is not None:
            raise InputError(f"{name}: has no effect with {decoder}")


def _put_penalties(options, decoder):
    """The penalties and bans among the options become `warp`; what shapes is refused."""
    settings = _settings(options)
    for name in settings:
        if SETTINGS[name].shapes:
            raise InputError(f"{name}: has no effect with {decoder}")
    if settings:
        options["warp"] = Warp(**settings)


def _choose_search(model, draft, amateur, options):
    given = options | {"draft": draft, "amateur": amateur}
    _refuse(given, ("chance", "draft", "amateur"), "contrastive search")
    if "context" in options:  # it keeps no hidden states
        raise InputError("context: cannot be combined with contrastive search")
    own = {name: options.pop(name) for name in ("top_k",) if name in options}
    _put_penalties(options, "contrastive search")
    return Choice(CONTRASTIVE_SEARCH, (model,), options | own)


def _choose_beams(model, draft, amateur, options):
    given = options | {"draft": draft, "amateur": amateur}
    if options.pop("stochastic", False):
        others = ("length_penalty", "early_stopping", "num_beam_groups", "trace")
        names = ("draft", "amateur", "penalty_alpha", *others)
        _refuse(given, names, "stochastic beam search")
        _put_warp(options, contrastive=False)
        return Choice(STOCHASTIC_BEAMS, (model,), options)
    _refuse(given, ("chance", "draft", "penalty_alpha"), "beam search")
    _put_penalties(options, "beam search")
    if "num_beam_groups" in options:
        _refuse(given, ("amateur", "trace"), "diverse beam search")
        return Choice(DIVERSE_BEAMS, (model,), options)
    contrast = {name: options.pop(name) for name in NEEDS["amateur"] if name in options}
    if amateur is None:
        return Choice(BEAMS, (model,), options)
    options |= {"amateur": amateur, "contrast": Contrast(**contrast)}
    return Choice(CONTRASTIVE_BEAMS, (model,), options)


# Whole texts


SURPRISING = 10.0  # nats at which the ground of a token is darkest


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run.

    tokens         the new ids, the end token included, the prompt not
    finish_reason  eos, stop, length, context or blocked (see `Run`)
    text           the new text without end token and stop string; None without a tokenizer
    stats          new_tokens; seconds, of which seconds_to_first until the first step;
                   tokens_per_second of the steps after the first, None where there are none.
                   With a draft also what `speculation_stats` says
    hypotheses     of beam search: all that were asked for, best first; else ()
    sequences      with num_return_sequences, a `Result` for each text, this one first; else ()
    logprobs       one `TokenLogprobs` per new token where they were asked for; else ()
    """

    tokens: list[int]
    finish_reason: str
    text: str | None
    stats: dict[str, Any]
    hypotheses: tuple[Hypothesis, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    sequences: tuple["Result", ...] = ()
    tokenizer: Tokenizer | None = dataclasses.field(default=None, compare=False)

    def __repr__(self):
        what = repr(self.text) if self.text is not None else self.tokens
        return f"Result({what}, {self._facts()})"

    def __str__(self):
        return repr(self) if self.text is None else self.text

    def _repr_html_(self):
        """What a notebook shows: the text, each token on a ground as dark as it was surprising."""
        if self.logprobs and self.tokenizer is not None:
            text = "".join(_shaded(each, self.tokenizer) for each in self.logprobs)
        else:
            text = html.escape(str(self))
        return f'<div style="white-space: pre-wrap">{text}</div><small>{self._facts()}</small>'

    def _facts(self):
        rate = self.stats.get("tokens_per_second")
        speed = f", {rate:.3g} tokens/s" if rate else ""
        return f"{len(self.tokens)} tokens, {self.finish_reason}{speed}"


def _shaded(found, tokenizer):
    text = tokenizer.token_bytes(found.token).decode("utf-8", errors="replace")
    surprise = min(1.0, -found.logprob / SURPRISING)
    about = f"probability {math.exp(found.logprob):.3g}"
    ground = f"background: rgba(230, 120, 0, {0.7 * surprise:.2f})"
    return f'<span style="{ground}" title="{about}">{html.escape(text)}</span>'


def _with_settings(function):
    """Writes the fields of `Warp` into the signature that editors and `help` show."""
    signature = inspect.signature(function)
    *parameters, rest = signature.parameters.values()
    parameters += [
        inspect.Parameter(f.name, rest.KEYWORD_ONLY, default=None, annotation=f.type | None)
        for f in dataclasses.fields(Warp)
        if f.name in SETTINGS
    ]
    function.__signature__ = signature.replace(parameters=parameters)
    return function


@_with_settings
def generate(
    model: Model,
    prompt: Prompt,
    *,
    tokenizer: Tokenizer | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    warp: Warp | None = None,
    chance: Chance | None = None,
    mirostat: float | Mirostat | None = None,
    draft: Any = None,
    num_draft_tokens: int | None = None,
    schedule: Any = None,
    verify: str | Callable | None = None,
    clock: Callable[[], float] | None = None,
    amateur: Model | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    amateur_temperature: float | None = None,
    penalty_alpha: float | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: bool | str | None = None,
    num_return_sequences: int | None = None,
    num_beam_groups: int | None = None,
    diversity_penalty: float | None = None,
    stochastic: bool | None = None,
    trace: list | None = None,
    logprobs: int | None = None,
    context: Context | None = None,
    on_step: Callable[[Step], Any] | None = None,
    on_text: Callable[[str], Any] | None = None,
    **settings: Any,
) -> Result:
    """Decode a text and return its `Result`. The options choose the decoder:

    (none)            sampling, with `warp`, `chance` and `mirostat`; temperature 0 gives the
                      greedy text
    draft             speculative: a smaller model, or an object as in drafts.py; with
                      num_draft_tokens, schedule, verify and clock as in `speculative`
    amateur           contrastive, with alpha, beta and amateur_temperature as in `contrastive`;
                      where it is the draft too, speculative contrastive
    penalty_alpha     contrastive search, with top_k as in `contrastive_search`
    num_beams         beam search, with length_penalty, early_stopping, num_return_sequences and
                      trace as in `beam_search`; diverse with num_beam_groups, and
                      diversity_penalty as in `diverse_beam_search`; with stochastic=True samples
                      without replacement, with warp and chance as in `stochastic_beam_search`

    Without num_beams, num_return_sequences samples that many texts at once, in `sequences`; their
    chances have the seed of `chance` and those that follow it.

    prompt: ids, or text when `tokenizer` is given. max_new_tokens, min_new_tokens, eos, stop: as in
    `Run`. settings: the fields of `Warp` (temperature, top_k, top_p, ...), instead of `warp`; with
    a tokenizer bad_words may be texts. Beam and contrastive search take penalties and bans alone,
    unless stochastic. on_step is called with each `Step`, on_text with each piece of text as it
    becomes certain. Errors: `InputError` for an option without effect too. With logprobs=n each
    step and the result hold a `TokenLogprobs` per token, with the n likeliest alternatives. With a
    `Context` only what is new in the prompt is read.
    """
    options = {
        "tokenizer": tokenizer,
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": min_new_tokens,
        "eos": eos,
        "stop": stop,
        "warp": warp,
        "chance": chance,
        "mirostat": mirostat,
        "draft": draft,
        "num_draft_tokens": num_draft_tokens,
        "schedule": schedule,
        "verify": verify,
        "clock": clock,
        "amateur": amateur,
        "alpha": alpha,
        "beta": beta,
        "amateur_temperature": amateur_temperature,
        "penalty_alpha": penalty_alpha,
        "num_beams": num_beams,
        "length_penalty": length_penalty,
        "early_stopping": early_stopping,
        "num_return_sequences": num_return_sequences,
        "num_beam_groups": num_beam_groups,
        "diversity_penalty": diversity_penalty,
        "stochastic": stochastic,
        "trace": trace,
        "logprobs": logprobs,
        "context": context,
    }
    check_names("generate", settings, options)
    if num_return_sequences is not None and num_beams is None:
        for name in ("num_return_sequences", "chance"):
            del options[name]
        n = num_return_sequences
        return _generate_sequences(model, prompt, n, chance, on_step, on_text, options | settings)
    if isinstance(context, Context) and context.model is not model:
        raise InputError("context: is of another model than the one given")
    choice = choose(model, options | settings)
    if choice.decoder.function not in BEAM_SEARCHES:
        return collect(choice.start(prompt), tokenizer, stop, on_step, on_text)
    found: list[Hypothesis] = []

    def one_step() -> Iterator[Step]:  # beam search knows its text only at the end
        found.extend(choice.start(prompt))
        best = found[0]
        yield Step(tuple(best.tokens), best.finish_reason, best.token_logprobs)

    result = collect(one_step(), tokenizer, stop, on_step, on_text)
    return replace(result, hypotheses=tuple(found))


def check_names(function: str, given: Iterable[str], others: Collection[str]) -> None:
    """`TypeError`, as from Python itself, for a name that is neither a setting nor an option."""
    for name in given:
        if name not in SETTINGS and name not in others:
            near = difflib.get_close_matches(name, [*SETTINGS, *others], n=1)
            hint = f"; {near[0]} was perhaps meant" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def collect(
    steps: Iterable[Step],
    tokenizer: Tokenizer | None = None,
    stop: StopStrings = (),
    on_step: Callable[[Step], Any] | None = None,
    on_text: Callable[[str], Any] | None = None,
) -> Result:
    """The `Result` of a decoder's steps."""
    gatherer = Gatherer(tokenizer, stop, on_text)
    for step in steps:
        gatherer.add(step)
        if on_step is not None:
            on_step(step)
    return gatherer.result()


def _like_generate(function):
    """The signature that editors and `help` show: that of `generate`, for several prompts."""
    several = {"prompt": "prompts", "chance": "chances"}
    signature = inspect.signature(generate)
    parameters = [
        p.replace(name=several[name], annotation=Sequence) if name in several else p
        for name, p in signature.parameters.items()
    ]
    function.__signature__ = signature.replace(
        parameters=parameters, return_annotation=list[Result]
    )
    return function


@_like_generate
def generate_many(
    model: Model,
    prompts: Sequence[Prompt],
    *,
    chances: Sequence[Chance | None] | None = None,
    on_step: Callable[[int, Step], Any] | None = None,
    on_text: Callable[[int, str], Any] | None = None,
    **options: Any,
) -> list[Result]:
    """`generate` for several prompts: a `Result` each, in their order.

    One pass of each model serves all texts that still run; beam search, contrastive search and
    speculative contrastive decoding take them one after another. chances: one for each prompt. Each
    text is that of the prompt alone with the same chance. on_step and on_text are told the index of
    the prompt too. The options are those of `generate`. Seconds in `stats` are those of the whole
    batch.
    """
    check_names("generate_many", options, inspect.signature(generate_many).parameters)
    tokenizer, stop = options.get("tokenizer"), options.get("stop") or ()
    if options.get("context") is not None:
        raise InputError("context: serves one text at a time, a fork of it for each was wanted")
    chances = chances_for(prompts, chances)
    choice = choose(model, options)
    if choice.decoder.function not in MANY:
        return [
            generate(
                model,
                prompt,
                chance=chance,
                on_step=on_step and functools.partial(on_step, i),
                on_text=on_text and functools.partial(on_text, i),
                **options,
            )
            for i, (prompt, chance) in enumerate(zip(prompts, chances))
        ]
    gatherers = [
        Gatherer(tokenizer, stop, on_text and functools.partial(on_text, i))
        for i in range(len(prompts))
    ]
    decoder = MANY[choice.decoder.function]
    for i, step in decoder(*choice.models, prompts, chances=chances, **choice.options):
        gatherers[i].add(step)
        if on_step is not None:
            on_step(i, step)
    return [gatherer.result() for gatherer in gatherers]


MANY: dict[
    Any, Callable
] = {  # the decoders that serve several texts with one pass, by those that serve one
    sample: sample_many,
    contrastive: contrastive_many,
    speculative: speculative_many,
}


def _generate_sequences(model, prompt, n, chance, on_step, on_text, options):
    """Several texts of one prompt: the `Result` of the first, which holds all."""
    n = whole("num_return_sequences", n, 1, MOST_BEAMS)
    if n > 1 and not choose(model, options).draws:
        raise InputError("num_return_sequences: has no effect where nothing is drawn")
    results = generate_many(
        model,
        [prompt] * n,
        chances=_successors(chance, n),
        on_step=on_step and (lambda i, step: on_step(step) if i == 0 else None),
        on_text=on_text and (lambda i, text: on_text(text) if i == 0 else None),
        **options,
    )
    return replace(results[0], sequences=tuple(results))


def _successors(chance, n):
    """The chance, and n - 1 more with the seeds that follow its own; fresh ones for None."""
    if chance is None or n == 1:
        return [chance] * n
    if not isinstance(chance, Dice | GumbelDice):
        raise InputError(
            "num_return_sequences: needs a Dice or GumbelDice, whose seed it counts on; "
            "generate_many takes a chance of your own for each text"
        )
    return [chance, *(type(chance)(chance.seed + i) for i in range(1, n))]


class Gatherer:
    """Puts a `Result` together from steps as they come."""

    def __init__(self, tokenizer=None, stop=(), on_text=None):
        self.tokenizer = tokenizer
        self.stream = TextStream(tokenizer, stop) if tokenizer is not None else None
        self.on_text = on_text
        self.steps, self.pieces = [], []
        self.started = time.perf_counter()
        self.first = None

    def add(self, step):
        if self.first is None:
            self.first = time.perf_counter()
        self.steps.append(step)
        if self.stream is not None:  # an end token may be an ordinary one, but is no text
            for token in step.tokens[:-1] if step.finish_reason == "eos" else step.tokens:
                self._show(self.stream.feed(token))

    def result(self):
        ended = time.perf_counter()
        if self.stream is not None:
            self._show(self.stream.finish())
        tokens = [token for step in self.steps for token in step.tokens]
        # A decoder that yields nothing was asked for no tokens.
        reason = self.steps[-1].finish_reason if self.steps else "length"
        later = len(tokens) - len(self.steps[0].tokens) if self.steps else 0
        stats = {
            "new_tokens": len(tokens),
            "seconds": ended - self.started,
            "seconds_to_first": self.first - self.started if self.steps else None,
            "tokens_per_second": later / (ended - self.first) if later else None,
        }
        if self.steps and isinstance(self.steps[0], Round):
            stats |= speculation_stats(self.steps, stats["seconds"])
        text = "".join(self.pieces) if self.stream is not None else None
        logprobs = tuple(each for step in self.steps for each in step.logprobs)
        return Result(tokens, reason, text, stats, logprobs=logprobs, tokenizer=self.tokenizer)

    def _show(self, piece):
        self.pieces.append(piece)
        if piece and self.on_text is not None:
            self.on_text(piece)
