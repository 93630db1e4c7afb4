"""Each filter with four numbers, and all of them against transformers.

golden/filters.json was written by `python tests/decoding/test_filters.py` with torch 2.13.0 and
transformers 5.24.0: seeded logits in float64 go through transformers' own processors, in the order
in which its `generate` calls them. With transformers installed, hundreds of random rows do too.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from minidecode import InputError, LogitsError, Warp
from minidecode.decoding import filters
from minidecode.decoding.warp import OPTIONS, ROWS, SETTINGS, Blocked
from minidecode.kernels import reference

FOUR = np.array([0.5, 0.3, 0.15, 0.05])
GOLDEN = Path(__file__).parents[1] / "golden" / "filters.json"


def kept(probs):
    return np.flatnonzero(probs).tolist()


# Four numbers


def test_min_p_is_a_share_of_the_likeliest():
    assert kept(filters.min_p(FOUR, 0.2)) == [0, 1, 2]
    assert kept(filters.min_p(FOUR, 0.7)) == [0]
    assert kept(filters.min_p(np.array([0.25] * 4), 1)) == [0, 1, 2, 3]


def test_typical_p_takes_what_is_nearest_to_the_entropy():
    """Entropy 1.142; surprises 0.693, 1.204, 1.897, 2.996 are 0.449, 0.062, 0.755, 1.854 off."""
    assert kept(filters.typical_p(FOUR, 0.2)) == [1]
    assert kept(filters.typical_p(FOUR, 0.5)) == [0, 1]
    assert kept(filters.typical_p(FOUR, 0.81)) == [0, 1, 2]
    assert kept(filters.typical_p(FOUR, 0.96)) == [0, 1, 2, 3]
    assert kept(filters.typical_p(np.array([0.5, 0, 0.5, 0]), 0.9)) == [0, 2]
    assert kept(filters.typical_p(np.array([0.25] * 4), 0.5)) == [0, 1]  # ties to the lower id


def test_epsilon_keeps_what_is_not_below_it_and_the_likeliest():
    assert kept(filters.epsilon(FOUR, 0.15)) == [0, 1, 2]
    assert kept(filters.epsilon(FOUR, 0.9)) == [0]


def test_eta_is_lower_where_the_entropy_is_high():
    """sqrt(0.09) exp(-1.142) is 0.0958; of four equal ones it is 0.3 / 4 = 0.075."""
    assert kept(filters.eta(FOUR, 0.09)) == [0, 1, 2]
    assert kept(filters.eta(FOUR, 0.81)) == [0, 1]  # 0.9 * 0.319 = 0.287
    assert kept(filters.eta(np.array([0.25] * 4), 0.09)) == [0, 1, 2, 3]
    assert kept(filters.eta(np.array([0.97, 0.01, 0.01, 0.01]), 0.04)) == [0]


def test_top_n_sigma_counts_standard_deviations_from_the_maximum():
    """Of 4, 3, 1, 0 the mean is 2 and the deviation sqrt(10 / 4) = 1.58."""
    logits = np.array([4.0, 3, 1, 0])
    assert kept(filters.top_n_sigma(logits, 0.5)) == [0]
    assert kept(filters.top_n_sigma(logits, 1)) == [0, 1]
    assert kept(filters.top_n_sigma(logits, 2)) == [0, 1, 2]
    assert kept(filters.top_n_sigma(np.array([4.0, 3, -np.inf, 0]), 1)) == [0, 1]
    assert kept(filters.top_n_sigma(np.array([2.0, 2, 2, 2]), 0.1)) == [0, 1, 2, 3]


def test_top_n_sigma_is_blind_to_the_temperature():
    logits = np.random.default_rng(0).normal(0, 3, 500)
    for temperature in (0.1, 0.7, 3.0):
        assert kept(Warp(top_n_sigma=1.0, temperature=temperature)(logits, [])) == kept(
            filters.top_n_sigma(logits, 1.0)
        )


def penalised(history, **settings):
    return Warp(**settings).penalise(np.array([2.0, -2, 1, 0]), history).tolist()


def test_presence_is_subtracted_once_and_frequency_each_time():
    history = [0, 3, 0, 0]
    assert penalised(history, presence_penalty=0.5) == [1.5, -2, 1, -0.5]
    assert penalised(history, frequency_penalty=0.5) == [0.5, -2, 1, -0.5]
    assert penalised(history, presence_penalty=-1) == [3, -2, 1, 1]
    assert penalised([], presence_penalty=1, frequency_penalty=1) == [2, -2, 1, 0]


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_ids_seen_that_a_smaller_vocabulary_lacks_are_passed_over(name):
    with_them = penalised([0, 9, 9, 4], **{name: 1.5})
    assert with_them == penalised([0], **{name: 1.5}) != [2, -2, 1, 0]


def test_a_bias_is_added_and_minus_infinity_bans():
    assert penalised([], logit_bias={1: 5, 3: -math.inf}) == [2, 3, 1, -math.inf]
    assert penalised([], logit_bias=[(2, 0.5)]) == [2, -2, 1.5, 0]
    assert penalised([], logit_bias={9: 5.0}) == [2, -2, 1, 0]  # of a draft with fewer ids


@pytest.mark.parametrize(
    ("history", "sequences", "banned"),
    [
        ([], [[1]], [1]),
        ([5, 6], [[6, 2]], [2]),
        ([6, 5], [[6, 2]], []),
        ([5, 6], [[5, 6, 3], [7, 6, 1], [6, 2], [0]], [0, 2, 3]),
        ([6], [[5, 6, 3]], []),
        ([6, 6], [[6, 6, 6]], [6]),
        ([], [[5, 6]], []),
    ],
)
def test_bad_words_ban_what_would_complete_them(history, sequences, banned):
    for kind in (list, tuple, np.array):
        found = filters.bad_words(kind(history), Warp(bad_words=sequences).bad_words)
        assert list(found) == banned


def test_suppressed_ids_and_early_ends_have_no_probability():
    logits = np.log(FOUR)
    assert kept(Warp(suppress=[0, 3])(logits, [])) == [1, 2]
    warp = Warp(end_after=(3, [1]))
    assert [kept(warp(logits, range(n))) for n in (2, 3)] == [[0, 2, 3], [0, 1, 2, 3]]


# Processors of the user's own


def test_processors_come_first_and_in_order():
    def double(logits, history):
        return 2 * logits

    def ban_last(logits, history):
        logits[history[-1]] = -np.inf
        return logits

    logits = np.array([2.0, 1, 0, -1])
    warp = Warp(processors=[double, ban_last], logit_bias={0: 1.0})
    assert warp.penalise(logits, [2]).tolist() == [5, 2, -np.inf, -2]
    assert logits.tolist() == [2, 1, 0, -1]


def test_processors_cannot_touch_the_history_or_the_logits():
    def rude(logits, history):
        history.clear()
        logits[:] = 0
        return logits.astype(np.float64)

    history, logits = [1, 2], np.array([1, 2, 3, 4], np.float32)
    probs = Warp(processors=(rude,))(logits, history)
    assert history == [1, 2] and logits.tolist() == [1, 2, 3, 4] and probs.dtype == np.float32


@pytest.mark.parametrize(
    "answer", [None, 5, [1.0, 2.0], np.zeros(5), np.zeros((1, 4)), np.array(["a"] * 4), 1j], ids=str
)
def test_what_a_processor_must_not_return(answer):
    with pytest.raises(InputError, match=r"^processors: got .* logits of shape \(4,\) were wanted"):
        Warp(processors=[lambda logits, history: answer])(np.zeros(4), [])


def test_processors_that_break_the_logits_are_told_with_the_step():
    with pytest.raises(LogitsError, match=r"^step 2 "):
        Warp(processors=[lambda logits, history: logits * np.nan])(np.zeros(4), [1, 2])
    with pytest.raises(Blocked):
        Warp(processors=[lambda logits, history: logits - np.inf])(np.zeros(4), [1, 2])


# The order


@pytest.mark.parametrize("least", [1e-4, 0.001, 0.01, 0.1, 0.9])
def test_epsilon_is_the_kernels(least):
    logits = np.random.default_rng(0).normal(0, 3, (50, 200))
    for row in logits:
        found = filters.epsilon(Warp()(row, []), least)
        assert found.tolist() == (reference.sampling_filter(row, epsilon=least) > 0).tolist()


def test_later_filters_see_what_the_earlier_ones_left():
    """0.5, 0.3 and 0.15 of top-k 3 are 0.526, 0.316, 0.158: the third passes 0.155 only then."""
    logits = np.log(FOUR)
    assert kept(Warp(epsilon=0.155, min_p=0.01)(logits, [])) == [0, 1]
    assert kept(Warp(top_k=3, epsilon=0.155, min_p=0.01)(logits, [])) == [0, 1, 2]
    assert Warp(top_k=3, min_p=0.5)(logits, []) == pytest.approx([0.625, 0.375, 0, 0])


def test_sigma_is_that_of_all_logits_whatever_top_k_leaves():
    """Without the ban it is 1.58 and 3 stays; that of 4 and 3 alone would be 0.5."""
    logits = np.array([4.0, 3, 1, 0])
    assert kept(Warp(top_k=2, top_n_sigma=1)(logits, [])) == [0, 1]
    assert kept(Warp(suppress=[0], top_n_sigma=1)(logits, [])) == [1]


@pytest.mark.parametrize("name", SETTINGS)
def test_temperature_0_takes_the_likeliest_whatever_shapes_the_rest(name):
    row = SETTINGS[name]
    logits = np.array([1, 5, 5, 0], np.float32)
    if row.shapes:
        warp = Warp(**({name: row.example} | {"temperature": 0}))
        assert warp(logits, []).tolist() == [0, 1, 0, 0]


def test_rows_of_one_token_and_rows_that_are_nearly_one_hot_survive_every_filter():
    for name, row in SETTINGS.items():
        if row.shapes:
            assert Warp(**{name: row.example})(np.array([3.0]), []).tolist() == [1]
            for gap in (40.0, 800.0, 1e30):
                probs = Warp(**{name: row.example})(np.array([0.0, gap, -gap]), [])
                assert probs.sum() == pytest.approx(1) and probs[1] == pytest.approx(1)


# What NumPy is told to raise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ROWS)
def test_nothing_raises_where_numpy_is_told_to(name, dtype, monkeypatch):
    rng = np.random.default_rng(1)
    rows = [
        rng.normal(0, 3, 8),
        np.array([0, -np.inf, 1, -1000, 2, -np.inf, 300, -1e30]),
        np.array([1e-320, -1e-310, 0, 5e-324, 1e-300, 0, 0, 0]),
        np.full(8, 3e38),
    ]
    monkeypatch.setattr("minidecode.kernels.sampling_filter", reference.sampling_filter)
    warp = Warp(**{name: ROWS[name].example})
    with np.errstate(all="ignore"):
        rows = [row.astype(dtype) for row in rows]
        quiet = [warp(row, [1, 2, 1]).tolist() for row in rows]
    with np.errstate(all="raise"):
        assert [warp(row, [1, 2, 1]).tolist() for row in rows] == quiet


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"processors"}))
def test_no_setting_hides_broken_logits(name, bad):
    for place in range(8):
        logits = np.arange(8.0)
        logits[place] = bad
        with pytest.raises(LogitsError, match=f"^step 3 .* {bad} at id {place}"):
            Warp(**{name: ROWS[name].example})(logits, [1, 2, 1])


def test_no_bias_hides_an_infinite_logit():
    with pytest.raises(LogitsError, match="inf at id 1, finite or -inf"):
        Warp(logit_bias={1: -math.inf})(np.array([0, math.inf]), [])


@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"processors"}))
def test_logits_that_are_all_minus_infinity_are_refused_and_not_blocked(name):
    with pytest.raises(LogitsError, match=r"^step 3 .* all are -inf"):
        Warp(**{name: ROWS[name].example})(np.full(8, -np.inf), [1, 2, 1])


# Against transformers


def by_transformers(logits, history, settings):
    """The distribution that transformers' processors make of logits [V], in its order."""
    import torch
    from transformers.generation import logits_process as lp

    get = settings.get
    chain = []
    if get("logit_bias"):
        biases = {(i,): number for i, number in get("logit_bias").items()}
        chain.append(lp.SequenceBiasLogitsProcessor(biases))
    if get("repetition_penalty"):
        chain.append(lp.RepetitionPenaltyLogitsProcessor(get("repetition_penalty")))
    if get("no_repeat_ngram_size"):
        chain.append(lp.NoRepeatNGramLogitsProcessor(get("no_repeat_ngram_size")))
    if get("bad_words"):
        chain.append(lp.NoBadWordsLogitsProcessor(get("bad_words")))
    if get("end_after"):
        chain.append(lp.MinLengthLogitsProcessor(*get("end_after")))
    if get("suppress"):
        chain.append(lp.SuppressTokensLogitsProcessor(get("suppress")))
    for name, warper in (
        ("temperature", lp.TemperatureLogitsWarper),
        ("top_k", lp.TopKLogitsWarper),
        ("top_p", lp.TopPLogitsWarper),
        ("min_p", lp.MinPLogitsWarper),
        ("typical_p", lp.TypicalLogitsWarper),
        ("epsilon", lp.EpsilonLogitsWarper),
        ("eta", lp.EtaLogitsWarper),
    ):
        if get(name):
            chain.append(warper(get(name)))
    scores = torch.tensor(np.asarray(logits)[None], dtype=torch.float64)
    ids = torch.tensor([list(history)], dtype=torch.long)
    for processor in chain:
        scores = processor(ids, scores)
    return torch.softmax(scores, dim=-1)[0].numpy()


