"""Comparing decoders: how methods are written, what is measured, and what the command prints."""

import argparse
import csv
import io
import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from builders import random_gpt2, toy_tokenizer, write

import minidecode
from minidecode.cli import compare as command
from minidecode.cli import main
from minidecode.decoding.beam import beam_search
from minidecode.decoding.chance import Dice
from minidecode.decoding.contrastive import contrastive
from minidecode.decoding.contrastive_search import contrastive_search
from minidecode.decoding.diverse_beam import diverse_beam_search
from minidecode.decoding.greedy import greedy
from minidecode.decoding.sampling import sample
from minidecode.decoding.stochastic_beam import stochastic_beam_search
from minidecode.decoding.warp import Warp, log_softmax
from minidecode.errors import InputError
from minidecode.generation import Result, generate
from minidecode.measure import metrics
from minidecode.measure.compare import (
    COLUMNS,
    PROMPTS,
    Estimate,
    arguments,
    compare,
    human,
    n_texts,
    parse_method,
    summary,
)
from minidecode.measure.metrics import ngram_entropy
from minidecode.measure.quality import TEXTS, split_documents
from minidecode.speculation.loop import speculative

TIMED = "tokens_per_second"


@pytest.fixture(scope="module")
def pair():
    return minidecode.load("storyteller-6m"), minidecode.load("storyteller-1m")[0]


def text(steps):
    return [token for step in steps for token in step.tokens]


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "settings", "options"),
    [
        ("greedy", {}, {}),
        ("greedy:repetition_penalty=1.3", {"repetition_penalty": 1.3}, {}),
        ("beam:2,no_repeat_ngram_size=3", {}, {"num_beams": 2, "no_repeat_ngram_size": 3}),
        ("beam:4", {}, {"num_beams": 4}),
        ("beam:4,length_penalty=-0.5", {}, {"num_beams": 4, "length_penalty": -0.5}),
        (
            "beam:early_stopping=never,num_beams=2",
            {},
            {"num_beams": 2, "early_stopping": "never"},
        ),
        ("beam:2,early_stopping=true", {}, {"num_beams": 2, "early_stopping": True}),
        ("beam:4,num_beam_groups=2", {}, {"num_beams": 4, "num_beam_groups": 2}),
        ("stochastic:4", {}, {"num_beams": 4}),
        ("stochastic:2,top_p=0.9", {"top_p": 0.9}, {"num_beams": 2}),
        ("search:0.6", {}, {"penalty_alpha": 0.6}),
        ("search:0.4,top_k=6", {"top_k": 6}, {"penalty_alpha": 0.4}),
        ("sample", {}, {}),
        ("sample:temperature=0.7,top_p=0.9", {"temperature": 0.7, "top_p": 0.9}, {}),
        ("sample:top_k=40", {"top_k": 40}, {}),
        ("contrastive:alpha=0.1", {}, {"alpha": 0.1}),
        ("contrastive:beta=0.5,temperature=1", {"temperature": 1.0}, {"beta": 0.5}),
        ("speculative:k=4,top_p=0.9", {"top_p": 0.9}, {"k": 4}),
        ("speculative:schedule=auto", {}, {"schedule": "auto"}),
    ],
)
def test_methods(label, settings, options):
    method = parse_method(label)
    assert (method.label, method.kind) == (label, label.partition(":")[0])
    assert (method.settings, method.options) == (settings, options)
    assert all(type(method.options[name]) is type(options[name]) for name in options)


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ("nucleus", "got 'nucleus', one of greedy, beam, stochastic, sample, search"),
        ("", "got ''"),
        ("sample:top_q=1", "got option 'top_q', one of temperature, top_k"),
        ("sample:", "got option ''"),
        ("greedy:temperature=0.7", "got option 'temperature'"),
        ("beam:4,top_k=3", "got option 'top_k'"),
        ("sample:alpha=0.1", "got option 'alpha'"),
        ("sample:top_k=2.5", "got '2.5' for top_k"),
        ("sample:top_p", "got '' for top_p"),
        ("beam", "got '' for num_beams"),
        ("search", "got '' for penalty_alpha"),
        ("search:0.6,top_p=0.9", "got option 'top_p'"),
        ("stochastic:2,length_penalty=1", "got option 'length_penalty'"),
        ("beam:wide", "got 'wide' for num_beams"),
        ("beam:4,early_stopping=maybe", "got 'maybe' for early_stopping"),
    ],
)
def test_what_is_no_method(label, complaint):
    with pytest.raises(InputError) as error:
        parse_method(label)
    assert str(error.value).startswith(f"method {label!r}: {complaint}")
    assert "\n" not in str(error.value)


