"""Draws each picture from its data: a function (figure, data) each, in `PLOTS`.

What the data hold is said where they are measured: measure/speculation.py for runtime and speed,
measure/compare.py for metrics, data.py for the others. A title says what is to be seen, and is read
off the numbers. Colours are those of Okabe and Ito, which the colour-blind can
tell apart; markers and hatches tell them apart without any colour.
"""

import math
from typing import NamedTuple

from ..errors import InputError
from ..measure.compare import HEADINGS
from ..measure.speculation import Way
from ..speculation.theory import tokens_by_length

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
SERIES = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"))
NAN = float("nan")  # draws nothing
METRICS = {name: words for name, (_, words) in HEADINGS.items()}
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # under words that a line crosses
BESIDE = {"textcoords": "offset points", "va": "center", "fontsize": 9, "bbox": PAPER}
ACROSS = 20  # tokens beside each other whose names can still be read at the width of a page
RULES = {"token": (SKY, ""), "block": (ORANGE, "//")}  # of verification: colour and hatch


def runtime(figure, data):
    """Seconds a text against k, a row of panels for each storage type, a column a temperature.

    Bars are measured, with standard errors over the texts; the dashed line is plain decoding, the
    curve what theory.py expects of the ratio test.
    """
    runs = data["runs"]
    columns = len(runs[0]["results"])
    figure.set_size_inches(4.9 * columns + 0.4, 3.3 * len(runs) + 0.9)
    grid = figure.subplots(len(runs), columns, sharey="row", squeeze=False)
    for row, run in zip(grid, runs):
        for ax, result in zip(row, run["results"]):
            _runtime_panel(ax, run["dtype"], result)
        row[0].set_ylabel("seconds a text")
    for ax in grid[-1]:
        ax.set_xlabel("k, tokens drafted for each pass of the target")
    texts = f"{runs[0]['prompts']} texts of {runs[0]['max_new_tokens']} tokens (standard error)"
    _legend(figure, _handles(grid[0, 0]), f"{_engines(data)}, {texts}", ncols=4)


def _runtime_panel(ax, dtype, result):
    ways = result["ways"]
    plain = ways["plain"]["seconds a text"]
    rules = [rule for rule in RULES if any(way.get("rule") == rule for way in ways.values())]
    lengths = sorted({way["k"] for way in ways.values() if way.get("rule")})
    width = 0.8 / len(rules)
    for place, rule in enumerate(rules):
        written = [*(Way.constant(k, rule=rule) for k in lengths), Way.auto(rule)]
        names = [way.label for way in written]
        x = [i + (place - (len(rules) - 1) / 2) * width for i in range(len(names))]
        found = [ways[name] for name in names]
        seconds = [way["seconds a text"] for way in found]
        errors = [way["standard error, seconds"] or 0 for way in found]
        look = {"color": RULES[rule][0], "hatch": RULES[rule][1], "edgecolor": BLACK, "lw": 0.6}
        label = f"speculative, {rule} verification"
        ax.bar(x, seconds, width, yerr=errors, capsize=2, label=label, **look)
    ax.axhline(plain, color=BLACK, ls="--", lw=1.5, label="plain decoding")
    if "token" in rules:
        gains = [ways[f"k {k}"]["predicted speed-up"] for k in lengths]
        theory = [plain / gain if gain else NAN for gain in gains]
        x = range(len(lengths))
        ax.plot(x, theory, color=VERMILLION, marker="o", ms=4, lw=1.6, label="theory, token")
    ax.set_xticks(range(len(lengths) + 1), [*map(str, lengths), "auto"])
    ax.set_title(f"{dtype}, temperature {result['temperature']:g}: {_fastest(ways, plain)}")


def _fastest(ways, plain):
    """Which way of drafting took least time, in words."""
    drafted = {name: way["seconds a text"] for name, way in ways.items() if way.get("rule")}
    name = min(drafted, key=drafted.get)
    gain = plain / drafted[name]
    if gain <= 1:
        return "no k beats plain decoding"
    return f"{name.replace('k ', 'k = ')} is {gain:.1f} times as fast"


