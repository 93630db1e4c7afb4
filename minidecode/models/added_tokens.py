"""The tokens that were added to a vocabulary after its training, of which vocab.json knows nothing.

added_tokens.json holds {name: id}; `added_tokens_decoder` in tokenizer_config.json {id: fields}.
Which of them are special, and so no text, the fields say, or a role such as `eos_token` in
tokenizer_config.json or special_tokens_map.json. A tokenizer.json holds all this by itself.
"""

from pathlib import Path

from tokenizers import AddedToken

from ..errors import TokenizerError
from .config import read_json

END_OF_TEXT = "<|endoftext|>"  # special wherever it stands, as in GPT-2's own vocab.json
_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("lstrip", "rstrip", "single_word")  # what a token takes along, or where it may stand


def read_added_tokens(directory: Path, vocab: dict[str, int]) -> dict[int, AddedToken]:
    """The added tokens of a model directory, by id.

    Errors: `TokenizerError` for a broken file, and where an id or a name stands for two tokens.
    """
    config_path, added_path = directory / "tokenizer_config.json", directory / "added_tokens.json"
    config = _read_optional(config_path)
    special = _special_names([config, _read_optional(directory / "special_tokens_map.json")])
    entries: list[tuple[str, int, dict, Path | str]] = []
    if _has_end(vocab):
        entries.append((END_OF_TEXT, vocab[END_OF_TEXT], {"special": True}, ""))
    for name, token_id in _read_optional(added_path).items():
        entries.append((name, token_id, {}, added_path))
    for key, fields in _described(config, config_path):
        entries.append((fields["content"], int(key), fields, config_path))
    names = {token_id: name for name, token_id in vocab.items()}
    ids, found = dict(vocab), {}
    for name, token_id, fields, path in entries:
        _check_id(name, token_id, path)
        if names.setdefault(token_id, name) != name or ids.setdefault(name, token_id) != token_id:
            raise TokenizerError(f"{path}: {name!r}: got id {token_id}, which is not its alone")
        flags = {flag: fields.get(flag) is True for flag in _FLAGS}
        is_special = fields.get("special") is True or name in special
        found[token_id] = AddedToken(name, special=is_special, normalized=False, **flags)
    return found


def _has_end(vocab):
    return isinstance(vocab.get(END_OF_TEXT), int)


def _described(config, path):
    """The entries of `added_tokens_decoder`, each found to be an id and an object with a name."""
    described = config.get("added_tokens_decoder", {})
    if not isinstance(described, dict):
        got = type(described).__name__
        raise TokenizerError(f"{path}: added_tokens_decoder: got a {got}, a JSON object was wanted")
    for key, fields in described.items():
        named = isinstance(fields, dict) and isinstance(fields.get("content"), str)
        if not key.isdecimal() or len(key) > 10 or not named:
            raise TokenizerError(
                f"{path}: added_tokens_decoder: got {key!r:.50}, an id with its content was wanted"
            )
    return described.items()


def _check_id(name, token_id, path):
    whole = isinstance(token_id, int) and not isinstance(token_id, bool)
    if not name or not _is_text(name) or not whole or not 0 <= token_id < 2**31:
        raise TokenizerError(
            f"{path}: {name!r:.50}: got id {token_id!r:.50}, a name with a whole number was wanted"
        )


def _is_text(name):
    """JSON can write half of a surrogate pair, which is a character of no text."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _special_names(files):
    """The names of all tokens that the files give a special role."""
    entries = [fields.get(role) for fields in files for role in _ROLES]
    for fields in files:
        lists = (fields.get(name) for name in _LISTS)
        entries += [entry for each in lists if isinstance(each, list) for entry in each]
    contents = (e.get("content") if isinstance(e, dict) else e for e in entries)
    return {content for content in contents if isinstance(content, str)}


def _read_optional(path):
    return read_json(path, TokenizerError) if path.exists() else {}