def test_which_methods_draw():
    drawing = ["sample", "sample:top_k=5", "stochastic:2", "contrastive:temperature=1"]
    drawing.append("speculative:k=2")
    certain = ["greedy", "beam:4", "beam:4,num_beam_groups=2", "search:0.6", "contrastive"]
    certain += ["contrastive:alpha=0.2", "sample:temperature=0"]
    assert all(parse_method(label).draws for label in drawing)
    assert not any(parse_method(label).draws for label in certain)


def test_each_method_is_its_decoder(pair):
    (target, tokenizer), small = pair
    limits = {"max_new_tokens": 12, "eos": None, "tokenizer": tokenizer}
    prompt, warp = PROMPTS[0], Warp(temperature=0.7)

    def written(label):
        options = arguments(parse_method(label), draft=small, amateur=small, chance=Dice(3))
        return generate(target, prompt, **options, **limits).tokens

    def with_seed(decoder, *models, **options):
        return text(decoder(*models, prompt, chance=Dice(3), **options, **limits))

    assert written("greedy") == text(greedy(target, prompt, **limits))
    blocked = text(greedy(target, prompt, no_repeat_ngram_size=1, **limits))
    assert written("greedy:no_repeat_ngram_size=1") == blocked
    assert written("beam:3") == beam_search(target, prompt, num_beams=3, **limits)[0].tokens
    groups = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7}
    diverse = diverse_beam_search(target, prompt, **groups, **limits)[0].tokens
    assert written("beam:4,num_beam_groups=2,diversity_penalty=0.7") == diverse
    drawn = stochastic_beam_search(target, prompt, num_beams=2, chance=Dice(3), **limits)
    assert written("stochastic:2") == drawn[0].tokens
    searched = text(contrastive_search(target, prompt, penalty_alpha=0.4, top_k=3, **limits))
    assert written("search:0.4,top_k=3") == searched
    assert written("sample") == with_seed(sample, target)
    assert written("sample:temperature=0.7") == with_seed(sample, target, warp=warp)
    best = text(contrastive(target, small, prompt, alpha=0.3, **limits))
    assert written("contrastive:alpha=0.3") == best
    assert written("contrastive:alpha=0.3,k=2") == best
    drawn = with_seed(contrastive, target, small, warp=warp)
    assert written("contrastive:temperature=0.7") == drawn
    drafted = with_seed(speculative, target, small, num_draft_tokens=2)
    assert written("speculative:k=2") == drafted


# --- measuring ------------------------------------------------------------------------------------


def test_estimate_by_hand():
    assert Estimate.of([1.0, 2.0, 3.0]) == Estimate(2.0, pytest.approx(1 / math.sqrt(3)))
    assert Estimate.of([5.0, 5.0]) == Estimate(5.0, 0.0)
    assert Estimate.of([1.5]) == Estimate(1.5, None)
    assert Estimate.of([None, 1.0, None, 3.0]) == Estimate(2.0, pytest.approx(1.0))
    assert Estimate.of([]) == Estimate.of([None]) == Estimate(None, None)


