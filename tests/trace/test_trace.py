"""A trace changes nothing, and what it says is what took place."""

import re

import numpy as np
import pytest
from builders import random_gpt2, toy_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minidecode import (
    Dice,
    GumbelDice,
    PromptLookupDraft,
    TableModel,
    Warp,
    exact,
    load,
    sample,
    speculative,
)
from minidecode.cli import main
from minidecode.decoding.beam import beam_search
from minidecode.decoding.chance import inverse_cdf
from minidecode.decoding.contrastive import Contrast, contrastive
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.labels import Spelling
from minidecode.models.tokenizer import Tokenizer
from minidecode.speculation.contrastive import speculative_contrastive
from minidecode.speculation.verify import draw
from minidecode.trace.beam import trace_beam
from minidecode.trace.contrastive import trace_contrastive, trace_speculative_contrastive
from minidecode.trace.sampling import trace_sample
from minidecode.trace.speculative import trace_speculative
from minidecode.trace.terminal import KINDS, paint, step_lines, tree_lines

PROMPT = "Once upon a time"
WARPS = [
    Warp(),
    Warp(temperature=0),
    Warp(temperature=0.8, top_k=40, top_p=0.9, epsilon=0.01),
    Warp(repetition_penalty=1.3, no_repeat_ngram_size=2),
]


@pytest.fixture(scope="module")
def pair():
    (target, tokenizer), (draft, _) = load("storyteller-6m"), load("storyteller-1m")
    return target, draft, tokenizer


@pytest.fixture(scope="module")
def small_pair():
    """For what many runs must show: random models that read and write the toy alphabet.

    The draft is the target, less sure and with a little noise, so that some of its tokens stay.
    """
    tokenizer, rng = Tokenizer(toy_tokenizer()), np.random.default_rng(3)
    fields, tensors = random_gpt2(1, len(tokenizer), 1, 2, 16, 64)
    noisy = {
        name: tensor + 0.05 * rng.standard_normal(tensor.shape).astype(np.float32)
        for name, tensor in tensors.items()
    }
    noisy |= {name: 0.4 * noisy[name] for name in ("ln_f.weight", "ln_f.bias")}
    config = Config.from_dict(fields)
    return GPT2(config, tensors), GPT2(config, noisy), tokenizer


def tables(V=5, seed=0):
    """A target and a draft with zeros, whose rows hang on the last two tokens."""
    rng = np.random.default_rng(seed)
    weights = rng.random((2, V, V, V)) ** 3 * (rng.random((2, V, V, V)) > 0.3)
    weights[..., 1] += 0.05
    rows = weights / weights.sum(axis=-1, keepdims=True)
    return [TableModel(lambda h, r=r: r[h[-1], h[-2] if len(h) > 1 else 0]) for r in rows]


def candidates(traced):
    return [candidate for one in traced for candidate in one.candidates]


def written(traced):
    """The tokens of the candidates that became text, which must be those of the steps."""
    for one in traced:
        taken = [p.token for p in one.candidates if p.kind not in ("rejected", "untested")]
        assert tuple(taken) == one.step.tokens
    return exact.tokens_of(one.step for one in traced)


# Nothing is changed


