"""The page in a real browser: reached by keyboard, true to its JSON, legible, and silent."""

import json
import re
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from browser import Browser, find_chromium
from builders import toy_tokenizer

from minidecode import Dice, GumbelDice, TableModel, Warp, load, traced
from minidecode.models.tokenizer import Tokenizer
from minidecode.trace.beam import trace_beam
from minidecode.trace.contrastive import trace_contrastive, trace_speculative_contrastive
from minidecode.trace.page import Recording, page
from minidecode.trace.sampling import trace_sample
from minidecode.trace.speculative import trace_speculative
from minidecode.trace.terminal import KINDS

PROMPT = "Once upon a time"
ONE = ("model", None)
ODD = "“é” </script><script>alert(1)</script><b>&amp;\u202e日本🎈\n<!-- \\x @@data@@"


def spelled(text, tokenizer, V):
    """A model that writes `text` after its first byte, byte by byte, then its last id."""
    ids = [*tokenizer.encode(text), V - 1]
    return TableModel(lambda history: np.eye(V)[ids[min(len(history), len(ids) - 1)]], eos=V - 1)


def recordings():
    """{name: (recording, tokenizer, end ids)}, one for each decoder and one of odd tokens."""
    (target, tokenizer), (draft, _) = load("storyteller-6m"), load("storyteller-1m")
    alone, both = (target, PROMPT), (target, draft, PROMPT)
    options = {"tokenizer": tokenizer, "max_new_tokens": 24}
    warp = Warp(temperature=0.8, top_k=40, top_p=0.9, epsilon=0.01)
    sampled = {"warp": Warp(), "chance": Dice(3)}
    beams = {"num_beams": 3, "num_return_sequences": 2, **options, "max_new_tokens": 12}
    drafted, contrasted = ("target", "draft"), ("expert", "amateur")
    steps = {
        "greedy": (ONE, trace_sample(*alone, warp=Warp(temperature=0), **options)),
        "sampling": (ONE, trace_sample(*alone, warp=warp, chance=Dice(4), **options)),
        "speculative": (drafted, trace_speculative(*both, warp=warp, chance=Dice(4), **options)),
        "coupled": (drafted, trace_speculative(*both, chance=GumbelDice(3), **options)),
        "contrastive": (contrasted, trace_contrastive(*both, **options)),
        "both": (contrasted, trace_speculative_contrastive(*both, **options, **sampled)),
    }
    trees = {
        "beam": (ONE, trace_beam(*alone, **beams)),
        "contrastive beam": (contrasted, trace_beam(*alone, amateur=draft, **beams)),
    }
    made = {n: Recording(n, PROMPT, {"k": 4}, names, list(x)) for n, (names, x) in steps.items()}
    made |= {n: Recording(n, PROMPT, {}, names, tree=x) for n, (names, x) in trees.items()}
    made = {name: (recording, tokenizer, target.eos) for name, recording in made.items()}
    toy = Tokenizer(toy_tokenizer())
    V = toy.vocab_size
    models = spelled("A" + ODD, toy, V), spelled("A" + ODD.replace("”", "“"), toy, V)
    odd = list(trace_speculative(*models, "A", tokenizer=toy, chance=Dice(5)))
    nothing = list(trace_sample(models[0], "A", tokenizer=toy, max_new_tokens=0))
    halves = TableModel(np.full((2, 2), 0.5))
    blocked = trace_beam(halves, [0], num_beams=2, max_new_tokens=9, no_repeat_ngram_size=1)
    title = "<i>odd</i> @@script@@"
    return made | {
        "odd": (Recording(title, "A", {"<u>": "</dl>"}, drafted, odd), toy, [V - 1]),
        "blocked": (Recording("Blocked", "a", {}, ONE, tree=blocked), toy, ()),
        "empty": (Recording("Nothing", "A", {}, ONE, nothing), toy, [V - 1]),
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{name: its address, source, facts}"""
    directory, found = tmp_path_factory.mktemp("pages"), {}
    for name, made in recordings().items():
        file, source = directory / f"{name}.html", page(*made)
        file.write_text(source, encoding="utf-8")
        found[name] = SimpleNamespace(url=file.as_uri(), source=source, facts=facts(source))
    return found


def facts(source):
    """The JSON in a page, read strictly."""

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    [text] = re.findall(r'<script id="trace" type="application/json">(.*?)</script>', source, re.S)
    assert not set("<>&") & set(text) and text.isascii()
    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("chromium is not installed, so no page can be opened")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(autouse=True)
def desktop(request):
    if "browser" in request.fixturenames:
        request.getfixturevalue("browser").resize(1280)


NAMES = ["greedy", "sampling", "speculative", "coupled", "contrastive", "both", "beam"]
ALL = [*NAMES, "contrastive beam", "blocked", "odd", "empty"]


def items(facts):
    """The candidates of a page's text, in order."""
    if facts["tree"]:
        nodes = (node for level in facts["tree"]["levels"] for node in level)
        return [node["candidate"] for node in nodes if node["best"] and "candidate" in node]
    shown = (candidate for step in facts["steps"] for candidate in step["candidates"])
    return [candidate for candidate in shown if candidate["kind"] != "untested"]


# The file


@pytest.mark.parametrize("name", ALL)
def test_a_page_needs_no_other_file_and_nothing_gets_out_of_its_scripts(pages, name):
    source = pages[name].source
    assert set(re.findall(r"\b(?:src|href|action)=\"([^\"]*)", source)) == {"#panel", "data:,"}
    assert not re.search(r"@import|url\(|\bimport\b|fetch\(|XMLHttp|WebSocket|innerHTML", source)
    assert [len(re.findall(tag, source, re.I)) for tag in ("<script", "</script")] == [2, 2]


# In the browser


@pytest.mark.parametrize("name", ALL)
def test_no_error_and_no_request_but_the_page_itself(browser, pages, name):
    browser.open(pages[name].url)
    browser.run("document.querySelectorAll('[tabindex]').forEach((x) => x.focus())")
    methods = [event.get("method") for event in browser.events]
    assert "Runtime.exceptionThrown" not in methods and "Log.entryAdded" not in methods
    requests = [
        e["params"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"
    ]
    assert {r["request"]["url"] for r in requests} <= {pages[name].url, "data:,"}


FOCUSED = """(() => {
  const tokens = [...document.querySelectorAll("#text .token")];
  return tokens.indexOf(document.activeElement);
})()"""


@pytest.mark.parametrize("name", NAMES)
def test_every_token_is_reached_by_tab_and_by_arrows(browser, pages, name):
    wanted = list(range(len(items(pages[name].facts))))
    browser.resize(360)  # so that there are several lines
    browser.open(pages[name].url)
    browser.press("Tab")  # the link that skips the text
    assert browser.run("document.activeElement.className") == "skip"
    for _ in range(browser.run("document.querySelectorAll('#controls input, select').length")):
        browser.press("Tab")  # the switches
        assert browser.run(FOCUSED) == -1
    reached = []
    for _ in wanted:
        browser.press("Tab")
        reached.append(browser.run(FOCUSED))
    assert reached == wanted
    for _ in wanted[1:]:
        browser.press("ArrowLeft")
        reached.append(browser.run(FOCUSED))
    assert reached[len(wanted) :] == wanted[-2::-1]
    browser.press("ArrowLeft")
    assert browser.run(FOCUSED) == 0
    browser.press("End")
    assert browser.run(FOCUSED) == wanted[-1]
    browser.press("ArrowUp")
    assert 0 <= browser.run(FOCUSED) < wanted[-1]
    browser.press("ArrowDown")
    assert browser.run(FOCUSED) > 0
    browser.press("Home")
    assert browser.run(FOCUSED) == 0


def test_the_focus_is_to_be_seen(browser, pages):
    browser.open(pages["speculative"].url)
    for _ in range(3):  # the link that skips the text, the switch, the first token
        browser.press("Tab")
    style = browser.run(
        "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])"
        "(getComputedStyle(document.activeElement))"
    )
    assert style == ["solid", "3px"]


@pytest.mark.parametrize("name", ["beam", "contrastive beam", "blocked"])
def test_every_node_of_the_tree_is_reached_by_arrows(browser, pages, name):
    browser.open(pages[name].url)
    here = "(({level, index}) => [level, index])(document.activeElement.node)"
    browser.run("document.querySelector('#tree [tabindex=\"0\"]').focus()")
    browser.press("Home")
    levels = pages[name].facts["tree"]["levels"]
    reached = []
    for depth, nodes in enumerate(levels):
        while browser.run(here)[1]:
            browser.press("ArrowUp")
        for _ in nodes:
            reached.append(browser.run(here))
            browser.press("ArrowDown")
        following = levels[depth + 1] if depth + 1 < len(levels) else []
        for index in {node["parent"] for node in following[:1]}:
            while browser.run(here)[1] > index:
                browser.press("ArrowUp")
            browser.press("ArrowRight")
            assert browser.run(here)[0] == depth + 1
            browser.press("ArrowLeft")
            assert browser.run(here) == [depth, index]
            browser.press("ArrowRight")
    wanted = [[d, i] for d, nodes in enumerate(levels) for i in range(len(nodes))]
    assert reached == wanted


PANELS = """[...document.querySelectorAll("#text .token")].map((token) => {
  token.focus();
  const width = (x) => x.getBoundingClientRect().width;
  const rows = [...document.querySelectorAll("#panel tbody tr")].map((row) => ({
    id: Number(row.dataset.id),
    note: row.querySelector(".note").textContent,
    bars: Object.fromEntries([...row.querySelectorAll(".bar")].map((bar) => [
      bar.classList[1],
      Object.fromEntries([...bar.children].map((part) =>
        [part.className, [Number(part.dataset.value), width(part), width(bar)]])),
    ])),
  }));
  const yes = document.querySelector("#panel .trial .yes");
  const drawn = document.querySelector("#panel .trial .drawn");
  const line = document.querySelector("#panel .trial .line");
  return {
    rows,
    scale: Number(document.querySelector("#panel .axis").lastChild.textContent),
    sentence: document.querySelector("#panel .sentence").textContent,
    heard: document.getElementById("announcement").textContent,
    trial: yes && width(yes) / (width(line) - 2),
    drawn: drawn && drawn.style.left,
  };
})"""


@pytest.mark.parametrize("name", [*NAMES, "contrastive beam", "odd"])
def test_bars_are_those_of_the_json(browser, pages, name):
    browser.open(pages[name].url)
    panels = browser.run(PANELS)
    for candidate, panel in zip(items(pages[name].facts), panels, strict=True):
        assert [row["id"] for row in panel["rows"]] == candidate["ids"]
        for i, row in enumerate(panel["rows"]):
            for side in ("p", "q"):
                bars = candidate.get(side, {})
                model, final = bars.get("model"), bars.get("final", bars.get("model"))
                assert (side in row["bars"]) == (side in candidate)
                for part, values in (("model", model), ("final", final)):
                    if values is not None:
                        value, width, whole = row["bars"][side][part]
                        assert value == values[i]
                        outline = 2 if part == "model" else 0  # pixels: no outline is narrower
                        wanted = max(whole * value / panel["scale"], outline)
                        assert width == pytest.approx(wanted, abs=0.1)
                cut = (bars.get("cut") or [None] * (i + 1))[i]
                assert cut is None or "cut: " in row["note"]
            if "residual" in candidate:
                assert row["bars"]["residual"]["final"][0] == candidate["residual"][i]
        assert panel["heard"] == panel["sentence"] != ""
        if "acceptance" in candidate:
            assert panel["trial"] == pytest.approx(candidate["acceptance"], abs=0.01)
            assert f"{candidate['acceptance']:.4f}".removesuffix("0.0000") in panel["sentence"]
        if "uniform" in candidate:
            assert f"{candidate['uniform']:.4f}" in panel["sentence"]
            assert float(panel["drawn"].rstrip("%")) == pytest.approx(100 * candidate["uniform"])


def test_pointing_shows_a_token_and_leaving_shows_the_focused_one_again(browser, pages):
    browser.open(pages["speculative"].url)
    heading = "document.querySelector('#panel h2').textContent"
    browser.run("document.querySelectorAll('#text .token')[2].focus()")
    focused = browser.run(heading)
    x, y = browser.run(
        "(({left, top, width, height}) => [left + width / 2, top + height / 2])"
        "(document.querySelectorAll('#text .token')[5].getBoundingClientRect())"
    )
    move = {"type": "mouseMoved", "button": "none"}
    browser.send("Input.dispatchMouseEvent", x=x, y=y, **move)
    assert f"position {items(pages['speculative'].facts)[5]['position']}," in browser.run(heading)
    browser.send("Input.dispatchMouseEvent", x=1, y=1, **move)
    assert browser.run(heading) == focused


def test_odd_tokens_stay_text(browser, pages):
    browser.open(pages["odd"].url)
    assert browser.run("document.querySelectorAll('b, i, u, #text script').length") == len(
        browser.run("[...document.querySelectorAll('.bar i')].map((x) => 1)")
    )
    assert browser.run("document.querySelector('h1').textContent") == "<i>odd</i> @@script@@"
    kept = "[...document.querySelectorAll('#text .token:not(.rejected):not(.unfinished)')]"
    text = browser.run(f"{kept}.map((x) => x.textContent).join('')")
    assert text.replace("↵", "").replace("\\u202e", "\u202e") == ODD
    unfinished = browser.run(
        "[...document.querySelectorAll('#text .unfinished')].map((x) => x.textContent)"
    )
    assert "\\xe2" in unfinished and "<end>" in unfinished


def test_without_scripts_the_text_has_the_marks_of_a_transcript(browser, pages):
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(pages["speculative"].url)
    browser.send("Emulation.setScriptExecutionDisabled", value=False)
    plain = browser.run("document.querySelector('noscript pre').innerText")
    assert plain.startswith(PROMPT) and "[-" in plain and "{+" in plain


def test_a_page_without_tokens_says_why(browser, pages):
    browser.open(pages["empty"].url)
    assert browser.run("document.getElementById('text').textContent") == "A (no tokens: length)"


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["speculative", "contrastive", "beam"])
def test_nothing_is_wider_than_the_window(browser, pages, name, width):
    browser.resize(width)
    browser.open(pages[name].url)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [360, 1280])
