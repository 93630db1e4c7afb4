"""What a value must be: a number, token ids, a batch, two vocabularies. A refusal is a sentence."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable

import numpy as np

from .errors import InputError

LARGEST = 2**63 - 1  # of a whole number where nothing smaller is set: what an int64 holds


def whole(name: str, value, least: int, most: int | None = None) -> int:
    """`value` as an int from `least` to `most`; NumPy's integers count, bool and 2.0 do not.

    Errors: `InputError`, also for a number that no int64 holds.
    """
    if not is_whole(value) or not least <= int(value) <= (LARGEST if most is None else most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name}: got {shown(value)}, a whole number {limits} was wanted")
    return int(value)


def is_whole(value) -> bool:
    """Whether `value` is a whole number: NumPy's integers are, True and 2.0 are not."""
    return type(value) is int or (isinstance(value, int | np.integer) and type(value) is not bool)


def real(name: str, value, wanted: str, fits: Callable[[float], bool]) -> float:
    """`value` as a float for which `fits` holds; `wanted` is in words what `fits` asks for.

    Whole numbers and NumPy's numbers count, bool does not; NaN fails every comparison, so a `fits`
    that compares refuses it. Errors: `InputError`, also for an int that no float holds.
    """
    number = math.nan
    if type(value) is float:  # nearly always: the rest costs microseconds
        number = value
    elif isinstance(value, int | float | np.integer | np.floating) and type(value) is not bool:
        with contextlib.suppress(OverflowError), np.errstate(all="ignore"):
            number = float(value)
    if math.isnan(number) or not fits(number):
        raise InputError(f"{name}: got {shown(value)}, {wanted} was wanted")
    return number


def shown(value) -> str:
    """`value` as a message writes it: short, however large it is."""
    if isinstance(value, int) and abs(value) > LARGEST:  # str() refuses thousands of digits
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_tokens(tokens, vocab_size: int) -> np.ndarray:
    """Token ids as an int64 array [n]; `InputError` names the first that is no id below vocab_size.

    Negative ids must not wrap around, and 1.5 or True are no ids even where Python takes them.
    """
    ids = tokens if isinstance(tokens, np.ndarray) else list(tokens)
    if len(ids) == 0:
        raise InputError("tokens: got none, at least one was wanted")
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind in "iu":
        wrong = list(ids[(ids < 0) | (ids >= vocab_size)])
    else:
        wrong = [i for i in ids if not _is_id(i, vocab_size)]
    if len(wrong):
        wanted = f"an integer from 0 to {vocab_size - 1}"
        raise InputError(f"token id: got {wrong[0]!r}, {wanted} was wanted")
    return np.asarray(ids, dtype=np.int64)


def id_tuple(ids, vocab_size: int) -> tuple[int, ...]:
    """None, one id or any collection of them as a tuple of checked ids."""
    if ids is None:
        return ()
    several = isinstance(ids, Iterable) and not isinstance(ids, str | bytes | bytearray)
    found = list(ids) if several else [ids]
    return tuple(check_tokens(found, vocab_size).tolist()) if found else ()


def _is_id(i, vocab_size):
    return is_whole(i) and 0 <= i < vocab_size


def check_model(model, role: str = "model") -> None:
    """`InputError` for what is no model, with a hint for what is often given instead."""
    if isinstance(model, str):
        hint = f"; load({shown(model)}) returns it and its tokenizer"
    elif isinstance(model, tuple):
        hint = "; it is the first part of what load returns"
    elif all(hasattr(model, name) for name in ("new_cache", "vocab_size", "n_positions")):
        return
    else:
        hint = ""
    raise InputError(f"{role}: got {_kind(model)}, a model was wanted{hint}")


def check_tokenizer(tokenizer) -> None:
    """`InputError` for what is no tokenizer. None is none."""
    methods = ("encode", "token_bytes")
    if tokenizer is not None and not all(hasattr(tokenizer, name) for name in methods):
        hint = "load returns it beside the model"
        raise InputError(f"tokenizer: got {_kind(tokenizer)}, a tokenizer was wanted; {hint}")


def _kind(value):
    """A value as a message names it: in short, or where that says little, its type."""
    plain = value is None or isinstance(value, str | bytes | int | float)
    return shown(value) if plain else f"an object of type {type(value).__name__}"


def check_batch(batch, n_logits, vocab_size: int) -> tuple[list[np.ndarray], list[int]]:
    """The ids [n] and the number of logits of each sequence, or what is wrong with them."""
    if len({id(cache) for _, cache in batch}) < len(batch):
        raise InputError("batch: one cache stands in it twice, one for each sequence was wanted")
    tokens = [check_tokens(tokens, vocab_size) for tokens, _ in batch]
    return tokens, _per_sequence(n_logits, [len(ids) for ids in tokens])


def _per_sequence(n_logits, lengths):
    """`n_logits` as one number for each sequence, checked against the sequences' lengths."""
    several = isinstance(n_logits, Iterable) and not isinstance(n_logits, str)
    counts = list(n_logits) if several else [n_logits] * len(lengths)
    if len(counts) != len(lengths):
        raise InputError(f"n_logits: got {len(counts)} numbers for {len(lengths)} sequences")
    return [whole("n_logits", n, 0, length) for n, length in zip(counts, lengths)]


def check_same_vocabulary(model, other, role: str) -> None:
    """`InputError` where both models know their tokenizers and an id means two different tokens.

    One vocabulary may be padded past the other. `role` is what `other` is called in the message.
    """
    ours, theirs = (getattr(each, "tokenizer", None) for each in (model, other))
    if ours is not None and theirs is not None and ours is not theirs:
        differs = _first_difference(ours, theirs)
        if differs is not None:
            raise InputError(f"{role}: id {differs} means another token than in the other model")


@functools.lru_cache(maxsize=8)  # thousands of tokens to compare, at the start of every run
def _first_difference(ours, theirs):
    return ours.same_vocabulary(theirs)
