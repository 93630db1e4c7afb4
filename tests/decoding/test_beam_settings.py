"""Penalties, bans and min_new_tokens in the decoders that draw nothing: greedy and beam search."""

import itertools

import numpy as np
import pytest

from minidecode import InputError, TableModel, Warp, beam_search, exact, greedy
from minidecode.decoding.settings import BAN, PENALTY
from minidecode.decoding.warp import SETTINGS, log_softmax

ROWS = np.random.default_rng(7).dirichlet([1.0] * 4, 4)
MODEL = TableModel(ROWS, eos=3)
PROMPT, LENGTH = [0, 1], 4


def halved(logits, history):
    return logits / (1 + len(history) % 2)


WARPS = {
    "bias": Warp(logit_bias={0: 1.5, 2: -np.inf}),
    "presence": Warp(presence_penalty=1.0),
    "frequency": Warp(frequency_penalty=0.7),
    "bad words": Warp(bad_words=[[1, 0], [0, 2, 1]]),
    "suppress": Warp(suppress=[0]),
    "processor": Warp(processors=[halved]),
    "several": Warp(repetition_penalty=1.4, presence_penalty=-0.5, bad_words=[[2]]),
}


def total(tokens, warp, least):
    """The sum of log-probabilities after the penalties; None for a text that may not be."""
    penalties, bans = warp.only(PENALTY), warp.only(BAN)
    found = 0.0
    for i, token in enumerate(tokens):
        history = [*PROMPT, *tokens[:i]]
        scores = log_softmax(penalties.penalise(np.log(ROWS[history[-1]]), history))
        found += bans.penalise(scores, history)[token]
        if token == 3 and i < least:
            return -np.inf
    return found


@pytest.mark.parametrize("least", [0, 2])
@pytest.mark.parametrize("name", WARPS)
def test_a_beam_wide_enough_for_all_finds_the_best_text(name, least):
    texts = [
        text[: text.index(3) + 1] if 3 in text else text
        for text in itertools.product(range(4), repeat=LENGTH)
    ]
    scores = {t: total(t, WARPS[name], least) / len(t) for t in texts}
    options = {"warp": WARPS[name], "min_new_tokens": least, "max_new_tokens": LENGTH}
    [best] = beam_search(MODEL, PROMPT, num_beams=256, early_stopping="never", **options)
    assert best.score == pytest.approx(max(scores.values()), rel=1e-12)
    assert scores[tuple(best.tokens)] == pytest.approx(best.score, rel=1e-12)


@pytest.mark.parametrize("name", WARPS)
def test_one_beam_is_greedy_decoding(name):
    options = {"warp": WARPS[name], "min_new_tokens": 2, "max_new_tokens": LENGTH}
    [best] = beam_search(MODEL, PROMPT, num_beams=1, **options)
    assert exact.tokens_of(greedy(MODEL, PROMPT, **options)) == tuple(best.tokens)


def test_everything_banned_is_blocked():
    [best] = beam_search(MODEL, PROMPT, num_beams=2, warp=Warp(suppress=range(4)))
    assert (best.tokens, best.finish_reason) == ([], "blocked")


def test_greedy_decoding_may_be_said_twice():
    warp = Warp(temperature=0, suppress=[0])
    once = exact.tokens_of(greedy(MODEL, PROMPT, warp=Warp(suppress=[0]), max_new_tokens=5))
    assert exact.tokens_of(greedy(MODEL, PROMPT, warp=warp, max_new_tokens=5)) == once


@pytest.mark.parametrize("name", [name for name, row in SETTINGS.items() if row.shapes])
def test_what_only_shapes_a_draw_is_refused(name):
    warp = Warp(**{name: SETTINGS[name].example})
    for decode in (greedy, lambda *rest, **options: beam_search(*rest, num_beams=2, **options)):
        with pytest.raises(InputError, match=f"^{name}: has no effect with "):
            decode(MODEL, PROMPT, warp=warp)
        with pytest.raises(InputError, match=r"^repetition_penalty: got it beside a warp"):
            decode(MODEL, PROMPT, warp=Warp(), repetition_penalty=2.0)
