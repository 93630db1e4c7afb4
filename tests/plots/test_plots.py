"""The pictures: laws of what is measured for them, what is drawn of it, and that it can be read."""

import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from minidecode import Dice, InputError, TableModel, Warp, load, speculative
from minidecode.cli import main
from minidecode.cli.plot import MEASURE, OPTIONS
from minidecode.decoding.beam import beam_search
from minidecode.measure import compare
from minidecode.plots import data as plot_data
from minidecode.plots.draw import PLOTS, SERIES
from minidecode.plots.figure import write_picture
from minidecode.speculation.rounds import Round
from minidecode.speculation.theory import expected_tokens, predicted_speedup

QUICK = {  # name: what makes its measurement short
    "runtime": "--like none --k 1,2 --prompts 1 --max-new-tokens 8",
    "probability": "--max-new-tokens 40 --num-beams 2",
    "repetition": "--times 4",
    "filters": "",
    "acceptance": "--k 1,3 --prompts 1 --max-new-tokens 12",
    "metrics": "--method greedy --method speculative:k=2 --seeds 2 --max-new-tokens 8",
    "speed": "--like none --dtype float32,int4 --k 1,2 --prompts 1 --max-new-tokens 8",
}


@pytest.fixture(scope="module")
def pair():
    return load("storyteller-6m")


@pytest.fixture(scope="module")
def figures():
    """matplotlib's module of figures."""
    return pytest.importorskip("matplotlib.figure", reason="matplotlib is missing (extra plot)")


@pytest.fixture(scope="module", params=QUICK)
def drawn(request, figures, tmp_path_factory):
    """(name, the .png that the command wrote)."""
    out = tmp_path_factory.mktemp("plots") / f"{request.param}.png"
    assert main(["plot", request.param, "--out", str(out), *QUICK[request.param].split()]) == 0
    return request.param, out


class Letters:
    """A tokenizer: a is 0, b is 1, and so on."""

    def encode(self, text):
        return [ord(letter) - ord("a") for letter in text if letter != " "]

    def token_bytes(self, token):
        return bytes([ord("a") + token])


BIGRAMS = TableModel([[0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.2, 0.4, 0.4]], eos=())


# What is measured


def test_token_probabilities_are_the_models_own_one_at_a_time(pair):
    model, tokenizer = pair
    data = plot_data.probability(model, tokenizer, max_new_tokens=12)
    prompt = tokenizer.encode(data["prompt"])
    human = tokenizer.encode(plot_data.PASSAGE[len(data["prompt"]) :])[:12]
    beam = beam_search(model, prompt, num_beams=4, max_new_tokens=12)[0]
    for text, tokens in zip(data["texts"], (beam.tokens, human)):
        one_by_one, seen = [], list(prompt)
        for token in tokens:
            row = Warp()(model.forward(seen, model.new_cache())[-1], ())
            one_by_one.append(row[token])
            seen.append(token)
        np.testing.assert_allclose(text["probabilities"], one_by_one, rtol=1e-4)
        assert all(0 <= p <= 1 for p in text["probabilities"])
        assert len(text["tokens"]) == 12
        assert text["geometric mean"] == pytest.approx(np.prod(one_by_one) ** (1 / 12), rel=1e-4)
    np.testing.assert_allclose(np.log(data["texts"][0]["probabilities"]), beam.logprobs, atol=1e-5)


def test_the_built_in_prompt_is_whole_sentences_of_the_passage(pair):
    data = plot_data.probability(*pair, max_new_tokens=1)
    assert plot_data.PASSAGE.startswith(data["prompt"] + " But the fox")


def test_beam_search_falls_into_the_first_phrase_after_the_passages_beginning(pair):
    beam, _ = plot_data.probability(*pair)["texts"]
    assert "".join(beam["tokens"]).replace("\\n", "\n").count(plot_data.PHRASES[0]) > 1


