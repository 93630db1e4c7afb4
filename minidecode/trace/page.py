"""A trace as one HTML page that needs nothing else: no network, no library, no other file."""

import dataclasses
import html
import json
import re
from dataclasses import dataclass, field
from importlib import resources

from ..models.labels import Spelling, counted
from ..speculation.rounds import Round, acceptance
from .beam import Tree
from .candidates import Candidate, Traced
from .terminal import KINDS, WORDS, step_text, tree_lines

SCRIPTS = ("words.js", "panel.js", "tree.js", "text.js")
DIGITS = 6  # of a number in the page


@dataclass
class Recording:
    """All that a page shows.

    title     the decoder, in words
    prompt    its text
    settings  {name: value}, shown as they are
    names     of the two sides, such as target and draft; None where there is one side
    about     what the algorithm does, in two sentences
    steps     what the decoder yielded, or for a beam search `tree`
    """

    title: str
    prompt: str
    settings: dict
    names: tuple[str, str | None] = ("model", None)
    steps: list[Traced] = field(default_factory=list)
    tree: Tree | None = None
    about: str = ""

    @property
    def finish_reason(self):
        if self.tree is not None:
            return self.tree.hypotheses[0].finish_reason if self.tree.hypotheses else "none"
        return self.steps[-1].step.finish_reason if self.steps else "length"


def summary(recording):
    """One sentence: how many tokens, in how many rounds, how many drafts accepted, why it ended."""
    if recording.tree is not None:
        weighed = sum(map(len, recording.tree.levels))
        counts = f"{counted(weighed, 'hypothesis', 'hypotheses')} in "
        counts += counted(len(recording.tree.levels), "step")
    else:
        steps = [traced.step for traced in recording.steps]
        counts = counted(sum(len(step.tokens) for step in steps), "token")
        rounds = [step for step in steps if isinstance(step, Round)]
        if rounds:
            drafted, accepted, rate = acceptance((len(r.drafted), r.accepted) for r in rounds)
            share = f" ({rate:.0%})" if drafted else ""
            counts += f" in {counted(len(rounds), 'round')}, {accepted} of "
            counts += f"{counted(drafted, 'draft')} accepted{share}"
    return f"{counts}; ended: {recording.finish_reason}"


def totals(recording):
    """[(name, value)] of a whole text, as words."""
    if recording.tree is not None:
        weighed = sum(map(len, recording.tree.levels))
        found = [("steps", len(recording.tree.levels)), ("hypotheses weighed", weighed)]
        found.append(("returned", len(recording.tree.hypotheses)))
    else:
        steps = [traced.step for traced in recording.steps]
        count = sum(len(step.tokens) for step in steps)
        found = [("tokens", count)]
        rounds = [step for step in steps if isinstance(step, Round)]
        if rounds:
            drafted, accepted, rate = acceptance((len(r.drafted), r.accepted) for r in rounds)
            share = f" ({rate:.0%})" if drafted else ""
            found.append((f"passes of the {recording.names[0]}", len(rounds)))
            found.append(("tokens per pass", f"{count / len(rounds):.2f}"))
            found.append(("drafts accepted", f"{accepted} of {drafted}{share}"))
    return [*found, ("ended by", recording.finish_reason)]


def page(recording, tokenizer, end_ids=()):
    """The page as a string. tokenizer: what the ids mean; end_ids: those that end a text."""
    names = Spelling(tokenizer, end_ids)
    parts = {
        "title": html.escape(f"{recording.title}: {recording.prompt[:60]}"),
        "heading": html.escape(recording.title),
        "plain": html.escape(_plain(recording, Spelling(tokenizer, end_ids))),
        "style": _asset("page.css"),
        "script": "\n".join(map(_asset, SCRIPTS)),
        "data": _safe_json(_facts(recording, names)),
    }
    # In one pass, so that nothing that was put in is looked at again.
    return re.sub("@@([a-z]+)@@", lambda match: parts[match[1]], _asset("page.html"))


def _asset(name):
    return (resources.files(__package__) / "web" / name).read_text(encoding="utf-8").strip()


def _safe_json(facts):
    """Strict JSON that no HTML parser can leave: without <, > and &, in ASCII alone."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(recording, spelling):
    """The text for a browser without scripts, with the marks of a transcript."""
    if recording.tree is not None:
        return "\n".join(tree_lines(recording.tree, spelling))
    return recording.prompt + "".join(step_text(t, spelling) for t in recording.steps)


def _facts(recording, names):
    """All that the scripts read."""
    flow = Spelling(names.tokenizer, names.end_ids, keep="\n\\\xa0")
    steps = []
    for traced in recording.steps:
        candidates = [_candidate(candidate, flow) for candidate in traced.candidates]
        drafted = getattr(traced.step, "drafted", ())
        rule = {"rule": traced.rule} if traced.rule else {}
        steps.append({"drafted": len(drafted), "candidates": candidates} | rule)
    tree = recording.tree and _tree(recording.tree, flow, names)
    ids = {
        i for traced in recording.steps for candidate in traced.candidates for i in candidate.ids
    }
    if tree:
        nodes = [node for level in recording.tree.levels for node in level]
        ids |= {i for node in nodes if node.candidate for i in node.candidate.ids}
    return {
        "names": recording.names,
        "about": recording.about,
        "totals": totals(recording),
        "kinds": {kind: {"name": row.name, "words": row.words} for kind, row in KINDS.items()},
        "reason": recording.finish_reason,
        "settings": {n: _readable(value) for n, value in recording.settings.items()},
        "words": WORDS,
        "prompt": recording.prompt,
        "labels": {str(i): names.label(i) for i in sorted(ids)},
        "steps": steps,
        "tree": tree,
    }


def _readable(value):
    """A setting as text: a function by its name, what holds several with commas between them."""
    if isinstance(value, list | tuple | set | frozenset):
        parts = ", ".join(_readable(part) for part in value)
        return f"({parts})" if len(value) > 1 else parts
    return getattr(value, "__name__", None) or str(value)


def _tree(tree, flow, names):
    levels = []
    for nodes in tree.levels:
        levels.append([])
        for node in nodes:
            candidate = node.candidate and _candidate(node.candidate, flow if node.best else None)
            rest = {
                name: getattr(node, name)
                for name in ("parent", "total", "fate", "rank", "best", "group")
            }
            levels[-1].append(_compact({"candidate": candidate, **rest}))
    ends = [
        {
            "score": h.score,
            "reason": h.finish_reason,
            "sum": float(sum(h.logprobs)),
            "length": len(h.tokens),
            "text": "".join(map(Spelling(names.tokenizer, names.end_ids).feed, h.tokens)),
        }
        for h in tree.hypotheses
    ]
    penalty = float(tree.length_penalty)
    return {"levels": levels, "hypotheses": _compact(ends), "penalty": penalty}


def _candidate(candidate: Candidate, flow):
    """As JSON; `text` is what it adds to the text, "" where it completes no character."""
    facts = _compact(dataclasses.asdict(candidate))
    if flow is not None and candidate.kind != "untested":
        take = flow.peek if candidate.kind == "rejected" else flow.feed
        facts["text"] = take(candidate.token)
    return facts


def _compact(value):
    """Without entries that are None, numbers rounded."""
    if isinstance(value, dict):
        return {name: _compact(part) for name, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_compact(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
