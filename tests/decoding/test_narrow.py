"""An amateur of a smaller vocabulary: it goes by what it knows, and no text ends for it."""

import numpy as np
import pytest
from builders import random_gpt2

from minidecode import (
    Context,
    Dice,
    GumbelDice,
    TableModel,
    Warp,
    contrastive,
    exact,
    generate,
    generate_many,
    speculative_contrastive,
)
from minidecode.decoding.narrow import NarrowReader
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

EXPERT = TableModel([[0.5, 0.2, 0.3], [0.3, 0.3, 0.4], [0.4, 0.4, 0.2]])
AMATEUR = TableModel([[0.7, 0.3], [0.4, 0.6]])
CONFIG, TENSORS = random_gpt2(5, 20, 2, 2, 16, 64)
MODEL = GPT2(Config.from_dict(CONFIG), TENSORS)


def by_hand(tokens):
    """The logits after each token, each computed by itself."""
    rows = []
    for end in range(1, len(tokens) + 1):
        text = tokens[:end]
        known = [i for i, t in enumerate(text) if t >= 20]
        behind = text[known[-1] + 1 :] if known else text
        rows.append(MODEL.forward(behind, MODEL.new_cache())[-1] if behind else np.zeros(20))
    return np.array(rows)


@pytest.mark.parametrize("seed", range(12))
def test_it_reads_what_it_knows_however_the_text_is_split_and_rolled_back(seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 24, 24).tolist()
    wanted, reader = by_hand(tokens), NarrowReader(MODEL)
    cache, done = reader.new_cache(), 0
    while done < len(tokens):
        n = int(rng.integers(1, 6))
        part = tokens[done : done + n]
        count = int(rng.integers(0, len(part) + 1))
        logits = reader.forward(part, cache, n_logits=count)
        done += len(part)
        np.testing.assert_allclose(logits, wanted[done - count : done], atol=1e-5)
        if rng.random() < 0.4:
            done = int(rng.integers(0, done + 1))
            cache.truncate(done)
        if rng.random() < 0.3:
            cache = cache.fork()
        assert cache.length == done


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("verify", ["token", "block"])
def test_speculation_has_the_law_of_contrastive_decoding(k, verify):
    options = {"alpha": 0.05, "warp": Warp(), "max_new_tokens": 3, "eos": None}

    def plain(chance):
        return exact.tokens_of(contrastive(EXPERT, AMATEUR, [0, 2], chance=chance, **options))

    def speculative(chance):
        how = {"num_draft_tokens": k, "verify": verify, "chance": chance}
        return exact.tokens_of(speculative_contrastive(EXPERT, AMATEUR, [0, 2], **how, **options))

    report = exact.compare(speculative, plain)
    assert report.passed and report.complete, report
    assert any(2 in text for text in exact.law(plain))


@pytest.mark.parametrize("chance", [Dice, GumbelDice])
def test_every_way_to_it_writes_to_the_end(chance):
    options = {"amateur": AMATEUR, "tokenizer": None, "max_new_tokens": 20, "eos": None}
    options |= {"temperature": 1.0, "alpha": 0.05}
    one = generate(EXPERT, [0], chance=chance(1), **options)
    assert len(one.tokens) == 20 and 2 in one.tokens
    many = generate_many(EXPERT, [[0], [2]], chances=[chance(1), chance(2)], **options)
    assert many[0].tokens == one.tokens and len(many[1].tokens) == 20
    drafted = generate(EXPERT, [0], chance=chance(1), draft=AMATEUR, **options)
    assert len(drafted.tokens) == 20
    if chance is GumbelDice:
        assert drafted.tokens == one.tokens
    context = Context(EXPERT)
    for _ in range(2):
        again = generate(EXPERT, [0], chance=chance(1), context=context, **options)
        assert again.tokens == one.tokens


def test_beams_against_such_an_amateur_end_too():
    options = {"amateur": AMATEUR, "tokenizer": None, "max_new_tokens": 6, "eos": None}
    assert len(generate(EXPERT, [0], num_beams=3, alpha=0.05, **options).tokens) == 6
