"""A trace as lines of text: coloured or with marks that need no colour, explained in columns."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from ..decoding.warp import ROWS
from ..speculation.rounds import Round

WORDS = {name: row.label for name, row in ROWS.items()}  # of whatever can cut a token
WORDS |= {"alpha": "alpha", "mirostat": "Mirostat"}


@dataclass(frozen=True)
class Kind:
    """What can become of a token. The one legend: command line and page read it here.

    name, words    as it is called, and what that means
    style          its colour and look on a terminal, in words
    code           the terminal's codes for these
    before, after  its marks where there are no colours
    """

    name: str
    words: str
    style: str
    code: str
    before: str = ""
    after: str = ""


KINDS = {
    "accepted": Kind("accepted draft", "drafted, and the target let it stand", "green", "32"),
    "rejected": Kind(
        "rejected draft",
        "drafted, and not kept: it is no part of the text",
        "red, struck",
        "31;9",
        "[-",
        "-]",
    ),
    "correction": Kind(
        "correction", "what the target put in its place", "blue, bold", "34;1", "{+", "+}"
    ),
    "bonus": Kind(
        "bonus token",
        "the target's own token after drafts that were all accepted",
        "cyan, underlined",
        "36;4",
        "{*",
        "*}",
    ),
}
CODES = {kind: row.code for kind, row in KINDS.items()} | {"best": "32;1", "dropped": "2"}
RUNNERS_UP = 3  # other tokens named by `explain`
NARROW, WIDE = 8, 18  # cells for a token's label
INDENT = "      "


def paint(text, kind, colour):
    """text in its colour, or between its marks."""
    if not colour:
        return f"{KINDS[kind].before}{text}{KINDS[kind].after}" if kind in KINDS else text
    return f"\033[{CODES[kind]}m{text}\033[0m" if kind in CODES else text


def legend(colour):
    """A line of the kinds of token in a speculative trace, each as it is shown."""
    return "  ".join(paint(kind, kind, colour) for kind in KINDS)


def legend_lines():
    """The kinds with their colours and marks, one line each, for whoever asks for help."""
    lines = [f"  {'':16}{'on a terminal':19}without colours"]
    for row in KINDS.values():
        shown = f"{row.before}like this{row.after}" if row.before else "as it is"
        lines.append(f"  {row.name:16}{row.style:19}{shown}")
    return lines


def cells(text):
    """How many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def wrapped(pieces, width, indent):
    """Lines of (text, painted) pieces; those after the first begin with `indent`.

    width None: one line, whatever its length. A piece wider than a line has one for itself.
    """
    lines, line, used = [], "", 0
    for text, painted in pieces:
        if width is not None and line and used + cells(text) > width:
            lines.append(line)
            line, used = indent, cells(indent)
        line, used = line + painted, used + cells(text)
    return [*lines, line]


# ---- columns


@dataclass(frozen=True)
class Column:
    """name: its head; words: for the legend; value(candidate): a number or None; form: of it."""

    name: str
    words: str
    value: Callable
    form: str = ".4f"
    width: int = 7

    def cell(self, candidate):
        value = self.value(candidate)
        return ("" if value is None else format(value, self.form)).rjust(self.width)


def _own(name, part=None):
    """The value that the candidate's own token has in one of its lists."""

    def value(candidate):
        values = getattr(candidate, name)
        values = getattr(values, part) if part and values is not None else values
        return None if values is None else values[candidate.ids.index(candidate.token)]

    return value


def _drawn(candidate):
    """The number a token of the target was drawn with; None where only one could be drawn."""
    alone = candidate.p is not None and candidate.p.kept == 1 and candidate.residual is None
    certain = candidate.residual is not None and max(candidate.residual) == 1
    draft = candidate.kind in ("accepted", "rejected", "untested")
    return None if alone or certain or draft else candidate.drawn


def _tested(candidate):
    """The number that decided a test, or drew the token; None where chance had no part."""
    if candidate.acceptance is None:
        return _drawn(candidate)
    return candidate.uniform if 0 < candidate.acceptance < 1 else None


