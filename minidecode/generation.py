"""One call for a whole text: picks the decoder, runs it to its end and gathers what it yielded."""

import time
from dataclasses import dataclass, replace

from .decoding.beam import beam_search
from .decoding.contrastive import Contrast, contrastive
from .decoding.sampling import sample
from .decoding.step import Step
from .decoding.stream import TextStream
from .errors import InputError
from .speculation.contrastive import speculative_contrastive
from .speculation.loop import speculative, speculative_many
from .speculation.rounds import Round, speculation_stats

NEEDS = {  # options that only have an effect beside another
    "draft": ("num_draft_tokens", "schedule", "verify", "clock"),
    "amateur": ("alpha", "beta", "amateur_temperature"),
    "num_beams": ("length_penalty", "early_stopping", "num_return_sequences", "trace"),
}


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
    """

    tokens: list[int]
    finish_reason: str
    text: str | None
    stats: dict
    hypotheses: tuple = ()


def generate(model, prompt, *, tokenizer=None, on_step=None, on_text=None, **options):
    """Decode a text and return its `Result`. The options choose the decoder:

    warp, chance      sample (temperature 0 gives the greedy text)
    draft             speculative: a smaller model, or an object as in draft.py; with
                      num_draft_tokens and schedule as in `speculative`
    amateur           contrastive, with alpha, beta and amateur_temperature as in `contrastive`;
                      where it is the draft too, speculative contrastive
    num_beams         beam search, with length_penalty, early_stopping, num_return_sequences,
                      repetition_penalty and no_repeat_ngram_size as in `beam_search`
    max_new_tokens, eos, stop   as in `Run`

    prompt: ids, or text when `tokenizer` is given. on_step is called with each `Step`, on_text with
    each piece of text as it becomes certain. Errors: `InputError` for an option without effect too.
    """
    if tokenizer is not None:
        options["tokenizer"] = tokenizer
    check_needs(options)
    if options.get("num_beams") is not None:
        return _generate_beams(model, prompt, tokenizer, on_step, on_text, options)
    return collect(
        decode(model, prompt, **options), tokenizer, options.get("stop", ()), on_step, on_text
    )


def check_needs(options):
    """`InputError` for an option that only has an effect beside another, which is missing."""
    for name, dependants in NEEDS.items():
        for dependant in dependants:
            if options.get(name) is None and options.get(dependant) is not None:
                raise InputError(f"{dependant}: has no effect without {name}")


def decode(model, prompt, *, draft=None, amateur=None, **options):
    """The steps of the decoder that the options of `generate` choose (beam search has none)."""
    if amateur is None and draft is None:
        return sample(model, prompt, **options)
    if amateur is None:
        return speculative(model, draft, prompt, **options)
    if draft is None:
        return contrastive(model, amateur, prompt, **options)
    if draft is not amateur:
        raise InputError("draft: got another model than the amateur, which must be the draft here")
    return speculative_contrastive(model, amateur, prompt, **options)


def _generate_beams(model, prompt, tokenizer, on_step, on_text, options):
    """Beam search knows its text only at the end: it is one step."""
    for name in ("warp", "chance", "draft", "stop"):
        if options.pop(name, None):
            raise InputError(f"{name}: has no effect with beam search")
    contrast = {n: options.pop(n) for n in NEEDS["amateur"] if options.get(n) is not None}
    if contrast:
        options["contrast"] = Contrast(**contrast)
    found = []

    def steps():
        found.extend(beam_search(model, prompt, **options))
        yield Step(tuple(found[0].tokens), found[0].finish_reason)

    result = collect(steps(), tokenizer, (), on_step, on_text)
    return replace(result, hypotheses=tuple(found))


def collect(steps, tokenizer=None, stop=(), on_step=None, on_text=None):
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
        return Result(
            tokens, reason, "".join(self.pieces) if self.stream is not None else None, stats
        )

    def _show(self, piece):
        self.pieces.append(piece)
        if piece and self.on_text is not None:
            self.on_text(piece)