def test_a_text_is_cut_as_it_is_written():
    data = plot_data.probability(
        BIGRAMS, Letters(), " ab  ba ab\n", prompt_words=2, max_new_tokens=5, num_beams=1
    )
    assert data["prompt"] == "ab  ba"
    beam, human = data["texts"]
    assert human["tokens"] == ["a", "b"]
    np.testing.assert_allclose(human["probabilities"], [0.1, 0.6])
    assert beam["tokens"] == list("babab")
    np.testing.assert_allclose(beam["probabilities"], [0.6, 0.5, 0.6, 0.5, 0.6])


def test_a_repeated_phrase_by_hand():
    data = plot_data.repetition(BIGRAMS, Letters(), ["ab", "c"], prompt="a", times=4)
    ab, c = data["phrases"]
    np.testing.assert_allclose(ab["probabilities"], [0.1 * 0.6, *[0.5 * 0.6] * 3])
    np.testing.assert_allclose(ab["geometric means"], np.sqrt(ab["probabilities"]))
    np.testing.assert_allclose(c["probabilities"], [0.3, 0.4, 0.4, 0.4])
    assert (ab["tokens"], c["tokens"]) == (2, 1)


def test_the_first_time_a_phrase_has_the_probability_the_model_gives_it(pair):
    model, tokenizer = pair
    phrase = tokenizer.encode(" Ga! Ga!")
    rows = model.forward([model.bos, *phrase], model.new_cache(), n_logits=len(phrase) + 1)
    own = math.prod(float(Warp()(row, ())[token]) for row, token in zip(rows, phrase))
    data = plot_data.repetition(model, tokenizer, [" Ga! Ga!"], times=2)
    assert data["phrases"][0]["probabilities"][0] == pytest.approx(own, rel=1e-4)


def test_what_filters_leave_is_what_warp_leaves(pair):
    model, tokenizer = pair
    data = plot_data.filters(model, tokenizer)
    flat, peaked = data["contexts"]
    assert flat["entropy, bits"] > 2 * peaked["entropy, bits"]
    for context in data["contexts"]:
        ids = tokenizer.encode(context["context"])
        logits = model.forward(ids, model.new_cache())[-1]
        own = Warp()(logits, ids)
        shown = np.argsort(-own, kind="stable")[: plot_data.SHOWN]
        np.testing.assert_allclose(context["probabilities"], own[shown])
        assert [left["setting"] for left in context["left"]] == list(plot_data.EXAMPLES)
        for left in context["left"]:
            probs = Warp(**{left["setting"]: left["value"]})(logits, ids)
            assert left["kept"] == np.count_nonzero(probs)
            assert left["mass"] == pytest.approx(own[probs > 0].sum(), abs=1e-5)
            np.testing.assert_array_equal(
                np.flatnonzero(left["probabilities"]), np.flatnonzero(probs[shown])
            )
            np.testing.assert_allclose(left["probabilities"], probs[shown])