P = Column("p", "the target's probability", _own("p", "final"))
Q = Column("q", "the draft's", _own("q", "final"))
ACCEPT = Column("accept", "min(1, p/q), the chance of acceptance", lambda c: c.acceptance)
REACH = Column("P", "the chance that all drafts up to this one are kept", lambda c: c.reach)
COIN = Column("coin", "the chance that all up to it are, and no more", lambda c: c.acceptance)
TESTED = Column("u", "the random number: it accepts below the chance, or draws", _tested)
RESIDUAL = Column(
    "residual",
    "the share in max(0, p - q) / sum, which a correction is drawn from",
    _own("residual"),
    width=8,
)
NOISE = Column("noise", "what is added to log p: the largest sum is drawn", _own("noise"), "+.4f")
MODEL = Column("model", "the probability before any setting", _own("p", "model"))
DRAWN_P = Column("p", "the probability it was drawn with", _own("p", "final"))
LIKENESS = Column(
    "alike", "the largest cosine of its hidden state with one of the text", _own("likeness")
)
TRADED = Column(
    "score",
    "(1 - a) p - a alike, with a = penalty-alpha: the best is taken",
    _own("scores"),
    "+.4f",
    8,
)
KEPT = Column("kept", "tokens left to draw from", lambda c: c.p and c.p.kept, ",d")
EXPERT = Column("expert", "the expert's probability", _own("p", "model"))
AMATEUR = Column("amateur", "the amateur's", _own("q", "model"))
SCORE = Column("score", "log expert - log amateur, or as beta has it", _own("scores"), "+.4f", 8)
DRAWN = Column("u", "the random number it was drawn with", _drawn)

BY_RULE = {
    "token": [P, Q, ACCEPT, TESTED, RESIDUAL],
    "block": [P, Q, REACH, COIN, TESTED, RESIDUAL],
    "coupled": [P, Q, NOISE],
    "own": [P, Q, TESTED, RESIDUAL],
}


def columns_of(traced, width=None):
    """The columns that explain one `Traced`, as many of them as fit into `width`."""
    if isinstance(traced.step, Round):
        found, used = BY_RULE[traced.rule or "token"], 14 + NARROW
    else:
        first = traced.candidates[0] if traced.candidates else None
        if first is not None and first.likeness is not None:
            found = [DRAWN_P, LIKENESS, TRADED]
        else:
            contrast = first is not None and first.q is not None
            found = [EXPERT, AMATEUR, SCORE, DRAWN_P, KEPT] if contrast else [DRAWN_P, MODEL, KEPT]
            found += [NOISE if first is not None and first.noise is not None else DRAWN]
        used = 6 + NARROW
    while width is not None and used + sum(c.width + 1 for c in found) > width:
        found = found[:-1]
    return found


def head_lines(traced, width=None):
    """What the columns of `--explain` are, then their heads."""
    columns = columns_of(traced, width)
    lines = []
    for column in columns:
        pieces = [(f"{word} ", f"{word} ") for word in column.words.split()]
        lead = f"{column.name:>8}  "
        lines += wrapped([(lead, lead), *pieces], width, " " * 10)
    if isinstance(traced.step, Round):
        lead = "  ".join(["", "fate".ljust(10), _padded("token", _label_width(traced, width))])
    else:
        lead = "   #  " + _padded("token", _label_width(traced, width))
    head = lead + "".join(" " + column.name.rjust(column.width) for column in columns)
    return [line.rstrip() for line in [*lines, head]]


def _label_width(traced, width):
    """Cells for the label of a token, so that the line has `width`."""
    lead = 14 if isinstance(traced.step, Round) else 6
    rest = sum(column.width + 1 for column in columns_of(traced, width))
    return WIDE if width is None else max(NARROW, min(WIDE, width - lead - rest))


def _padded(text, width):
    """text in exactly `width` cells, cut with an ellipsis where it is longer."""
    if cells(text) > width:
        while cells(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - cells(text))


# ---- a step


def step_lines(number, traced, spelling, *, colour=False, explain=False, width=None):
    """The lines of one `Traced`: with a draft one per round, with `explain` one per token too.

    width: of the terminal; None: a round is one line, whatever its length.
    """
    if not isinstance(traced.step, Round):
        if not explain:
            return [_token_line(number, c, spelling) for c in traced.candidates]
        return _explained_tokens(number, traced, spelling, width)
    tally = f"{traced.step.accepted}/{len(traced.step.drafted)}"
    lead = f"{number:4}  {tally:>5}  "
    lines = wrapped([(lead, lead), *_pieces(traced, spelling, colour)], width, " " * len(lead))
    return lines + (_explained_round(traced, spelling, width) if explain else [])


def step_text(traced, spelling, colour=False):
    """What a step adds to the text, with what it rejected, each token in its colour or marks."""
    return "".join(painted for _, painted in _pieces(traced, spelling, colour))


def _pieces(traced, spelling, colour):
    """(text as it takes room, painted) of each token of a step that is shown."""
    pieces = []
    for c in traced.candidates:
        if c.kind != "untested":
            text = candidate_text(c, spelling)
            painted = paint(text, c.kind, colour)
            pieces.append((text if colour else painted, painted))
    return pieces


def candidate_text(candidate, spelling):
    """What a candidate adds to the text; its label where it completes no character."""
    text = (spelling.peek if candidate.kind == "rejected" else spelling.feed)(candidate.token)
    return text or spelling.label(candidate.token)


