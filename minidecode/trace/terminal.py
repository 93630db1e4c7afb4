"""A trace as lines of text, coloured or with marks that need no colour.

accepted drafts    green              as they are
rejected draft     red, struck        [-like this-]
its correction     blue, bold         {+like this+}
bonus token        cyan, underlined   {*like this*}
"""

from ..speculation.rounds import Round

STYLES = {  # kind: (the terminal's codes, mark before, mark after)
    "accepted": ("32", "", ""),
    "rejected": ("31;9", "[-", "-]"),
    "correction": ("34;1", "{+", "+}"),
    "bonus": ("36;4", "{*", "*}"),
    "plain": ("", "", ""),
    "best": ("32;1", "", ""),
    "dropped": ("2", "", ""),
}
KINDS = ("accepted", "rejected", "correction", "bonus")
RUNNERS_UP = 3  # other tokens named by `explain`


def paint(text, kind, colour):
    """text in its colour, or between its marks."""
    code, before, after = STYLES[kind]
    if not colour:
        return before + text + after
    return f"\033[{code}m{text}\033[0m" if code else text


def legend(colour):
    """A line of the kinds of token in a speculative trace, each as it is shown."""
    return "  ".join(paint(kind, kind, colour) for kind in KINDS)


def step_lines(number, traced, spelling, *, colour=False, explain=False):
    """The lines of one `Traced`: with a draft one a round, and with `explain` one a token too."""
    if not isinstance(traced.step, Round):
        return [
            _token_line(number, candidate, spelling, explain) for candidate in traced.candidates
        ]
    tally = f"{traced.step.accepted}/{len(traced.step.drafted)}"
    lines = [f"{number:4}  {tally:>5}  {step_text(traced, spelling, colour)}"]
    return lines + [_test_line(candidate, spelling) for candidate in traced.candidates if explain]


def step_text(traced, spelling, colour=False):
    """What a step adds to the text, with what it rejected, each token in its colour or marks."""
    return "".join(
        paint(candidate_text(candidate, spelling), candidate.kind, colour)
        for candidate in traced.candidates
        if candidate.kind != "untested"
    )


def candidate_text(candidate, spelling):
    """What a candidate adds to the text; its label where it completes no character."""
    text = (spelling.peek if candidate.kind == "rejected" else spelling.feed)(candidate.token)
    return text or spelling.label(candidate.token)


def _token_line(number, candidate, spelling, explain):
    """A token chosen without a draft: what it came from, and with `explain` what it came before."""
    cells = [f"{number:4}", _quoted(spelling, candidate.token)]
    if candidate.q is None:
        cells += [
            _value("p", candidate, candidate.p.final),
            _value("model", candidate, candidate.p.model),
        ]
    else:
        cells += [
            _value("expert", candidate, candidate.p.model),
            _value("amateur", candidate, candidate.q.model),
        ]
        cells += [_value("score", candidate, candidate.scores, "+.4f")]
    if explain:
        cells.append(f"kept {candidate.p.kept}")
        cells += [f"{setting} -{count}" for setting, count, _ in candidate.p.cuts if count]
        cells += [_chance(candidate), _runners_up(candidate, spelling)]
    return "  ".join(filter(None, cells))


def _test_line(candidate, spelling):
    """What became of one token of a round, and why."""
    cells = [f"      {candidate.kind:10}", _quoted(spelling, candidate.token)]
    for name, bars in (("p", candidate.p), ("q", candidate.q)):
        cells.append(_value(name, candidate, bars and bars.final))
    if candidate.acceptance is not None:
        drawn = "" if candidate.uniform is None else f"  u {candidate.uniform:.4f}"
        cells.append(f"accept {candidate.acceptance:.4f}{drawn}")
    elif candidate.kind in ("correction", "bonus", "plain"):
        cells += [_value("residual", candidate, candidate.residual), _chance(candidate)]
    elif candidate.noise is not None:
        cells.append(_chance(candidate))
    return "  ".join(filter(None, cells))


def _quoted(spelling, token):
    return f'"{spelling.label(token)}"'.ljust(16)


def _value(name, candidate, values, form=".4f"):
    """The value of the candidate's own token among `values`; as many blanks where it has none."""
    value = None if values is None else values[candidate.ids.index(candidate.token)]
    number = " " * 6 if value is None else format(value, form)
    return f"{name if value is not None else ' ' * len(name)} {number}"


def _chance(candidate):
    """The number that the token was drawn with, or the noise that was added to its log p."""
    if candidate.noise is not None:
        return _value("noise", candidate, candidate.noise, "+.4f")
    return "" if candidate.drawn is None else f"u {candidate.drawn:.4f}"


def _runners_up(candidate, spelling):
    """The next best tokens, by score or probability."""
    values = candidate.scores if candidate.scores is not None else candidate.p.model
    others = [
        (v, i) for v, i in zip(values, candidate.ids) if v is not None and i != candidate.token
    ]
    others = sorted(others, key=lambda pair: -pair[0])[:RUNNERS_UP]
    names = ", ".join(f'"{spelling.label(i)}" {v:.4f}' for v, i in others)
    return f"before {names}" if names else ""


def tree_lines(tree, spelling, *, colour=False, explain=False):
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
        text = "".join(spelling.label(node.candidate.token) for node in nodes if node.candidate)
        style, note = ("best" if nodes[-1].best else "plain"), ""
        if not below:
            note = _outcome(tree, chain[-1][0], nodes[-1])
            style = style if nodes[-1].rank is not None else "dropped"
        lines.append(f"{indent}{'└─' if last else '├─'} {paint(text, style, colour)}{note}")
        indent += "   " if last else "│  "
        stack += [(child, indent, child is below[-1]) for child in reversed(below)]
    return lines


def _outcome(tree, depth, node):
    """What is said behind the last token of a hypothesis."""
    if node.rank is not None:
        hypothesis = tree.hypotheses[node.rank]
        return f"  #{node.rank + 1}  {hypothesis.score:.4f}  {hypothesis.finish_reason}"
    if node.fate == "running":
        return "  (left running)" if depth == len(tree.levels) - 1 else "  (dropped)"
    return f"  ({node.fate})"
