"""Plain against speculative decoding: the arithmetic, and that it runs; nothing depends on time."""

import json

import pytest
from builders import random_gpt2, toy_tokenizer, write

from minidecode import InputError, MinidecodeError, cli
from minidecode.decoding.step import Step
from minidecode.measure import speculation
from minidecode.measure.shapes import SHAPES, Shape
from minidecode.measure.speculation import (
    PLAIN,
    Sums,
    Text,
    Way,
    costs,
    figures,
    measure_speculation,
    summary,
)
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.speculation.rounds import Round
from minidecode.speculation.theory import predicted_speedup

SIZES = {"V": 26, "n_layer": 1, "n_head": 2, "d": 8, "n_positions": 320}


def random_model(seed=0, **fields):
    fields, tensors = random_gpt2(seed, **SIZES | fields)
    return GPT2(Config.from_dict(fields), tensors)


def directory(path, seed):
    return write(path, *random_gpt2(seed, **SIZES), toy_tokenizer(26))


# Figures


def plain_text(*seconds):
    return Text([Step((7,)) for _ in seconds], list(seconds))


def sums(*texts):
    return [text.sums() for text in texts]


def test_the_rate_leaves_out_the_step_that_reads_the_prompt():
    assert plain_text(9.0, 0.5, 0.5, 1.0).rate == 1.5
    assert Text([Step((1, 2, 3)), Step((4, 5)), Step((6,))], [9.0, 1.0, 2.0]).rate == 1
    assert plain_text(9.0).rate is None
    assert Text([Step((1, 2)), Step((3,))], [1.0, 1.0]).tokens == [1, 2, 3]


def test_speed_up_is_the_median_of_ratios_in_a_prompt():
    plain = [plain_text(1, 1.0), plain_text(1, 10.0), plain_text(1, 1.0)]
    ours = [plain_text(1, 0.5), plain_text(1, 2.5), plain_text(1, 0.1)]
    found = figures(sums(*ours), sums(*plain))
    assert found["speed-up"] == pytest.approx(4)  # of 2, 4 and 10
    assert found["tokens/s"] == pytest.approx(2)  # of 2, 0.4 and 10
    assert found["seconds a text"] == pytest.approx(6.1 / 3)
    assert found["tokens/pass"] == 1
    assert "acceptance" not in found
    assert figures(sums(plain_text(1)), sums(plain_text(1)))["speed-up"] is None


def speculated(tokens, drafted, accepted, draft_seconds, target_seconds):
    return Round(
        tuple(range(tokens)),
        drafted=tuple(range(drafted)),
        accepted=accepted,
        draft_seconds=draft_seconds,
        target_seconds=target_seconds,
    )


ROUNDS = Text(
    [
        speculated(2, 2, 1, 8.0, 9.0),  # with the prompt
        speculated(3, 2, 2, 0.2, 1.0),
        speculated(1, 2, 0, 0.4, 1.2),
        speculated(1, 0, 0, 0.0, 5.0),  # prompt lookup that finds nothing
        speculated(1, 1, 1, 7.0, 7.0),  # cut short by the end
    ],
    [18.0, 1.5, 2.0, 5.5, 15.0],
)


def test_figures_of_speculation_by_hand():
    found = figures(sums(ROUNDS), sums(plain_text(18.0, 3.0, 3.0)))
    assert found["tokens/s"] == pytest.approx(6 / 24)
    assert found["speed-up"] == pytest.approx(6 / 24 * 3)
    assert found["tokens/pass"] == 8 / 5
    assert found["acceptance"] == 4 / 7
    assert found["drafted/pass"] == 7 / 5
    assert found["time drafting"] == pytest.approx(15.6 / 42)
    assert found["time outside both models"] == pytest.approx((42 - 15.6 - 23.2) / 42)


def test_costs_are_medians_without_first_and_last_step():
    draft, passes = costs([plain_text(9.0, 2.0, 3.0, 2.5)], [ROUNDS])
    assert draft == pytest.approx(0.15)  # of 0.1 and 0.2 a token
    assert passes == {1: pytest.approx(2.75), 3: pytest.approx(1.1)}  # over 1: 2, 3, 2.5 and 5
    assert costs([plain_text(9.0)], [Text(ROUNDS.steps[:2], [1.0, 1.0])]) == (None, {})