def random_case(rng, V=60):
    """(logits, history, settings): every setting that transformers has, in one case of three."""
    logits = rng.normal(0, rng.choice([0.5, 2, 6]), V)
    history = rng.integers(0, 12, 15).tolist()
    values = {
        # In eighths, which float32 holds: transformers keeps biases so.
        "logit_bias": {int(i): int(rng.normal(0, 24)) / 8 for i in rng.choice(V, 4, replace=False)},
        "repetition_penalty": float(rng.choice([0.8, 1.3, 2.0])),
        "no_repeat_ngram_size": int(rng.integers(1, 4)),
        "bad_words": [[int(rng.integers(V))], [*history[-2:], int(rng.integers(V))], [3, 3, 3]],
        "end_after": (int(rng.choice([10, 15, 16])), [int(i) for i in rng.integers(0, V, 2)]),
        "suppress": [int(i) for i in rng.integers(0, V, 3)],
        "temperature": float(rng.choice([0.3, 0.8, 1.7])),
        "top_k": int(rng.integers(1, V)),
        "top_p": float(rng.uniform(0.3, 1)),
        "min_p": float(rng.choice([0.01, 0.1, 0.6, 1.0])),
        "typical_p": float(rng.uniform(0.1, 0.99)),
        "epsilon": float(rng.choice([1e-3, 0.02, 0.3])),
        "eta": float(rng.choice([1e-3, 0.02, 0.3])),
    }
    return logits, history, {n: v for n, v in values.items() if rng.random() < 1 / 3}


