"""Draws each picture from its data: a function (figure, data) each, in `PLOTS`.

What the data hold is said where they are measured: bench_speculative.py for runtime, compare.py for
metrics, plot_data.py for the others. Colours are those of Okabe and Ito, which the colour-blind can
tell apart; markers and hatches tell them apart without any colour.
"""

from ..errors import InputError
from ..measure.compare import HEADINGS

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
SERIES = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"))
NAN = float("nan")  # draws nothing
METRICS = {name: words for name, (_, words) in HEADINGS.items()}
BESIDE = {"textcoords": "offset points", "va": "center", "fontsize": 9}
LABELLED = 80  # tokens whose names beside each other can still be read


def runtime(figure, data):
    """Seconds a text against k: bars measured, a dashed line plain decoding, a curve theory."""
    results = data["results"]
    figure.set_size_inches(5.2 * len(results) + 0.8, 4.6)
    axes = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for ax, result in zip(axes, results):
        ways = {name: way["seconds a text"] for name, way in result["ways"].items()}
        lengths = [name for name in ways if name.startswith("k ")]
        x = range(len(lengths))
        seconds = [ways[k] for k in lengths]
        ax.bar(x, seconds, 0.7, color=SKY, edgecolor=BLACK, lw=0.6, label="speculative decoding")
        ticks = {name[2:]: place for name, place in zip(lengths, x)}
        for name, hatch in (("auto", "//"), ("prompt lookup", "..")):
            if name in ways:
                place = ax.dataLim.xmax + 1.2  # apart: these choose k themselves
                ticks[name.replace(" ", "\n")] = place
                ax.bar(place, ways[name], 0.7, color="white", edgecolor=BLUE, hatch=hatch)
        ax.axhline(ways["plain"], color=BLACK, ls="--", lw=1.5, label="plain decoding")
        gains = [result["ways"][k]["predicted speed-up"] for k in lengths]
        theory = [ways["plain"] / gain if gain else NAN for gain in gains]
        ax.plot(x, theory, color=VERMILLION, marker="o", ms=5, lw=1.8, label="theory")
        ax.set_xticks(list(ticks.values()), list(ticks))
        ax.set_xlabel("k, tokens drafted for each pass of the target")
        ax.set_title(f"temperature {result['temperature']:g}")
    axes[0].set_ylabel("mean time per prompt (s)")
    heading = f"{_engines(data)}, {data['max_new_tokens']} tokens a prompt"
    _legend(figure, _handles(axes[0]), heading)


def acceptance(figure, data):
    """Acceptance by place, and tokens a pass against k with theory; bars are standard errors."""
    figure.set_size_inches(10.5, 4.8)
    left, right = figure.subplots(1, 2)
    for number, (result, colour, marker) in enumerate(_series(data["results"])):
        label = f"temperature {result['temperature']:g}"
        look = {"color": colour, "marker": marker, "ms": 6}
        rates = zip(result["acceptance by position"], result["tested"])
        known = [(i, a, n) for i, (a, n) in enumerate(rates, 1) if a is not None]
        places, y, tested = zip(*known)
        errors = list(zip(*map(_wilson, y, tested)))
        aside = [place + 0.12 * number for place in places]  # error bars would hide each other
        left.errorbar(aside, y, errors, capsize=3, **look)
        by_k = result["by k"]
        k = [row["k"] for row in by_k]
        brought, errors = zip(*((row["tokens a pass"], row["standard error"]) for row in by_k))
        right.errorbar(k, brought, errors, ls="", capsize=3, label=label, **look)
        predicted = [NAN if row["predicted"] is None else row["predicted"] for row in by_k]
        right.plot(k, predicted, color=colour, label=f"theory, {label}")
    left.set(ylim=(0, 1.05), xlabel="place of the draft in its round")
    left.set_ylabel("accepted, of those tested")
    right.set(ylim=(1, None), xlabel="k, tokens drafted for each pass of the target")
    right.set_ylabel("tokens per pass of the target")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.xaxis.get_major_locator().set_params(integer=True, nbins=12)
    heading = (
        f"{_engines(data)}, {data['prompts']} texts of {data['max_new_tokens']} tokens for each k"
    )
    _legend(figure, _handles(right), f"{heading} (bars: standard error)")


def _wilson(rate, n):
    """How far the rate among n may be below and above: its standard error, also near 0 and 1.

    Wilson 1927: with rate * (1 - rate) / n alone, one success of one would seem to be certain.
    """
    center = (rate + 0.5 / n) / (1 + 1 / n)
    half = (rate * (1 - rate) / n + 0.25 / n**2) ** 0.5 / (1 + 1 / n)
    return max(0.0, rate - center + half), max(0.0, center + half - rate)


def probability(figure, data):
    """The probability of each token, one text below the other."""
    texts = data["texts"]
    longest = max(len(text["tokens"]) for text in texts)
    figure.set_size_inches(min(max(8.0, 0.17 * longest + 1.2), 14), 3.1 * len(texts) + 0.3)
    axes = figure.subplots(len(texts), 1, sharey=True, squeeze=False)[:, 0]
    for ax, (text, colour, marker) in zip(axes, _series(texts)):
        x, y, mean = range(len(text["tokens"])), text["probabilities"], text["geometric mean"]
        ax.plot(x, y, color=colour, marker=marker, ms=4, lw=1.4)
        if mean is not None:
            ax.axhline(mean, color=BLACK, ls="--", lw=1.3)
            ax.set_title(f"{text['name']}: geometric mean {mean:.2g} (dashed)", loc="left")
        if longest <= LABELLED:
            ax.set_xticks(x, text["tokens"], rotation=90, fontsize=9)
        ax.set(xlim=(-0.7, longest - 0.3), ylim=(-0.03, 1.03), ylabel="probability")
        ax.grid(axis="y", alpha=0.3)
    axes[-1].set_xlabel("tokens, in order")
    figure.suptitle(_engines(data), fontsize=11)


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
    _legend(figure, _handles(left), _engines(data), ncols=2)


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
    _legend(figure, _handles(grid[0, 0], ("before", "left", "cut")), _engines(data))


def metrics(figure, data):
    """A panel a column of the table, a bar a method, with standard errors over the seeds."""
    rows = data["methods"]
    columns = [name for name in METRICS if any(row[name] is not None for row in rows)]
    across = min(5, len(columns))
    down = -(-len(columns) // across)
    widest = max(len(row["method"]) for row in rows)
    figure.set_size_inches(
        2.5 * across + 0.085 * widest + 0.2, (0.3 * len(rows) + 0.8) * down + 0.4
    )
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
                ax.annotate(f"{value:.3g}", (end, place), (4, 0), **BESIDE)
        ax.set_xlim(0, 1.4 * max((end for end in ends if end == end), default=1) or 1)
        ax.xaxis.get_major_locator().set_params(nbins=4)
        ax.set_title(METRICS[name])
    for ax in grid[len(columns) :]:
        ax.set_axis_off()
    ax.set_yticks(y, [row["method"] for row in rows])
    ax.invert_yaxis()  # the axes are shared: the first method stands at the top of each
    texts = f"{len(data['prompts'])} prompts, {data['seeds']} seeds (standard error)"
    figure.suptitle(f"{_engines(data)}, {texts}", fontsize=11)


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
    figure.legend(*zip(*handles), loc="outside upper center", ncols=ncols, title=heading)


PLOTS = {
    "runtime": runtime,
    "probability": probability,
    "repetition": repetition,
    "filters": filters,
    "acceptance": acceptance,
    "metrics": metrics,
}