def test_summary_by_hand():
    one = Result([1, 2, 3], "length", "a b a b", {"seconds": 1.0, "drafted": 6, "accepted": 2})
    two = Result([4], "eos", "a", {"seconds": 3.0, "drafted": 2, "accepted": 2})
    found = summary([(one, np.log([0.5, 0.5, 0.25])), (two, np.log([1.0]))])
    assert found == {
        "entropy_1": 0.5,  # of 1 bit and 0 bits
        "entropy_2": pytest.approx(2 / 3 * math.log2(3 / 2) + math.log2(3) / 3),  # one text has any
        "entropy_3": 1.0,
        "distinct_1": (2 / 4 + 1) / 2,
        "distinct_2": 2 / 3,
        "repeats": 0.0,
        "perplexity": pytest.approx(2.0),  # 4 tokens of probability 1/16 in all
        "tokens": 2.0,
        "tokens_per_second": 1.0,
        "acceptance_rate": 0.5,
    }


def test_summary_of_nothing():
    found = summary([(Result([], "length", "", {"seconds": 0.0}), np.array([]))])
    assert found == {**dict.fromkeys(COLUMNS), "tokens": 0.0}


def test_comparison(pair):
    (target, tokenizer), small = pair
    options = {"target": target, "tokenizer": tokenizer, "draft": small, "max_new_tokens": 20}
    options |= {"eos": None, "seeds": 2}
    labels = ["greedy", "sample:top_p=0.9", "speculative:k=3"]
    done = []
    compared = compare(labels, PROMPTS[:2], on_text=lambda: done.append(1), **options)
    assert [method.label for method, _ in compared] == labels
    total = n_texts([method for method, _ in compared], PROMPTS[:2], seeds=2)
    assert len(done) == total == 10  # greedy writes each text once
    by_label = {method.label: estimates for method, estimates in compared}
    for estimates in by_label.values():
        assert tuple(estimates) == COLUMNS
        assert estimates["tokens"].mean == 20
        assert estimates["perplexity"].mean > 1
        assert estimates[TIMED].mean > 0
    assert all(e.standard_error is None for e in by_label["greedy"].values())
    assert by_label["sample:top_p=0.9"]["perplexity"].standard_error > 0
    assert by_label["greedy"]["acceptance_rate"].mean is None
    assert 0 < by_label["speculative:k=3"]["acceptance_rate"].mean <= 1
    again = dict(compare(labels[1:2], PROMPTS[:2], **options)[0][1])
    for name in COLUMNS:
        assert name == TIMED or again[name] == by_label["sample:top_p=0.9"][name]


def test_greedy_row_by_its_own_measures(pair):
    (target, tokenizer), _ = pair
    ((_, row),) = compare(
        ["greedy"], PROMPTS[:1], target=target, tokenizer=tokenizer, max_new_tokens=30
    )
    tokens = text(greedy(target, PROMPTS[0], tokenizer=tokenizer, max_new_tokens=30))
    words = metrics.words(tokenizer.decode(tokens))
    assert row["entropy_2"].mean == metrics.ngram_entropy(words, 2)
    assert row["repeats"].mean == metrics.share_in_repeats(words, 4)
    wanted = metrics.perplexity(target, tokenizer.encode(PROMPTS[0]), tokens)
    assert row["perplexity"].mean == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ("sample:top_p=2", "top_p"),
        ("contrastive:alpha=0", "alpha"),
        ("beam:0", "num_beams"),
        ("speculative:k=-1", "num_draft_tokens"),
        ("speculative:schedule=never", "schedule"),
    ],
)
def test_settings_are_checked_before_the_first_pass(pair, monkeypatch, label, complaint):
    (target, tokenizer), small = pair
    for model in (target, small):
        monkeypatch.setattr(model, "forward_many", pytest.fail)
    with pytest.raises(InputError, match=complaint):
        compare(
            ["greedy", label],
            PROMPTS,
            target=target,
            tokenizer=tokenizer,
            draft=small,
            amateur=small,
            max_new_tokens=5,
        )


def test_second_models_are_asked_for(pair):
    (target, tokenizer), _ = pair
    for label, what in (("contrastive", "an amateur"), ("speculative", "a draft")):
        with pytest.raises(InputError, match=f"method '{label}': needs {what}"):
            compare([label], PROMPTS, target=target, tokenizer=tokenizer)


