"""Every error minidecode raises on purpose, in one small tree.

A message names the thing, what was got and what was wanted. Errors about a value are `ValueError`s
too, so that callers who know nothing of minidecode catch them as they would expect.
"""


class MinidecodeError(Exception):
    """The root: `except MinidecodeError` catches all that minidecode refuses."""


class InputError(MinidecodeError, ValueError):
    """A setting, a prompt or a token id that cannot be used."""


class ContextError(InputError):
    """More tokens than the model has positions."""


class LogitsError(InputError):
    """Logits that are no distribution: NaN, +inf, or nothing but -inf."""


class CheckpointError(MinidecodeError, ValueError):
    """A model directory that cannot be read as GPT-2, or a name that leads to none."""


class TokenizerError(MinidecodeError, ValueError):
    """A tokenizer that is missing or cannot be used."""


class BackendError(MinidecodeError):
    """The kernels asked for are not available."""
