"""How far a model is from another on a text: by hand, by laws, on the texts of the project."""

import json
import math

import numpy as np
import pytest
from builders import bigram, random_gpt2, toy_tokenizer, write
from hypothesis import given
from hypothesis import strategies as st

from minidecode import InputError, TableModel, cli, load
from minidecode.measure import quality
from minidecode.measure.metrics import perplexity
from minidecode.measure.quality import compare_models, divergence, measure_quality, windows
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

P = np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [0.1, 0.1, 0.8]])
Q = np.array([[0.25, 0.5, 0.25], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])


def model(table, **fields):
    config, tensors = bigram(table, **fields)
    return GPT2(Config.from_dict(config), tensors)


def test_the_figures_by_hand():
    found = compare_models(model(P), model(Q), [[0, 1, 2, 2]])  # rows 0, 1 and 2 predict
    assert found.tokens == 3
    assert found.reference_perplexity == pytest.approx((0.25 * 0.4 * 0.8) ** (-1 / 3), rel=1e-4)
    assert found.perplexity == pytest.approx((0.5 * 0.3 * 0.8) ** (-1 / 3), rel=1e-4)
    rows = [0.5 * math.log(2) + 0.25 * math.log(0.5), 0.4 * math.log(0.8) + 0.4 * math.log(4 / 3)]
    assert found.kl == pytest.approx(sum(rows) / 3, abs=1e-4)
    assert found.same_greedy == pytest.approx(2 / 3)  # in row 1 the tie falls to the lower id
    assert found.loss == pytest.approx(found.perplexity / found.reference_perplexity - 1)


def test_a_model_is_no_distance_from_itself():
    found = compare_models(model(P), model(P), [[0, 1, 2], [2, 0]])
    assert (found.tokens, found.kl, found.same_greedy, found.loss) == (3, 0, 1, 0)


def test_the_pieces_do_not_change_the_sums_of_a_model_without_memory():
    whole = compare_models(model(P), model(Q), [[0, 1, 2, 2, 1, 0, 0]])
    parts = compare_models(model(P), model(Q), [[0, 1, 2], [2, 2, 1], [1, 0, 0]])
    for name in ("tokens", "perplexity", "kl", "same_greedy"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), abs=1e-6)


def test_perplexity_is_that_of_the_metrics_over_several_blocks():
    config, tensors = random_gpt2(3, V=26, n_layer=1, n_head=2, d=8, n_positions=200)
    gpt2 = GPT2(Config.from_dict(config), tensors)
    tokens = np.random.default_rng(0).integers(0, 26, 180).tolist()
    found = compare_models(gpt2, gpt2, [tokens])
    assert found.perplexity == pytest.approx(perplexity(gpt2, tokens[:1], tokens[1:]))


def distributions(size):
    return st.lists(st.floats(0, 1), min_size=size, max_size=size).filter(any)


@given(distributions(4), distributions(4))
def test_divergence_is_the_sum_and_never_below_0(p, q):
    p, q = np.array(p) / sum(p), np.array(q) / sum(q)
    with np.errstate(divide="ignore"):
        found = divergence(np.log(p), np.log(q))
        terms = [a * (math.log(a) - math.log(b)) if b else math.inf for a, b in zip(p, q) if a]
    assert found >= 0
    assert found == pytest.approx(max(0, sum(terms)), abs=1e-9)


def test_what_only_one_of_them_rules_out():
    none, half = -np.inf, math.log(0.5)
    assert divergence(np.array([0, none]), np.array([half, half])) == pytest.approx(math.log(2))
    assert divergence(np.array([half, half]), np.array([0, none])) == math.inf
    assert divergence(np.array([0.0, -800.0]), np.array([0, none])) == 0  # exp(-800) is 0
    certain, other = TableModel([[1, 0]] * 2), TableModel([[0, 1]] * 2)
    found = compare_models(certain, other, [[0, 0]])
    assert (found.perplexity, found.kl, found.same_greedy) == (math.inf, math.inf, 0)


# Texts


def test_each_place_is_predicted_once_from_what_fits_into_the_context():
    gpt2 = model(P, n_positions=4, bos_token_id=2)
    document = [0, 1] * 5
    pieces = windows(gpt2, [document, [1]])
    assert pieces == [[2, 0, 1, 0, 1], [1, 0, 1, 0, 1], [1, 0, 1], [2, 1]]
    assert [token for piece in pieces[:3] for token in piece[1:]] == document
    compare_models(gpt2, gpt2, pieces)  # the longest fills the context


