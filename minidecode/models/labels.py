"""How a token is written where it stands alone: every byte of it visible, whatever it is."""

import codecs
import unicodedata


def counted(n: int, noun: str, several: str | None = None) -> str:
    """A number and what it counts: 1 token, 2 tokens."""
    return f"{n} {noun}" if n == 1 else f"{n} {several or noun + 's'}"


class Spelling:
    """The names of a tokenizer's tokens, and their text in the order in which they come.

    keep: characters that are left as they are in the text, such as line breaks.
    """

    def __init__(self, tokenizer, end_ids=(), keep=""):
        self.tokenizer, self.end_ids, self.keep = tokenizer, end_ids, keep
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def label(self, token):
        r"""The token's text, with escapes (\n, \xe2) for what cannot be seen or is no character."""
        data = self.tokenizer.token_bytes(token)
        if not data:
            return "<end>" if token in self.end_ids else f"<id {token}>"
        text = escape(data.decode("utf-8", errors="surrogateescape"))
        return "\u25cc" + text if unicodedata.combining(text[0]) else text

    def feed(self, token):
        """What the token adds to the text: a character comes with the token that completes it."""
        return escape(self.decoder.decode(self.tokenizer.token_bytes(token)), self.keep)

    def peek(self, token):
        """What `feed` would return, for a token that was considered and not taken."""
        state = self.decoder.getstate()
        text = self.feed(token)
        self.decoder.setstate(state)
        return text


def escape(text, keep=""):
    """text with escapes for backslashes and for what is no printable character."""
    return "".join(c if c in keep or (c.isprintable() and c != "\\") else _escaped(c) for c in text)


def _escaped(c):
    if "\udc80" <= c <= "\udcff":  # a byte that is no character, as Python smuggles it through
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode("ascii")