def test_a_peer_is_compared_with_its_own_plain_decoding():
    texts = {
        PLAIN: [plain_text(1, 1.0)],
        Way.constant(2): [ROUNDS],
        Way("plain", "other, one"): [plain_text(1, 4.0)],  # a name may hold what parts labels
        Way.constant(2, "other, one"): [plain_text(1, 2.0)],
    }
    found = summary(0.0, texts, [2])
    assert found["ways"]["other, one, plain"]["speed-up"] == 1
    assert found["ways"]["other, one, k 2"]["speed-up"] == 2
    assert found["ways"]["other, one, k 2"]["same text as plain"] == 1
    assert found["ways"]["k 2"]["same text as plain"] == 0
    # a_1 = 3/4 (the round without drafts does not count), a_2 = 1/2
    assert found["acceptance by position"] == [0.75, 0.5]
    expected = predicted_speedup([0.75, 0.5], 2, 0.15, {1: 3.0, 3: 1.1})
    assert found["ways"]["k 2"]["predicted speed-up"] == pytest.approx(expected)
    json.dumps(found)


def test_a_way_says_who_wrote_and_how_much_was_drafted():
    texts = {PLAIN: [plain_text(1, 1.0)], Way.constant(2): [ROUNDS]}
    texts |= {Way("auto"): [ROUNDS], Way.constant(2, "other"): [plain_text(1, 2.0)]}
    texts[Way("plain", "other")] = [plain_text(1, 4.0)]
    ways = summary(1.0, texts, [2])["ways"]
    told = {label: (way["engine"], way["k"]) for label, way in ways.items()}
    assert told == {
        "plain": ("minidecode", None),
        "k 2": ("minidecode", 2),
        "auto": ("minidecode", None),
        "other, k 2": ("other", 2),
        "other, plain": ("other", None),
    }
    predicted = {label for label, way in ways.items() if "predicted speed-up" in way}
    assert predicted == {"k 2"}


def test_what_a_program_tells_only_in_sums_has_no_figure_that_needs_more():
    told = Sums(tokens=12, passes=4, seconds=3.0, rate=6.0, drafted=16, accepted=8)
    plain = Sums(tokens=12, passes=12, seconds=6.0, rate=2.0)
    texts = {PLAIN: [plain_text(1, 1.0)], Way.constant(2): [ROUNDS]}
    texts |= {Way("plain", "x"): [plain], Way.constant(4, "x"): [told]}
    ways = summary(0.0, texts, [2])["ways"]
    assert ways["x, k 4"] == {
        "engine": "x",
        "k": 4,
        "tokens/s": 6.0,
        "standard error, tokens/s": None,
        "standard error, seconds": None,
        "speed-up": 3.0,
        "seconds a text": 3.0,
        "tokens/pass": 3.0,
        "acceptance": 0.5,
        "drafted/pass": 4.0,
        "same text as plain": None,
    }
    assert "acceptance" not in ways["x, plain"] and ways["x, plain"]["speed-up"] == 1


# Runs