def _token_line(number, candidate, spelling):
    """A token chosen without a draft, with what it came from."""
    columns = [DRAWN_P, MODEL] if candidate.q is None else [EXPERT, AMATEUR, SCORE]
    if candidate.likeness is not None:
        columns = [DRAWN_P, LIKENESS, TRADED]
    values = [f"{c.name} {c.cell(candidate).strip()}" for c in columns]
    values = [value.ljust(c.width + len(c.name)) for value, c in zip(values, columns)]
    label = _padded(_quoted(spelling, candidate.token), WIDE)
    return "  ".join([f"{number:4}", label, *values]).rstrip()


def _explained_tokens(number, traced, spelling, width):
    """A line of numbers for each token, then what the settings cut and what came behind it."""
    columns, size, lines = columns_of(traced, width), _label_width(traced, width), []
    for c in traced.candidates:
        label = _padded(_quoted(spelling, c.token), size)
        line = f"{number:4}  {label}" + "".join(" " + column.cell(c) for column in columns)
        lines.append(line.rstrip())
        for words, parts in (("", cut_words(c.p)), ("next: ", _runners_up(c, spelling))):
            if parts:
                parts = [part + ", " for part in parts[:-1]] + parts[-1:]
                pieces = [(INDENT + words, INDENT + words), *zip(parts, parts)]
                lines += [x.rstrip() for x in wrapped(pieces, width, INDENT + "  ")]
    return lines


def _explained_round(traced, spelling, width):
    """What became of each token of a round, and why."""
    columns, size = columns_of(traced, width), _label_width(traced, width)
    lines = []
    for c in traced.candidates:
        label = _padded(_quoted(spelling, c.token), size)
        values = "".join(" " + column.cell(c) for column in columns)
        lines.append(f"  {c.kind:10}  {label}{values}".rstrip())
    return lines


def cut_words(bars):
    """What each setting cut of a distribution, such as "top-p cut 3,863 (14.3 %)"."""
    return [
        f"{WORDS.get(name, name)} cut {count:,} ({100 * share:.1f} %)"
        for name, count, share in (bars.cuts if bars else ())
        if count
    ]


def _quoted(spelling, token):
    return f'"{spelling.label(token)}"'


def _runners_up(candidate, spelling):
    """The next best tokens, by score or probability."""
    values = candidate.scores if candidate.scores is not None else candidate.p.model
    others = [
        (v, i) for v, i in zip(values, candidate.ids) if v is not None and i != candidate.token
    ]
    others = sorted(others, key=lambda pair: -pair[0])[:RUNNERS_UP]
    return [f"{_quoted(spelling, i)} {v:.4f}" for v, i in others]


# ---- a tree


def tree_lines(tree, spelling, *, colour=False, explain=False, width=None):
    """The tree of a beam search, one line for each stretch of text between two forks.

    Hypotheses dropped as soon as they came up are left out unless `explain` is set.
    """
    children = {}
    for depth, nodes in enumerate(tree.levels):
        for i, node in enumerate(nodes):
            if node.fate != "dropped" or explain:
                children.setdefault((depth - 1, node.parent), []).append((depth, i))
    roots = children.get((-1, None), [])
    lines, stack = [], [(root, "", root is roots[-1]) for root in reversed(roots)]
    while stack:
        key, indent, last = stack.pop()
        chain = [key]
        while len(below := children.get(chain[-1], [])) == 1:
            chain += below
        nodes = [tree.levels[depth][i] for depth, i in chain]
        labels = [spelling.label(node.candidate.token) for node in nodes if node.candidate]
        style, note = ("best" if nodes[-1].best else "plain"), ""
        if not below:
            note = _outcome(tree, chain[-1][0], nodes[-1])
            style = style if nodes[-1].rank is not None else "dropped"
        lead = f"{indent}{'└─' if last else '├─'} "
        indent += "   " if last else "│  "
        if width is None:
            labels = ["".join(labels)]
        pieces = [(lead, lead), *((x, paint(x, style, colour)) for x in labels), (note, note)]
        lines += wrapped(pieces, width, indent)
        stack += [(child, indent, child is below[-1]) for child in reversed(below)]
    return lines


def _outcome(tree, depth, node):
    """What is said behind the last token of a hypothesis."""
    if node.rank is not None:
        hypothesis = tree.hypotheses[node.rank]
        group = "" if node.group is None else f"  group {node.group}"
        return f"  #{node.rank + 1}  {hypothesis.score:.4f}  {hypothesis.finish_reason}{group}"
    if node.fate == "running":
        return "  (left running)" if depth == len(tree.levels) - 1 else "  (dropped)"
    return f"  ({node.fate})"
