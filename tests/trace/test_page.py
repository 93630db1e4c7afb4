"""The page in a real browser: reached by keyboard, true to its JSON, legible, and silent."""

import json
import re
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from browser import Browser, find_chromium
from builders import toy_tokenizer

from minidecode import Dice, GumbelDice, TableModel, Warp, load
from minidecode.models.tokenizer import Tokenizer
from minidecode.trace.beam import trace_beam
from minidecode.trace.contrastive import trace_contrastive, trace_speculative_contrastive
from minidecode.trace.page import Recording, page
from minidecode.trace.sampling import trace_sample
from minidecode.trace.speculative import trace_speculative

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
@pytest.mark.parametrize("name", ["speculative", "contrastive", "beam"])
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
