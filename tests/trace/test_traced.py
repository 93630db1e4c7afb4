"""One call for a whole trace: the text is that of `generate`, a notebook gets the page."""

import html
import json
import re
import subprocess
import sys

import pytest

import minidecode
from minidecode import Dice, GumbelDice, InputError, Warp, generate, load, traced
from minidecode.decoding.warp import SETTINGS
from minidecode.generation import (
    BEAMS,
    CONTRASTIVE,
    CONTRASTIVE_BEAMS,
    CONTRASTIVE_SEARCH,
    DIVERSE_BEAMS,
    GREEDY,
    SAMPLING,
    SPECULATIVE,
    SPECULATIVE_CONTRASTIVE,
)
from minidecode.trace.page import page
from minidecode.trace.tracing import ABOUT

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def pair():
    (target, tokenizer), (draft, _) = load("storyteller-6m"), load("storyteller-1m")
    return target, draft, tokenizer


def kinds(draft):
    """{the decoder's description: options of `generate`}, with a chance made afresh."""
    return {
        SAMPLING: {"chance": Dice(4), "top_p": 0.9, "typical_p": 0.9, "mirostat": 3.0},
        GREEDY: {"temperature": 0, "repetition_penalty": 1.2},
        SPECULATIVE: {"draft": draft, "chance": Dice(4), "verify": "block", "min_p": 0.05},
        CONTRASTIVE: {"amateur": draft, "alpha": 0.2},
        DIVERSE_BEAMS: {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 2.0},
        CONTRASTIVE_SEARCH: {"penalty_alpha": 0.5, "top_k": 4},
        SPECULATIVE_CONTRASTIVE: {"amateur": draft, "draft": draft, "chance": GumbelDice(4)},
        BEAMS: {"num_beams": 2, "bad_words": ["girl"]},
        CONTRASTIVE_BEAMS: {"num_beams": 2, "amateur": draft},
    }


def test_there_are_two_sentences_on_every_decoder(pair):
    assert set(ABOUT) == set(kinds(pair[1]))
    for about in ABOUT.values():
        assert len(re.findall(r"\.(?: |$)", about)) == 2


@pytest.mark.parametrize(
    "decoder", list(ABOUT), ids=lambda one: "-".join((one.title, *filter(None, one.roles)))
)
def test_the_text_is_that_of_generate_and_all_is_shown(pair, decoder):
    target, draft, tokenizer = pair
    limits = {"tokenizer": tokenizer, "max_new_tokens": 12}
    one = traced(target, PROMPT, **kinds(draft)[decoder], **limits)
    plain = generate(target, PROMPT, **kinds(draft)[decoder], **limits)
    assert (one.tokens, one.text) == (plain.tokens, plain.text)
    assert one.recording.title == decoder.title and one.recording.about == ABOUT[decoder]
    shown = one._repr_html_()
    assert shown.startswith("<iframe") and html.escape(one.page()) in shown
    assert one.page() == page(one.recording, tokenizer, target.eos)
    assert "ended: length" in str(one) and decoder.title in repr(one)
    assert len(one.lines(explain=True)) >= len(one.lines())


def test_print_is_the_form_of_the_terminal(pair, capsys):
    target, draft, tokenizer = pair
    one = traced(
        target, PROMPT, tokenizer=tokenizer, draft=draft, chance=Dice(4), max_new_tokens=12
    )
    print(one)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert re.match(r"   1    \d/4  ", first) and "drafts accepted" in last


def test_a_prompt_may_be_ids_and_nothing_may_be_said_twice(pair):
    target, _, tokenizer = pair
    ids = tokenizer.encode(PROMPT)
    options = {"tokenizer": tokenizer, "chance": Dice(1), "max_new_tokens": 3}
    assert traced(target, ids, **options).recording.prompt == PROMPT
    with pytest.raises(InputError, match="has no effect without draft"):
        traced(target, PROMPT, tokenizer=tokenizer, num_draft_tokens=3)
    with pytest.raises(TypeError, match=r"top_q'; top_[kp] was perhaps meant"):
        traced(target, PROMPT, tokenizer=tokenizer, top_q=3)


def test_any_setting_of_the_table_is_shown_by_its_label_with_no_other_list(pair):
    target, _, tokenizer = pair
    for name, row in SETTINGS.items():
        warp = Warp(**{name: row.example})
        one = traced(target, PROMPT, tokenizer=tokenizer, warp=warp, max_new_tokens=2)
        assert name in one.recording.settings
        source = one.page()
        found = json.loads(re.search(r'type="application/json">(.*?)</script>', source)[1])
        assert found["words"][name] == row.label and name in found["settings"]
        shown = "\n".join(one.lines(explain=True))
        assert name == row.label or f"{name} cut" not in shown


def test_asking_for_the_trace_is_what_imports_it():
    code = "import sys, minidecode; minidecode.generate; print('minidecode.trace' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False" and minidecode.traced is traced