# --- the command ----------------------------------------------------------------------------------


def run(capsys, *arguments):
    """What `minidecode compare` prints for these arguments; nothing but that on standard error."""
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    args = parser.parse_args(["compare", *arguments])
    args.run(args)
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("One day\n\n  \nThe end, é\n", encoding="utf-8")
    return str(path)


SHORT = ("--max-new-tokens", "8", "--seeds", "2", "--ignore-eos")


def test_table(capsys, prompts):
    out = run(capsys, "greedy", "sample", "speculative:k=2", "--prompts", prompts, *SHORT)
    blocks = [block.splitlines() for block in out.split("\n\n")]
    heads = [head for rows in blocks for head in rows[0].split()]
    assert heads == [*command.HEADS.values()]
    assert all(len(line) <= 100 for rows in blocks for line in rows)
    for _, *rows in blocks:
        methods = ["greedy", "sample", "speculative:k=2", "(human"]
        assert [row.split()[0] for row in rows] == methods
        assert "±" not in rows[0] and "±" in rows[1] and "±" not in rows[3]
    _, greedy, _, speculative, human = blocks[1]
    assert greedy.endswith("n/a") and not speculative.endswith("n/a")
    assert human.split()[-2:] == ["n/a", "n/a"]  # nobody decoded it


def test_human_text_is_measured_as_a_decoder_s_is(pair):
    """By hand: the stories' tokens after the first few, under the model that reads them."""
    (target, tokenizer), _ = pair
    found = human(target, tokenizer, texts=2, max_new_tokens=30)
    assert set(found) == set(COLUMNS) and found["tokens"].mean == 30
    assert found["tokens_per_second"].mean is found["acceptance_rate"].mean is None
    stories = split_documents(TEXTS["stories"].read_text(encoding="utf-8"))[:2]
    logprobs, entropies = [], []
    for ids in map(tokenizer.encode, stories):
        rows = target.forward(ids[:36], target.new_cache(), n_logits=36)
        logprobs += [log_softmax(rows[i - 1])[ids[i]] for i in range(6, 36)]
        entropies.append(ngram_entropy(tokenizer.decode(ids[6:36]).split(), 1))
    assert found["perplexity"].mean == pytest.approx(np.exp(-np.mean(logprobs)), rel=1e-5)
    assert found["entropy_1"].mean == pytest.approx(np.mean(entropies))
    cut = human(target, tokenizer, texts=1, max_new_tokens=10**6)
    assert cut["tokens"].mean <= target.n_positions - 6
    none = human(target, tokenizer, texts=1, max_new_tokens=0)
    assert (none["tokens"].mean, none["perplexity"].mean) == (0, None)


def test_a_model_that_cannot_spell_the_stories_has_no_line_of_them(capsys, tmp_path):
    """And one of the smallest context has a short one."""
    for letters, positions, lines in ((26, 16, 1), (None, 4, 2)):
        directory, V = tmp_path / str(positions), letters or 257
        model = random_gpt2(1, V, 1, 1, 8, positions)
        write(directory, *model, tokenizer=toy_tokenizer(letters))
        (tmp_path / "p.txt").write_text("a\n")
        arguments = ("greedy", "--model", str(directory), "--prompts", str(tmp_path / "p.txt"))
        out = run(capsys, *arguments, "--max-new-tokens", "2", "--ignore-eos")
        assert len(out.split("\n\n")[0].splitlines()) == 1 + lines


def test_json(capsys, prompts):
    out = json.loads(run(capsys, "beam:2", "sample", "--prompts", prompts, "--json", *SHORT))
    assert out["prompts"] == ["One day", "The end, é"]
    assert (out["model"], out["seeds"], out["max_new_tokens"]) == ("storyteller-6m", 2, 8)
    assert "amateur" not in out
    assert out["human"].keys() == set(COLUMNS)
    assert [(row["method"], row["seeds"]) for row in out["methods"]] == [
        ("beam:2", None),
        ("sample", 2),
    ]
    for row in out["methods"]:
        assert row["tokens"] == 8
        assert row["acceptance_rate"] is None
    assert out["methods"][0]["perplexity_error"] is None
    assert out["methods"][1]["perplexity_error"] > 0


