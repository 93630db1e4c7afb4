"""Text to ids and back: both forms of files, special tokens, ids without a token."""

import json

import numpy as np
import pytest
from builders import END_OF_TEXT, toy_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from minidecode import InputError, TokenizerError, load
from minidecode.models.tokenizer import Tokenizer

MERGES = [("l", "o"), ("lo", "w"), ("e", "r"), ("Ġ", "low"), ("Ã", "©"), ("Ġlow", "er")]
TEXT = "low lower  é 🙂\n"
TOY = Tokenizer(toy_tokenizer(merges=MERGES))
STORY = load("storyteller-6m")[1]


def write_pair(directory, newline="\n", header=True, final_newline=True, merges=MERGES):
    """vocab.json and merges.txt of the toy tokenizer."""
    vocab = toy_tokenizer(merges=merges).get_vocab()
    (directory / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = ["#version: 0.2"] * header + [f"{left} {right}" for left, right in merges]
    text = newline.join(lines) + newline * final_newline
    (directory / "merges.txt").write_bytes(text.encode("utf-8"))
    return directory


def word_level(vocab, decoder=None):
    backend = Backend(models.WordLevel(vocab, unk_token=next(iter(vocab))))
    backend.decoder = decoder
    return backend


# Files


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("final_newline", [True, False])
def test_every_form_of_the_files_gives_the_same_ids(tmp_path, newline, header, final_newline):
    pair = Tokenizer.read(write_pair(tmp_path, newline, header, final_newline))
    ids = pair.encode(TEXT)
    assert ids == TOY.encode(TEXT)
    assert pair.decode(ids) == TEXT
    toy_tokenizer(merges=MERGES).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "merges.txt").unlink()  # tokenizer.json serves alone
    assert Tokenizer.read(tmp_path).encode(TEXT) == ids


def test_no_merge_is_lost(tmp_path):
    pair = Tokenizer.read(write_pair(tmp_path, final_newline=False, header=False))
    for merged in range(256, 256 + len(MERGES)):
        assert pair.encode(TOY.decode([merged])) == [merged]


def test_the_pair_puts_no_space_before_a_text(tmp_path):
    pair = Tokenizer.read(write_pair(tmp_path))
    assert pair.encode("low") != pair.encode(" low")
    assert pair.decode(pair.encode("low")) == "low"


def test_the_pair_knows_the_end_of_text(tmp_path):
    pair = Tokenizer.read(write_pair(tmp_path))
    end = TOY.vocab_size - 1
    assert pair.encode(f"low{END_OF_TEXT}") == [*TOY.encode("low"), end]
    assert pair.token_bytes(end) == b""


def test_a_directory_without_a_tokenizer_is_told_both_forms(tmp_path):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json or vocab\.json with merges\.txt"):
        Tokenizer.read(tmp_path)
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json or vocab\.json with merges\.txt"):
        Tokenizer.read(tmp_path)


def test_a_vocabulary_without_its_merges_is_refused(tmp_path):
    (write_pair(tmp_path) / "merges.txt").unlink()
    with pytest.raises(TokenizerError, match=r"merges\.txt"):
        Tokenizer.read(tmp_path)


@pytest.mark.parametrize("line", ["l", "l o w", " l", "l  o"])
def test_a_broken_merge_is_named_with_its_line(tmp_path, line):
    (write_pair(tmp_path) / "merges.txt").write_text(f"#version: 0.2\nl o\n{line}\n")
    with pytest.raises(TokenizerError, match=r"merges\.txt: .*(line 3|does not fit)"):
        Tokenizer.read(tmp_path)


