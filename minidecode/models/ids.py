"""Ids in, ids out: what stands for a tokenizer where a model has none."""

import re

from ..errors import InputError


class IdTokenizer:
    """Writes each id as a space and its decimal digits, and reads ids between spaces or commas."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Errors: `InputError` for what is no id."""
        words = re.findall(r"[^\s,]+", text)
        for word in words:
            if not (word.isascii() and word.isdecimal() and len(word) <= 18):
                raise InputError(f"prompt: got {word!r:.50}, token ids such as 5 17 were wanted")
        return [int(word) for word in words]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.token_bytes(i).decode() for i in ids)

    def token_bytes(self, token_id: int) -> bytes:
        return f" {token_id}".encode()

    def token_id(self, name: str) -> int | None:
        ids = self.encode(name)
        return ids[0] if len(ids) == 1 else None