@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("dice", [Dice, GumbelDice])
def test_the_text_is_that_without_a_trace(small_pair, warp, dice):
    target, draft, tokenizer = small_pair
    limits = {"tokenizer": tokenizer, "max_new_tokens": 12, "warp": warp}

    def assert_same(decode, trace, *models, **options):
        plain = decode(*models, PROMPT, chance=dice(7), **options, **limits)
        traced = trace(*models, PROMPT, chance=dice(7), **options, **limits)
        assert written(list(traced)) == exact.tokens_of(plain)

    assert_same(sample, trace_sample, target)
    assert_same(contrastive, trace_contrastive, target, draft, alpha=0.3, beta=0.5)
    assert_same(speculative, trace_speculative, target, PromptLookupDraft())
    if dice is Dice:
        assert_same(speculative, trace_speculative, target, draft, verify="block")
    for k, schedule in (1, "constant"), (4, "heuristic"):
        options = {"num_draft_tokens": k, "schedule": schedule}
        assert_same(speculative, trace_speculative, target, draft, **options)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_run_on_tables_is_traced_whole(data):
    target, draft = tables(seed=data.draw(st.integers(0, 20)))
    options = {
        "max_new_tokens": data.draw(st.integers(0, 9)),
        "eos": data.draw(st.sampled_from([None, 1, (2, 3)])),
        "warp": Warp(
            temperature=data.draw(st.sampled_from([0, 0.5, 1])),
            top_k=data.draw(st.sampled_from([0, 2])),
            no_repeat_ngram_size=data.draw(st.sampled_from([0, 1, 2])),
        ),
        "num_draft_tokens": data.draw(st.integers(0, 5)),
    }
    seed, dice = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([Dice, GumbelDice]))
    plain = list(speculative(target, draft, [0, 1], chance=dice(seed), **options))
    traced = list(trace_speculative(target, draft, [0, 1], chance=dice(seed), **options))
    assert written(traced) == exact.tokens_of(plain)
    for ours, theirs in zip(traced, plain, strict=True):
        assert (ours.step.drafted, ours.step.accepted) == (theirs.drafted, theirs.accepted)
        drafted = [
            p.token for p in ours.candidates if p.kind in ("accepted", "rejected", "untested")
        ]
        assert tuple(drafted) == (theirs.drafted if ours.candidates else ())


def test_the_law_is_the_targets_with_a_trace_too():
    target, draft = tables(V=3)

    def decoder(model, prompt, **options):
        return (one.step for one in trace_speculative(model, draft, prompt, **options))

    report = exact.check(decoder, target, max_new_tokens=3)
    assert report.passed, report


# What is said is what took place


def test_drafts_are_tested_as_the_trace_says():
    target, draft = tables()
    options = {"chance": Dice(3), "verify": "token", "max_new_tokens": 300}
    traced = list(trace_speculative(target, draft, [0], **options))
    history, seen = [0], set()
    for one in traced:
        start = len(history)
        drafted = list(one.step.drafted)
        for candidate in one.candidates:
            seen.add(candidate.kind)
            before = history[:start] + drafted[: candidate.position - start]
            p, q = target.row(before), draft.row(before)
            if candidate.p is not None:
                assert candidate.p.final == pytest.approx(p[list(candidate.ids)], abs=1e-12)
            if candidate.q is not None:
                assert candidate.q.final == pytest.approx(q[list(candidate.ids)], abs=1e-12)
            if candidate.kind in ("accepted", "rejected"):
                assert candidate.acceptance == pytest.approx(
                    min(1, p[candidate.token] / q[candidate.token])
                )
                passed = candidate.acceptance > 0 and candidate.uniform < candidate.acceptance
                assert passed == (candidate.kind == "accepted")
                assert candidate.token == inverse_cdf(q, candidate.drawn)
            if candidate.kind == "correction":
                residual = np.maximum(p - q, 0)
                share = residual / residual.sum()
                assert candidate.residual == pytest.approx(share[list(candidate.ids)], abs=1e-12)
                assert candidate.token == inverse_cdf(residual, candidate.drawn)
            if candidate.kind in ("bonus", "plain"):
                assert candidate.token == inverse_cdf(p, candidate.drawn)
        history += one.step.tokens
    assert seen >= {"accepted", "rejected", "untested", "correction", "bonus"}


def own_rule(p, q, drafted, chance, position=0):
    """Accepts nothing: exact, and asks chance things that are no test of a draft."""
    chance.accept(0.5)
    return 0, draw(p[0], chance, position)