def test_a_merge_of_tokens_that_are_not_there_is_refused(tmp_path):
    (write_pair(tmp_path) / "merges.txt").write_text("l q\n")
    with pytest.raises(TokenizerError, match=r"merges\.txt: does not fit vocab\.json"):
        Tokenizer.read(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": 3}'])
def test_a_broken_file_is_named(tmp_path, name, content):
    write_pair(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=name.replace(".", r"\.")):
        Tokenizer.read(tmp_path)


# Encoding


def test_what_is_stored_for_training_is_switched_off(tmp_path):
    backend = toy_tokenizer(merges=MERGES)
    backend.enable_truncation(3)
    backend.enable_padding(length=12, pad_id=1)
    backend.model.dropout = 1.0
    backend.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A {END_OF_TEXT}",
        special_tokens=[(END_OF_TEXT, backend.token_to_id(END_OF_TEXT))],
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.read(tmp_path)
    for text in ("", "low", "low lower lower low"):
        assert tokenizer.encode(text) == TOY.encode(text)


def test_the_name_of_a_special_token_becomes_its_id():
    assert STORY.encode(END_OF_TEXT) == [0]
    assert STORY.encode(f"a{END_OF_TEXT}b") == [*STORY.encode("a"), 0, *STORY.encode("b")]


def test_blank_texts_are_texts():
    assert STORY.encode("") == []
    assert len(STORY.encode(" ")) == 1
    assert STORY.decode(STORY.encode(" ")) == " "


@pytest.mark.parametrize("text", ["a\ud800", b"a", None, ["a"], 3])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(InputError, match="text: got"):
        STORY.encode(text)


# Decoding


@pytest.mark.parametrize("tokenizer", [TOY, STORY], ids=["toy", "storyteller"])
@given(text=st.text().filter(lambda text: END_OF_TEXT not in text))
def test_decoding_gives_the_encoded_text_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("tokenizer", [TOY, STORY], ids=["toy", "storyteller"])
@given(data=st.data())
def test_decoding_is_that_of_the_tokenizers_package(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2)))
    assert tokenizer.decode(ids) == tokenizer._backend.decode(ids)


def test_added_tokens_decode_as_in_the_tokenizers_package():
    backend = toy_tokenizer()
    backend.add_tokens(["[name]", "a b", "日本"])
    tokenizer = Tokenizer(backend)
    ids = tokenizer.encode("x[name]a b日本é")
    assert len(ids) == 6
    for i in range(250, tokenizer.vocab_size):
        assert tokenizer.decode([i]) == backend.decode([i])
    assert tokenizer.decode(ids) == backend.decode(ids)


NAMES = ["café", "[name]", "a b", "日本", "ünï", "🙂", "Ã©x"]


@given(text=st.text(), names=st.lists(st.sampled_from(NAMES), max_size=4))
def test_added_tokens_of_any_letters_decode_to_themselves(text, names):
    backend = toy_tokenizer(merges=MERGES)
    backend.add_tokens(NAMES)
    tokenizer = Tokenizer(backend)
    text = text.join(["", *names, ""]).replace(END_OF_TEXT, "")
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", ["é", "Ġ", "Ã©", "Ċ"])
def test_an_added_token_that_already_stands_for_other_bytes_is_refused(name):
    backend = toy_tokenizer(merges=MERGES)
    backend.add_tokens([name])
    with pytest.raises(TokenizerError, match=f"added token '{name}' also stands for other bytes"):
        Tokenizer(backend)


def write_added(directory, **files):
    """The pair of files with others of JSON beside them; ids below 263 are taken."""
    write_pair(directory)
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return Tokenizer.read(directory)


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens": {"<|user|>": 300, "café": 263}},
        {
            "tokenizer_config": {
                "added_tokens_decoder": {
                    "300": {"content": "<|user|>", "special": True},
                    "263": {"content": "café", "special": False},
                }
            }
        },
    ],
)
def test_tokens_added_beside_the_pair_keep_their_ids(tmp_path, files):
    tokenizer = write_added(tmp_path, **files)
    ids = tokenizer.encode("<|user|>hi café")
    assert ids == [300, 7, 8, *TOY.encode(" "), 263]
    special = "tokenizer_config" in files
    assert tokenizer.decode(ids) == ("" if special else "<|user|>") + "hi café"
    assert tokenizer.spelt(300) == b"<|user|>"
    assert tokenizer.vocab_size == 301
    assert tokenizer.unknown_ids(302).tolist() == [*range(264, 300), 301]


