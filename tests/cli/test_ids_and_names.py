"""What is text and what is a token at the command line: ids, end tokens, names of special ones."""

import json

import pytest
from builders import END_OF_TEXT, random_gpt2, toy_tokenizer, write
from tokenizers import AddedToken

from minidecode import load
from minidecode.cli import main
from minidecode.decoding.stream import text_of
from minidecode.models.tokenizer import Tokenizer

SHAPE = {"V": 300, "n_layer": 1, "n_head": 2, "d": 16, "n_positions": 64}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A model without a tokenizer."""
    return str(write(tmp_path_factory.mktemp("bare"), *random_gpt2(3, **SHAPE)))


def run(capsys, *argv):
    code = main(["generate", *argv])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_ids_go_in_and_come_out_of_a_model_without_a_tokenizer(bare, capsys):
    code, out, _ = run(capsys, "3 1,4", "--model", bare, "--ids", "--greedy", "--max-new-tokens=5")
    assert code == 0
    model, _ = load(bare, tokenizer=None)
    cache, ids = model.new_cache(), [3, 1, 4]
    for _ in range(5):
        ids.append(int(model.forward(ids[cache.length :], cache)[-1].argmax()))
    assert [int(word) for word in out.split()] == ids[3:]


@pytest.mark.parametrize("draft", ["same", "prompt-lookup"])
def test_drafts_need_no_tokenizer_either(bare, capsys, draft):
    words = ["3 1 4", "--model", bare, "--ids", "--greedy", "--max-new-tokens", "6"]
    plain = run(capsys, *words)[1]
    assert run(capsys, *words, "--draft", bare if draft == "same" else draft)[1] == plain


@pytest.mark.parametrize("prompt", ["a b", "1.5", "-1", "1 2 x", "300", "9" * 40])
def test_what_is_no_id_is_refused(bare, capsys, prompt):
    code, out, err = run(capsys, "--model", bare, "--ids", "--", prompt)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("minidecode: ")


def test_without_ids_a_bare_model_says_what_is_missing(bare, capsys):
    code, _, err = run(capsys, "a", "--model", bare)
    assert code == 1
    assert "tokenizer" in err and err.count("\n") == 1


def test_a_prompt_may_be_literal(capsys):
    words = [f"a{END_OF_TEXT}b", "--greedy", "--max-new-tokens", "1", "--json"]
    ids = json.loads(run(capsys, *words)[1])["prompt_ids"]
    literal = json.loads(run(capsys, *words, "--literal")[1])["prompt_ids"]
    assert 0 in ids and 0 not in literal
    assert load("storyteller-6m")[1].decode(literal) == words[0]


def test_other_tokens_may_end_a_text(capsys):
    words = ["Once upon a time", "--greedy", "--max-new-tokens", "40", "--json"]
    tokenizer = load("storyteller-6m")[1]
    plain = json.loads(run(capsys, *words)[1])
    third = plain["ids"][2]
    for name in (str(third), tokenizer.decode([third])):
        found = json.loads(run(capsys, *words, "--eos", name, "--eos", END_OF_TEXT)[1])
        assert found["finish_reason"] == "eos"
        assert found["ids"] == plain["ids"][: plain["ids"].index(third) + 1]
    assert run(capsys, *words, "--eos", "no such token")[0] == 2
    assert run(capsys, *words, "--eos", "4096")[0] == 2
    assert run(capsys, *words, "--eos", "1", "--ignore-eos")[0] == 2


# Stop strings


def chatty():
    backend = toy_tokenizer()
    backend.add_special_tokens([AddedToken(n, special=True) for n in ("<|user|>", "<|end|>")])
    return Tokenizer(backend)


@pytest.mark.parametrize(
    "stop, shown",
    [
        (["<|user|>"], "hi"),
        (["<|user|>yo"], "hi"),
        (["i<|user|>y"], "h"),
        (["<|end|>"], "hiyo"),
        (["<|us"], "hi"),
        (["nothing"], "hiyo!"),
        (["iyo"], "hiyo!"),
        ([], "hiyo!"),
    ],
)
def test_a_stop_string_matches_the_names_of_special_tokens(stop, shown):
    tokenizer = chatty()
    ids = tokenizer.encode("hi<|user|>yo<|end|>!")
    assert len(ids) == 7
    assert text_of(ids, "length", tokenizer, stop) == shown


def test_a_special_token_does_not_break_a_character_where_stop_strings_are_looked_for():
    tokenizer = chatty()
    first, last = tokenizer.encode("é")
    user = tokenizer.token_id("<|user|>")
    assert text_of([user, first, user, last], "length", tokenizer, ["zz"]) == "é"