@pytest.mark.parametrize("rule", ["token", "block", own_rule])
@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 999), k=st.integers(1, 5), n=st.sampled_from([0, 1, 2]))
def test_under_every_rule_the_numbers_decide_what_the_trace_says_they_decided(rule, seed, k, n):
    target, draft = tables(seed=seed % 7)
    options = {"num_draft_tokens": k, "max_new_tokens": 12, "verify": rule}
    options |= {"warp": Warp(no_repeat_ngram_size=n), "eos": 2 if seed % 2 else None}
    plain = list(speculative(target, draft, [0, 1], chance=Dice(seed), **options))
    traced = list(trace_speculative(target, draft, [0, 1], chance=Dice(seed), **options))
    assert written(traced) == exact.tokens_of(plain)
    for one in traced:
        drafted = [c for c in one.candidates if c.kind in ("accepted", "rejected", "untested")]
        assert sum(c.kind == "accepted" for c in drafted) == one.step.accepted
        for i, c in enumerate(drafted, 1):
            if rule is own_rule:
                assert c.acceptance is c.uniform is c.reach is None
            elif rule == "block" and c.acceptance is not None:
                # The coin that falls is the last of those thrown from the end.
                assert (c.uniform is not None and c.uniform < c.acceptance) == (
                    i == one.step.accepted
                )
                assert 0 <= c.reach <= 1
            elif rule == "token" and c.acceptance is not None:
                kept = c.uniform is not None and c.uniform < c.acceptance
                assert kept == (c.kind == "accepted")


def test_block_verification_is_traced_with_the_probabilities_of_the_paper():
    target, draft = tables()
    options = {"max_new_tokens": 300, "verify": "block"}
    traced = list(trace_speculative(target, draft, [0], chance=Dice(3), **options))
    history, several = [0], 0
    for one in traced:
        reach = [1.0]
        for i, x in enumerate(one.step.drafted):
            before = history + list(one.step.drafted[:i])
            ratio = target.row(before)[x] / draft.row(before)[x]
            reach.append(min(1, reach[-1] * ratio))
        for i, c in enumerate(one.candidates[: len(one.step.drafted)], 1):
            if c.reach is not None:
                assert c.reach == pytest.approx(reach[i])
        several += sum(c.kind == "rejected" for c in one.candidates) > 1
        for c in one.candidates:
            if c.kind == "correction":
                before = history + list(one.step.drafted[: one.step.accepted])
                p, q = target.row(before), draft.row(before)
                left = np.maximum(reach[one.step.accepted] * p - q, 0)
                assert c.divisor == pytest.approx(left.sum())
                assert c.residual == pytest.approx((left / left.sum())[list(c.ids)])
        history += one.step.tokens
    assert several


def test_a_draft_that_the_target_never_writes_needs_no_number():
    target = TableModel(np.array([[0, 1.0], [0, 1.0]]))
    draft = TableModel(np.array([[1.0, 0], [1.0, 0]]))
    options = {"verify": "token", "num_draft_tokens": 2, "max_new_tokens": 3}
    [one, *_] = trace_speculative(target, draft, [0], **options)
    rejected, untested, correction = one.candidates
    assert (rejected.kind, rejected.acceptance, rejected.uniform) == ("rejected", 0.0, None)
    assert (untested.kind, untested.p) == ("untested", None)
    assert (correction.kind, correction.token) == ("correction", 1)


def test_coupled_draws_are_the_largest_of_log_p_and_noise():
    target, draft = tables()
    traced = trace_speculative(target, draft, [0], chance=GumbelDice(3), max_new_tokens=60)
    for candidate in candidates(traced):
        assert candidate.acceptance is None and candidate.drawn is None
        if candidate.kind in ("correction", "bonus", "plain"):
            scores = [
                np.log(p) + g if p else -np.inf for p, g in zip(candidate.p.final, candidate.noise)
            ]
            assert candidate.ids[int(np.argmax(scores))] == candidate.token


