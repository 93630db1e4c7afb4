"""Text to token ids and back, on the `tokenizers` package: byte-level BPE as in GPT-2.

A byte-level tokenizer spells every byte of UTF-8 as one printable character, so that any text can
be written, and a token may end in the middle of a character. What a token means is therefore bytes,
and text comes of joining them. A special token, such as `<|endoftext|>`, means no text.
"""

import contextlib
import json
import os
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from ..errors import InputError, TokenizerError
from ..lazy import lazy
from .added_tokens import read_added_tokens
from .config import read_json

FILES = (  # all that a directory may hold of a tokenizer
    *("tokenizer.json", "vocab.json", "merges.txt"),
    *("added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"),
)


class Tokenizer:
    """A `tokenizers.Tokenizer` in which nothing may lose or invent tokens.

    Truncation, padding and the dropping of merges are switched off, and a post-processor adds
    nothing to a text's own tokens. With ByteLevel as decoder or pre-tokenizer the tokens are bytes,
    with neither they are literal text. An added token is literal text in both. WordPiece, Unigram
    and other kinds whose decoder changes the text are refused. What a tokenizer.json does to a text
    before it is split (a normalizer, a prefix space, an added token that strips) is honoured, and
    it is that text which `decode` gives back. Errors: `TokenizerError`, naming `source`.
    """

    def __init__(self, backend, source="tokenizer"):
        backend.no_truncation()
        backend.no_padding()
        if getattr(backend.model, "dropout", None):
            backend.model.dropout = None  # leaves out merges at random, which is for training
        self._backend = backend
        self._byte_level = _is_byte_level(backend, source)
        added = backend.get_added_tokens_decoder()
        self._added = {token_id: token.content for token_id, token in added.items()}
        self._special = {token_id for token_id, token in added.items() if token.special}
        if self._byte_level:
            _check_added(backend, self._added, source)

    def __repr__(self):
        kind = "bytes" if self._byte_level else "literal text"
        return f"Tokenizer({self.vocab_size} ids of {kind}, {len(self._special)} special)"

    @classmethod
    def read(cls, directory):
        """The tokenizer of a model directory: tokenizer.json, else vocab.json with merges.txt.

        Errors: `TokenizerError` naming the file that is missing or broken.
        """
        directory = Path(directory)
        whole, vocab = directory / "tokenizer.json", directory / "vocab.json"
        if whole.exists():
            tokenizer, source = cls(_read_backend(whole), whole), whole
        elif vocab.exists():
            tokenizer, source = cls(_join_backend(vocab, directory / "merges.txt"), vocab), vocab
        else:
            raise _missing(directory)
        lacking = tokenizer.lacking_bytes()
        if lacking:
            raise TokenizerError(
                f"{source}: got no token for the byte 0x{lacking[0]:02x}, all 256 were wanted"
            )
        return tokenizer

    def encode(self, text, *, special=True):
        """The ids of `text`, with nothing put before or after them.

        Where the text has the name of a special token, the token's id stands for it; with `special`
        False the name is text like any other. Errors: `InputError` for what is no text, such as
        half of a surrogate pair, and for text that the vocabulary cannot write.
        """
        backend = self._backend if special else self._literal
        try:
            ids = backend.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeError):
            raise InputError(f"text: got {text!r:.50}, Unicode text was wanted") from None
        except Exception as reason:  # the package's own, as where a vocabulary lacks its unk_token
            raise InputError(
                f"text: got {text!r:.50}, which this tokenizer cannot read ({reason!s:.200})"
            ) from None
        if self._incomplete and b"".join(map(self.spelt, ids)) != text.encode("utf-8"):
            raise InputError(f"text: got {text!r:.50}, which this vocabulary cannot write")
        return ids

    def decode(self, ids):
        """The text of `ids`: their bytes, with U+FFFD for those that are no UTF-8."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id):
        """What the token means: b"" if it is special, or if there is none of that id."""
        return b"" if token_id in self._special else self.spelt(token_id)

    def spelt(self, token_id):
        """`token_bytes`, but a special token's name for a special token."""
        token = self._token(token_id)
        if token is None:
            return b""
        if token_id not in self._added and self._byte_level:
            with contextlib.suppress(KeyError):  # a name with a character for no byte is text
                return bytes(map(_BYTE_OF.__getitem__, token))
        return token.encode("utf-8")

    def token_id(self, name):
        """The id of the added token `name`, else of the one token that `name` is written with.

        None where there is no such token, or it takes several.
        """
        for token_id, content in self._added.items():
            if content == name:
                return token_id
        ids = self.encode(name)
        return ids[0] if len(ids) == 1 else None

    def lacking_bytes(self):
        """The bytes that a byte-level vocabulary lacks, ascending; [] for other kinds."""
        if not self._byte_level:
            return []
        return sorted(b for name, b in _BYTE_OF.items() if self._backend.token_to_id(name) is None)

    @lazy
    def _incomplete(self):
        """Whether the package would leave out, in silence, what has no token."""
        if self._byte_level:
            return bool(self.lacking_bytes())
        return getattr(self._backend.model, "unk_token", None) is None

    @lazy
    def _literal(self):
        """The same tokenizer, to which the names of special tokens are text."""
        backend = Backend.from_str(self._backend.to_str())
        backend.encode_special_tokens = True
        return backend

    @lazy
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
        for token_id in range(min(self.vocab_size, other.vocab_size)):
            if None in (self._token(token_id), other._token(token_id)):
                continue
            if self.spelt(token_id) != other.spelt(token_id):
                return token_id
        return None

    def _token(self, token_id):
        """The token's name, None for an id that has none."""
        return self._backend.id_to_token(int(token_id)) if 0 <= token_id < 2**32 else None


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
    """The types of a tokenizer's component, which may be a sequence of others, and they too."""
    if component is None:
        return set()
    waiting, kinds = [json.loads(component.__getstate__())], set()
    while waiting:
        state = waiting.pop()
        parts = state.get("decoders") or state.get("pretokenizers")
        if parts:
            waiting += parts
        else:
            kinds.add(state["type"])
    return kinds