def test_the_panel_never_covers_the_focused_token(browser, pages, width):
    browser.resize(width, height=600)
    browser.open(pages["speculative"].url)
    browser.press("Tab")
    for _ in items(pages["speculative"].facts):
        browser.press("Tab")
        assert browser.run("""(() => {
          const token = document.activeElement;
          const {left, top, height} = token.getClientRects()[0];
          const there = document.elementFromPoint(left + 1, top + height / 2);
          return token === there || token.contains(there);
        })()""")


# What teaches


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({selector!r})].map((x) => x.textContent)")


@pytest.fixture(scope="module")
def whole_pages(tmp_path_factory):
    """{name: its address and facts} of pages made with `traced`."""
    (target, tokenizer), (draft, _) = load("storyteller-6m"), load("storyteller-1m")
    directory = tmp_path_factory.mktemp("whole")
    options = {
        "speculative": {"draft": draft, "chance": Dice(4), "temperature": 0.9, "min_p": 0.02},
        "block": {"draft": draft, "chance": Dice(4), "verify": "block"},
        "sampling": {"chance": Dice(4), "typical_p": 0.9, "logit_bias": {5: -1.0}},
        "greedy": {"temperature": 0},
        "contrastive": {"amateur": draft, "alpha": 0.2},
        "both": {"amateur": draft, "draft": draft},
        "beam": {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.5},
        "contrastive beam": {"num_beams": 2, "amateur": draft},
    }
    found = {}
    for name, one in options.items():
        made = traced(target, PROMPT, tokenizer=tokenizer, max_new_tokens=20, **one)
        file, source = directory / f"{name}.html", made.page()
        file.write_text(source, encoding="utf-8")
        found[name] = SimpleNamespace(url=file.as_uri(), facts=facts(source))
    return found


