"""Scores of texts: log-probabilities, perplexity, bits per byte."""

import json
import math

import numpy as np
import pytest
from builders import random_gpt2

import minidecode
from minidecode import ContextError, InputError, TableModel, score
from minidecode.cli import main
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

TABLE = [[0.5, 0.25, 0.25], [0.125, 0.375, 0.5], [1.0, 0.0, 0.0]]


class Letters:
    def encode(self, text):
        return [ord(c) - ord("a") for c in text]

    def token_bytes(self, token):
        return b"\xc3\xa9" if token == 2 else bytes([ord("a") + token])


def test_a_score_by_hand():
    found = score(TableModel(TABLE, bos=0), "abc", tokenizer=Letters())
    assert found.tokens == [0, 1, 2]
    assert found.logprobs == pytest.approx([math.log(x) for x in (0.5, 0.25, 0.5)])
    assert found.perplexity == pytest.approx((1 / 0.5 / 0.25 / 0.5) ** (1 / 3))
    assert (found.n_bytes, found.bits_per_byte) == (4, pytest.approx((1 + 2 + 1) / 4))


def test_without_a_bos_id_the_first_token_is_not_scored():
    found = score(TableModel(TABLE), "cab", tokenizer=Letters())
    assert found.logprobs[0] is None
    assert found.logprobs[1:] == pytest.approx([math.log(1.0), math.log(0.25)])
    assert found.n_bytes == 2
    assert found.bits_per_byte == pytest.approx(1.0)
    alone = score(TableModel(TABLE), [1])
    assert (alone.logprobs, alone.perplexity, alone.bits_per_byte) == ([None], None, None)


def test_the_impossible_is_infinitely_surprising():
    found = score(TableModel(TABLE, bos=2), [1, 1])
    assert (found.logprobs[0], found.perplexity) == (-math.inf, math.inf)


def test_a_score_is_what_generate_tells_of_the_same_text():
    model, tokenizer = minidecode.load("storyteller-1m")
    result = minidecode.generate(
        model, "", tokenizer=tokenizer, logprobs=0, max_new_tokens=30, chance=minidecode.Dice(1)
    )
    found = score(model, result.tokens, tokenizer=tokenizer)
    told = [each.logprob for each in result.logprobs]
    assert found.logprobs == pytest.approx(told, abs=1e-4)


def test_a_text_is_read_in_passes_of_many_rows():
    config, tensors = random_gpt2(1, 31, 1, 1, 8, 64)
    model = GPT2(Config.from_dict(config), tensors)
    passes, forward = [], model.forward_many
    model.forward_many = lambda *args: passes.append(1) or forward(*args)
    found = score(model, np.arange(30))
    assert len(found.logprobs) == 30
    assert len(passes) <= 3


@pytest.mark.parametrize("bos", [None, 0])
def test_a_text_longer_than_the_context_is_told_with_its_length_before_it_is_read(bos):
    """As many tokens as the model has positions are scored, whether it has a bos id or not."""
    model = TableModel([[0.5, 0.5], [0.5, 0.5]], n_positions=6, bos=bos)
    most = 6 if bos is not None else 7
    found = score(model, [1] * most)
    assert found.scored == pytest.approx([np.log(0.5)] * 6)
    with pytest.raises(ContextError, match=f"got {most + 1} tokens, at most {most} were wanted"):
        score(model, [1] * (most + 1))


def test_what_cannot_be_scored_is_refused():
    model = TableModel(TABLE, n_positions=4)
    for text in ("", []):
        with pytest.raises(InputError, match="text: it is empty"):
            score(model, text, tokenizer=Letters())
    with pytest.raises(InputError, match="prompt: got text, which needs a tokenizer"):
        score(model, "abc")
    with pytest.raises(InputError, match="token id: got 3"):
        score(model, [0, 3])
    with pytest.raises(ContextError):
        score(model, [0] * 9)
    with pytest.raises(InputError, match="model: got 'gpt2'"):
        score("gpt2", [0])


def run(capsys, *arguments):
    code = main(["score", *arguments, "--model", "storyteller-1m"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_prints_a_table_colours_or_json(capsys, tmp_path):
    text = "Once upon a time, a xylophone\x1b"
    (tmp_path / "text.txt").write_text(text + "\n", encoding="utf-8")
    path = str(tmp_path / "text.txt")
    code, out, err = run(capsys, path)
    assert code == 0
    assert out.splitlines()[0].split() == ["token", "bits"]
    assert "perplexity" in err and err.endswith("bits per byte\n")
    code, coloured, _ = run(capsys, path, "--color", "always")
    assert "\x1b[30;48;5;" in coloured and "\\x1b" in coloured
    code, out, err = run(capsys, path, "--json")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert "".join(facts["tokens"]) == text
    assert len(facts["logprobs"]) == len(facts["ids"])
    assert facts["bytes"] == len(text)


def test_generate_tells_log_probabilities_as_json(capsys):
    arguments = ["generate", "She", "--greedy", "--max-new-tokens", "4"]
    assert main([*arguments, "--json", "--logprobs", "2"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in facts["logprobs"]] == facts["ids"]
    for each in facts["logprobs"]:
        assert (len(each["top"]), len(each["warped_top"])) == (2, 1)
        assert each["top"][0] == {k: each[k] for k in ("id", "text", "logprob")}
        assert each["warped"] == 0
    assert main([*arguments, "--logprobs", "2"]) == 2
    assert "--logprobs has no effect without --json" in capsys.readouterr().err