@pytest.mark.parametrize("warp", WARPS)
def test_each_cut_is_what_that_filter_took(pair, warp):
    target, _, tokenizer = pair
    traced = trace_sample(target, PROMPT, warp=warp, tokenizer=tokenizer, max_new_tokens=12)
    for candidate in candidates(traced):
        bars = candidate.p
        assert bars.kept + sum(count for _, count, _ in bars.cuts) == target.vocab_size
        assert sum(bars.model) <= 1 + 1e-6 and sum(bars.final) <= 1 + 1e-6
        for final, cut in zip(bars.final, bars.cut):
            assert (final == 0) == (cut is not None)
        assert {name for name, count, _ in bars.cuts if count} <= {
            "temperature" if name == "temperature" and warp.temperature == 0 else name
            for name in vars(warp)
            if getattr(warp, name) != getattr(Warp(), name)
        }


def test_filters_in_their_order_on_a_row_worked_out_by_hand():
    model = TableModel(np.tile([0.4, 0.3, 0.15, 0.1, 0.05], (5, 1)))
    warp = Warp(top_k=4, top_p=0.85, epsilon=0.25)
    [one] = trace_sample(model, [0], warp=warp, max_new_tokens=1)
    bars = one.candidates[0].p
    assert one.candidates[0].ids == (0, 1, 2, 3, 4)
    assert bars.cut == (None, None, "epsilon", "top_p", "top_k")
    assert bars.final == pytest.approx((4 / 7, 3 / 7, 0, 0, 0))
    assert [(name, count) for name, count, _ in bars.cuts] == [
        ("top_k", 1),
        ("top_p", 1),
        ("epsilon", 1),
    ]
    assert [share for _, _, share in bars.cuts] == pytest.approx([0.05, 0.1, 0.15])


@pytest.mark.parametrize("warp", [None, *WARPS])
@pytest.mark.parametrize("dice", [Dice, GumbelDice])
@pytest.mark.parametrize("rule", [None, "token", "block"])
def test_speculative_contrastive_is_traced_as_it_took_place(small_pair, warp, dice, rule):
    if rule and dice is GumbelDice:
        return  # which has a rule of its own
    target, draft, tokenizer = small_pair
    options = {"tokenizer": tokenizer, "max_new_tokens": 12, "warp": warp, "alpha": 0.05}
    options |= {"verify": rule}
    plain = speculative_contrastive(target, draft, PROMPT, chance=dice(3), **options)
    traced = trace_speculative_contrastive(target, draft, PROMPT, chance=dice(3), **options)
    traced = list(traced)
    assert written(traced) == exact.tokens_of(plain)
    for candidate in candidates(traced):
        if candidate.acceptance is not None and rule == "token":
            at = candidate.ids.index(candidate.token)
            ratio = candidate.p.final[at] / candidate.q.final[at]
            assert candidate.acceptance == pytest.approx(min(1, ratio))
            assert (candidate.kind == "accepted") == (
                candidate.uniform is not None and candidate.uniform < candidate.acceptance
            )
        if candidate.residual is not None and rule == "token":
            share = np.maximum(np.subtract(candidate.p.final, candidate.q.final), 0)
            ratio = candidate.residual[candidate.ids.index(candidate.token)]
            assert ratio > 0 and share[candidate.ids.index(candidate.token)] > 0


def test_contrastive_scores_are_those_of_the_contrast(pair):
    target, draft, tokenizer = pair
    contrast = Contrast(alpha=0.2)
    ids = tokenizer.encode(PROMPT)
    traced = list(trace_contrastive(target, draft, ids, alpha=0.2, max_new_tokens=10))
    for candidate in candidates(traced):
        rows = [m.forward(ids, m.new_cache())[-1] for m in (target, draft)]
        scores = contrast(*rows)
        shown = [-np.inf if score is None else score for score in candidate.scores]
        assert shown == pytest.approx(scores[list(candidate.ids)], abs=1e-5)
        assert candidate.token == int(np.argmax(scores))
        plausible = int((scores > -np.inf).sum())
        assert candidate.p.cuts[0][:2] == ("alpha", target.vocab_size - plausible)
        ids.append(candidate.token)