@pytest.mark.parametrize("role", ["eos_token", "additional_special_tokens"])
@pytest.mark.parametrize("file", ["tokenizer_config", "special_tokens_map"])
@pytest.mark.parametrize("form", [str, lambda name: {"content": name}])
def test_a_role_makes_an_added_token_special(tmp_path, role, file, form):
    value = form("<|user|>")
    value = [value] if role.endswith("tokens") else value
    files = {"added_tokens": {"<|user|>": 263}, file: {role: value}}
    assert write_added(tmp_path, **files).token_bytes(263) == b""


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens": {"<|user|>": 3}},
        {"added_tokens": {"low": 300}},
        {"added_tokens": {"x": 263, "y": 263}},
        {"added_tokens": {"<|user|>": "263"}},
        {"added_tokens": {"<|user|>": -1}},
        {"added_tokens": {"<|user|>": 10**30}},
        {"added_tokens": {"<|user|>": True}},
        {"added_tokens": {"": 263}},
        {"added_tokens": {"\ud800": 263}},
        {"added_tokens": {"a\udfff": 263}},
        {"tokenizer_config": {"added_tokens_decoder": {"263": {"content": "\ud800"}}}},
        {"added_tokens": {"é": 300}},
        {"added_tokens": []},
        {"tokenizer_config": {"added_tokens_decoder": [1]}},
        {"tokenizer_config": {"added_tokens_decoder": {"a": {"content": "x"}}}},
        {"tokenizer_config": {"added_tokens_decoder": {"263": {"content": 5}}}},
        {"tokenizer_config": {"added_tokens_decoder": {"263": "x"}}},
        {
            "added_tokens": {"x": 263},
            "tokenizer_config": {"added_tokens_decoder": {"264": {"content": "x"}}},
        },
    ],
)
def test_added_tokens_that_make_no_sense_are_refused_by_file(tmp_path, files):
    with pytest.raises(TokenizerError, match="|".join(files)):
        write_added(tmp_path, **files)


@pytest.mark.parametrize("value", [[1], {}, None, "3", 2.5, True, 10**30, -1, "\ud800"], ids=repr)
def test_an_id_in_vocab_json_that_is_none_is_refused_by_file(tmp_path, value):
    write_pair(tmp_path)
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"zz": value}))
    with pytest.raises(TokenizerError, match=r"vocab\.json"):
        Tokenizer.read(tmp_path)


