"""The settings that are no single number, and those of a run, from the command line."""

import json

import pytest

from minidecode import load
from minidecode.cli import main

SHORT = ["generate", "Once upon a time", "--greedy", "--json", "--max-new-tokens", "6"]


def ids_of(capsys, *options):
    assert main([*SHORT, *options]) == 0
    return json.loads(capsys.readouterr().out)["ids"]


def test_ids_and_words_can_be_banned_and_favoured(capsys):
    _, tokenizer = load("storyteller-6m")
    first, second, *_ = ids_of(capsys)
    assert first not in ids_of(capsys, "--suppress", str(first), "--suppress", "7")
    assert ids_of(capsys, "--logit-bias", f"{first}=-inf")[0] != first
    assert ids_of(capsys, "--logit-bias", "300=200", "--logit-bias", f"{first}=1") == [300] * 6
    word = tokenizer.decode([second]).strip()
    for text in (word, f" {word}"):
        found = ids_of(capsys, "--bad-words", text)
        assert found[0] == first and second not in found


def test_a_text_goes_on_past_its_end_while_it_is_too_short(capsys):
    _, tokenizer = load("storyteller-6m")
    end = str(tokenizer.encode("<|endoftext|>")[0])
    assert ids_of(capsys, "--logit-bias", f"{end}=200") == [int(end)]
    found = ids_of(capsys, "--logit-bias", f"{end}=200", "--min-new-tokens", "3")
    assert len(found) == 4 and found[-1] == int(end) and int(end) not in found[:3]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--logit-bias", "5"], "--logit-bias: got '5', ID=NUMBER was wanted"),
        (["--logit-bias", "5=x"], "--logit-bias: got '5=x', ID=NUMBER was wanted"),
        (["--top-k", "2.5"], "--top-k: got '2.5', a whole number was wanted"),
        (["--top-k", "9" * 5000], f"--top-k: got '{'9' * 49}...', a whole number was wanted"),
        (["--top-p", "half"], "--top-p: got 'half', a number was wanted"),
        (["--logit-bias", "5=inf"], "logit_bias: got inf"),
        (["--logit-bias", "99999=1"], "logit_bias: got id 99999, an id from 0 to 4095 was wanted"),
        (["--suppress", "4096"], "suppress: got id 4096"),
        (["--suppress", "-1"], "suppress: got -1"),
        (["--bad-words", ""], "bad_words: got ''"),
        (["--min-new-tokens", "7"], "min_new_tokens: got 7, at most max_new_tokens (6) was"),
        (["--min-new-tokens", "2", "--ignore-eos"], "min_new_tokens: has no effect without"),
        (["--presence-penalty", "inf"], "presence_penalty: got inf, a finite number was wanted"),
        (["--no-repeat-ngram-size", f"1{'0' * 400}"], "got a whole number of 1329 bits"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(capsys, options, complaint):
    try:
        code = main([*SHORT, *options])
    except SystemExit as ended:  # argparse's own refusal
        code = ended.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and complaint in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("generate --interactive --penalty-alpha 0.6", "--penalty-alpha has no effect with"),
        ("trace a --num-return-sequences 2", "--num-return-sequences has no effect in a trace"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused_by_its_name(capsys, arguments, complaint):
    assert main(arguments.split()) == 2
    assert f"minidecode: {complaint}" in capsys.readouterr().err