# Beam search


@pytest.mark.parametrize("options", [{}, {"no_repeat_ngram_size": 2}, {"early_stopping": True}])
@pytest.mark.parametrize("with_amateur", [False, True])
def test_the_tree_holds_what_the_search_returns(pair, options, with_amateur):
    target, draft, tokenizer = pair
    amateur = draft if with_amateur else None
    options = dict(num_beams=3, num_return_sequences=3, max_new_tokens=9, **options)
    options |= {"tokenizer": tokenizer, "amateur": amateur, "eos": 14}
    tree = trace_beam(target, PROMPT, **options)
    assert tree.hypotheses == beam_search(target, PROMPT, **options)
    assert [node.candidate.token for node in best_path(tree)] == tree.hypotheses[0].tokens
    ranks = sorted(n.rank for nodes in tree.levels for n in nodes if n.rank is not None)
    assert ranks == list(range(len(tree.hypotheses)))
    for depth, nodes in enumerate(tree.levels):
        for node in nodes:
            above = tree.levels[depth - 1][node.parent].total if depth else 0.0
            score = node.candidate.scores[node.candidate.ids.index(node.candidate.token)]
            assert above + score == pytest.approx(node.total)
            if not with_amateur and not options.get("repetition_penalty"):
                model = node.candidate.p.model[node.candidate.ids.index(node.candidate.token)]
                assert np.exp(score) == pytest.approx(model, rel=1e-4)


def best_path(tree):
    return [node for nodes in tree.levels for node in nodes if node.best]


def test_a_blocked_hypothesis_ends_as_it_was():
    model = TableModel(np.full((2, 2), 0.5))
    tree = trace_beam(model, [0], num_beams=2, max_new_tokens=9, no_repeat_ngram_size=1)
    assert tree.hypotheses[0].finish_reason == "blocked"
    last = [node for node in tree.levels[-1] if node.candidate is None]
    assert [node.fate for node in last] == ["finished"] * len(last) and last
    text = tree_lines(tree, Spelling(Tokenizer(toy_tokenizer())))
    assert any("blocked" in line for line in text)


# Spelling and lines


def test_a_character_comes_with_the_token_that_completes_it():
    tokenizer = Tokenizer(toy_tokenizer())
    spelling = Spelling(tokenizer)
    ids = tokenizer.encode("a\u201c\u00e9")
    assert [spelling.feed(i) for i in ids] == ["a", "", "", "\u201c", "", "\u00e9"]
    assert [spelling.label(i) for i in ids[:3]] == ["a", "\\xe2", "\\x80"]


def test_a_look_at_a_token_does_not_move_the_text():
    tokenizer = Tokenizer(toy_tokenizer())
    spelling = Spelling(tokenizer)
    first, last = tokenizer.encode("\u00e9")
    spelling.feed(first)
    assert spelling.peek(last) == "\u00e9"
    assert spelling.peek(first) == "\ufffd"
    assert spelling.feed(last) == "\u00e9"


@pytest.mark.parametrize(
    ("character", "label"),
    [
        ("\n", "\\n"),
        ("\x1b", "\\x1b"),
        ("\\", "\\\\"),
        ("\u202e", "\\u202e"),
        ("\u0301", "\u25cc\u0301"),
        ("<", "<"),
    ],
)
def test_what_cannot_be_seen_is_escaped(character, label):
    class OneToken:
        def token_bytes(self, token):
            return character.encode()

    assert Spelling(OneToken()).label(0) == label


def test_tokens_without_text_have_names():
    tokenizer = Tokenizer(toy_tokenizer())
    end = tokenizer.vocab_size - 1
    assert Spelling(tokenizer, [end]).label(end) == "<end>"
    assert Spelling(tokenizer).label(end) == f"<id {end}>"


