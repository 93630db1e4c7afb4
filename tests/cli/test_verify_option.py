"""--verify chooses the rule of verification, and says what it cannot do."""

import pytest

from minidecode.cli import main

DRAFT = ["generate", "Once", "--draft", "storyteller-1m", "--seed", "3", "--max-new-tokens", "12"]


@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_text_is_written_with_either_rule(capsys, rule):
    assert main([*DRAFT, "--verify", rule]) == 0
    assert capsys.readouterr().out.strip()


def test_greedy_text_does_not_depend_on_the_rule(capsys):
    greedy = ["generate", "Once", "--greedy", "--max-new-tokens", "12"]
    texts = []
    for more in ([], ["--verify", "token"], ["--verify", "block"]):
        draft = ["--draft", "storyteller-1m"] if more else []
        assert main([*greedy, *draft, *more]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ([*DRAFT, "--verify", "clever"], "verify: got 'clever', one of token, block"),
        ([*DRAFT, "--verify", "block", "--coupled"], "verify: has no effect with a coupled chance"),
        (["generate", "Once", "--verify", "block"], "--verify has no effect without --draft"),
    ],
)
def test_what_has_no_effect_is_refused(capsys, options, message):
    assert main(options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