WHOLE = ["speculative", "block", "sampling", "greedy", "contrastive", "both", "beam"]
WHOLE += ["contrastive beam"]


@pytest.mark.parametrize("name", WHOLE)
def test_the_head_says_what_the_algorithm_does_with_what_settings_and_how_it_went(
    browser, whole_pages, name
):
    browser.open(whole_pages[name].url)
    [about] = texts(browser, "#about")
    assert about == whole_pages[name].facts["about"] and about.count(". ") == 1
    assert ["ended by", "length"] in [
        [x.removesuffix("length"), "length"] for x in texts(browser, "#totals div")
    ]
    shown = texts(browser, "#settings dt")
    wanted = {"speculative": "min-p", "sampling": "typical-p", "beam": "length penalty"}
    assert wanted.get(name, shown[0]) in shown


def test_a_legend_gives_each_kind_in_words(browser, whole_pages):
    browser.open(whole_pages["speculative"].url)
    shown = texts(browser, "#legend li")
    assert [f"{row.name} {row.words}" for row in KINDS.values()] == shown[:-1]
    assert "round 3" in shown[-1]


def test_rounds_are_marked_where_a_pass_begins_and_counted_in_the_panel(browser, whole_pages):
    browser.open(whole_pages["speculative"].url)
    n = len(whole_pages["speculative"].facts["steps"])
    marks = browser.run("[...document.querySelectorAll('#text .pass')].map(x => x.dataset.number)")
    assert marks == [str(i + 1) for i in range(n)]
    browser.run("document.querySelector('#text').lastChild.focus()")
    assert f"round {n} of {n}," in texts(browser, "#panel h2")[0]


