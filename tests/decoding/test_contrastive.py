"""Contrastive decoding: its scores, its mask, its law, and the text of an independent program."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from builders import bigram, random_gpt2, toy_tokenizer, write
from hypothesis import given, settings
from hypothesis import strategies as st

import minidecode
from minidecode.decoding.chance import Dice, GumbelDice
from minidecode.decoding.contrastive import FLOOR, Contrast, contrastive
from minidecode.decoding.greedy import greedy
from minidecode.decoding.warp import Blocked, Warp, log_softmax
from minidecode.errors import ContextError, InputError, LogitsError
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.table import TableModel
from minidecode.proof.exact import law

GOLDEN = Path(__file__).parents[1] / "golden" / "contrastive.json"
CASES = json.loads(GOLDEN.read_text())["cases"]
GREEDY = Warp(temperature=0)


def gpt2(fixture):
    config, tensors = fixture
    return GPT2(Config.from_dict(config), tensors)


def text(steps):
    return [token for step in steps for token in step.tokens]


def log(p):
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(p, dtype=np.float64))


def closed_form(p, q, alpha, temperature=1.0):
    """The softmax of log p - log q over the tokens with p >= alpha * max p, from its definition."""
    p, q = np.asarray(p, float), np.maximum(np.asarray(q, float), math.exp(FLOOR))
    weights = np.where(p >= alpha * p.max() * (1 - 1e-12), (p / q) ** (1 / temperature), 0)
    return weights / weights.sum()


@st.composite
def rows(draw, V, n):
    weights = st.lists(st.integers(0, 8), min_size=V, max_size=V).filter(any)
    found = np.array(draw(st.lists(weights, min_size=n, max_size=n)), dtype=np.float64)
    return found / found.sum(axis=1, keepdims=True)


# --- scores ---------------------------------------------------------------------------------------


def test_scores_by_hand():
    expert, amateur = log([0.5, 0.3, 0.15, 0.05]), log([0.4, 0.1, 0.4, 0.1])
    scores = Contrast(alpha=0.2)(expert, amateur)
    assert scores[:3] == pytest.approx([math.log(5 / 4), math.log(3), math.log(3 / 8)])
    assert scores[3] == -np.inf  # 0.05 < 0.2 * 0.5
    assert scores.dtype == np.float64


def test_scores_of_the_form_with_beta():
    expert, amateur = log([0.5, 0.3, 0.15, 0.05]), log([0.4, 0.1, 0.4, 0.1])
    scores = Contrast(alpha=0.5, beta=0.5)(expert, amateur)
    wanted = [1.5 * math.log(a) - 0.5 * math.log(b) for a, b in ((0.5, 0.4), (0.3, 0.1))]
    assert scores[:2] == pytest.approx(wanted)
    assert (scores[2:] == -np.inf).all()
    plain = Contrast(alpha=0.5, beta=0)(expert, amateur)
    assert plain[:2] == pytest.approx(expert[:2])  # strength 0: the expert alone


def test_the_amateur_has_a_temperature_of_its_own():
    expert, amateur = log([0.6, 0.4]), log([0.9, 0.1])
    scores = Contrast(alpha=0.1, amateur_temperature=2.0)(expert, amateur)
    softened = np.sqrt([0.9, 0.1]) / np.sqrt([0.9, 0.1]).sum()
    assert scores == pytest.approx(expert - np.log(softened))
    sharp = Contrast(alpha=0.1, amateur_temperature=1e-300)(expert, amateur)
    assert sharp == pytest.approx([math.log(0.6), math.log(0.4) - FLOOR])


def test_a_token_at_the_bound_is_plausible():
    for p, alpha in (([0.6, 0.3, 0.1], 0.5), ([5 / 6, 1 / 12, 1 / 12], 0.1), ([2 / 3, 1 / 3], 0.5)):
        assert Contrast(alpha)(log(p), log(p))[1] > -np.inf
        assert Contrast(alpha * 1.0001)(log(p), log(p))[1] == -np.inf


def test_amateur_zeros_count_as_the_floor():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = Contrast(0.1)(log([0.5, 0.4, 0.1, 0.0]), log([1.0, 0.0, 0.0, 0.0]))
    assert scores[:2] == pytest.approx([math.log(0.5), math.log(0.4) - FLOOR])
    assert np.isfinite(scores[:3]).all()
    assert scores[3] == -np.inf


@settings(max_examples=200, deadline=None)
@given(
    rows(6, 2),
    st.sampled_from([1.0, 0.5, 0.1, 1e-3]),
    st.sampled_from([None, 0.0, 0.5, 3.0]),
    st.sampled_from([1.0, 0.01, 100.0]),
)
def test_never_nan_and_finite_exactly_on_the_plausible_set(pair, alpha, beta, temperature):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        contrast = Contrast(alpha, beta, temperature)
        scores = contrast(np.ma.log(pair[0]).filled(-np.inf), log(pair[1]))
    plausible = pair[0] >= alpha * pair[0].max() * (1 - 1e-12)
    assert (np.isfinite(scores) == plausible).all()
    assert (scores[~plausible] == -np.inf).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_distribution(bad):
    good, broken = np.zeros(3, np.float32), np.array([0, bad, 0], np.float32)
    for pair in ((good, broken), (broken, good)):
        with pytest.raises(LogitsError, match="at id 1"):
            Contrast()(*pair)
        with pytest.raises(LogitsError, match=r"^step 2 .* at id 1"):
            Contrast().probs(*pair, GREEDY, [0, 1])
    with pytest.raises(LogitsError, match="all are -inf"):
        Contrast()(good, np.full(3, -np.inf, np.float32))


@pytest.mark.parametrize(
    ("setting", "bad"),
    [("alpha", bad) for bad in (0, -0.1, 1.1, math.nan, True, "0.1", None)]
    + [("beta", bad) for bad in (-1, math.inf, math.nan, True, "1")]
    + [("amateur_temperature", bad) for bad in (0, -1, math.inf, math.nan, None)],
)
def test_settings_out_of_range(setting, bad):
    with pytest.raises(InputError, match=f"^{setting}: got "):
        Contrast(**{setting: bad})


# --- probabilities --------------------------------------------------------------------------------


def test_ties_fall_to_the_experts_order_then_to_the_lower_id():
    p = log([0.1, 0.3, 0.2, 0.3, 0.1])
    contrast = Contrast(0.1)
    assert contrast.probs(p, p, GREEDY, []).tolist() == [0, 1, 0, 0, 0]  # greedy, not id 0
    assert contrast.probs(p, p, Warp(top_k=1), []).tolist() == [0, 1, 0, 0, 0]
    assert np.flatnonzero(contrast.probs(p, p, Warp(top_k=3), [])).tolist() == [1, 2, 3]
    assert np.flatnonzero(contrast.probs(p, p, Warp(top_p=0.5), [])).tolist() == [1, 2, 3]
    assert contrast.probs(p, p, Warp(), []) == pytest.approx([0.2] * 5)
    steps = np.random.default_rng(0).integers(0, 3, 500) / 10  # so many that an unstable sort shows
    best = np.flatnonzero(steps == 0.2)[:3].tolist()
    assert np.flatnonzero(contrast.probs(steps, steps, Warp(top_k=3), [])).tolist() == best


@pytest.mark.parametrize("beta", [None, 0.5])
def test_equal_models_write_the_experts_greedy_text(beta):
    model = gpt2(random_gpt2(3, 31, 2, 2, 16, 64))
    steps = contrastive(model, model, [5, 6], beta=beta, max_new_tokens=20, eos=None)
    assert text(steps) == text(greedy(model, [5, 6], max_new_tokens=20, eos=None))


@pytest.mark.parametrize("seed", range(5))
def test_alpha_1_is_the_experts_greedy_text(seed):
    expert = gpt2(random_gpt2(seed, 31, 2, 2, 16, 64))
    amateur = gpt2(random_gpt2(seed + 10, 31, 1, 1, 8, 64))
    limits = {"max_new_tokens": 20, "eos": 4}
    wanted = text(greedy(expert, [5, 6], **limits))
    assert text(contrastive(expert, amateur, [5, 6], alpha=1, **limits)) == wanted
    sampled = contrastive(expert, amateur, [5, 6], alpha=1, warp=Warp(), chance=Dice(0), **limits)
    assert text(sampled) == wanted


@settings(max_examples=60, deadline=None)
@given(rows(4, 2), st.integers(0, 2**32), st.sampled_from([0.2, 0.5, 1.0]))
def test_the_mask_holds_greedy_and_sampled(pair, seed, alpha):
    expert, amateur = (TableModel([row] * 4) for row in pair)
    plausible = set(np.flatnonzero(pair[0] >= alpha * pair[0].max() * (1 - 1e-12)).tolist())
    for warp in (None, Warp(), Warp(temperature=5.0), Warp(temperature=0.1, top_p=0.5)):
        steps = contrastive(
            expert, amateur, [0], alpha=alpha, warp=warp, chance=Dice(seed), max_new_tokens=8
        )
        assert set(text(steps)) <= plausible


def test_temperature_acts_on_the_score():
    p, q = [0.5, 0.3, 0.15, 0.05], [0.4, 0.1, 0.4, 0.1]
    for temperature in (0.5, 1.0, 2.0):
        probs = Contrast(0.2).probs(log(p), log(q), Warp(temperature=temperature), [])
        assert probs == pytest.approx(closed_form(p, q, 0.2, temperature))


def test_penalties_act_on_the_score():
    p, q = log([0.5, 0.3, 0.2]), log([0.2, 0.2, 0.6])
    scores = Contrast(0.1)(p, q)  # log 2.5, log 1.5, log 1/3
    scores[0] /= 2
    scores[2] *= 2
    weights = np.exp(scores)
    probs = Contrast(0.1).probs(p, q, Warp(repetition_penalty=2.0), [0, 2])
    assert probs == pytest.approx(weights / weights.sum())
    probs = Contrast(0.1).probs(p, q, Warp(no_repeat_ngram_size=1), [0])
    assert probs == pytest.approx([0, 1.5 / (1.5 + 1 / 3), 1 / 3 / (1.5 + 1 / 3)])


def test_blocked_where_all_that_is_plausible_is_banned():
    """Token 2 is free, but not plausible."""
    p, q = log([0.5, 0.48, 0.02]), log([0.2, 0.2, 0.6])
    with pytest.raises(Blocked, match=r"^step 3 "):
        Contrast(0.1).probs(p, q, Warp(no_repeat_ngram_size=1), [0, 1, 0])
    models = [TableModel([np.exp(row)] * 3) for row in (p, q)]
    warp = Warp(temperature=0, no_repeat_ngram_size=1)
    steps = list(contrastive(*models, [0], warp=warp, max_new_tokens=5))
    assert [(s.tokens, s.finish_reason) for s in steps] == [((1,), None), ((), "blocked")]


# --- the law --------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(rows(3, 12), rows(3, 12), st.sampled_from([0.1, 0.5]), st.sampled_from([1.0, 0.7]))
def test_the_law_of_the_sampled_text_is_the_closed_form(p, q, alpha, temperature):
    """Three tokens, 2 ends the text; rows depend on the last two tokens."""

    def row(table):
        return lambda h: table[3 * (h[-2] if len(h) > 1 else 3) + h[-1]]

    def program(chance):
        steps = contrastive(
            TableModel(row(p)),
            TableModel(row(q)),
            [0],
            alpha=alpha,
            warp=Warp(temperature=temperature),
            chance=chance,
            max_new_tokens=3,
            eos=2,
        )
        return tuple(text(steps))

    wanted = {}

    def go_on(written, probability):
        if len(written) == 3 or 2 in written:
            wanted[written] = probability
            return
        history = [0, *written]
        step = closed_form(row(p)(history), row(q)(history), alpha, temperature)
        for token in np.flatnonzero(step):
            go_on((*written, int(token)), probability * step[token])

    go_on((), 1.0)
    found = law(program)
    assert found.keys() == wanted.keys()
    for outcome, probability in wanted.items():
        assert found[outcome] == pytest.approx(probability, abs=1e-12)


def test_same_chance_same_text():
    expert = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    amateur = gpt2(random_gpt2(2, 31, 1, 1, 8, 64))
    options = {"alpha": 0.01, "warp": Warp(temperature=3.0), "max_new_tokens": 20, "eos": None}
    texts = [
        text(contrastive(expert, amateur, [1], chance=chance, **options))
        for chance in (Dice(0), Dice(0), Dice(1), GumbelDice(0), GumbelDice(0))
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == texts[4]


# --- the loop -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['prompt'][0]}-{c['alpha']}")
def test_golden_texts(storytellers, case):
    expert, amateur = storytellers
    steps = contrastive(
        expert, amateur, case["prompt"], alpha=case["alpha"], max_new_tokens=32, eos=None
    )
    assert text(steps) == case["tokens"]
    assert case["smallest_gap"] > 5e-4  # far above rounding, so no kernel may choose otherwise


def test_both_models_read_each_token_once():
    class Counting(TableModel):
        def forward(self, tokens, cache, n_logits=1):
            fed.append((self, list(tokens), n_logits))
            return super().forward(tokens, cache, n_logits)

    fed = []
    expert, amateur = Counting([[0.6, 0.4]] * 2), Counting([[0.9, 0.1]] * 2)
    assert text(contrastive(expert, amateur, [0, 1, 0], max_new_tokens=3)) == [1, 1, 1]
    for model in (expert, amateur):
        assert [f[1:] for f in fed if f[0] is model] == [([0, 1, 0], 1), ([1], 1), ([1], 1)]


def test_limits_and_ends():
    expert, amateur = TableModel([[0.6, 0.4]] * 2, n_positions=9), TableModel([[0.9, 0.1]] * 2)

    def run(*models, **limits):
        steps = list(contrastive(*models, [0] * 5, **limits))
        return len(text(steps)), steps[-1].finish_reason if steps else None

    assert run(expert, amateur, max_new_tokens=3) == (3, "length")
    assert run(expert, amateur, max_new_tokens=0) == (0, None)
    assert run(expert, amateur) == (4, "context")
    assert run(amateur, expert, max_new_tokens=10) == (4, "context")  # the shorter context counts
    assert run(expert, amateur, eos=1) == (1, "eos")
    with pytest.raises(ContextError):
        run(expert, TableModel([[0.9, 0.1]] * 2, n_positions=5), max_new_tokens=1)
    with pytest.raises(InputError, match=r"^max_new_tokens"):
        run(expert, amateur, max_new_tokens=-1)
    with pytest.raises(TypeError, match="top_p"):
        run(expert, amateur, top_p=0.9)


def test_a_padded_amateur_or_expert():
    p, q = [0.3, 0.3, 0.4], [0.5, 0.2, 0.1, 0.2]
    scores = Contrast(0.1)(log(p), log(q))
    assert scores == pytest.approx(log(p) - log(q[:3]))  # id 3 keeps its part of the amateur's mass
    scores = Contrast(0.1)(log(q), log(p))
    assert scores == pytest.approx([*(log(q[:3]) - log(p)), math.log(0.2) - FLOOR])
    expert, amateur = TableModel([q] * 4), TableModel([p] * 3)
    assert text(contrastive(expert, amateur, [0], max_new_tokens=1)) == [3]
    # which the amateur cannot read: it knows nothing then, and finds all that it has alike
    assert text(contrastive(expert, amateur, [0], max_new_tokens=3)) == [3, 3, 3]


def test_vocabularies_that_differ_are_refused_before_the_first_pass(tmp_path):
    for name, merges in (("a", ()), ("b", [("t", "h")])):
        backend = toy_tokenizer(merges=merges)
        write(
            tmp_path / name, *bigram(np.full((n := backend.get_vocab_size(),) * 2, 1 / n)), backend
        )
    models = [minidecode.load(str(tmp_path / name))[0] for name in "ab"]
    with pytest.raises(InputError, match=r"^amateur: id 256 means another token"):
        list(contrastive(*models, [0], max_new_tokens=1))


def test_log_softmax():
    assert log_softmax(np.float32([1000, 1000])) == pytest.approx([-math.log(2)] * 2)
    assert log_softmax(np.array([-np.inf, 3.0])).tolist() == [-np.inf, 0.0]
    assert log_softmax(np.array([0.0, -1e308]), temperature=1e-300).tolist() == [0.0, -np.inf]
    logits = np.float32([2, 4, 3])
    assert np.exp(log_softmax(logits)).sum() == pytest.approx(1, abs=1e-15)
    assert logits.tolist() == [2, 4, 3]
