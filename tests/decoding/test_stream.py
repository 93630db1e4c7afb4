"""Text while it comes: whole characters only, and nothing that a stop string could take back."""

import pytest
from builders import END_OF_TEXT, toy_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from minidecode import InputError, load
from minidecode.decoding.stream import TextStream
from minidecode.models.tokenizer import Tokenizer

BYTES = Tokenizer(toy_tokenizer())  # one token a byte, and <|endoftext|> last
STORY = load("storyteller-6m")[1]
FAMILY = "👨‍👩‍👧‍👦"


class Pieces:
    """A tokenizer whose token i is the i-th of some texts, to cut a text at any place."""

    def __init__(self, *texts):
        self.texts = texts

    def token_bytes(self, token):
        return self.texts[token].encode()


def run(tokenizer, ids, stop=()):
    """The chunks that `ids` give, the last from `finish`; whether a stop string was complete."""
    stream = TextStream(tokenizer, stop)
    chunks = [stream.feed(token) for token in ids]
    return [*chunks, stream.finish()], stream.stopped


def run_pieces(*texts, stop):
    return run(Pieces(*texts), range(len(texts)), stop)


def cut_at_stop(text, stop):
    """What may be shown of `text`, by definition: let it grow until it ends in a stop string."""
    for end in range(len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


# Characters


def test_a_character_appears_with_its_last_byte():
    assert run(BYTES, BYTES.encode("🙂")) == (["", "", "", "🙂", ""], False)
    assert run(BYTES, BYTES.encode("aé")) == (["a", "", "é", ""], False)


@pytest.mark.parametrize("text", ["日本", "🙂🙂", FAMILY, "e\u0301", "\u200d", "a\0b", "\ufeff"])
def test_no_replacement_character_is_shown_while_one_is_incomplete(text):
    chunks, _ = run(BYTES, BYTES.encode(text))
    assert "".join(chunks) == text
    assert not any("\ufffd" in chunk for chunk in chunks)


@given(text=st.text().filter(lambda text: END_OF_TEXT not in text))
def test_chunks_join_to_the_text(text):
    for tokenizer in (BYTES, STORY):
        chunks, _ = run(tokenizer, tokenizer.encode(text))
        assert "".join(chunks) == text


@given(ids=st.lists(st.integers(0, BYTES.vocab_size)))
def test_chunks_join_to_what_decode_gives_for_any_bytes(ids):
    chunks, _ = run(BYTES, ids)
    assert "".join(chunks) == BYTES.decode(ids)
    for chunk in chunks:
        chunk.encode("utf-8")  # valid at every moment


def test_a_character_that_is_never_completed_is_replaced_at_the_end():
    assert run(BYTES, BYTES.encode("a🙂")[:-1]) == (["a", "", "", "", "\ufffd"], False)


def test_spaces_and_newlines_come_through_as_they_are():
    chunks, _ = run_pieces(" world", "\n", "\n", "  x", " ,", " n't", stop=())
    assert chunks == [" world", "\n", "\n", "  x", " ,", " n't", ""]
    text = " world\n\n  x , don 't "
    assert "".join(run(STORY, STORY.encode(text))[0]) == text


def test_a_stream_behind_a_prompt_shows_what_decode_adds_to_it():
    prompt, rest = STORY.encode("Hello"), STORY.encode(" world\n\n  x")
    shown = "".join(run(STORY, rest)[0])
    assert shown == STORY.decode(prompt + rest)[len(STORY.decode(prompt)) :]


# Stop strings


def test_a_stop_string_inside_a_chunk_ends_the_text():
    assert run_pieces("five six", stop="five") == (["", ""], True)
    assert run_pieces("one five six", stop="five") == (["one ", ""], True)


def test_text_held_at_the_end_is_shown_if_nothing_matched():
    assert run_pieces("say ", "pleas", stop="please") == (["say ", "", "pleas"], False)


def test_nothing_is_shown_after_a_match():
    stream = TextStream(Pieces("a", "st", "op", "b"), "stop")
    assert [stream.feed(i) for i in range(4)] == ["a", "", "", ""]
    assert stream.stopped
    assert (stream.finish(), stream.feed(0), stream.finish()) == ("", "", "")


def test_stopped_is_set_by_the_token_that_completes_the_stop_string():
    stream = TextStream(Pieces("a s", "to", "p b", "c"), "stop")
    assert [(stream.feed(i), stream.stopped) for i in range(3)] == [
        ("a ", False),
        ("", False),
        ("", True),
    ]


def test_only_what_may_be_a_beginning_is_held():
    assert run_pieces("xa", "ac", "b", stop="aab") == (["x", "aac", "b", ""], False)
    assert run_pieces("aaa", "a", stop="aab") == (["a", "a", "aa"], False)


def test_a_stop_string_may_begin_inside_a_false_start_of_itself():
    assert run_pieces("aa", "ab", stop="aab") == (["", "a", ""], True)
    assert run_pieces(*"xababac", stop="abac") == (["x", "", "", "", "ab", "", "", ""], True)


def test_the_stop_string_that_is_complete_first_counts_and_then_the_longest():
    assert run_pieces("abcd", stop=["abcd", "bc"]) == (["a", ""], True)
    assert run_pieces(*"abcd", stop=["abcd", "bc"]) == (["", "", "a", "", ""], True)
    assert run_pieces("xab", stop=["b", "ab"]) == (["x", ""], True)
    assert run_pieces("one two", stop=["two", "one"]) == (["", ""], True)


def test_a_stop_string_of_many_bytes_may_be_cut_anywhere():
    ids = BYTES.encode("a🙂é🙂b")
    assert run(BYTES, ids, "é🙂")[1]
    assert "".join(run(BYTES, ids, "é🙂")[0]) == "a🙂"


@given(
    pieces=st.lists(st.text("abé", max_size=4), max_size=8),
    stop=st.lists(st.text("abé", min_size=1, max_size=4), max_size=3),
)
def test_the_outcome_depends_on_the_text_alone(pieces, stop):
    text = "".join(pieces)
    for cut in (pieces, list(text), [text]):
        chunks, stopped = run_pieces(*cut, stop=stop)
        assert ("".join(chunks), stopped) == cut_at_stop(text, stop)


@given(text=st.text("ab", max_size=12), stop=st.text("ab", min_size=1, max_size=4))
def test_nothing_waits_longer_than_it_must(text, stop):
    """Before a match, all is shown but the longest end that the stop string begins with."""
    stream, shown = TextStream(Pieces(*text), stop), ""
    for i in range(len(text)):
        shown += stream.feed(i)
        if stream.stopped:
            return
        so_far = text[: i + 1]
        held = max(n for n in range(len(stop)) if so_far.endswith(stop[:n]))
        assert shown == so_far[: len(so_far) - held]


@pytest.mark.parametrize("stop", ["", [""], ["a", ""], [3], [None], b"a"])
def test_an_empty_stop_string_is_refused(stop):
    with pytest.raises(InputError, match="stop: got"):
        TextStream(BYTES, stop)