def acceptance(figure, data):
    """Acceptance by place, and tokens a pass against k; bars are standard errors.

    The lines of the right panel are the formula of Leviathan et al. (equation 1) for drafts that
    are each accepted with the overlap of p and q, measured on other texts; on the left it is level.
    It is of the ratio test, so under block verification there is no line.
    """
    figure.set_size_inches(9.8, 4.8)
    left, right = figure.subplots(1, 2)
    for number, (result, colour, marker) in enumerate(_series(data["results"])):
        label = f"temperature {result['temperature']:g}"
        look = {"color": colour, "marker": marker, "ms": 6, "ls": ""}
        rates = zip(result["acceptance by position"], result["tested"])
        known = [(i, a, n) for i, (a, n) in enumerate(rates, 1) if a is not None]
        places, y, tested = zip(*known)
        errors = list(zip(*map(_wilson, y, tested)))
        aside = [place + 0.12 * number for place in places]  # error bars would hide each other
        left.errorbar(aside, y, errors, capsize=3, **look)
        by_k = result["by k"]
        k = [row["k"] for row in by_k]
        brought, errors = zip(*((row["tokens a pass"], row["standard error"]) for row in by_k))
        right.errorbar(k, brought, errors, capsize=3, label=f"measured, {label}", **look)
        alpha = result.get("overlap") if data.get("verify", "token") == "token" else None
        if alpha is not None:
            left.axhline(alpha, color=colour, lw=1.3)
            theory = tokens_by_length([alpha] * max(k))[1:]
            words = f"theory, {label}, overlap {alpha:.2f}"
            right.plot(range(1, max(k) + 1), theory, color=colour, lw=1.3, label=words)
    left.set(ylim=(0, 1.05), xlabel="place of the draft in its round")
    left.set_ylabel("accepted, of those tested")
    right.set(ylim=(1, None), xlabel="k, tokens drafted for each pass of the target")
    right.set_ylabel("tokens per pass of the target")
    firsts = ", ".join(
        f"{result['acceptance by position'][0]:.0%} at T = {result['temperature']:g}"
        for result in data["results"]
        if result["acceptance by position"][0] is not None
    )
    left.set_title(f"First drafts kept: {firsts}" if firsts else "Nothing was tested")
    rows = [(row, result["temperature"]) for result in data["results"] for row in result["by k"]]
    most, at = max(rows, key=lambda pair: pair[0]["tokens a pass"])
    brought = f"{most['tokens a pass']:.1f} tokens a pass at T = {at:g}"
    right.set_title(f"k = {most['k']} brings {brought}")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.xaxis.get_major_locator().set_params(integer=True, nbins=12)
    heading = (
        f"{_engines(data)}, {data['prompts']} texts of {data['max_new_tokens']} tokens for each k"
    )
    _legend(figure, _handles(right), f"{heading} (bars: standard error)", ncols=2)


def _wilson(rate, n):
    """How far the rate among n may be below and above: its standard error, also near 0 and 1.

    Wilson 1927: with rate * (1 - rate) / n alone, one success of one would seem to be certain.
    """
    center = (rate + 0.5 / n) / (1 + 1 / n)
    half = (rate * (1 - rate) / n + 0.25 / n**2) ** 0.5 / (1 + 1 / n)
    return max(0.0, rate - center + half), max(0.0, center + half - rate)