def test_a_round_is_a_line_in_marks_or_colours(pair):
    target, draft, tokenizer = pair
    options = {"tokenizer": tokenizer, "chance": Dice(4), "max_new_tokens": 30}
    traced = list(trace_speculative(target, draft, PROMPT, **options))
    plain, coloured = Spelling(tokenizer), Spelling(tokenizer)
    for number, one in enumerate(traced, 1):
        [line] = step_lines(number, one, plain)
        [colours] = step_lines(number, one, coloured, colour=True)
        assert line.startswith(f"{number:4}  {one.step.accepted:3}/{len(one.step.drafted)}")
        unmarked = re.sub(r"\[-|-\]|\{\+|\+\}|\{\*|\*\}", "", line)
        assert re.sub(r"\033\[[\d;]*m", "", colours) == unmarked
        text = re.sub(r"\[-.*?-\]", "", line)
        text = re.sub(r"\{[+*](.*?)[+*]\}", r"\1", text).split(f"/{len(one.step.drafted)}  ", 1)[1]
        assert text.replace("\\n", "\n") == tokenizer.decode(one.step.tokens)


def test_marks_and_colours():
    assert paint("x", "rejected", False) == "[-x-]"
    assert paint("x", "correction", False) == "{+x+}"
    assert paint("x", "bonus", False) == "{*x*}"
    assert paint("x", "accepted", False) == "x"
    assert paint("x", "accepted", True) == "\033[32mx\033[0m"
    assert paint("x", "rejected", True) == "\033[31;9mx\033[0m"


@pytest.mark.parametrize("rule", ["token", "block"])
def test_explanations_give_every_number_by_which_chance_decided(pair, rule):
    target, draft, tokenizer = pair
    options = {"tokenizer": tokenizer, "chance": Dice(4), "max_new_tokens": 30, "verify": rule}
    for one in trace_speculative(target, draft, PROMPT, **options):
        _, *lines = step_lines(1, one, Spelling(tokenizer), explain=True)
        for c, line in zip(one.candidates, lines, strict=True):
            assert line.split()[0] == c.kind
            assert c.acceptance is None or f"{c.acceptance:.4f}" in line
            if c.acceptance is not None and 0 < c.acceptance < 1:
                assert f"{c.uniform:.4f}" in line
            elif c.uniform is not None:
                assert f" {c.uniform:.4f}" not in line.removesuffix(f"{c.acceptance:.4f}")
            if c.kind in ("correction", "bonus", "plain"):
                possible = sum(x > 0 for x in c.residual or c.p.final)
                assert (f" {c.drawn:.4f}" in line) == (possible > 1)


EXPLAINED = [
    (),
    ("--top-p", "0.9", "--top-k", "40", "--min-p", "0.01"),
    ("--greedy",),
    ("--coupled",),
    ("--draft", "storyteller-1m"),
    ("--draft", "storyteller-1m", "--verify", "block"),
    ("--draft", "storyteller-1m", "--coupled"),
    ("--amateur", "storyteller-1m"),
    ("--num-beams", "3"),
]


@pytest.mark.parametrize("columns", [50, 80])
@pytest.mark.parametrize("arguments", EXPLAINED)
def test_explanations_fit_the_terminal_and_their_columns_line_up(
    capsys, monkeypatch, arguments, columns
):
    monkeypatch.setenv("COLUMNS", str(columns))
    seed = () if {"--greedy", "--num-beams"} & set(arguments) else ("--seed", "4")
    code, out, err = run(capsys, "--explain", *arguments, *seed)
    assert code == 0, err
    lines = out.splitlines()
    if "--num-beams" in arguments:  # a tree has no columns; its forks push to the right
        assert columns < 80 or all(len(line) <= columns for line in lines)
        return
    assert all(len(line) <= columns for line in lines)
    head = next(line for line in lines if " token " in line and "  p" in line)
    ends = [match.end() for match in re.finditer(r"\S+", head)]
    for line in lines[lines.index(head) + 1 :]:
        numbers = re.search(r'" +([\d.,+ -]+)$|… +([\d.,+ -]+)$', line)
        if numbers and not line.startswith("      "):
            found = [m.end() for m in re.finditer(r"\S+", line[: len(line)])]
            assert found[-1] in ends