@pytest.mark.parametrize("kind", [models.WordLevel, models.WordPiece])
def test_text_that_the_package_fails_at_is_refused_in_a_sentence(tmp_path, kind):
    """A vocabulary without the token for what it does not know."""
    Backend(kind({"a": 0}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.read(tmp_path)
    assert tokenizer.encode("a") == [0]
    with pytest.raises(InputError, match=r"text: got 'b', which this tokenizer cannot read"):
        tokenizer.encode("b")


# A user's text is text


@pytest.mark.parametrize("tokenizer", [TOY, STORY], ids=["toy", "storyteller"])
@given(text=st.text(), place=st.integers(0, 5))
def test_without_specials_the_name_of_a_special_token_stays_text(tokenizer, text, place):
    text = text[:place] + END_OF_TEXT + text[place:]
    ids = tokenizer.encode(text, special=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode("ab", special=False) == tokenizer.encode("ab")


def test_a_token_has_the_id_of_its_name():
    assert TOY.token_id(END_OF_TEXT) == TOY.vocab_size - 1
    assert TOY.token_id("low") == TOY.encode("low")[0]
    assert TOY.token_id("lowlow") is None


# Vocabularies that cannot write everything


@pytest.mark.parametrize("byte", ["A", "Ġ", "ÿ"])
def test_a_byte_level_vocabulary_without_a_byte_is_refused_at_load(tmp_path, byte):
    state = json.loads(toy_tokenizer().to_str())
    del state["model"]["vocab"][byte]
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: got no token for the byte 0x"):
        Tokenizer.read(tmp_path)


def test_letters_without_a_token_are_refused_and_not_left_out():
    partial = toy_tokenizer(6)
    partial.decoder = decoders.ByteLevel()
    for backend in (toy_tokenizer(6), partial):
        assert Tokenizer(backend).encode("abc") == [0, 1, 2]
        with pytest.raises(InputError, match="cannot write"):
            Tokenizer(backend).encode("axb")


def test_a_panic_of_the_package_is_one_sentence(tmp_path, capfd):
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}
    state = {"version": "1.0", "model": model | {"continuing_subword_prefix": "long"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(TokenizerError, match="is not a tokenizer"):
        Tokenizer.read(tmp_path)
    assert capfd.readouterr().err == ""


def test_nothing_is_cleaned_up_or_stripped():
    text = " a , b . don ' t \n\n  x "
    assert STORY.decode(STORY.encode(text)) == text


def test_tokens_are_bytes():
    assert b"".join(map(TOY.token_bytes, TOY.encode("🙂"))) == "🙂".encode()
    assert sorted(map(TOY.token_bytes, range(256))) == [bytes([b]) for b in range(256)]


def test_an_id_without_a_token_means_no_text():
    for unknown in (-1, TOY.vocab_size, 2**40):
        assert TOY.token_bytes(unknown) == b""
    assert TOY.decode([0, TOY.vocab_size, 1, np.int64(2)]) == "abc"


def test_a_special_token_means_no_text_and_does_not_break_a_character():
    plain = Tokenizer(toy_tokenizer())
    first, last = plain.encode("é")
    end = plain.vocab_size - 1
    assert plain.token_bytes(end) == b""
    assert plain.decode([end, first, end, last, end]) == "é"


# Ids


def test_ids_beyond_the_tokenizer_and_in_its_holes_are_unknown():
    tokenizer = Tokenizer(word_level({"a": 0, "b": 2, "c": 5}))
    assert tokenizer.vocab_size == len(tokenizer) == 6
    assert tokenizer.unknown_ids(8).tolist() == [1, 3, 4, 6, 7]
    assert tokenizer.unknown_ids(3).tolist() == [1]
    assert STORY.unknown_ids(4096).tolist() == []
    assert STORY.unknown_ids(4096).dtype == np.int64


def test_same_vocabulary_finds_the_first_token_that_differs():
    letters = {letter: i for i, letter in enumerate("abcdef")}
    tokenizer = Tokenizer(word_level(letters))
    assert tokenizer.same_vocabulary(Tokenizer(word_level(letters))) is None
    assert STORY.same_vocabulary(load("storyteller-1m")[1]) is None
    other = letters | {"x": 3, "y": 5}
    del other["d"], other["f"]
    assert tokenizer.same_vocabulary(Tokenizer(word_level(other))) == 3
    assert TOY.same_vocabulary(STORY) == STORY.same_vocabulary(TOY) == 0


def test_a_padded_vocabulary_is_the_same():
    small, large = Tokenizer(toy_tokenizer(20)), Tokenizer(toy_tokenizer(26))
    assert small.same_vocabulary(large) is None
    assert large.same_vocabulary(small) is None


def test_equal_names_of_bytes_and_of_literal_text_are_not_the_same():
    names = {"a": 0, "Ġ": 1}
    literal, backend = Tokenizer(word_level(names)), word_level(names, decoders.ByteLevel())
    assert literal.same_vocabulary(Tokenizer(backend)) == 1


def test_special_or_not_the_same_name_is_the_same_token():
    backend = toy_tokenizer(specials=())
    backend.add_tokens([AddedToken(END_OF_TEXT, special=False, normalized=False)])
    assert Tokenizer(backend).same_vocabulary(Tokenizer(toy_tokenizer())) is None


# Other kinds of tokenizers


def test_without_byte_level_tokens_are_literal_text():
    tokenizer = Tokenizer(word_level({"a": 0, "é": 1, "Ġ": 2}))
    assert tokenizer.token_bytes(1) == "é".encode()
    assert tokenizer.decode([0, 1, 2, 0]) == "aéĠa"


@pytest.mark.parametrize("place", ["decoder", "pre_tokenizer"])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_byte_level_in_either_place_makes_bytes(place, depth):
    backend = word_level({"Ġa": 0, "Ã": 1, "©": 2})
    kinds = decoders if place == "decoder" else pre_tokenizers
    part = kinds.ByteLevel()
    for _ in range(depth):
        part = kinds.Sequence([part])
    setattr(backend, place, part)
    assert Tokenizer(backend).decode([0, 1, 2]) == " aé"


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.WordPiece(),
        decoders.Metaspace(),
        decoders.BPEDecoder(),
        decoders.ByteFallback(),
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
        decoders.Sequence([decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])]),
    ],
)
def test_other_decoders_are_refused(tmp_path, decoder):
    word_level({"a": 0}, decoder).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: got decoder \w+"):
        Tokenizer.read(tmp_path)