def probability(figure, data):
    """The probability of each token, in lines of ACROSS tokens, one text below the other."""
    texts = data["texts"]
    lines = [
        (text, start, colour, marker)
        for text, colour, marker in _series(texts)
        for start in range(0, max(len(text["tokens"]), 1), ACROSS)
    ]
    figure.set_size_inches(9.8, 1.75 * len(lines) + 0.5)
    axes = figure.subplots(len(lines), 1, sharey=True, squeeze=False)[:, 0]
    for ax, (text, start, colour, marker) in zip(axes, lines):
        y, mean = text["probabilities"][start : start + ACROSS], text["geometric mean"]
        ax.plot(range(len(y)), y, color=colour, marker=marker, ms=4, lw=1.4)
        if mean is not None:
            ax.axhline(mean, color=BLACK, ls="--", lw=1.1)
        names = text["tokens"][start : start + ACROSS]
        ax.set_xticks(range(len(y)), names, rotation=35, ha="right", rotation_mode="anchor")
        ax.set(xlim=(-0.7, ACROSS - 0.3), ylim=(-0.03, 1.03))
        ax.grid(axis="y", alpha=0.3)
        if start == 0 and mean is not None:
            ax.set_title(f"{text['name']}: geometric mean {mean:.2g} (dashed)", loc="left")
    figure.supylabel("probability of the token under the model", fontsize=10)
    figure.suptitle(f"{_likelier(texts)}\n{_engines(data)}", fontsize=11)


def _likelier(texts):
    """Which text the model holds for likelier, in words."""
    known = [text for text in texts if text["geometric mean"]]
    if len(known) < 2:
        return "The probability of each token"
    high, low = (f(known, key=lambda text: text["geometric mean"]) for f in (max, min))
    times = high["geometric mean"] / low["geometric mean"]
    return f"{high['name']}: a token is {times:.3g} times as likely as one of {low['name']}"


def repetition(figure, data):
    """Left whole phrases on a logarithmic axis, right a token of them."""
    figure.set_size_inches(10.5, 5.0)
    left, right = figure.subplots(1, 2)
    for found, colour, marker in _series(data["phrases"]):
        look = {"color": colour, "marker": marker, "ms": 4.5, "lw": 1.3}
        x = range(len(found["probabilities"]))
        left.plot(x, found["probabilities"], label=found["phrase"].strip(), **look)
        right.plot(x, found["geometric means"], **look)
    left.set_yscale("log")
    left.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
    left.set_ylabel("probability of the phrase (logarithmic)")
    right.set_ylabel("geometric mean of its tokens' probabilities")
    right.set_ylim(0, None)
    for ax in (left, right):
        ax.set_xlabel("times the phrase has been said before")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
    _legend(figure, _handles(left), f"{_grown(data['phrases'])}\n{_engines(data)}", ncols=2)


def _grown(phrases):
    """Which phrase repetition makes likeliest against its first time, in words."""
    known = [found for found in phrases if found["probabilities"][0] > 0]
    if not known:
        return "The probability of a phrase that is repeated"
    most = max(known, key=lambda found: found["probabilities"][-1] / found["probabilities"][0])
    times = most["probabilities"][-1] / most["probabilities"][0]
    said = len(most["probabilities"]) - 1
    return (
        f"\u201c{most['phrase'].strip()}\u201d, said {said} times before, "
        f"is {times:.2g} times as likely as the first time"
    )


def filters(figure, data):
    """A row a setting, a column a context: what is left, beside what it was before."""
    contexts = data["contexts"]
    rows = len(contexts[0]["left"])
    figure.set_size_inches(5.4 * len(contexts), 1.55 * rows + 2.2)
    grid = figure.subplots(rows, len(contexts), sharex="col", sharey="col", squeeze=False)
    for column, context in zip(grid.T, contexts):
        own, x = context["probabilities"], range(len(context["tokens"]))
        for ax, left in zip(column, context["left"]):
            pairs = list(zip(own, left["probabilities"]))
            cut, kept = zip(*((NAN, p) if q > 0 else (p, NAN) for p, q in pairs))
            ax.bar(x, left["probabilities"], 0.8, color=SKY, edgecolor=BLUE, label="left")
            ax.bar(x, cut, 0.8, color="white", edgecolor=VERMILLION, hatch="////", label="cut")
            ax.plot(x, kept, color=BLACK, ls="", marker="_", ms=11, mew=1.6, label="before")
            value = left["value"] if isinstance(left["value"], str) else f"{left['value']:g}"
            setting = f"{left['setting'].replace('_', '-')} {value}"
            share = f"{left['kept']:,} of {data['vocabulary']:,} tokens, {left['mass']:.1%}"
            note = f"{setting}\n{share} of the probability"
            ax.text(0.98, 0.95, note, transform=ax.transAxes, ha="right", va="top", fontsize=9)
            ax.set_ylabel("probability")
        entropy = f"{context['entropy, bits']:.1f} bits of entropy"
        column[0].set_title(f"\u201c{context['context']} \u2026\u201d\n{entropy}")
        column[-1].set_xticks(x, context["tokens"], rotation=60, ha="right", rotation_mode="anchor")
        column[-1].set_xlabel("likeliest tokens")
    bits = " and ".join(f"{context['entropy, bits']:.1f}" for context in contexts)
    heading = f"What each setting alone leaves, where the model is unsure by {bits} bits"
    handles = _handles(grid[0, 0], ("before", "left", "cut"))
    _legend(figure, handles, f"{heading}\n{_engines(data)}")