def test_rejected_drafts_can_be_hidden_and_are_then_not_reached_by_keys(browser, whole_pages):
    browser.open(whole_pages["speculative"].url)
    shown = "[...document.querySelectorAll('#text .rejected')].filter(x => x.checkVisibility())"
    assert browser.run(f"{shown}.length") > 0
    browser.run("document.getElementById('hide-rejected').click()")
    assert browser.run(f"{shown}.length") == 0
    browser.run("document.querySelector('#text .accepted').focus()")
    for _ in range(20):
        browser.press("ArrowRight")
        assert browser.run("!document.activeElement.matches('.rejected')")


@pytest.mark.parametrize("name", ["greedy", "sampling", "contrastive"])
def test_tokens_take_the_colour_of_their_probability_or_surprise(browser, whole_pages, name):
    browser.open(whole_pages[name].url)
    own = [c["p"]["model"][c["ids"].index(c["token"])] for c in items(whole_pages[name].facts)]
    levels = """[...document.querySelectorAll('#text .token')].map(
        (x) => Number([...x.classList].find((c) => c.startsWith('heat'))?.slice(4) ?? -1))"""

    def choose(value):
        browser.run(
            f"(() => {{ const x = document.getElementById('heat'); x.value = {value!r};"
            "x.dispatchEvent(new Event('change')); })()"
        )
        return browser.run(levels)

    likely, surprising = choose("probability"), choose("surprise")
    assert len(texts(browser, "#scale .swatch")) == 6
    order = np.argsort(own)
    assert likely == [sum(p < x for x in (0.9, 0.7, 0.5, 0.25, 0.1)) for p in own]
    assert (np.diff(np.array(surprising)[order]) <= 0).all() and len(set(surprising)) > 1
    assert set(choose("nothing")) == {-1} and texts(browser, "#scale .swatch") == []


