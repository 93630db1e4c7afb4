"""Text to token ids and back, on the `tokenizers` package: byte-level BPE as in GPT-2.

A byte-level tokenizer spells every byte of UTF-8 as one printable character, so that any text can
be written, and a token may end in the middle of a character. What a token means is therefore bytes,
and text comes of joining them. A special token, such as `<|endoftext|>`, means no text.
"""

import functools
import json
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from ..errors import InputError, TokenizerError
from .config import read_json

END_OF_TEXT = "<|endoftext|>"


class Tokenizer:
    """A `tokenizers.Tokenizer` in which nothing may lose or invent tokens.

    Truncation, padding and the dropping of merges are switched off, and a post-processor adds
    nothing to a text's own tokens. With ByteLevel as decoder or pre-tokenizer the tokens are bytes,
    with neither they are literal text. Errors: `TokenizerError`, naming `source`, for any other
    decoder.
    """

    def __init__(self, backend, source="tokenizer"):
        backend.no_truncation()
        backend.no_padding()
        if getattr(backend.model, "dropout", None):
            backend.model.dropout = None  # leaves out merges at random, which is for training
        self._backend = backend
        self._byte_level = _is_byte_level(backend, source)
        added = backend.get_added_tokens_decoder()
        self._special = {token_id for token_id, token in added.items() if token.special}

    @classmethod
    def read(cls, directory):
        """The tokenizer of a model directory: tokenizer.json, else vocab.json with merges.txt.

        Errors: `TokenizerError` naming the file that is missing or broken.
        """
        directory = Path(directory)
        whole, vocab = directory / "tokenizer.json", directory / "vocab.json"
        if whole.exists():
            return cls(_read_backend(whole), whole)
        if vocab.exists():
            return cls(_join_backend(vocab, directory / "merges.txt"), vocab)
        raise TokenizerError(
            f"{directory}: got no tokenizer, "
            "tokenizer.json or vocab.json with merges.txt was wanted"
        )

    def encode(self, text):
        """The ids of `text`, with nothing put before or after them.

        Where the text has the name of a special token, the token's id stands for it. Errors:
        `InputError` for what is no text, such as half of a surrogate pair.
        """
        try:
            return self._backend.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeError):
            raise InputError(f"text: got {text!r:.50}, Unicode text was wanted") from None

    def decode(self, ids):
        """The text of `ids`: their bytes, with U+FFFD for those that are no UTF-8."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id):
        """What the token means: b"" if it is special, or if there is none of that id."""
        token = self._token(token_id)
        return b"" if token is None or token_id in self._special else self._spelt(token)

    @functools.cached_property
    def vocab_size(self):
        """One more than the highest id that has a token; some ids below may have none."""
        return 1 + max(self._backend.get_vocab().values(), default=-1)

    def __len__(self):
        return self.vocab_size

    def unknown_ids(self, vocab_size):
        """The ids below `vocab_size` without a token, int64: a model must never choose them."""
        return np.array([i for i in range(vocab_size) if self._token(i) is None], dtype=np.int64)

    def same_vocabulary(self, other):
        """None if each id that both know means the same token, else the lowest that does not.

        One may know ids that the other does not, as where one vocabulary is padded.
        """
        same_kind = self._byte_level == other._byte_level
        for token_id in range(min(self.vocab_size, other.vocab_size)):
            ours, theirs = self._token(token_id), other._token(token_id)
            if None in (ours, theirs) or (same_kind and ours == theirs):
                continue
            if self._spelt(ours) != other._spelt(theirs):
                return token_id
        return None

    def _token(self, token_id):
        """The token's name, None for an id that has none."""
        return self._backend.id_to_token(int(token_id)) if 0 <= token_id < 2**32 else None

    def _spelt(self, token):
        """The bytes a token's name stands for; with a character for no byte it is literal text."""
        if self._byte_level:
            try:
                return bytes(map(_BYTE_OF.__getitem__, token))
            except KeyError:
                pass
        return token.encode("utf-8")


def byte_alphabet():
    """GPT-2's character for each byte: its own if printable, else the next from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + i): byte for i, byte in enumerate(others)
    }


_BYTE_OF = byte_alphabet()


def _is_byte_level(backend, source):
    """Whether names of tokens spell bytes; an error if they are no literal text either."""
    decoder, splitter = _kinds(backend.decoder), _kinds(backend.pre_tokenizer)
    if decoder - {"ByteLevel"}:
        got = ", ".join(sorted(decoder))
        raise TokenizerError(f"{source}: got decoder {got}, ByteLevel or none was wanted")
    return "ByteLevel" in decoder | splitter


def _kinds(component):
    """The types of a tokenizer's component, which may be a sequence of others."""
    if component is None:
        return set()
    state = json.loads(component.__getstate__())
    parts = state.get("decoders") or state.get("pretokenizers") or [state]
    return {part["type"] for part in parts}


def _read_backend(path):
    try:
        return Backend.from_file(str(path))
    except Exception as reason:  # the package raises nothing more particular
        raise TokenizerError(f"{path}: is not a tokenizer ({reason})") from None


def _join_backend(vocab_path, merges_path):
    """GPT-2's tokenizer from its older pair of files."""
    vocab = read_json(vocab_path, TokenizerError)
    merges = _read_merges(merges_path)
    try:
        backend = Backend(models.BPE(vocab, merges))
    except Exception as reason:  # the package raises nothing more particular
        raise TokenizerError(f"{merges_path}: does not fit {vocab_path.name} ({reason})") from None
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if END_OF_TEXT in vocab:
        backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return backend


def _read_merges(path):
    """[(left, right), ...] of a merges.txt, one pair a line; the first line may be a header."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # to which reading turned \r\n
    except (OSError, UnicodeError):
        raise TokenizerError(f"{path}: cannot be read, vocab.json needs its merges") from None
    merges = []
    for number, line in enumerate(lines, 1):
        pair = tuple(line.split(" "))
        if pair == ("",) or (number == 1 and line.startswith("#version:")):
            continue
        if len(pair) != 2:
            raise TokenizerError(f"{path}: line {number}: got {line!r}, two tokens were wanted")
        merges.append(pair)
    return merges