def _check_added(backend, added, source):
    """Refuse an added token whose name the vocabulary already writes other bytes with."""
    for token_id, content in added.items():
        if not content.isascii() and [t.id for t in backend.model.tokenize(content)] == [token_id]:
            raise TokenizerError(
                f"{source}: added token {content!r} also stands for other bytes in the vocabulary, "
                "one meaning for each token was wanted"
            )


def _missing(directory):
    return TokenizerError(
        f"{directory}: got no tokenizer, tokenizer.json or vocab.json with merges.txt was wanted"
    )


def _read_backend(path):
    with _one_error(f"{path}: is not a tokenizer"):
        return Backend.from_file(str(path))


def _join_backend(vocab_path, merges_path):
    """GPT-2's tokenizer from its older pair of files, with the tokens that were added to it."""
    vocab = read_json(vocab_path, TokenizerError)
    for name, token_id in vocab.items():
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise TokenizerError(
                f"{vocab_path}: {name!r:.50}: got {token_id!r:.50}, a whole number was wanted"
            )
    merges = _read_merges(merges_path)
    added = read_added_tokens(vocab_path.parent, vocab)
    # An added token's id need not be the next one: it joins the vocabulary, which no merge reaches.
    whole = vocab | {token.content: token_id for token_id, token in added.items()}
    with _one_error(f"{merges_path}: does not fit {vocab_path.name}"):
        backend = Backend(models.BPE(whole, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    for token in added.values():
        (backend.add_special_tokens if token.special else backend.add_tokens)([token])
    return backend


@contextlib.contextmanager
def _one_error(what):
    """Whatever the package raises, a panic too, as a `TokenizerError`."""
    with _muted_stderr():
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as reason:  # a panic of Rust is no Exception
            line = " ".join(str(reason).split())
            raise TokenizerError(f"{what} ({line:.200})") from None


@contextlib.contextmanager
def _muted_stderr():
    """Nothing written to the file descriptor of standard error appears, as where Rust panics."""
    try:
        kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no standard error to be muted
        yield
        return
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


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