class Stranger:
    """A peer that writes 7, 7, 7, ... one or k + 1 at a time."""

    def ways(self, n):
        def write(prompt, warp, seed, k=0):
            assert warp.temperature == 0
            steps = [Step((7,) * (k + 1)) for _ in range(n // (k + 1))]
            return Text(steps, [1.0] * len(steps))

        with_draft = Way.constant(2, "stranger")
        return {Way("plain", "stranger"): write, with_draft: lambda *args: write(*args, k=2)}


def test_every_way_is_measured_at_every_temperature():
    target, draft = random_model(0), random_model(1)
    shown = []

    def progress(jobs, desc):
        shown.extend(jobs)
        return jobs

    measured = measure_speculation(
        target,
        draft,
        [[1, 2, 3], [4]],
        lengths=[1, 3],
        max_new_tokens=12,
        peers=[Stranger()],
        progress=progress,
    )
    greedy, sampled = json.loads(json.dumps(measured))["results"]
    ways = ["plain", "k 1", "k 3", "auto", "prompt lookup"]
    assert list(sampled["ways"]) == ways
    assert list(greedy["ways"]) == [*ways, "stranger, plain", "stranger, k 2"]
    assert (greedy["temperature"], sampled["temperature"]) == (0, 1)
    assert len(shown) == 2 * (5 + 7)
    for name in ways:
        assert greedy["ways"][name]["same text as plain"] == 1
        assert greedy["ways"][name]["tokens/s"] > 0
    assert greedy["ways"]["stranger, k 2"]["tokens/pass"] == 3
    for result in (greedy, sampled):
        assert len(result["acceptance by position"]) == 3
        assert 0 <= result["ways"]["k 3"]["acceptance"] <= 1
        assert 1 <= result["ways"]["k 3"]["tokens/pass"] <= 4
        assert {"1", "2", "4"} <= set(result["pass over n, ms"])
        assert result["ways"]["k 1"]["predicted speed-up"] > 0


def test_a_model_that_drafts_for_itself_is_always_accepted_and_no_end_token_ends_it():
    target = random_model(0, eos_token_id=list(range(26)))
    measured = measure_speculation(
        target, target, [[1, 2, 3]], lengths=[3], temperatures=[0.0], max_new_tokens=13
    )
    found = measured["results"][0]["ways"]["k 3"]
    if speculation.kernels.backend == "native":  # NumPy's rows depend on how many there are
        assert found["acceptance"] == 1
        assert found["tokens/pass"] == 13 / 4


def test_a_greedy_text_that_differs_is_an_error(monkeypatch):
    plain = speculation.speculative

    def broken(target, draft, prompt, **options):
        for step in plain(target, draft, prompt, **options):
            tokens = (*step.tokens[:-1], (step.tokens[-1] + 1) % 26)
            yield Round(tokens, step.finish_reason, step.drafted, step.accepted)

    monkeypatch.setattr(speculation, "speculative", broken)
    monkeypatch.setattr(speculation.kernels, "backend", "native")
    with pytest.raises(MinidecodeError, match=r"k 2: got token \d+ at place \d+ after the prompt"):
        measure_speculation(random_model(0), random_model(1), [[1, 2, 3]], lengths=[2])


def test_settings_are_checked_before_anything_runs():
    for options in ({"lengths": []}, {"lengths": [0, 2]}, {"temperatures": [-1.0]}):
        with pytest.raises(InputError):
            measure_speculation(None, None, [[1]], **options)
    with pytest.raises(InputError):
        measure_speculation(None, None, [])


# The command


def run(capsys, *argv):
    code = cli.main(["bench", *(str(word) for word in argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def pair(tmp_path):
    return (
        *("--model", directory(tmp_path / "target", 0)),
        *("--draft", directory(tmp_path / "draft", 1)),
        *("--prompts", 2, "--max-new-tokens", 8),
    )


@pytest.fixture
def letters(monkeypatch):
    """Prompts that the toy tokenizer of 26 letters can spell."""
    monkeypatch.setattr(speculation, "PROMPTS", ("abc", "hello", "xyz"))


def test_the_command_prints_a_table_or_json(pair, letters, capsys):
    ways = ["k 1", "k 2", "auto"]
    blocks = [f"{way}, block" for way in ways]
    for rules, extra in (((), blocks), (("--verify", "token"), []), (("--verify", "block"), None)):
        code, text, _ = run(capsys, "speculative", *pair, "--k", "1,2", *rules)
        assert code == 0
        lines = [line.split("  ")[0] for line in text.splitlines()]
        assert sum(line.startswith("temperature") for line in lines) == 2
        assert sum(line.startswith("draft step") for line in lines) == 2
        found = [*ways, *extra] if extra is not None else blocks
        for way in ("plain", *found, "prompt lookup"):
            assert lines.count(way) == 2, way
    code, text, _ = run(capsys, "speculative", *pair, "--temperatures", "0.5", "--json")
    (result,) = json.loads(text)["results"]
    assert code == 0 and result["temperature"] == 0.5 and "k 8" in result["ways"]


def test_target_and_draft_are_loaded_in_the_types_asked_for(pair, letters, capsys, monkeypatch):
    loaded = []
    plain = speculation.measure_speculation
    monkeypatch.setattr(
        speculation,
        "measure_speculation",
        lambda *models, **options: loaded.extend(models[:2]) or plain(*models, **options),
    )
    monkeypatch.setitem(SHAPES, "gpt2", Shape(2, 4, 16, 40, 400))
    for like in ((), ("--like", "gpt2")):
        loaded.clear()
        types = ("--dtype", "int4", "--draft-dtype", "float16")
        code, text, _ = run(capsys, "speculative", *pair, *types, *like, "--k", 2, "--json")
        measured = json.loads(text)
        assert (code, measured["dtype"], measured["draft_dtype"]) == (0, "int4", "float16")
        found = [model.blocks[0].mlp_c_fc[0].dtype for model in loaded]
        assert found == ["int4", "float16"]
        # greedy speculation wrote plain decoding's text, or the benchmark had failed
        assert measured["results"][0]["ways"]["k 2"]["same text as plain"] == 1


def test_the_command_grows_the_target(pair, letters, capsys, monkeypatch):
    monkeypatch.setitem(SHAPES, "gpt2", Shape(2, 4, 16, 40, 400))
    grown = []
    plain = speculation.measure_speculation
    monkeypatch.setattr(
        speculation,
        "measure_speculation",
        lambda target, *args, **options: grown.append(target) or plain(target, *args, **options),
    )
    code, text, _ = run(capsys, "speculative", *pair, "--like", "gpt2", "--k", 2, "--json")
    assert code == 0 and json.loads(text)["like"] == "gpt2"
    assert (grown[0].config.n_layer, grown[0].vocab_size) == (2, 40)


@pytest.mark.parametrize(
    "options, message",
    [
        (("--k", "0"), "k: got [0] for 2 prompts"),
        (("--k", "1,x"), "--k: got '1,x', numbers such as 1,2 were wanted"),
        (("--temperatures", "warm"), "--temperatures: got 'warm'"),
        (("--temperatures", "-1"), "temperature: got -1.0"),
        (("--prompts", "0"), "--prompts: got 0, 1 to 3 was wanted"),
        (("--prompts", "4"), "--prompts: got 4, 1 to 3 was wanted"),
        (("--max-new-tokens", "1"), "--max-new-tokens: got 1, at least 2 was wanted"),
        (("--temperatures", "1", "--peers"), "--peers has no effect without temperature 0"),
        (("--like", "gpt3"), "shape: got 'gpt3'"),
        (("--like", "gpt2"), "n_head: got 2 for a width of 8"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(pair, letters, capsys, options, message):
    code, text, said = run(capsys, "speculative", *pair, *options)
    assert (code, text) == (2, "")
    assert said.count("\n") == 1 and message in said


@pytest.mark.parametrize("options", [("--dtype", "int3"), ("--draft-dtype", "int8,int4")])
def test_a_type_that_there_is_not_is_one_line(pair, capsys, options):
    with pytest.raises(SystemExit, match="2"):
        run(capsys, "speculative", *pair, *options)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and options[0] in said and repr(options[1]) in said


# Peers


def test_a_missing_peer_is_named(pair, letters, capsys, monkeypatch):
    from minidecode.measure import peers

    monkeypatch.setattr(peers, "is_installed", lambda peer: False)
    code, text, said = run(capsys, "speculative", *pair, "--peers")
    assert (code, text, said.count("\n")) == (1, "", 1)
    assert "--peers: transformers is missing (extra `peers`)" in said


def test_transformers_assists_on_the_same_directories(pair, letters, capsys, monkeypatch):
    pytest.importorskip("torch", reason="torch, which runs the peer, is missing")
    pytest.importorskip("transformers", reason="the peer, transformers, is missing")
    from minidecode.measure import peers

    monkeypatch.setattr(peers.time, "sleep", lambda seconds: None)
    monkeypatch.setitem(SHAPES, "gpt2", Shape(2, 4, 16, 40, 400))
    words = ("--like", "gpt2", "--peers", "--json", "--k", 2)
    code, text, _ = run(capsys, "speculative", *pair, *words)
    assert code == 0
    greedy, sampled = json.loads(text)["results"]
    names = ["transformers, plain", *(f"transformers, k {k}" for k in (2, 4, 6))]
    assert [name for name in greedy["ways"] if "transformers" in name] == names
    assert not [name for name in sampled["ways"] if "transformers" in name]
    for name in names:
        assert greedy["ways"][name]["same text as plain"] == 1
    ours, theirs = greedy["ways"]["k 2"], greedy["ways"]["transformers, k 2"]
    assert theirs["tokens/pass"] == pytest.approx(ours["tokens/pass"])