def test_hundreds_of_random_rows_are_those_of_transformers():
    pytest.importorskip("torch", reason="the processors of transformers need torch")
    pytest.importorskip("transformers", reason="compares with transformers' processors")
    rng = np.random.default_rng(2026)
    for _ in range(600):
        logits, history, settings = random_case(rng)
        right = by_transformers(logits, history, settings)
        found = Warp(**settings)(logits, history)
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12, err_msg=str(settings))


CASES = json.loads(GOLDEN.read_text())["cases"] if GOLDEN.exists() else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: "+".join(case["settings"]) or "none")
def test_golden_distributions_are_those_of_transformers(case):
    settings = dict(case["settings"])
    if "logit_bias" in settings:
        settings["logit_bias"] = {int(i): number for i, number in settings["logit_bias"].items()}
    probs = Warp(**settings)(np.array(case["logits"]), case["history"])
    right = dict(case["probabilities"])
    assert kept(probs) == sorted(right)
    assert [probs[i] for i in right] == pytest.approx(list(right.values()), rel=1e-8)


def test_the_golden_file_knows_every_setting_of_transformers():
    covered = {name for case in CASES for name in case["settings"]}
    theirs = {"presence_penalty", "frequency_penalty", "top_n_sigma"}  # has not
    assert covered == (OPTIONS.keys() | {"end_after"}) - theirs


def write_golden():
    rng, cases = np.random.default_rng(12), []
    names = ["logit_bias", "repetition_penalty", "no_repeat_ngram_size", "bad_words", "end_after"]
    names += ["suppress", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon", "eta"]
    wanted = [{name} for name in names] + [None] * 12  # each alone, then several at once
    while wanted:
        logits, history, settings = random_case(rng, V=24)
        if wanted[0] is not None:
            settings = {n: v for n, v in settings.items() if n in wanted[0]}
            if not settings:
                continue
        elif len(settings) < 4:
            continue
        wanted.pop(0)
        logits = [float(f"{x:.6g}") for x in logits]
        probs = by_transformers(logits, history, settings)
        pairs = [(int(i), float(f"{probs[i]:.10g}")) for i in np.flatnonzero(probs)]
        case = {"settings": settings, "history": history, "logits": logits, "probabilities": pairs}
        cases.append(case)
    about = "Distributions by the processors of transformers 5.24: see test_filters.py."
    rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    GOLDEN.write_text(f'{{"about":{json.dumps(about)},"cases":[\n{rows}\n]}}\n')


if __name__ == "__main__":
    sys.exit(write_golden())