@pytest.mark.parametrize("name", ["speculative", "block", "sampling", "contrastive"])
def test_the_strip_has_a_bar_for_each_round_or_token_that_leads_to_it(browser, whole_pages, name):
    browser.open(whole_pages[name].url)
    xs = browser.run("[...document.querySelectorAll('#strip rect')].map(x => x.x.baseVal.value)")
    steps = whole_pages[name].facts["steps"]
    wanted = [i for i, step in enumerate(steps) if step["drafted"] or "rule" not in step]
    assert sorted({int(x) for x in xs}) == wanted
    if "rule" in steps[0]:
        heights = browser.run(
            "[...document.querySelectorAll('#strip .yes')].map(x => x.height.baseVal.value)"
        )
        accepted = [sum(c["kind"] == "accepted" for c in s["candidates"]) for s in steps]
        assert heights == [n for n in accepted if n]
    assert browser.run("document.querySelector('#strip svg').getAttribute('aria-label').length")
    browser.run(
        "[...document.querySelectorAll('#strip rect')][2].dispatchEvent(new Event('click'))"
    )
    assert browser.run(FOCUSED) >= 0


@pytest.mark.parametrize("name", ["speculative", "block", "sampling", "contrastive"])
def test_the_needle_points_at_the_token_that_was_drawn(browser, pages, whole_pages, name):
    page = (pages if name == "contrastive" else whole_pages)[name]
    browser.open(page.url)
    seen = browser.run("""[...document.querySelectorAll('#text .token')].map((token) => {
      token.focus();
      const chosen = document.querySelector('.cumulative .chosen');
      const needle = document.querySelector('.cumulative .drawn');
      return chosen && needle
        ? [chosen.style.left, chosen.style.width, needle.style.left].map(parseFloat) : null;
    })""")
    for candidate, drawn in zip(items(page.facts), seen, strict=True):
        assert (drawn is not None) == ("starts" in candidate)
        if drawn:
            left, width, needle = drawn
            assert left - 0.01 <= needle <= left + width + 0.01
            assert needle == pytest.approx(100 * candidate["drawn"])
    assert any(seen) or name == "contrastive"


