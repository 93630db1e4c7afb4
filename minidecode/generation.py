"""One call for a whole text: picks the decoder, runs it to its end and gathers what it yielded."""

import dataclasses
import difflib
import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from .decoding.beam import Hypothesis, beam_search
from .decoding.contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from .decoding.contrastive import Contrast, contrastive
from .decoding.logprobs import TokenLogprobs
from .decoding.mirostat import Mirostat
from .decoding.run import FROM_MODEL
from .decoding.sampling import sample
from .decoding.settings import encode_texts
from .decoding.step import Step
from .decoding.stream import TextStream
from .decoding.warp import SETTINGS, Warp, as_warp
from .errors import InputError
from .speculation.contrastive import speculative_contrastive
from .speculation.loop import speculative, speculative_many
from .speculation.rounds import Round, speculation_stats

NEEDS = {  # options that only have an effect beside another
    "draft": ("num_draft_tokens", "schedule", "verify", "clock"),
    "amateur": ("alpha", "beta", "amateur_temperature"),
    "num_beams": ("length_penalty", "early_stopping", "num_return_sequences", "trace"),
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
CONTRASTIVE_BEAMS = Decoder("Beam search", ("expert", "amateur"), beam_search)
SPECULATIVE = Decoder("Speculative decoding", ("target", "draft"), speculative)
CONTRASTIVE = Decoder("Contrastive decoding", ("expert", "amateur"), contrastive)
SPECULATIVE_CONTRASTIVE = Decoder(
    "Speculative contrastive decoding", ("expert", "amateur"), speculative_contrastive
)


@dataclass(frozen=True)
class Choice:
    """A decoder with all that it is called with but the prompt."""

    decoder: Decoder
    models: tuple
    options: dict[str, Any]

    @property
    def draws(self) -> bool:
        """Whether chance has a part in the text."""
        return self.decoder.function is not beam_search and self.options["warp"].temperature != 0

    def start(self, prompt: Prompt) -> Any:
        """The steps of the decoder; of beam search, the hypotheses."""
        return self.decoder.function(*self.models, prompt, **self.options)


def choose(model: Model, options: dict[str, Any]) -> Choice:
    """The decoder that the options of `generate` choose. One that is None is not given.

    The settings of the warp may stand among them, or in `warp`.
    Errors: `InputError` for options that have no effect beside the others.
    """
    options = {n: value for n, value in options.items() if value is not None or n == "eos"}
    without = missing_need(options)
    if without is not None:
        raise InputError("{}: has no effect without {}".format(*without))
    draft, amateur = options.pop("draft", None), options.pop("amateur", None)
    others = {"draft": draft, "amateur": amateur, "num_beams": options.get("num_beams")}
    for name, value in others.items():  # its state could not be rolled back
        if "mirostat" in options and value is not None:
            raise InputError(f"mirostat: cannot be combined with {name}, it is for sampling alone")
    if "num_beams" in options:
        return _choose_beams(model, draft, amateur, options)
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


def _choose_beams(model, draft, amateur, options):
    given = options if draft is None else options | {"draft": draft}
    for name in ("chance", "draft"):
        if name in given:
            raise InputError(f"{name}: has no effect with beam search")
    settings = _settings(options)
    for name in settings:
        if SETTINGS[name].shapes:
            raise InputError(f"{name}: has no effect with beam search")
    if settings:
        options["warp"] = Warp(**settings)
    contrast = {name: options.pop(name) for name in NEEDS["amateur"] if name in options}
    if amateur is None:
        return Choice(BEAMS, (model,), options)
    options |= {"amateur": amateur, "contrast": Contrast(**contrast)}
    return Choice(CONTRASTIVE_BEAMS, (model,), options)


# Whole texts


@dataclass(frozen=True)
class Result:
    """A finished run.

    tokens         the new ids, the end token included, the prompt not
    finish_reason  eos, stop, length, context or blocked (see `Run`)
    text           the new text without end token and stop string; None without a tokenizer
    stats          new_tokens; seconds, of which seconds_to_first until the first step;
                   tokens_per_second of the steps after the first, None where there are none.
                   With a draft also what `speculation_stats` says
    hypotheses     of beam search: all that were asked for, best first; else ()
    logprobs       one `TokenLogprobs` per new token where they were asked for; else ()
    """

    tokens: list[int]
    finish_reason: str
    text: str | None
    stats: dict[str, Any]
    hypotheses: tuple[Hypothesis, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()


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
    num_beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: bool | str | None = None,
    num_return_sequences: int | None = None,
    trace: list | None = None,
    logprobs: int | None = None,
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
    num_beams         beam search, with length_penalty, early_stopping, num_return_sequences and
                      trace as in `beam_search`

    prompt: ids, or text when `tokenizer` is given. max_new_tokens, min_new_tokens, eos, stop: as in
    `Run`. settings: the fields of `Warp` (temperature, top_k, top_p, ...), instead of `warp`; with
    a tokenizer bad_words may be texts. Beam search takes penalties and bans alone. on_step is
    called with each `Step`, on_text with each piece of text as it becomes certain. Errors:
    `InputError` for an option without effect too. With logprobs=n each step and the result hold a
    `TokenLogprobs` per token, with the n likeliest alternatives.
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
        "num_beams": num_beams,
        "length_penalty": length_penalty,
        "early_stopping": early_stopping,
        "num_return_sequences": num_return_sequences,
        "trace": trace,
        "logprobs": logprobs,
    }
    check_names("generate", settings, [*options, "on_step", "on_text"])
    choice = choose(model, options | settings)
    if choice.decoder.function is not beam_search:
        return collect(choice.start(prompt), tokenizer, stop, on_step, on_text)
    found: list[Hypothesis] = []

    def one_step() -> Iterator[Step]:  # beam search knows its text only at the end
        found.extend(choice.start(prompt))
        best = found[0]
        yield Step(tuple(best.tokens), best.finish_reason, best.token_logprobs)

    result = collect(one_step(), tokenizer, stop, on_step, on_text)
    return replace(result, hypotheses=tuple(found))


def check_names(function: str, settings: Iterable[str], others: Iterable[str]) -> None:
    """`TypeError`, as from Python itself, for a name that is neither a setting nor an option."""
    for name in settings:
        if name not in SETTINGS:
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


def generate_many(target, draft, prompts, *, tokenizer=None, stop=(), **options):
    """The `Result`s of `speculative_many`, one a prompt. Seconds are those of the whole batch."""
    gatherers = [Gatherer(tokenizer, stop) for _ in prompts]
    if tokenizer is not None:
        options["tokenizer"] = tokenizer
    for i, step in speculative_many(target, draft, prompts, stop=stop, **options):
        gatherers[i].add(step)
    return [gatherer.result() for gatherer in gatherers]


class Gatherer:
    """Puts a `Result` together from steps as they come."""

    def __init__(self, tokenizer=None, stop=(), on_text=None):
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
        return Result(tokens, reason, text, stats, logprobs=logprobs)

    def _show(self, piece):
        self.pieces.append(piece)
        if piece and self.on_text is not None:
            self.on_text(piece)