def metrics(figure, data):
    """A panel a column of the table, a bar a method, with standard errors over the seeds.

    The dashed line is text that people wrote.
    """
    rows, human = data["methods"], data.get("human") or {}
    columns = [name for name in METRICS if any(row[name] is not None for row in rows)]
    across = min(3, len(columns))
    down = -(-len(columns) // across)
    figure.set_size_inches(9.8, (0.34 * len(rows) + 0.85) * down + 0.7)
    grid = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    y = range(len(rows))
    for ax, name in zip(grid, columns):
        values = [NAN if row[name] is None else row[name] for row in rows]
        errors = [row[f"{name}_error"] for row in rows]
        lines = [NAN if error is None else error for error in errors]
        ax.barh(y, values, 0.72, xerr=lines, capsize=3, color=SKY, edgecolor=BLUE)
        ends = [value + (error or 0) for value, error in zip(values, errors)]
        for place, value, end in zip(y, values, ends):
            if value == value:
                ax.annotate(_short(value), (end, place), (4, 0), **BESIDE)
        wide = max((end for end in ends if end == end), default=1) or 1
        if human.get(name) is not None:
            wide = max(wide, human[name])
            ax.axvline(human[name], color=VERMILLION, ls="--", lw=1.4, label="human text")
        ax.set_xlim(0, 1.3 * wide)
        ax.xaxis.get_major_locator().set_params(nbins=4)
        ax.set_title(METRICS[name])
    for ax in grid[len(columns) :]:
        ax.set_axis_off()
    ax.set_yticks(y, [row["method"] for row in rows])
    ax.invert_yaxis()  # the axes are shared: the first method stands at the top of each
    texts = f"{len(data['prompts'])} prompts, {data['seeds']} seeds (standard error)"
    heading = f"{_most_human(rows, human)}{_engines(data)}, {texts}"
    handles = [handle for ax in grid[: len(columns)] for handle in _handles(ax)][:1]
    if handles:
        _legend(figure, handles, heading)
    else:
        figure.suptitle(heading, fontsize=11)


def _short(value):
    """Three digits, without powers of ten up to a million."""
    return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"


def _most_human(rows, human):
    """Which method's perplexity is nearest to that of human text, in words."""
    known = [row for row in rows if row["perplexity"]]
    if not known or not human.get("perplexity"):
        return ""
    wanted = human["perplexity"]
    near = min(known, key=lambda row: abs(math.log(row["perplexity"] / wanted)))
    return f"{near['method']} is nearest to human text in perplexity\n"


def speed(figure, data):
    """Tokens a second of each engine and storage type, plain and speculative.

    A panel for each temperature.
    """
    temperatures = [result["temperature"] for result in data["runs"][0]["results"]]
    bars = [_speeds(data["runs"], number) for number in range(len(temperatures))]
    figure.set_size_inches(9.8, 0.62 * max(map(len, bars)) + 1.9)
    axes = figure.subplots(1, len(temperatures), squeeze=False)[0]
    for ax, temperature, found in zip(axes, temperatures, bars):
        for place, (_, plain, drafted) in enumerate(found):
            _speed_bar(ax, place - 0.2, plain, color=SKY, label="plain")
            _speed_bar(ax, place + 0.2, drafted, color=GREEN, label="speculative")
        ax.set_yticks(range(len(found)), [label for label, *_ in found])
        ax.invert_yaxis()
        ax.set_xlim(0, 1.5 * max(bar.rate for _, *pair in found for bar in pair if bar))
        ax.set_xlabel("tokens/s")
        ax.set_title(f"temperature {temperature:g}: {_quickest(found)}")
    first = data["runs"][0]
    texts = f"medians of {first['prompts']} texts of {first['max_new_tokens']} tokens"
    _legend(
        figure, _handles(axes[0]), f"{_engines(data)}, {texts} (standard error), block verification"
    )


class Bar(NamedTuple):
    """One bar of `speed`: tokens/s, their standard error or None, and how they came about."""

    rate: float
    error: float | None
    way: str


def _speed_bar(ax, at, bar, **look):
    if bar:
        ax.barh(at, bar.rate, 0.38, xerr=bar.error, capsize=3, edgecolor=BLACK, lw=0.6, **look)
        words = "" if bar.way == "plain" else bar.way
        end = bar.rate + (bar.error or 0)
        ax.annotate(f"{_short(bar.rate)}  {words}".rstrip(), (end, at), (4, 0), **BESIDE)


def _speeds(runs, number):
    """[(engine, its plain `Bar` or None, its quickest with drafts or None)] of one temperature.

    Ours come first, by storage type.
    """
    found = {run["dtype"]: [] for run in runs}
    for run in runs:
        for name, way in run["results"][number]["ways"].items():
            label = run["dtype"] if way["engine"] == "minidecode" else way["engine"]
            name = name.removeprefix(f"{way['engine']}, ").removesuffix(", block")
            if way["tokens/s"]:
                error = way.get("standard error, tokens/s")  # older numbers have none
                bar = Bar(way["tokens/s"], error, name.replace("k ", "k = "))
                found.setdefault(label, []).append(bar)
    return [
        (
            label,
            next((bar for bar in bars if bar.way == "plain"), None),
            max((b for b in bars if b.way != "plain"), key=lambda b: b.rate, default=None),
        )
        for label, bars in found.items()
        if bars
    ]


def _quickest(rows):
    """Which engine is fastest, in words."""
    bars = [(bar, label) for label, *pair in rows for bar in pair if bar]
    best, label = max(bars, key=lambda found: found[0].rate)
    return f"{label} is fastest" + (f" with {best.way}" if best.way != "plain" else "")


def _series(items):
    """(item, colour, marker) for each; `InputError` for more than can be told apart."""
    if len(items) > len(SERIES):
        raise InputError(f"plot: got {len(items)} lines, at most {len(SERIES)} were wanted")
    return [(item, *look) for item, look in zip(items, SERIES)]


def _engines(data):
    """What was measured, in words."""
    words = data.get("model") or ""
    if data.get("like"):
        words += f" at the cost of {data['like']}"
    others = (f", {name} {data[name]}" for name in ("draft", "amateur") if data.get(name))
    return words + "".join(others)


def _handles(ax, order=None):
    """[(handle, label)] for a legend."""
    found = dict(zip(*reversed(ax.get_legend_handles_labels())))
    return [(found[label], label) for label in order or found]


def _legend(figure, handles, heading, ncols=5):
    """Above the axes, where it covers nothing."""
    legend = figure.legend(*zip(*handles), loc="outside upper center", ncols=ncols, title=heading)
    legend.get_title().set_multialignment("center")


PLOTS = {
    "runtime": runtime,
    "probability": probability,
    "repetition": repetition,
    "filters": filters,
    "acceptance": acceptance,
    "metrics": metrics,
    "speed": speed,
}