def test_filters_by_hand():
    settings = {"temperature": 0.5, "top_k": 1, "top_p": 0.85, "epsilon": 0.2}
    data = plot_data.filters(BIGRAMS, Letters(), ["a"], settings)
    context = data["contexts"][0]
    assert data["vocabulary"] == 3
    assert context["tokens"] == ["b", "c", "a"]
    assert context["entropy, bits"] == pytest.approx(
        -sum(p * math.log2(p) for p in (0.6, 0.3, 0.1))
    )
    temperature, top_k, top_p, epsilon = (left["probabilities"] for left in context["left"])
    np.testing.assert_allclose(temperature, np.array([0.36, 0.09, 0.01]) / 0.46)
    np.testing.assert_allclose(top_k, [1, 0, 0])
    np.testing.assert_allclose(top_p, [2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(epsilon, [2 / 3, 1 / 3, 0])
    assert [left["kept"] for left in context["left"]] == [3, 1, 2, 2]
    np.testing.assert_allclose([left["mass"] for left in context["left"]], [1, 0.6, 0.9, 0.9])


def test_settings_that_are_no_numbers_are_filtered_and_written_too():
    """`BIGRAMS` after a: b 0.6, c 0.3, a 0.1; after the bans of b and of c."""
    settings = {"suppress": [1], "logit_bias": [(1, -math.inf), (0, 1.0)], "bad_words": ["c"]}
    data = plot_data.filters(BIGRAMS, Letters(), ["a"], settings)
    suppress, bias, words = (left["probabilities"] for left in data["contexts"][0]["left"])
    np.testing.assert_allclose(suppress, [0, 0.75, 0.25])
    np.testing.assert_allclose(bias, np.array([0, 0.3, 0.1 * math.e]) / (0.3 + 0.1 * math.e))
    np.testing.assert_allclose(words, [6 / 7, 0, 1 / 7])
    written = [left["value"] for left in data["contexts"][0]["left"]]
    assert written == ["1", "1=-inf, 0=1.0", "c"]
    json.dumps(data, allow_nan=False)


def constant(row):
    return TableModel([row] * len(row))


def test_a_draft_that_is_the_target_is_always_accepted_and_cut_rounds_do_not_count():
    data = plot_data.acceptance(
        BIGRAMS, BIGRAMS, [[0], [1]], lengths=[3, 1], temperatures=[0, 1], max_new_tokens=6
    )
    for result in data["results"]:
        assert result["acceptance by position"] == [1, 1, 1]
        assert [row["k"] for row in result["by k"]] == [3, 1]
        assert [row["tokens a pass"] for row in result["by k"]] == [4, 2]
    # Of 6 tokens a round of 4 leaves 2, for which nobody drafts 3; rounds of 2 fit three times.
    assert data["results"][0]["tested"] == [2 * 1 + 2 * 3, 2, 2]


def test_a_draft_that_is_never_right_brings_one_token_a_pass():
    data = plot_data.acceptance(
        constant([1, 0]), constant([0, 1]), [[0]], lengths=[2], temperatures=[1], max_new_tokens=9
    )
    result = data["results"][0]
    assert result["acceptance by position"] == [0, None]
    assert result["by k"][0]["tokens a pass"] == 1


def test_acceptance_is_the_overlap_of_the_distributions_and_theory_fits():
    p, q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]  # overlap 0.6
    data = plot_data.acceptance(
        constant(p),
        constant(q),
        [[0]] * 4,
        lengths=[1, 3],
        others=[[0, 1, 2], [2]],
        temperatures=[1],
        max_new_tokens=250,
    )
    result = data["results"][0]
    assert result["overlap"] == pytest.approx(0.6)
    for rate, tested in zip(result["acceptance by position"], result["tested"]):
        assert abs(rate - 0.6) < 4 * math.sqrt(0.24 / tested)
    for row in result["by k"]:
        theory = expected_tokens([result["overlap"]] * 3, row["k"])
        assert theory == pytest.approx((1 - 0.6 ** (row["k"] + 1)) / 0.4)
        assert theory == pytest.approx(row["tokens a pass"], rel=0.06)


def test_the_overlap_is_that_of_the_distributions_after_each_token_of_each_text():
    """Each with its temperature; at 0 it is the share of places with one likeliest token."""
    target, draft = TableModel([[0.6, 0.4], [0.1, 0.9]]), TableModel([[0.3, 0.7], [0.2, 0.8]])
    assert plot_data.overlap(target, draft, [[0, 1], [0]], 1) == pytest.approx((0.7 * 2 + 0.9) / 3)
    assert plot_data.overlap(target, draft, [[0, 1], [0]], 0) == pytest.approx(1 / 3)
    assert plot_data.overlap(target, draft, [], 1) is None
    padded = TableModel([[0.3, 0.7, 0.0], [0.2, 0.8, 0.0], [1, 0, 0]])
    assert plot_data.overlap(target, padded, [[0, 1]], 1) == pytest.approx((0.7 + 0.9) / 2)


def test_theory_on_numbers_by_hand():
    def round_of(drafted, accepted):
        drafts = tuple(range(drafted))
        return Round((0,) * (accepted + 1), None, drafted=drafts, accepted=accepted, next_token=0)

    rounds = [round_of(2, accepted) for accepted in (0, 0, 1, 2, 2)]
    result = plot_data._fare(1.0, {2: rounds})
    assert result["acceptance by position"] == [3 / 5, 2 / 3]
    assert result["tested"] == [5, 3]
    assert result["by k"] == [
        {
            "k": 2,
            "tokens a pass": 2,
            "standard error": pytest.approx((4 / 5 / 5) ** 0.5),  # of 1, 1, 2, 3, 3
        }
    ]


def test_the_same_texts_are_measured_each_time(pair):
    model, tokenizer = pair
    draft, _ = load("storyteller-1m")
    prompt = tokenizer.encode("The king said")
    options = {"lengths": [3], "temperatures": [1.0], "max_new_tokens": 16}
    first = plot_data.acceptance(model, draft, [prompt], **options)
    assert first == plot_data.acceptance(model, draft, [prompt], **options)
    steps = speculative(
        model, draft, prompt, chance=Dice(0), num_draft_tokens=3, max_new_tokens=16, eos=None
    )
    written, whole = 0, []
    for step in steps:
        if written <= 12:
            whole.append(len(step.tokens))
        written += len(step.tokens)
    assert first["results"][0]["by k"][0]["tokens a pass"] == sum(whole) / len(whole)


@pytest.mark.parametrize(
    "measure",
    [
        lambda: plot_data.probability(BIGRAMS, Letters(), "ab ab", prompt_words=2),
        lambda: plot_data.probability(BIGRAMS, Letters(), "ab ab", prompt_words=0),
        lambda: plot_data.probability(BIGRAMS, Letters(), "a b", prompt_words=1, max_new_tokens=0),
        lambda: plot_data.repetition(BIGRAMS, Letters(), ["a"], prompt="a", times=0),
        lambda: plot_data.repetition(BIGRAMS, Letters(), [" "], prompt="a"),
        lambda: plot_data.filters(BIGRAMS, Letters(), ["a"], {"top_k": -1}),
        lambda: plot_data.acceptance(BIGRAMS, BIGRAMS, [[0]], lengths=[0]),
        lambda: plot_data.acceptance(BIGRAMS, BIGRAMS, [[0]], lengths=[4], max_new_tokens=4),
        lambda: plot_data.acceptance(BIGRAMS, BIGRAMS, [], lengths=[1]),
    ],
)
def test_what_cannot_be_measured_is_refused(measure):
    with pytest.raises(InputError, match=r"got .* want"):
        measure()


# What is drawn


def runtime_data(lengths=range(1, 11)):
    """Numbers like those of `bench speculative --json`, of one second for a plain text."""

    def way(seconds, k=None, rule=None, **more):
        found = {"engine": "minidecode", "seconds a text": seconds, "k": k, **more}
        found |= {"standard error, seconds": 0.01, "tokens/s": 64 / seconds}
        return found | ({"rule": rule} if rule else {})

    passes = {n: 0.01 + 0.001 * n for n in range(1, 12)}
    gains = {k: predicted_speedup([0.7] * 10, k, 0.002, passes) for k in lengths}
    ways = {"plain": way(1.0)}
    for rule, cost in (("token", 1.1), ("block", 1.05)):
        end = "" if rule == "token" else ", block"
        for k in lengths:
            predicted = {"predicted speed-up": gains[k]}
            ways[f"k {k}{end}"] = way(cost / gains[k], k, rule, **predicted)
        ways[f"auto{end}"] = way(0.5)
    results = [{"temperature": t, "ways": ways} for t in (0.0, 1.0)]
    sizes = {"prompts": 4, "max_new_tokens": 64}
    runs = [{"dtype": dtype, **sizes, "results": results} for dtype in ("float32", "int8")]
    return {"model": "target", "draft": "draft", "like": "gpt2", "runs": runs}


def draw(figures, name, data):
    figure = figures.Figure()
    PLOTS[name](figure, data)
    return figure


def test_runtime_draws_bars_plain_decoding_and_the_formula(figures):
    figure = draw(figures, "runtime", runtime_data())
    assert len(figure.axes) == 4
    for ax in figure.axes:
        lines = {line.get_label(): line for line in ax.get_lines()}
        assert list(lines["plain decoding"].get_ydata()) == [1.0, 1.0]
        assert lines["plain decoding"].get_linestyle() == "--"
        theory = lines["theory, token"].get_ydata()
        by_hand = [
            (0.002 * k + 0.011 + 0.001 * k) / 0.011 / sum(0.7**i for i in range(k + 1))
            for k in range(1, 11)
        ]
        np.testing.assert_allclose(theory, by_hand)
        bars = [bar.get_height() for bar in ax.patches]
        token, block = ([*(factor * t for t in by_hand), 0.5] for factor in (1.1, 1.05))
        np.testing.assert_allclose(bars, token + block)
        assert [label.get_text() for label in ax.get_xticklabels()] == [
            *map(str, range(1, 11)), "auto"
        ]  # fmt: skip
        fastest = int(np.argmin(by_hand)) + 1
        assert f"k = {fastest}, block is" in ax.get_title()


def test_a_title_says_what_the_numbers_say(figures):
    data = runtime_data([1, 2])
    ways = data["runs"][0]["results"][0]["ways"]
    for name in ways:
        ways[name]["seconds a text"] = 0.4 if name == "k 2" else 0.8
    ways["plain"]["seconds a text"] = 1.0
    assert "k = 2 is 2.5 times as fast" in draw(figures, "runtime", data).axes[0].get_title()
    ways["plain"]["seconds a text"] = 0.3
    assert "no k beats plain decoding" in draw(figures, "runtime", data).axes[0].get_title()
    rows = {"sample": 18.0, "greedy": 2.0, "sample:top_p=0.9": 9.5}
    methods = [
        dict.fromkeys(f"{name}{end}" for name in compare.COLUMNS for end in ("", "_error"))
        | {"method": method, "perplexity": perplexity}
        for method, perplexity in rows.items()
    ]
    data = {"prompts": ["a"], "seeds": 1, "methods": methods, "human": {"perplexity": 9.0}}
    words = draw(figures, "metrics", data).legends[0].get_title().get_text()
    assert words.startswith("sample:top_p=0.9 is nearest to human text in perplexity")


def _errors(ax):
    """The lengths of all error bars."""
    bars = [bar.lines[2] for bar in ax.containers if hasattr(bar, "has_xerr")]
    return [np.ptp(line[:, 0]) for lines in bars for line in lines[0].get_segments()]


def test_speed_draws_each_type_and_each_other_engine(figures):
    data = json.loads(json.dumps(runtime_data([1, 2])))  # nothing stands in it twice
    peer = {"engine": "llama.cpp F16", "tokens/s": 50.0, "k": None}
    data["runs"][0]["results"][0]["ways"] |= {
        "llama.cpp F16, plain": peer, "llama.cpp F16, k 2": peer | {"k": 2, "tokens/s": 400.0}
    }  # fmt: skip
    greedy, sampled = draw(figures, "speed", data).axes
    assert [label.get_text() for label in greedy.get_yticklabels()] == [
        "float32", "int8", "llama.cpp F16"
    ]  # fmt: skip
    assert [label.get_text() for label in sampled.get_yticklabels()] == ["float32", "int8"]
    widths = [bar.get_width() for bar in greedy.patches]
    assert 50.0 in widths and 400.0 in widths and widths.count(64.0) == 2
    assert "llama.cpp F16 is fastest with k = 2" in greedy.get_title()
    assert _errors(greedy) == []  # one text has none
    data["runs"][0]["results"][0]["ways"]["plain"]["standard error, tokens/s"] = 5.0
    greedy, _ = draw(figures, "speed", data).axes
    assert _errors(greedy) == pytest.approx([10.0])
    data["runs"][1]["results"][0]["ways"]["auto, block"]["tokens/s"] = 900.0
    greedy, _ = draw(figures, "speed", data).axes
    assert "int8 is fastest with auto" in greedy.get_title()
    assert any(note.get_text() == "900  auto" for note in greedy.texts)


def test_runtime_leaves_out_what_theory_cannot_tell(figures):
    data = runtime_data([1, 2])
    data["runs"][0]["results"][0]["ways"]["k 2"]["predicted speed-up"] = None
    figure = draw(figures, "runtime", data)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert np.isnan(lines["theory, token"].get_ydata()).tolist() == [False, True]


def test_the_theory_of_the_ratio_test_is_drawn_for_the_ratio_test_alone(figures):
    by_k = [{"k": 3, "tokens a pass": 2.0, "standard error": 0.1}]
    result = {"temperature": 1.0, "acceptance by position": [0.5], "by k": by_k, "tested": [9]}
    data = {"prompts": 1, "max_new_tokens": 9, "results": [result | {"overlap": 0.5}]}
    for verify, lines in (("token", 1), ("block", 0)):
        _, right = draw(figures, "acceptance", data | {"verify": verify}).axes
        found = [line for line in right.get_lines() if "theory" in str(line.get_label())]
        assert len(found) == lines
        for line in found:
            assert line.get_ydata() == pytest.approx([1.5, 1.75, 1.875])


def test_standard_errors_of_rates(figures):
    by_k = [{"k": 3, "tokens a pass": 2.0, "standard error": 0.1}]
    result = {"temperature": 0.0, "acceptance by position": [0.5, 1.0, None], "by k": by_k}
    result["tested"] = [100, 1, 0]
    data = {"prompts": 1, "max_new_tokens": 9, "results": [result]}
    left, right = draw(figures, "acceptance", data).axes
    bars = [line.get_segments() for ax in (left, right) for line in ax.collections]
    (half, one), (brought,) = (np.array(lines)[:, :, 1] for lines in bars)
    np.testing.assert_allclose(half, [0.45, 0.55], atol=1e-3)  # sqrt(0.5 * 0.5 / 100)
    np.testing.assert_allclose(one, [0.5, 1.0])  # one success of one: no certainty
    np.testing.assert_allclose(brought, [1.9, 2.1])


def test_filters_draw_what_is_cut_and_what_is_left(figures):
    data = plot_data.filters(BIGRAMS, Letters(), ["a"], {"top_k": 1, "epsilon": 0.2})
    figure = draw(figures, "filters", data)
    for ax, kept in zip(figure.axes, (1, 2)):
        left, cut = ([bar.get_height() for bar in bars] for bars in ax.containers)
        assert np.count_nonzero(left) == kept
        assert np.count_nonzero(~np.isnan(cut)) == 3 - kept
        assert f"{kept} of 3 tokens" in ax.texts[0].get_text()


def test_metrics_leave_out_empty_columns_and_errors_that_are_not(figures):
    columns = ("entropy_1", "entropy_2", "entropy_3", "distinct_1", "distinct_2", "repeats")
    columns += ("perplexity", "tokens", "tokens_per_second", "acceptance_rate")
    row = {name: value for c in columns for name, value in ((c, 2.0), (f"{c}_error", None))}
    row |= {"acceptance_rate": None, "repeats": 0.0}
    rows = [row | {"method": "greedy", "tokens_per_second": None}]
    rows += [row | {"method": "sample", "perplexity_error": 0.5}]
    figure = draw(figures, "metrics", {"prompts": ["a"], "seeds": 2, "methods": rows})
    shown = [ax for ax in figure.axes if ax.axison]
    assert len(shown) == 9
    panels = {ax.get_title(): ax for ax in shown}
    perplexity = panels["perplexity"]
    assert [bar.get_width() for bar in perplexity.patches] == [2, 2]
    assert [text.get_text() for text in perplexity.texts] == ["2", "2"]
    assert [text.get_text() for text in panels["tokens/s"].texts] == ["2"]
    assert [text.get_text() for text in panels["share in repeated 4-grams"].texts] == ["0", "0"]
    bars = next(each for each in perplexity.containers if hasattr(each, "errorbar"))
    lines = bars.errorbar.lines[2][0].get_segments()
    assert [len(line) for line in lines] == [0, 2]


def test_more_lines_than_can_be_told_apart_are_refused(figures):
    phrases = [c * 2 for c in "abc"] * 3
    data = plot_data.repetition(BIGRAMS, Letters(), phrases, prompt="a", times=2)
    assert len(phrases) > len(SERIES)
    with pytest.raises(InputError, match="at most 6"):
        draw(figures, "repetition", data)


def test_colours_stay_apart_for_the_colour_blind():
    """For every kind of dichromat (Machado et al. 2009), at six times what can just be told."""
    rgb = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour, _ in SERIES])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    no_red = [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    no_green = [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    no_blue = [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]
    for matrix in (np.eye(3), no_red, no_green, no_blue):
        seen = cie_lab(linear @ np.transpose(matrix))
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 6 * 2.3
    assert len({marker for _, marker in SERIES}) == len(SERIES)


def cie_lab(rgb):
    """Linear sRGB [n, 3] -> L*, a*, b* [n, 3]; a distance of 2.3 can just be told."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt((np.clip(rgb, 0, 1) @ np.transpose(to_xyz)).T / [[0.9505], [1], [1.089]])
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


# That it can be read


def test_nothing_is_cut_off_and_no_label_lies_on_another(drawn, figures):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from minidecode.plots.figure import own_style

    name, out = drawn
    data = runtime_data() if name == "runtime" else json.loads(out.with_suffix(".json").read_text())
    with own_style():
        figure = draw(figures, name, data)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        (width, height), box = figure.get_size_inches(), figure.get_tightbbox(renderer)
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -0.01
        for ax in figure.axes:
            labels = [label for label in ax.get_xticklabels() if label.get_rotation() in (0, 90)]
            boxes = [label.get_window_extent(renderer) for label in labels if label.get_text()]
            assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
            assert not any(k.get_window_extent(renderer).overlaps(ax.bbox) for k in figure.legends)


def test_a_picture_and_its_numbers_are_written(drawn):
    _, out = drawn
    assert out.read_bytes().startswith(b"\x89PNG\r\n")
    assert out.stat().st_size > 20_000
    data = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    assert data["model"] == "storyteller-6m"


def test_the_numbers_draw_the_same_picture_again(drawn, tmp_path, capsys):
    name, out = drawn
    again = tmp_path / "again.png"
    data = str(out.with_suffix(".json"))
    assert main(["plot", name, "--out", str(again), "--data", data]) == 0
    assert again.read_bytes() == out.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.png"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<?xml"), (".PDF", b"%PDF-")])
def test_other_formats_are_the_same_each_time(figures, tmp_path, ending, start):
    files = [tmp_path / f"{name}{ending}" for name in "ab"]
    for file in files:
        write_picture(file, PLOTS["runtime"], runtime_data([1, 2]))
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first.startswith(start)


def test_tokens_are_shown_as_they_are(figures, tmp_path, recwarn, capfd):
    data = plot_data.filters(BIGRAMS, Letters(), ["a"])
    data["contexts"][0]["tokens"] = ["$x_1$", r"$\frac$", "\u732b"]
    write_picture(tmp_path / "a.svg", PLOTS["filters"], data)
    assert "$x_1$" in (tmp_path / "a.svg").read_text(encoding="utf-8")  # a comment tells each text
    assert len(recwarn) == 0
    assert capfd.readouterr() == ("", "")


def test_settings_of_the_user_change_nothing(figures, tmp_path):
    import matplotlib

    write_picture(tmp_path / "a.png", PLOTS["runtime"], runtime_data([1, 2]))
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        write_picture(tmp_path / "b.png", PLOTS["runtime"], runtime_data([1, 2]))
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


# The command


def refused(capsys, *arguments, code=2):
    """The one line that it says."""
    try:
        got = main(["plot", *arguments])
    except SystemExit as stop:
        got = stop.code
    out, err = capsys.readouterr()
    assert (got, out) == (code, "")
    assert err.count("\n") == 1 and err.startswith("minidecode")
    return err


def test_every_plot_has_its_options_and_its_measurement():
    assert set(PLOTS) == set(OPTIONS) == set(MEASURE) == set(QUICK)


def test_what_cannot_be_written_is_refused_before_anything_is_measured(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("minidecode.cli.plot.MEASURE", {})
    assert "nothing" in refused(capsys, "nothing", "--out", str(tmp_path / "a.png"))
    for wrong in ("a.gif", "a", ".png", "missing/a.png"):
        assert wrong in refused(capsys, "filters", "--out", str(tmp_path / wrong))
    (tmp_path / "directory.png").mkdir()
    assert "directory.png" in refused(capsys, "filters", "--out", str(tmp_path / "directory.png"))
    assert "--out" in refused(capsys, "filters")


def test_without_matplotlib_one_sentence_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("minidecode.cli.plot.MEASURE", {})
    said = refused(capsys, "filters", "--out", str(tmp_path / "a.png"), code=1)
    assert "matplotlib is missing" in said and "extra `plot`" in said


def test_options_without_effect_are_refused(figures, capsys, tmp_path):
    out = ["--out", str(tmp_path / "a.png")]
    assert "--model" in refused(capsys, "filters", *out, "--data", "x.json", "--model", "y")
    assert "--draft" in refused(capsys, "filters", *out, "--draft", "storyteller-1m")
    method = ["--method", "greedy", "--amateur", "storyteller-1m"]
    assert "--amateur" in refused(capsys, "metrics", *out, *method)


def test_numbers_of_another_kind_are_refused(figures, capsys, tmp_path):
    out = ["--out", str(tmp_path / "a.png")]
    other = tmp_path / "other.json"
    for content in ('{"results": 1}', '{"texts": [{"tokens": 3}]}', "[]", "{", ""):
        other.write_text(content)
        for name in QUICK:
            assert "other.json" in refused(capsys, name, *out, "--data", str(other))
    assert "no such file" in refused(capsys, "filters", *out, "--data", str(tmp_path / "none"))


@pytest.mark.parametrize(
    "arguments",
    [
        "runtime --prompts 0",
        "runtime --prompts 9",
        "runtime --max-new-tokens 1",
        "runtime --k 0",
        "runtime --k x",
        "runtime --like gpt3",
        "runtime --dtype int5",
        "runtime --verify blok",
        "acceptance --verify blok",
        "speed --gguf a.gguf",
        "speed --peers --temperatures 1",
        "speed --llama-cpp .",
        "speed --llama-cpp . --gguf a.gguf --draft-gguf b.gguf --temperatures 1",
        "runtime --temperatures -1",
        "acceptance --k 64",
        "probability --num-beams 0",
        "probability --text-file /dev/null",
        "repetition --times 0",
        "filters --top-p 0",
        "metrics --seeds 0",
        "metrics --method nothing",
    ],
)
def test_wrong_values_are_one_sentence(figures, capsys, tmp_path, arguments):
    refused(capsys, *arguments.split(), "--out", str(tmp_path / "a.png"))
    assert list(tmp_path.iterdir()) == []


def test_a_text_of_ones_own(figures, capsys, tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "a.png"
    text.write_text("One day, a fox met\n\na goose.\n")
    wanted = ["--text-file", str(text), "--prompt-words", "5", "--max-new-tokens", "9"]
    assert main(["plot", "probability", "--out", str(out), *wanted]) == 0
    data = json.loads(out.with_suffix(".json").read_text())
    assert data["prompt"] == "One day, a fox met"
    assert data["texts"][1]["tokens"][:2] == [r"\n", r"\n"]


def test_nothing_but_drawing_imports_matplotlib():
    code = """
import sys, minidecode.cli
import minidecode.plots.data, minidecode.plots.draw, minidecode.plots.figure
minidecode.cli.make_parser()
sys.exit("matplotlib" in sys.modules)"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_file_that_nobody_named_is_never_overwritten(figures, capsys, tmp_path, monkeypatch):
    """Public report: `--out model/config.png` put its numbers into model/config.json."""
    for text in ("{}", "[]", '{"model_type": "gpt2"}', "precious", ""):
        (tmp_path / "config.json").write_text(text)
        said = refused(capsys, "repetition", "--out", str(tmp_path / "config.png"))
        assert "config.json is there already and holds no numbers of `plot`" in said
        assert (tmp_path / "config.json").read_text() == text
        assert not (tmp_path / "config.png").exists()


def test_numbers_of_an_earlier_plot_are_replaced(figures, capsys, tmp_path):
    out = tmp_path / "a.png"
    for times in ("2", "3"):
        code = main(["plot", "repetition", "--times", times, "--phrase", " one", "--out", str(out)])
        assert code == 0
        data = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
        assert data["plot"] == "repetition"
        assert len(data["phrases"][0]["probabilities"]) == int(times)