def test_the_residual_is_called_that_and_its_divisor_is_shown(browser, whole_pages):
    for name in ("speculative", "block"):
        browser.open(whole_pages[name].url)
        browser.run("document.querySelector('#text .correction').focus()")
        assert "residual" in texts(browser, "#panel thead th")
        corrections = [c for c in items(whole_pages[name].facts) if c["kind"] == "correction"]
        divisor = f"{corrections[0]['divisor']:.4f}"
        assert divisor in texts(browser, ".divisor")[0]
        assert divisor in texts(browser, "#panel .sentence")[0]


def test_block_verification_speaks_of_its_coins_and_not_of_the_ratio(browser, whole_pages):
    browser.open(whole_pages["block"].url)
    said = browser.run("""[...document.querySelectorAll('#text .accepted, #text .rejected')].map(
      (x) => { x.focus(); return document.querySelector('#panel .sentence').textContent; })""")
    assert said and not any("min(1" in x for x in said)
    assert all("coin" in x for x in said)


def test_coupled_draws_show_the_sum_that_was_the_largest(browser, pages):
    browser.open(pages["coupled"].url)
    browser.run("document.querySelector('#text .correction, #text .bonus').focus()")
    heads = texts(browser, "#panel thead th")
    assert heads[-3:-1] == ["noise", "log p + noise"]
    column = f"#panel tbody td:nth-child({len(heads) + 1 - 1})"
    sums = [float(x.replace("\u2212", "-")) for x in texts(browser, column) if x]
    notes = texts(browser, "#panel td.note")
    assert notes[sums.index(max(sums))] in ("correction", "bonus")


def test_contrastive_scores_are_bars_and_the_threshold_is_a_line(browser, whole_pages):
    browser.open(whole_pages["contrastive"].url)
    candidate = items(whole_pages["contrastive"].facts)[0]
    assert candidate["least"] == pytest.approx(0.2 * max(candidate["p"]["model"]), rel=1e-4)
    browser.run("document.querySelector('#text .token').focus()")
    scale = float(browser.run("document.querySelector('#panel .axis').lastChild.textContent"))
    lines = browser.run(
        "[...document.querySelectorAll('.least')].map(x => parseFloat(x.style.left))"
    )
    assert lines == pytest.approx([100 * candidate["least"] / scale] * len(candidate["ids"]))
    scores = [x for x in candidate["scores"] if x is not None]
    bars = browser.run("[...document.querySelectorAll('.score .final')].map(x => +x.dataset.value)")
    assert bars == scores


def test_finished_hypotheses_show_how_they_came_to_their_scores(browser, whole_pages):
    browser.open(whole_pages["beam"].url)
    rows = texts(browser, "#hypotheses tbody td:nth-child(5)")
    tree = whole_pages["beam"].facts["tree"]
    assert len(rows) == len(tree["hypotheses"]) == 3
    for row, one in zip(rows, tree["hypotheses"]):
        assert one["sum"] / one["length"] ** tree["penalty"] == pytest.approx(
            one["score"], rel=1e-4
        )
        assert row.replace("\u2212", "-").endswith(f"** 0.5 = {one['score']:.4f}")
    assert texts(browser, "#hypotheses tr.best th") == ["best"]
    assert "added" in texts(browser, "#panel thead th")
    assert "score" not in texts(browser, "#panel thead th")
    wide = "document.getElementById('tree').clientWidth / document.body.clientWidth"
    assert browser.run(wide) > 0.95


