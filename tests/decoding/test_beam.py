"""Beam search against brute force, a plain reference, transformers, and known faults."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from builders import bigram, penalty, random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

import minidecode
from minidecode.decoding.beam import Hypothesis, beam_search
from minidecode.decoding.contrastive import Contrast
from minidecode.decoding.filters import no_repeat_ngram_size as banned_tokens
from minidecode.decoding.greedy import greedy
from minidecode.decoding.warp import log_softmax
from minidecode.errors import ContextError, InputError, LogitsError
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.table import TableCache, TableModel

MODES = (True, False, "never")


def golden(name):
    return json.loads((Path(__file__).parents[1] / "golden" / name).read_text())["cases"]


def gpt2(fixture):
    config, tensors = fixture
    return GPT2(Config.from_dict(config), tensors)


def tokens(hypotheses):
    return [h.tokens for h in hypotheses]


class Stub:
    """The logits of step i are rows[i], whatever the tokens; counts passes, sequences and forks."""

    eos, bos, n_positions = (), None, 64

    def __init__(self, rows, prompt_length=1):
        self.rows, self.prompt_length = np.asarray(rows), prompt_length
        self.vocab_size = self.rows.shape[1]
        self.passes, self.forks = [], 0

    def new_cache(self, held=()):
        cache = TableCache(held)
        cache.fork = lambda: self._fork(cache)
        return cache

    def _fork(self, cache):
        self.forks += 1
        return self.new_cache(cache.tokens)

    def forward_many(self, batch, n_logits=1):
        self.passes.append(len(batch))
        for new, cache in batch:
            cache.tokens.extend(new)
        return [self.rows[c.length - self.prompt_length][None] for _, c in batch]


class WithoutCache:
    """A model that computes everything anew for each sequence in each pass."""

    def __init__(self, model):
        self.model = model
        self.vocab_size, self.n_positions = model.vocab_size, model.n_positions
        self.eos, self.bos = model.eos, model.bos

    def new_cache(self):
        return TableCache()

    def forward(self, tokens, cache, n_logits=1):
        cache.tokens.extend(tokens)
        return self.model.forward(cache.tokens, self.model.new_cache(), n_logits)

    def forward_many(self, batch, n_logits=1):
        return [self.forward(*sequence, n_logits) for sequence in batch]


# --- brute force ----------------------------------------------------------------------------------


def every_outcome(model, prompt, limit, eos, ngram=0):
    """All texts that a run can end with, as (tokens, log-probability, reason)."""
    ended = []

    def go_on(text, total):
        history = [*prompt, *text]
        row = np.log(
            model.row(history), where=(row := model.row(history)) > 0, out=row * 0 - np.inf
        )
        row[banned_tokens(history, ngram)] = -np.inf
        if (row == -np.inf).all():
            ended.append((text, total, "blocked"))
        for token in np.flatnonzero(row > -np.inf).tolist():
            longer = ([*text, token], total + row[token])
            if token in eos:
                ended.append((*longer, "eos"))
            elif len(longer[0]) == limit:
                ended.append((*longer, "length"))
            else:
                go_on(*longer)

    go_on([], 0.0)
    return ended


def scored(outcomes, length_penalty):
    return sorted(
        (t / len(x) ** length_penalty if x else 0.0 for x, t, _ in outcomes), reverse=True
    )


@st.composite
def tables(draw, max_size=4):
    """A TableModel whose rows depend on the last two tokens; some probabilities are 0."""
    V = draw(st.integers(2, max_size))
    weights = st.lists(st.integers(0, 9), min_size=V, max_size=V).filter(any)
    rows = draw(st.lists(weights, min_size=V * (V + 1), max_size=V * (V + 1)))
    rows = np.array(rows, dtype=np.float64)
    rows /= rows.sum(axis=1, keepdims=True)

    def row(history):
        before = history[-2] if len(history) > 1 else V
        return rows[before * V + history[-1]]

    return TableModel(row)


penalties = st.one_of(st.sampled_from([0.0, 1.0, 2.0, -1.0]), st.floats(-3, 3))


@settings(max_examples=150, deadline=None)
@given(tables(5), st.data())
def test_wide_beam_is_exhaustive_search(model, data):
    limit = data.draw(st.integers(1, 5 if model.vocab_size <= 3 else 3 + (model.vocab_size < 5)))
    eos = data.draw(st.sets(st.integers(0, model.vocab_size - 1), max_size=2))
    length_penalty = data.draw(penalties)
    ngram = data.draw(st.sampled_from([0, 0, 1, 2]))
    outcomes = every_outcome(model, [0], limit, eos, ngram)
    best = scored(outcomes, length_penalty)
    log_p = {tuple(text): (total, reason) for text, total, reason in outcomes}
    wanted = data.draw(st.integers(1, len(best) + 1))
    found = beam_search(
        model,
        [0],
        num_beams=max(2, wanted, len(best)),
        max_new_tokens=limit,
        length_penalty=length_penalty,
        early_stopping=data.draw(st.sampled_from(MODES)),
        num_return_sequences=wanted,
        no_repeat_ngram_size=ngram,
        eos=eos,
    )
    assert len(found) == min(wanted, len(best))  # fewer exist: fewer come back
    assert [h.score for h in found] == pytest.approx(best[:wanted], rel=1e-9)
    assert len({tuple(h.tokens) for h in found}) == len(found)
    for h in found:
        total, reason = log_p[tuple(h.tokens)]
        assert h.finish_reason == reason
        assert sum(h.logprobs) == pytest.approx(total, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(tables(4), st.data())
def test_holding_every_beginning_is_enough(model, data):
    """Only the beginnings that run on need to fit, not all outcomes; "never" finds the best."""
    limit = data.draw(st.integers(1, 4))
    eos = data.draw(st.sets(st.integers(0, model.vocab_size - 1), max_size=2))
    length_penalty = data.draw(penalties)
    width = max(2, (model.vocab_size - len(eos)) ** (limit - 1))
    best = scored(every_outcome(model, [0], limit, eos), length_penalty)[0]
    found = beam_search(
        model,
        [0],
        num_beams=width,
        max_new_tokens=limit,
        length_penalty=length_penalty,
        early_stopping="never",
        eos=eos,
    )
    assert found[0].score == pytest.approx(best, rel=1e-9)


# --- a narrow beam: a plain reference that never stops before the limit ---------------------------


def plain_beam_search(model, num_beams, limit, eos, length_penalty):
    running, finished = [([], 0.0)], []
    for length in range(1, limit + 1):
        candidates = []
        for text, total in running:
            row = log_softmax(model.forward([0, *text], model.new_cache())[0])  # the same rounding
            candidates += [([*text, t], total + s) for t, s in enumerate(row) if s > -np.inf]
        candidates.sort(key=lambda c: -c[1])
        going = [c for c in candidates if c[0][-1] not in eos and length < limit]
        for rank, (text, total) in enumerate(candidates):
            ends = text[-1] in eos or length == limit
            if ends and (rank < num_beams or len(going) <= num_beams):
                finished.append((total / length**length_penalty, text))
        running = going[:num_beams]
    finished.sort(key=lambda f: -f[0])
    return finished[:num_beams]


@settings(max_examples=150, deadline=None)
@given(tables(5), st.data())
def test_the_stop_loses_nothing(model, data):
    limit = data.draw(st.integers(1, 7))
    eos = data.draw(st.sets(st.integers(0, model.vocab_size - 1), min_size=1, max_size=2))
    length_penalty = data.draw(penalties)
    num_beams = data.draw(st.integers(2, 4))
    wanted = data.draw(st.integers(1, num_beams))
    # early_stopping=False guesses only where a longer text may gain by its length
    modes = ["never"] if length_penalty > 0 else ["never", False]
    found = beam_search(
        model,
        [0],
        num_beams=num_beams,
        num_return_sequences=wanted,
        max_new_tokens=limit,
        length_penalty=length_penalty,
        eos=eos,
        early_stopping=data.draw(st.sampled_from(modes)),
    )
    best = plain_beam_search(model, num_beams, limit, eos, length_penalty)[:wanted]
    assert [h.score for h in found] == pytest.approx([score for score, _ in best], rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(tables(4), st.data())
def test_it_goes_on_exactly_while_a_running_one_can_still_win(model, data):
    """Replayed from the trace: before the last step one could, and after it none can."""
    limit = data.draw(st.integers(2, 7))
    eos = data.draw(st.integers(0, model.vocab_size - 1))
    length_penalty = data.draw(penalties)
    trace = []
    beam_search(
        model,
        [0],
        num_beams=2,
        max_new_tokens=limit,
        length_penalty=length_penalty,
        eos=eos,
        early_stopping="never",
        trace=trace,
    )
    finished = []
    for length, branches in enumerate(trace, start=1):
        finished += [b.total / length**length_penalty for b in branches if b.fate == "finished"]
        running = [b.total for b in branches if b.fate == "running"]
        lengths = range(length + 1, limit + 1)  # with all further probabilities 1
        reachable = [t / n**length_penalty for t in running for n in lengths]
        could_win = bool(reachable) and (not finished or max(reachable) > max(finished))
        assert could_win == (length < len(trace))


def test_it_stops_where_a_running_one_could_only_draw_level():
    trace = []
    options = {"num_beams": 2, "max_new_tokens": 9, "length_penalty": 0, "eos": 1, "trace": trace}
    found = beam_search(TableModel([[0.5, 0.5]] * 2), [0], early_stopping="never", **options)
    assert tokens(found) == [[1]]
    assert len(trace) == 1


def test_early_stopping_false_guesses_and_never_does_not():
    """As in transformers, False compares scores at the present length, and so may stop too soon."""
    P = np.full((5, 5), 0.2)
    P[1:3] = 0.01
    P[0] = [0.02, 0.05, 0.03, 0.45, 0.45]  # 3 and 4 end the text at once ...
    P[1, 2] = P[2, 3] = 0.96  # ... but 1, 2, 3 is nearly certain once 1 is there
    model, text = TableModel(P), math.log(0.05 * 0.96 * 0.96)
    best = {}
    for mode in MODES:
        options = {"num_beams": 2, "max_new_tokens": 3, "length_penalty": 2.0, "eos": [3, 4]}
        (best[mode],) = beam_search(model, [0], early_stopping=mode, **options)
    assert best[True] == best[False]
    assert (best[False].tokens, best[False].score) == ([3], pytest.approx(math.log(0.45)))
    assert (best["never"].tokens, best["never"].score) == ([1, 2, 3], pytest.approx(text / 9))


# --- transformers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def storyteller():
    return minidecode.load("storyteller-6m")[0]


@pytest.mark.parametrize("case", golden("beam.json"))
def test_golden_values_of_transformers(storyteller, case):
    found = beam_search(
        storyteller, case["prompt"], max_new_tokens=24, eos=case["eos"], **case["settings"]
    )
    assert tokens(found) == case["sequences"]
    assert [h.score for h in found] == pytest.approx(case["scores"], abs=1e-4)


@pytest.mark.parametrize("case", golden("repetition.json"))
def test_golden_texts_with_penalties(storyteller, case):
    options = {"max_new_tokens": 48, **case["settings"]}
    steps = list(greedy(storyteller, case["prompt"], **options))
    (found,) = beam_search(storyteller, case["prompt"], num_beams=1, **options)
    assert [t for step in steps for t in step.tokens] == found.tokens == case["tokens"]


def test_repetition_penalty_where_transformers_differs():
    """Keskar et al. penalise logits. In a beam search transformers penalises log-probabilities,
    so that with one beam it no longer agrees with its own greedy decoding; here it does."""
    model = gpt2(penalty())
    options = {"repetition_penalty": 3.5, "max_new_tokens": 12, "eos": None}
    (found,) = beam_search(model, [0], num_beams=1, **options)
    assert found.tokens == [1, 2, 3, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    logits = np.array([-1.5 * 3.5, 1.5, 0.5, -0.5])  # token 0 has been seen, its logit is negative
    assert found.logprobs[0] == pytest.approx(1.5 - math.log(np.exp(logits).sum()), abs=1e-3)


# --- faults reported elsewhere --------------------------------------------------------------------

F_BEAM = [[0.1, 0.5, 0.3, 0.1], [0.05, 0.15, 0.38, 0.42], [0.1, 0.6, 0.1, 0.2], [0.25] * 4]


def test_the_end_token_counts_in_the_length():
    found = beam_search(gpt2(bigram(F_BEAM)), [0], num_beams=64, max_new_tokens=4, eos=3)
    assert found[0].tokens == [1, 2, 1, 3]
    assert found[0].score == pytest.approx(-0.7598, abs=2e-4)


@pytest.mark.parametrize("mode", [False, "never"])
@pytest.mark.parametrize(
    ("length_penalty", "best", "score"),
    [(0, [3], -0.9943), (1, [1, 2, 3], -0.4426), (2, [1, 2, 3], -0.1475), (-1, [3], -0.9943)],
)
def test_the_bound_knows_the_sign_of_the_penalty(mode, length_penalty, best, score):
    P = [[0.165, 0.30, 0.165, 0.37], [0.02, 0.02, 0.94, 0.02], [0.02, 0.02, 0.02, 0.94], [0.25] * 4]
    options = {"num_beams": 2, "max_new_tokens": 4, "eos": 3, "length_penalty": length_penalty}
    found = beam_search(gpt2(bigram(P)), [0], early_stopping=mode, **options)
    assert found[0].tokens == best
    assert found[0].score == pytest.approx(score, abs=2e-4)


def test_no_duplicates_and_no_dead_candidates():
    """Step i gives token 0 a score of -0.2 and token i + 1 one of -0.1, the rest are impossible.

    They are no probabilities, so log-softmax shifts each step by the same constant.
    """
    rows = np.full((3, 4), -np.inf)
    rows[:, 0] = -0.2
    rows[[0, 1, 2], [1, 2, 3]] = -0.1
    shift = math.log(math.exp(-0.1) + math.exp(-0.2))
    trace = []
    options = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0}
    found = beam_search(Stub(rows), [0], max_new_tokens=3, trace=trace, **options)
    second = [(b.parent, b.token, b.total + 2 * shift) for b in trace[1]]
    assert [s[:2] for s in second] == [(0, 2), (0, 0), (1, 2), (1, 0)]
    assert [s[2] for s in second] == pytest.approx([-0.2, -0.3, -0.3, -0.4])
    assert found[0].tokens == [1, 2, 3]
    assert [h.score + 3 * shift for h in found] == pytest.approx([-0.3, -0.4, -0.4, -0.4])
    assert len({tuple(h.tokens) for h in found}) == 4


@pytest.mark.parametrize(("num_beams", "wanted", "there_are"), [(5, 5, 5), (20, 5, 5), (20, 20, 9)])
def test_beam_wider_than_the_vocabulary(num_beams, wanted, there_are):
    model = gpt2(bigram([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.35, 0.25]]))
    options = {"max_new_tokens": 2, "eos": None, "length_penalty": 0}
    found = beam_search(model, [0], num_beams=num_beams, num_return_sequences=wanted, **options)
    assert len(found) == there_are
    assert tokens(found)[:5] == [[0, 0], [1, 1], [0, 1], [0, 2], [1, 2]]
    scores = [-1.3863, -1.7148, -1.8971, -2.3026, -2.4079]
    assert [h.score for h in found[:5]] == pytest.approx(scores, abs=2e-4)


@pytest.mark.parametrize("prompt_length", [1, 3, 30, 33])  # a page of the cache is 32 tokens
def test_caches_follow_their_beams(prompt_length):
    model = gpt2(random_gpt2(5, 31, 2, 2, 16, 64))
    rng = np.random.default_rng(prompt_length)
    for _ in range(3):
        prompt = rng.integers(0, 31, prompt_length).tolist()
        options = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 12, "eos": None}
        found = beam_search(model, prompt, **options)
        without = beam_search(WithoutCache(model), prompt, **options)
        assert tokens(found) == tokens(without)
        assert [h.score for h in found] == pytest.approx([h.score for h in without], abs=1e-4)


def test_one_pass_a_step_and_a_fork_only_for_a_second_child():
    """Step 2 makes three children of the first beam, step 3 one of each."""
    low, rows = -30.0, np.full((4, 4), -30.0)
    rows[0] = [0, -9, low, low]
    rows[1] = [0, -0.1, -0.2, low]
    rows[2:] = [0, low, low, low]
    trace, model = [], Stub(rows)
    beam_search(model, [0], num_beams=3, max_new_tokens=4, trace=trace)
    parents = [[b.parent for b in step if b.fate == "running"] for step in trace]
    assert parents[1:3] == [[0, 0, 0], [0, 1, 2]]
    assert model.passes == [1, 3, 3, 3]
    assert model.forks == 2 + 2  # three beams from the prompt, then three from one beam


def test_a_narrow_beam_may_miss_the_greedy_text():
    P = np.full((6, 6), 1 / 6)
    for row, given_p in {
        0: {1: 0.4, 2: 0.3},
        1: {3: 0.3},
        2: {4: 0.46, 5: 0.44},
        3: {0: 0.95},
    }.items():
        P[row] = (1 - sum(given_p.values())) / (6 - len(given_p))
        for token, p in given_p.items():
            P[row, token] = p
    model = gpt2(bigram(P))
    options = {"max_new_tokens": 3, "eos": None, "length_penalty": 0}
    best = {n: beam_search(model, [0], num_beams=n, **options)[0] for n in (1, 2, 200)}
    assert best[1].tokens == best[200].tokens == [1, 3, 0]
    assert best[1].score == pytest.approx(-2.1716, abs=1e-3)
    assert best[2].score == pytest.approx(-3.7723, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("extra", [{}, {"repetition_penalty": 1.7}, {"no_repeat_ngram_size": 2}])
@pytest.mark.parametrize("mode", MODES)
def test_one_beam_is_greedy(seed, extra, mode):
    model = gpt2(random_gpt2(seed, 13, 2, 2, 16, 64))
    free = list(greedy(model, [1, 2], max_new_tokens=20, eos=None, **extra))
    for eos in (None, [free[0].tokens[0], 3], free[9].tokens[0]):
        options = {"max_new_tokens": 20, "eos": eos, **extra}
        steps = list(greedy(model, [1, 2], **options))
        search = {"num_beams": 1, "early_stopping": mode, "length_penalty": 2.0}
        (found,) = beam_search(model, [1, 2], **search, **options)
        assert found.tokens == [t for step in steps for t in step.tokens]
        assert found.finish_reason == steps[-1].finish_reason


def test_one_beam_is_greedy_where_the_end_is_the_only_other_token():
    model = TableModel([[0.6, 0.4], [0.5, 0.5]])
    (found,) = beam_search(model, [0], num_beams=1, max_new_tokens=3, eos=1)
    assert found.tokens == [0, 0, 0]


def test_ties_fall_to_the_better_parent_and_the_lower_id():
    options = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 2}
    found = beam_search(TableModel(np.full((6, 6), 1 / 6)), [0], **options)
    assert tokens(found) == [[0, 0], [0, 1], [0, 2]]


def test_finished_hypotheses_never_grow_and_free_their_slot():
    model = TableModel(np.random.default_rng(0).dirichlet(np.ones(20), size=20))
    trace = []
    options = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 10, "eos": [3, 5, 7]}
    found = beam_search(model, [1], early_stopping="never", trace=trace, **options)
    assert any(b.fate == "finished" for step in trace[:-1] for b in step)
    for h in found:
        assert not {3, 5, 7} & set(h.tokens[:-1])
        assert h.finish_reason == ("eos" if h.tokens[-1] in (3, 5, 7) else "length")
    for step in trace[:9]:
        assert sum(b.fate == "running" for b in step) == 4


def fates(step):
    return [(b.parent, b.token, b.fate) for b in step]


def test_an_end_token_below_the_num_beams_best_is_dropped():
    p = [0.5, 0.1, 0.4]
    # two equal beams; each could end, but has something better to do
    model = TableModel(lambda history: [0.5, 0.5, 0.0] if len(history) == 1 else p)
    trace = []
    beam_search(model, [0], num_beams=2, max_new_tokens=3, eos=2, trace=trace)
    assert fates(trace[1])[:2] == [(0, 0, "running"), (1, 0, "running")]
    assert fates(trace[1])[2:4] == [(0, 2, "dropped"), (1, 2, "dropped")]


def test_the_beams_stay_full_however_many_tokens_end():
    trace = []
    model = TableModel([[0.1, 0.1, 0.27, 0.27, 0.26]] * 5)
    options = {"num_beams": 2, "max_new_tokens": 3, "early_stopping": "never"}
    beam_search(model, [0], eos=[2, 3, 4], trace=trace, **options)
    assert fates(trace[0]) == [
        (0, 2, "finished"),
        (0, 3, "finished"),
        (0, 4, "finished"),
        (0, 0, "running"),
        (0, 1, "running"),
    ]
    assert [b.fate for b in trace[1]].count("running") == 2  # below six that end


def test_the_trace_holds_the_whole_tree():
    model = gpt2(random_gpt2(8, 15, 1, 2, 16, 64))
    trace = []
    options = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 6, "eos": 4}
    found = beam_search(model, [1], trace=trace, length_penalty=0, **options)
    texts, ended = [[]], {}
    for step in trace:
        assert [b.total for b in step] == sorted((b.total for b in step), reverse=True)
        for b in step:
            if b.fate == "finished":
                ended[(*texts[b.parent], b.token)] = b.total
        texts = [[*texts[b.parent], b.token] for b in step if b.fate == "running"]
    best = sorted(ended.items(), key=lambda item: -item[1])[:3]
    assert [(tuple(h.tokens), h.score) for h in found] == best


def test_shorter_texts_gain_by_a_negative_penalty():
    """[3] scores -0.994, [1, 3] 2 * -0.488; longer ones that begin with 1 lose."""
    model = TableModel([[0.005, 0.62, 0.005, 0.37], [0.0, 0.0, 0.01, 0.99], *[[0.25] * 4] * 2])
    options = {"num_beams": 2, "max_new_tokens": 4, "eos": 3, "length_penalty": -1.0}
    for mode in (False, "never"):
        assert beam_search(model, [0], early_stopping=mode, **options)[0].tokens == [1, 3]


def test_a_blocked_text_may_win_at_the_length_it_has():
    """After 1 comes only 0, which is banned; [1] at -0.69 beats the finished [2] at -0.80."""
    model = TableModel([[0.05, 0.5, 0.45], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    options = {"num_beams": 2, "max_new_tokens": 4, "eos": 2, "length_penalty": -1.0}
    found = beam_search(model, [0], no_repeat_ngram_size=1, early_stopping="never", **options)
    assert found == [Hypothesis([1], pytest.approx(math.log(0.5)), [math.log(0.5)], "blocked")]


# --- blocking, limits, errors ---------------------------------------------------------------------


def test_blocked_in_the_same_place_as_greedy():
    found = beam_search(
        gpt2(penalty()), [0], num_beams=1, max_new_tokens=30, no_repeat_ngram_size=2, eos=None
    )
    assert found[0].tokens == [1, 2, 0, 2, 3, 1, 3, 0, 3, 2, 1, 0, 0]
    assert found[0].finish_reason == "blocked"


def test_blocking_looks_at_each_beam_alone():
    found = beam_search(
        gpt2(penalty()),
        [0],
        num_beams=4,
        num_return_sequences=4,
        max_new_tokens=30,
        no_repeat_ngram_size=2,
        eos=None,
    )
    for h in found:
        pairs = list(itertools.pairwise([0, *h.tokens]))
        assert len(set(pairs)) == len(pairs)
        assert h.finish_reason == "blocked"
        assert len(h.tokens) > 5


def test_blocked_at_once_leaves_the_empty_text():
    model = TableModel([[1.0, 0.0], [0.5, 0.5]])
    found = beam_search(model, [0, 0], num_beams=2, max_new_tokens=3, no_repeat_ngram_size=2)
    assert found == [Hypothesis([], 0.0, [], "blocked")]


def test_limits():
    model = gpt2(random_gpt2(1, 11, 1, 1, 8, 8))
    options = {"num_beams": 3, "num_return_sequences": 2, "eos": None}
    for limit in (10, None):
        for h in beam_search(model, [1, 2, 3, 4, 5], max_new_tokens=limit, **options):
            assert (len(h.tokens), h.finish_reason) == (3, "context")
    for h in beam_search(model, [1, 2, 3, 4, 5], max_new_tokens=3, **options):
        assert (len(h.tokens), h.finish_reason) == (3, "length")
    for length in (8, 9):
        with pytest.raises(ContextError):
            beam_search(model, [1] * length, max_new_tokens=1, **options)


def test_no_tokens_wanted_no_pass_made():
    model = Stub(np.zeros((1, 3)))
    assert beam_search(model, [0], num_beams=3, max_new_tokens=0) == [
        Hypothesis([], 0.0, [], "length")
    ]
    assert model.passes == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": True}, "num_beams"),
        ({"num_beams": 2.0}, "num_beams"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences"),
        ({"num_beams": 2, "num_return_sequences": 0}, "num_return_sequences"),
        ({"num_beams": 2, "length_penalty": math.nan}, "length_penalty"),
        ({"num_beams": 2, "length_penalty": math.inf}, "length_penalty"),
        ({"num_beams": 2, "early_stopping": "always"}, "early_stopping"),
        ({"num_beams": 2, "repetition_penalty": 0}, "repetition_penalty"),
        ({"num_beams": 2, "no_repeat_ngram_size": -1}, "no_repeat_ngram_size"),
        ({"num_beams": 2, "max_new_tokens": -1}, "max_new_tokens"),
        ({"num_beams": 2, "contrast": Contrast()}, "contrast"),
    ],
)
def test_settings_that_cannot_be(options, named):
    model = Stub(np.zeros((1, 3)))
    with pytest.raises(InputError, match=f"^{named}: "):
        beam_search(model, [0], **{"max_new_tokens": 1, **options})
    assert model.passes == []


def test_settings_without_effect_are_not_taken():
    for name in ("temperature", "top_k", "top_p", "chance"):
        with pytest.raises(TypeError, match=name):
            beam_search(Stub(np.zeros((1, 3))), [0], num_beams=2, max_new_tokens=1, **{name: 1})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_no_distribution_name_the_step(bad):
    rows = np.zeros((3, 3), np.float32)
    rows[2] = bad
    with pytest.raises(LogitsError, match=r"^step 5 .*logits"):
        beam_search(Stub(rows, prompt_length=3), [0, 1, 2], num_beams=2, max_new_tokens=3)
