"""When a run ends: its limits, checked before the first step, and the reason it stopped."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..checks import check_model, check_tokenizer, check_tokens, id_tuple, shown, whole
from ..errors import ContextError, InputError
from .context import Context
from .stream import TextStream
from .warp import Warp, as_warp

BYTES = (bytes, bytearray, memoryview)  # sequences of small integers, but not of ids
FROM_MODEL = "from the model"  # the default of `eos`: the end ids stored in the checkpoint


class Run:
    """One run of a decoder: its prompt, what it has committed and still may, and why it ended.

    model           anything with `vocab_size`, `n_positions`, `eos`, `bos`
    prompt          token ids, or text when a tokenizer is given; empty, it is the bos id
    max_new_tokens  None: until the context is full
    min_new_tokens  no end id before so many tokens: see `warped`
    eos             an id, several, or None to never stop at one; the checkpoint's unless given
    context         a `Context` whose caches go on, where its text begins as this one does
    stop            strings that end the run where they appear, or None; needs the tokenizer

    The finish reasons are `eos`, `stop`, `length` (max_new_tokens), `context` (n_positions) and
    `blocked`, in this order where one token meets several. The end token, and the token that
    completes a stop string, are part of `tokens`.
    Errors: `InputError` and `ContextError`, before any forward pass.
    """

    def __init__(
        self,
        model,
        prompt,
        *,
        max_new_tokens=None,
        min_new_tokens=0,
        eos=FROM_MODEL,
        stop=(),
        tokenizer=None,
        context=None,
    ):
        check_model(model)
        check_tokenizer(tokenizer)
        self.prompt = prompt_ids(model, prompt, tokenizer)
        self.history = list(self.prompt)
        if not (context is None or isinstance(context, Context)):
            raise InputError(f"context: got {shown(context)}, a Context was wanted")
        self.context = context
        self.eos = frozenset(_eos_ids(model, eos))
        if max_new_tokens is not None:
            max_new_tokens = whole("max_new_tokens", max_new_tokens, 0)
        room = model.n_positions - len(self.prompt)
        if room < 0 or (room == 0 and max_new_tokens != 0):
            raise ContextError(
                f"prompt: got {len(self.prompt)} tokens, which leaves no room in the model's "
                f"{model.n_positions} positions; at most {model.n_positions - 1} were wanted"
            )
        self.limit = room if max_new_tokens is None else min(room, max_new_tokens)
        self.vocab_size = model.vocab_size
        self.min_new_tokens = self._check_min(min_new_tokens, max_new_tokens, eos)
        # The reason of a text that is cut off.
        self.full = "context" if max_new_tokens is None or room < max_new_tokens else "length"
        self.stream = None
        if stop not in (None, (), []):
            if tokenizer is None:
                raise InputError("stop: stop strings need a tokenizer, none was given")
            self.stream = TextStream(tokenizer, stop)
        self.finish_reason = self.full if self.limit == 0 else None

    def new_cache(self, model, role=0):
        """A cache of the model for this text: a new one, or the one that the context goes on with.

        What is in it are the first tokens of the history. role: as in `Context.open`.
        """
        model = getattr(model, "expert", model)
        if self.context is None:
            return model.new_cache()
        return self.context.open(model, role, self.history)

    def warped(self, warp: Warp | None, default: Warp | None = None) -> Warp:
        """The warp of this run, for target and draft alike: it knows when an end id may come.

        While fewer than min_new_tokens are out, the end ids have probability 0. None stands for
        the default, which is plain sampling. Errors: `InputError` for what is no `Warp`, and for
        ids in it that the model lacks.
        """
        warp = as_warp(warp, default)
        warp.check_ids(self.vocab_size)
        if self.min_new_tokens == 0 or not self.eos:
            return warp
        return replace(warp, end_after=(len(self.prompt) + self.min_new_tokens, self.eos))

    def _check_min(self, least, most, eos):
        least = whole("min_new_tokens", least, 0)
        if most is not None and least > most:
            raise InputError(
                f"min_new_tokens: got {least}, at most max_new_tokens ({most}) was wanted"
            )
        if least and eos is None:
            raise InputError("min_new_tokens: has no effect without an end id")
        return least

    @property
    def tokens(self):
        """The ids committed so far, without the prompt."""
        return self.history[len(self.prompt) :]

    @property
    def remaining(self):
        """How many more tokens can be committed."""
        return self.limit - (len(self.history) - len(self.prompt))

    def commit(self, tokens):
        """Append tokens up to and with one that ends the run; returns those appended."""
        taken = []
        for token in tokens:
            if self.finish_reason:
                break
            self.history.append(token)
            taken.append(token)
            self.finish_reason = self._reason(token)
        return tuple(taken)

    def block(self):
        """End the run because no token is left to choose."""
        self.finish_reason = "blocked"

    def _reason(self, token):
        if token in self.eos:
            return "eos"
        if self.stream is not None:
            self.stream.feed(token)
            if self.stream.stopped:
                return "stop"
        return self.full if self.remaining == 0 else None


def prompt_ids(model, prompt, tokenizer=None):
    """The prompt as a list of ids: text is encoded, an empty prompt becomes the bos id."""
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InputError("prompt: got text, which needs a tokenizer; none was given")
        prompt = tokenizer.encode(prompt)
    sequence = isinstance(prompt, Sequence) and not isinstance(prompt, BYTES)
    if not sequence and not (isinstance(prompt, np.ndarray) and prompt.ndim == 1):
        raise InputError(f"prompt: got {shown(prompt)}, text or a list of token ids was wanted")
    if len(prompt) == 0:
        if model.bos is None:
            raise InputError("prompt: it is empty, and the model has no bos id to start from")
        prompt = [model.bos]
    return check_tokens(prompt, model.vocab_size).tolist()


def _eos_ids(model, eos):
    if isinstance(eos, str) and eos == FROM_MODEL:
        return model.eos
    return id_tuple(eos, model.vocab_size)