@pytest.mark.parametrize("name", WHOLE)
def test_on_a_phone_nothing_is_cut_and_the_text_can_be_read(browser, whole_pages, name):
    browser.hold(touch=True)
    try:
        browser.open(whole_pages[name].url)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        hints = "[...document.querySelectorAll('.hint span')].filter(x => x.checkVisibility())"
        assert all("Touch" in x for x in browser.run(f"{hints}.map(x => x.textContent)"))
        for i in (0, 5, 11):
            browser.run(f"document.querySelectorAll('#text .token')[{i}].focus()")
            wide, room, top, height = browser.run("""(() => {
              const x = document.getElementById('panel');
              return [x.scrollWidth, x.clientWidth, x.getBoundingClientRect().top, innerHeight];
            })()""")
            assert wide <= room and top > 0.5 * height
    finally:
        browser.hold(touch=False)


@pytest.mark.parametrize("name", WHOLE)
def test_on_a_wide_screen_the_panel_needs_no_sideways_scrolling(browser, whole_pages, name):
    browser.open(whole_pages[name].url)
    n = len(items(whole_pages[name].facts))
    for i in range(0, n, 4):
        browser.run(f"document.querySelectorAll('#text .token')[{i}].focus()")
        assert browser.run(
            "(x => x.scrollWidth <= x.clientWidth)(document.getElementById('panel'))"
        )


def test_a_page_of_500_tokens_is_light_and_opens_at_once(browser, tmp_path):
    toy = Tokenizer(toy_tokenizer())
    rng = np.random.default_rng(0)
    rows, others = rng.dirichlet(np.full(toy.vocab_size, 0.3), (2, toy.vocab_size))
    target, draft = TableModel(rows), TableModel((rows + others) / 2)  # half of it is accepted
    options = {"tokenizer": toy, "max_new_tokens": 500, "eos": None, "chance": Dice(1)}
    file = tmp_path / "long.html"
    for one in (traced(target, "A", **options), traced(target, "A", draft=draft, **options)):
        assert len(one.tokens) == 500
        source = one.page()
        assert len(source.encode()) < 2_000_000
        file.write_text(source, encoding="utf-8")
        browser.open(file.as_uri())
        assert browser.run("document.querySelectorAll('#text .token:not(.rejected)').length") == 500


# Colours

COLOURS = """[...document.querySelectorAll("body *")].flatMap((element) => {
  const direct = [...element.childNodes].some((x) => x.nodeType === 3 && x.data.trim());
  if (!direct || !element.checkVisibility() || element.closest(".heard-only, .skip")) return [];
  let under = element;
  const behind = (x) => getComputedStyle(x).backgroundColor;
  while (behind(under) === "rgba(0, 0, 0, 0)") under = under.parentElement;
  return [[element.textContent, getComputedStyle(element).color, behind(under)]];
})"""


def luminance(colour):
    return linear(colour) @ [0.2126, 0.7152, 0.0722]


def linear(colour):
    """rgb(...) as linear light."""
    c = np.array([int(x) for x in re.findall(r"\d+", colour)[:3]]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """As WCAG 2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["speculative", "sampling", "contrastive", "beam"])
def test_text_has_enough_contrast(browser, pages, name, scheme):
    browser.prefer(scheme)
    browser.open(pages[name].url)
    body = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (luminance(body) < 0.1) == (scheme == "dark")
    found = browser.run(COLOURS)
    assert len(found) > 40
    low = [(text, one, other) for text, one, other in found if contrast(one, other) < 4.5]
    assert low == []
    for bar in browser.run(
        "[...document.querySelectorAll('.bar')].map((x) => getComputedStyle(x).color)"
    ):
        assert contrast(bar, body) >= 3


BLIND = {  # Machado, Oliveira and Fernandes 2009, severity 1, on linear light
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [
        [0.3673, 0.8606, -0.2280],
        [0.2801, 0.6725, 0.0474],
        [-0.0118, 0.0429, 0.9689],
    ],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}


def lab(light):
    """Linear light as CIE L*a*b*."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = xyz @ np.clip(light, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_kinds_are_told_apart_without_seeing_colours_and_without_colours(browser, pages, scheme):
    browser.prefer(scheme)
    browser.open(pages["speculative"].url)
    styles = browser.run(
        "[...document.querySelectorAll('#legend .token')].map((x) => getComputedStyle(x))"
        ".map((s) => [s.backgroundColor, s.textDecorationLine + s.textDecorationStyle])"
    )
    assert len({mark for _, mark in styles}) == len(styles) == 4
    for matrix in BLIND.values():
        seen = [lab(np.array(matrix) @ linear(colour)) for colour, _ in styles]
        assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15