def test_without_a_bos_id_the_first_token_is_given():
    assert windows(model(P, n_positions=4), [[0, 1, 2], [1]]) == [[0, 1, 2]]


def test_nothing_to_predict_is_an_error():
    with pytest.raises(InputError, match="text: got no token to predict"):
        compare_models(model(P), model(P), windows(model(P), [[1]]))


@pytest.mark.parametrize(
    "text, documents",
    [
        ("a\nb", ["a\nb"]),
        ("a\n<|endoftext|>\nb\n<|endoftext|>\n", ["a", "b"]),
        ("<|endoftext|>a", ["a"]),
    ],
)
def test_documents_end_where_the_text_says_so(text, documents):
    assert quality.split_documents(text) == documents


@pytest.mark.parametrize("text", ["", "\n<|endoftext|>\n"])
def test_a_file_without_text_is_one_sentence(text):
    with pytest.raises(InputError, match=r"notes\.txt: got no text, some was wanted"):
        quality.split_documents(text, "notes.txt")


@pytest.mark.parametrize("name", quality.TEXTS)
def test_the_embedded_models_know_every_token_of_the_texts(name):
    documents = quality.split_documents(quality.TEXTS[name].read_text())
    _, tokenizer = load("storyteller-1m")
    text = "".join(documents)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert 25_000 < len(text) < 35_000


# All types of a model


def test_every_type_is_held_against_float32():
    asked = []

    class Digits:
        def encode(self, text):
            return [int(digit) for digit in text]

    def load(dtype):
        asked.append(dtype)
        return model({"float32": P, "other": Q}[dtype]), Digits()

    texts = {"a": ["0122"], "b": ["20"]}
    measured = measure_quality(load, ["other", "float32", "other"], texts)
    assert asked == ["float32", "other"]
    assert measured["tokens"] == {"a": 3, "b": 1}
    assert list(measured["types"]) == ["float32", "other"]
    same, other = (measured["types"][dtype]["texts"]["a"] for dtype in ("float32", "other"))
    assert (same["KL, nats"], same["same greedy"], same["loss"]) == (0, 1, 0)
    assert other["KL, nats"] > 0 and other["same greedy"] == pytest.approx(2 / 3)
    assert measured["types"]["other"]["weights, MB"] > 0


# The command


def run(capsys, *argv):
    code = cli.main(["bench", *(str(word) for word in argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def toy(tmp_path):
    config, tensors = random_gpt2(0, V=26, n_layer=1, n_head=2, d=40, n_positions=32)
    write(tmp_path / "toy", config, tensors, toy_tokenizer(26))
    (tmp_path / "text.txt").write_text("abcdefghij\n<|endoftext|>\nzyxw\n")
    return ("quality", "--model", tmp_path / "toy", "--text", tmp_path / "text.txt")


def test_the_command_prints_a_table_or_json(toy, capsys):
    code, text, _ = run(capsys, *toy)
    assert code == 0
    lines = text.splitlines()
    assert "text.txt, 12 tokens" in lines[0]  # each document's first is given
    starts = [line.split()[0] for line in lines[2:]]
    assert starts == ["float32", "float16", "bfloat16", "int8", "int4"]
    code, text, _ = run(capsys, *toy, "--dtype", "int4, int8", "--json")
    types = json.loads(text)["types"]
    assert code == 0 and list(types) == ["float32", "int4", "int8"]
    sizes = [types[dtype]["weights, MB"] for dtype in ("int4", "int8", "float32")]
    assert sizes == sorted(sizes) and sizes[0] < sizes[2] / 3
    (name,) = types["int8"]["texts"]
    divergences = [types[dtype]["texts"][name]["KL, nats"] for dtype in ("float32", "int8", "int4")]
    assert divergences[0] == 0 < divergences[1] < divergences[2]


@pytest.mark.parametrize(
    "options, code, message",
    [
        (("--dtype", "int3"), 2, "--dtype: got 'int3', some of float32, float16, bfloat16, int8"),
        (("--dtype", ""), 2, "--dtype: got ''"),
        (("--dtype", "int8,"), 2, "--dtype: got ''"),
        (("--text", "/nowhere"), 1, "/nowhere"),
        (("--model", "/nowhere"), 1, "/nowhere: there is no such directory"),
    ],
)
def test_wrong_options_are_one_line(toy, capsys, options, code, message):
    got, text, said = run(capsys, *toy, *options)
    assert (got, text, said.count("\n")) == (code, "", 1)
    assert message in said
