"""Turns token ids into text while they come, so that what has been shown is never taken back.

Two things can make text wait. A token may end in the middle of a UTF-8 character: its first bytes
wait for the rest. And text that a stop string might begin with waits until it is clear whether the
stop string follows.

Of several stop strings the one that is complete first counts, and of those complete at the same
place the longest. So the outcome depends on the text alone and not on how it is cut into tokens.
"""

import codecs
import copy
from collections.abc import Iterable

from ..checks import shown
from ..errors import InputError


class TextStream:
    """`feed` it each token that is not an end token, then `finish` it; they return the text.

    Together the returned pieces are `tokenizer.decode` of all tokens, up to the first stop string.
    `stop` is one stop string, several or None; the name of a special token, which is no text, can
    be part of one. Errors: `InputError` for an empty one.
    """

    def __init__(self, tokenizer, stop=()):
        self._tokenizer = tokenizer
        self._stop = _check_stop(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""  # spelt, but a stop string may begin here
        self._hidden = []  # for each character held: whether it is a special token's, and not shown
        self.stopped = False  # a stop string is complete; nothing is shown any more

    def feed(self, token):
        """The text, maybe "", that may be shown now that `token` is known."""
        data = self._tokenizer.token_bytes(token)
        if data or not self._stop or not hasattr(self._tokenizer, "spelt"):
            return self._release(self._decoder.decode(data))
        return self._release(self._tokenizer.spelt(token).decode("utf-8", "replace"), hidden=True)

    def finish(self):
        """The text still held when no more tokens come; an incomplete character becomes U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True))
        return text + self._take(len(self._held))

    def fork(self):
        """A stream that goes on from here by itself."""
        other = copy.copy(self)
        other._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        other._decoder.setstate(self._decoder.getstate())
        other._hidden = list(self._hidden)
        return other

    def _release(self, text, hidden=False):
        if self.stopped:
            return ""
        self._held += text
        self._hidden += [hidden] * len(text)
        found = [(at + len(s), at) for s in self._stop if (at := self._held.find(s)) >= 0]
        if found:
            self.stopped = True
            _, start = min(found)
            return self._take(start, rest="")
        return self._take(len(self._held) - self._length_to_hold(self._held))

    def _take(self, n, rest=None):
        """The first n characters held, without hidden ones; what is left stays, or is `rest`."""
        text, hidden = self._held[:n], self._hidden[:n]
        self._held = self._held[n:] if rest is None else rest
        self._hidden = self._hidden[n:] if rest is None else []
        return "".join(c for c, h in zip(text, hidden) if not h) if any(hidden) else text

    def _length_to_hold(self, text):
        """The length of the longest end of `text` that some stop string begins with."""
        longest = max(map(len, self._stop), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-length:]) for s in self._stop):
                return length
        return 0


def text_of(tokens, finish_reason, tokenizer, stop=()):
    """The text of a finished run: without its end token, which may be an ordinary one, and cut."""
    stream = TextStream(tokenizer, stop)
    pieces = [stream.feed(token) for token in (tokens[:-1] if finish_reason == "eos" else tokens)]
    return "".join(pieces) + stream.finish()


def _check_stop(stop):
    several = isinstance(stop, Iterable) and not isinstance(stop, str | bytes | bytearray)
    strings = tuple(stop) if several else () if stop is None else (stop,)
    for s in strings:
        if not isinstance(s, str) or not s:
            raise InputError(f"stop: got {shown(s)}, a string of at least one character was wanted")
    return strings