def test_what_a_setting_cut_is_said_in_words(capsys):
    code, out, _ = run(capsys, "--explain", "--top-k", "40", "--top-p", "0.9", "--seed", "4")
    assert code == 0
    assert "top-k cut 4,056 (" in out and "top-p cut 3" in out and "top_p" not in out
    greedy = run(capsys, "--explain", "--greedy")[1]
    head, *rows = [x for x in greedy.splitlines() if re.match(r"   #|\s+\d+  \"", x)]
    assert head.split()[-2:] == ["kept", "u"] and rows
    assert all(row.split()[-1] == "1" for row in rows)  # one token kept, and no number drawn


def test_the_legend_is_one_table(capsys):
    with pytest.raises(SystemExit):
        main(["trace", "--help"])
    shown = capsys.readouterr().out
    for row in KINDS.values():
        assert row.name in shown
        assert not row.before or f"{row.before}like this{row.after}" in shown


# The command


def run(capsys, *arguments):
    code = main(["trace", PROMPT, "--max-new-tokens", "12", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


DRAFT = ("--draft", "storyteller-1m", "--seed", "4")


def test_lines_on_stdout_and_the_rest_on_stderr(capsys):
    code, out, err = run(capsys, *DRAFT)
    assert code == 0 and re.match(r"   1    \d/4  ", out)
    assert "\033" not in out and "drafts accepted" in err


@pytest.mark.parametrize(
    ("environment", "arguments", "coloured"),
    [
        ({}, (), False),
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({"FORCE_COLOR": "1"}, ("--color", "never"), False),
    ],
)
def test_when_there_are_colours(capsys, monkeypatch, environment, arguments, coloured):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _, out, _ = run(capsys, *DRAFT, *arguments)
    assert ("\033[" in out) == coloured


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--alpha", "0.1"], "--alpha has no effect without --amateur"),
        (["--length-penalty", "2"], "--length-penalty has no effect without --num-beams"),
        (["--num-beams", "2", "--top-p", "0.9"], "--top-p has no effect with --num-beams"),
        (["--num-beams", "2", "--coupled"], "--coupled has no effect with --num-beams"),
        (["--schedule", "auto"], "--schedule has no effect without --draft"),
        (["--num-beams", "2", "--draft", "x"], "--draft has no effect with --num-beams"),
        (["--greedy", "--coupled"], "--coupled has no effect with --greedy"),
        (["--html", "no/such/place.html"], "a file in a directory that exists was wanted"),
    ],
)
def test_options_that_would_be_ignored_are_refused(capsys, arguments, wanted):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == ""
    assert wanted in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--greedy"],
        ["--top-k", "5", "--explain"],
        ["--num-beams", "2", "--num-return-sequences", "2", "--early-stopping", "never"],
        ["--num-beams", "2", "--amateur", "storyteller-1m", "--explain"],
        ["--amateur", "storyteller-1m", "--alpha", "0.2", "--explain"],
        ["--amateur", "storyteller-1m", "--temperature", "0.9", "--seed", "0"],
        ["--amateur", "storyteller-1m", "--draft", "storyteller-1m", "--explain"],
        ["--draft", "prompt-lookup", "--explain"],
        ["--draft", "storyteller-1m", "--greedy", "--explain"],
        ["--draft", "storyteller-1m", "--coupled", "--schedule", "auto", "--explain"],
    ],
)
def test_every_decoder_writes_lines_and_a_page(capsys, tmp_path, arguments):
    file = tmp_path / "page.html"
    code, out, err = run(capsys, *arguments, "--html", str(file))
    assert code == 0, err
    assert out.strip() and "ended: length" in err
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
