"""A trace of contrastive search: what it took, and what spoke for it."""

import numpy as np
import pytest
from builders import random_gpt2

from minidecode import traced
from minidecode.decoding.contrastive_search import contrastive_search
from minidecode.decoding.warp import Warp
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.trace.contrastive_search import trace_contrastive_search

CONFIG, TENSORS = random_gpt2(3, 40, 2, 2, 16, 64)
MODEL = GPT2(Config.from_dict(CONFIG), TENSORS)
PROMPT = [5, 6, 7]


@pytest.mark.parametrize("warp", [None, Warp(repetition_penalty=1.5), Warp(suppress=(3, 9))])
@pytest.mark.parametrize(("alpha", "top_k"), [(0.6, 4), (0.3, 1), (0.0, 5)])
def test_the_trace_is_of_the_search_as_it_took_place(warp, alpha, top_k):
    options = {"penalty_alpha": alpha, "top_k": top_k, "warp": warp, "max_new_tokens": 12}
    options["eos"] = None
    plain = [t for step in contrastive_search(MODEL, PROMPT, **options) for t in step.tokens]
    steps = list(trace_contrastive_search(MODEL, PROMPT, **options))
    assert [c.token for one in steps for c in one.candidates] == plain
    for place, one in enumerate(steps):
        (c,) = one.candidates
        history = [*PROMPT, *plain[:place]]
        assert c.position == len(history)
        states = _states([*history])
        looked = [i for i, score in zip(c.ids, c.scores) if score is not None]
        assert len(looked) == top_k and c.token in looked
        for i, p, alike, score in zip(c.ids, c.p.final, c.likeness, c.scores):
            if score is None:
                assert p == 0 and alike is None
                continue
            own = _states([*history, i])[-1]
            assert alike == pytest.approx(max(states @ own), abs=1e-5)
            assert score == pytest.approx((1 - alpha) * p - alpha * alike, abs=1e-6)
        assert max(s for s in c.scores if s is not None) == c.scores[c.ids.index(c.token)]


def _states(ids):
    _, states = MODEL.forward(ids, MODEL.new_cache(), hidden=True)
    states = states.astype(np.float64)
    return states / np.linalg.norm(states, axis=1, keepdims=True)


def test_the_lines_and_the_page_tell_likeness_and_score(storytellers):
    model, _ = storytellers
    options = {"tokenizer": model.tokenizer, "penalty_alpha": 0.6, "top_k": 4, "max_new_tokens": 9}
    text = traced(model, "Once upon a time", **options)
    lines = text.lines(explain=True, width=100)
    assert any(line.split() == ["#", "token", "p", "alike", "score"] for line in lines)
    assert all("alike" in line for line in text.lines())
    assert '"likeness":' in text.page() and "Contrastive search" in text.page()
    assert len(text.tokens) == 9