def test_csv(capsys, prompts):
    out = run(capsys, "contrastive:alpha=0.1", "sample", "--prompts", prompts, "--csv", *SHORT)
    rows = list(csv.DictReader(io.StringIO(out)))
    methods = ["contrastive:alpha=0.1", "sample", "(human text)"]
    assert [row["method"] for row in rows] == methods
    assert set(rows[0]) == {"method", *COLUMNS, *(f"{name}_error" for name in COLUMNS)}
    assert float(rows[1]["perplexity"]) > 1
    assert rows[0]["perplexity_error"] == rows[0]["acceptance_rate"] == ""


def test_cells():
    assert command.cell(Estimate(5.6412, 0.0412)) == "5.64 ±0.04"
    assert command.cell(Estimate(209.2, 49.3)) == "209 ±49"
    assert command.cell(Estimate(0.98, 0.0042)) == "0.980 ±0.004"
    assert command.cell(Estimate(0.1234, 0.0)) == "0.123"
    assert command.cell(Estimate(0.1234, None)) == "0.123"
    assert command.cell(Estimate(None, None)) is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["greedy", "--amateur", "storyteller-1m"],
            "--amateur has no effect without a contrastive",
        ),
        (["beam:2", "--draft", "storyteller-1m"], "--draft has no effect without a speculative"),
        (["greedy", "--seeds", "0"], "seeds: got 0"),
        (["greedy", "--max-new-tokens", "-1"], "max_new_tokens: got -1"),
        (["contrastive", "--model", "elsewhere"], "--amateur: contrastive methods need one"),
        (["gredy"], "method 'gredy'"),
    ],
)
def test_wrong_usage(capsys, arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        run(capsys, *arguments)


def test_prompt_files_that_cannot_be(capsys, tmp_path):
    path = tmp_path / "empty.txt"
    path.write_text("\n \n")
    with pytest.raises(InputError, match="no prompt"):
        run(capsys, "greedy", "--prompts", str(path))
    path.write_bytes(b"ok\n\xff\n")
    with pytest.raises(InputError, match="UTF-8"):
        run(capsys, "greedy", "--prompts", str(path))
    with pytest.raises(OSError, match=r"none\.txt, a file that can be read was wanted"):
        run(capsys, "greedy", "--prompts", str(tmp_path / "none.txt"))


# --- other processes ------------------------------------------------------------------------------


def test_an_executor_writes_the_same_texts(pair):
    (target, tokenizer), draft = pair
    methods = ["greedy", "sample:temperature=0.8", "speculative:k=2", "greedy"]
    options = {"target": target, "tokenizer": tokenizer, "draft": draft, "max_new_tokens": 5}
    told = []
    alone = compare(methods, PROMPTS[:2], seeds=2, on_text=lambda: told.append(1), **options)
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        shared = compare(
            methods,
            PROMPTS[:2],
            seeds=2,
            executor=executor,
            on_text=lambda: told.append(2),
            **options,
        )
    assert told.count(1) == told.count(2) == 12
    for (method, here), (same_method, there) in zip(alone, shared, strict=True):
        assert method == same_method
        for name in set(COLUMNS) - {TIMED}:
            assert here[name] == there[name]


def test_compare_on_processes_prints_the_same_table(capsys):
    command_line = ["compare", "greedy", "--max-new-tokens", "3", "--json"]
    rows = []
    for jobs in ([], ["--jobs", "2"]):
        assert main([*command_line, *jobs]) == 0
        (row,) = json.loads(capsys.readouterr().out)["methods"]
        rows.append({name: value for name, value in row.items() if TIMED not in name})
    assert rows[0] == rows[1]
    assert main([*command_line, "--jobs", "0"]) == 2
    assert "--jobs: got 0" in capsys.readouterr().err
