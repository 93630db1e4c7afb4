"""Diverse beam search against the published algorithm written plainly, its laws and refusals."""

import itertools
import math

import numpy as np
import pytest
from builders import random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import (
    Context,
    InputError,
    TableModel,
    Warp,
    beam_search,
    diverse_beam_search,
    generate,
)
from minidecode.cli import main
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2


def table(seed, V=4, **options):
    """Rows that depend on the last two tokens."""
    rows = np.random.default_rng(seed).dirichlet(np.ones(V), size=(V + 1, V))
    return TableModel(lambda h: rows[h[-2] if len(h) > 1 else V, h[-1]], **options)


def by_the_paper(model, prompt, groups, size, penalty, length):
    """(tokens, total) of every beam of every group after `length` steps; nothing ends before."""
    beams = [[((), 0.0)] for _ in range(groups)]
    for _ in range(length):
        chosen = []  # of the groups before, in this step
        for g in range(groups):
            candidates = []
            for text, total in beams[g]:
                for token, p in enumerate(model.row([*prompt, *text])):
                    cost = penalty * chosen.count(token)
                    candidates.append(((*text, token), total + math.log(p) - cost))
            beams[g] = sorted(candidates, key=lambda c: -c[1])[:size]
            chosen += [text[-1] for text, _ in beams[g]]
    return [beam for group in beams for beam in group]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.floats(0.01, 3),
    st.integers(1, 4),
)
def test_the_beams_are_those_of_the_published_algorithm(seed, groups, size, penalty, length):
    model = table(seed)
    wanted = by_the_paper(model, [0], groups, size, penalty if groups > 1 else 0, length)
    found = diverse_beam_search(
        model,
        [0],
        num_beams=groups * size,
        num_beam_groups=groups,
        diversity_penalty=penalty if groups > 1 else None,
        num_return_sequences=groups * size,
        max_new_tokens=length,
        length_penalty=0,
    )
    wanted = sorted(wanted, key=lambda beam: -beam[1])
    assert [h.score for h in found] == pytest.approx([total for _, total in wanted])
    assert sorted(tuple(h.tokens) for h in found) == sorted(text for text, _ in wanted)
    for h in found:
        assert sum(h.logprobs) == pytest.approx(h.score)


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("seed", range(4))
def test_the_first_group_is_a_beam_search_of_its_size_and_one_group_is_beam_search(
    seed, early_stopping
):
    model = table(seed, eos=(2, 3))
    options = {"max_new_tokens": 6, "early_stopping": early_stopping, "min_new_tokens": 2}
    options["warp"] = Warp(no_repeat_ngram_size=2, repetition_penalty=1.3)
    alone = beam_search(model, [0, 1], num_beams=3, num_return_sequences=3, **options)
    one = diverse_beam_search(
        model, [0, 1], num_beams=3, num_beam_groups=1, num_return_sequences=3, **options
    )
    assert one == alone
    several = diverse_beam_search(
        model, [0, 1], num_beams=9, num_beam_groups=3, num_return_sequences=9, **options
    )
    assert all(hypothesis in several for hypothesis in alone)
    assert [h.score for h in several] == sorted((h.score for h in several), reverse=True)


def test_where_diversity_outweighs_all_else_no_two_groups_agree_on_a_token():
    found = diverse_beam_search(
        table(3, V=5),
        [0],
        num_beams=5,
        num_beam_groups=5,
        diversity_penalty=1e3,
        num_return_sequences=5,
        max_new_tokens=4,
    )
    for a, b in itertools.combinations([h.tokens for h in found], 2):
        assert all(x != y for x, y in zip(a, b, strict=True))


def test_a_group_that_is_over_holds_nobody_off():
    """The first group ends with 2 at once; the second pays for 2 in that step alone."""
    model = TableModel([[0.3, 0.1, 0.6]] * 3, eos=2)
    found = diverse_beam_search(
        model,
        [0],
        num_beams=2,
        num_beam_groups=2,
        diversity_penalty=5.0,
        num_return_sequences=2,
        max_new_tokens=3,
    )
    assert [h.tokens for h in found] == [[2], [2]]  # an end is no token of a beam that runs on
    suppressed = Warp(suppress=[2])
    found = diverse_beam_search(
        model,
        [0],
        num_beams=2,
        num_beam_groups=2,
        diversity_penalty=5.0,
        num_return_sequences=2,
        max_new_tokens=3,
        warp=suppressed,
    )
    assert [h.tokens for h in found] == [[0, 0, 0], [1, 1, 1]]


def test_the_prompt_is_read_once_and_the_caches_follow():
    config, tensors = random_gpt2(1, 21, 2, 2, 16, 64)
    model, rows = GPT2(Config.from_dict(config), tensors), []

    class Counting:
        vocab_size, n_positions, eos, bos = 21, 64, (), None
        new_cache = model.new_cache

        def forward(self, tokens, cache, n_logits=1):
            return self.forward_many([(tokens, cache)], n_logits)[0]

        def forward_many(self, batch, n_logits=1):
            rows.append(sum(len(tokens) for tokens, _ in batch))
            return model.forward_many(batch, n_logits)

    options = {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 4}
    found = diverse_beam_search(Counting(), [3] * 30, max_new_tokens=5, **options)
    assert rows == [29, 2, 4, 4, 4, 4]
    for h in found[:1]:
        text = [3] * 30
        for token, logprob in zip(h.tokens, h.logprobs):
            logits = model.forward(text, model.new_cache())[0].astype(np.float64)
            cost = (logits[token] - np.log(np.exp(logits).sum()) - logprob) / 0.5
            assert cost == pytest.approx(round(cost), abs=1e-4) and -0.1 < cost < 2.1
            text.append(token)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"num_beam_groups": 2}, "num_beam_groups: has no effect without num_beams"),
        ({"num_beams": 4, "diversity_penalty": 1.0}, "diversity_penalty: has no effect without"),
        ({"num_beams": 4, "num_beam_groups": 3}, "num_beam_groups: got 3, a divisor of num_beams"),
        ({"num_beams": 4, "num_beam_groups": 8}, "num_beam_groups: got 8"),
        ({"num_beams": 4, "num_beam_groups": 0}, "num_beam_groups: got 0"),
        ({"num_beams": 4, "num_beam_groups": 2.0}, "num_beam_groups: got 2.0"),
        (
            {"num_beams": 4, "num_beam_groups": 1, "diversity_penalty": 1.0},
            "diversity_penalty: has no effect with a single group",
        ),
        (
            {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0},
            "diversity_penalty: got 0, a number above 0",
        ),
        (
            {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": math.inf},
            "diversity_penalty: got inf",
        ),
        ({"num_beams": 4, "num_beam_groups": 2, "amateur": table(0)}, "amateur: has no effect"),
        ({"num_beams": 4, "num_beam_groups": 2, "trace": []}, "trace: has no effect with diverse"),
        ({"num_beams": 4, "num_beam_groups": 2, "top_k": 3}, "top_k: has no effect with beam"),
    ],
)
def test_what_cannot_be_is_refused(options, named):
    with pytest.raises(InputError, match=f"^{named}"):
        generate(table(0), [0], max_new_tokens=2, **options)


def test_generate_returns_the_best_and_all_that_were_asked_for():
    options = {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 3}
    found = generate(table(1), [0], max_new_tokens=4, diversity_penalty=0.7, **options)
    direct = diverse_beam_search(table(1), [0], max_new_tokens=4, diversity_penalty=0.7, **options)
    assert list(found.hypotheses) == direct and found.tokens == direct[0].tokens


def test_a_context_changes_nothing_and_log_probabilities_are_told():
    model = table(1)
    options = {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 4}
    context, options = Context(model), options | {"max_new_tokens": 3}
    for prompt in ([0, 1, 2], [0, 1, 3, 2], [0], [0]):
        found = generate(model, prompt, context=context, logprobs=1, **options)
        plain = diverse_beam_search(model, prompt, **options)
        assert [(h.tokens, h.score) for h in found.hypotheses] == [
            (h.tokens, h.score) for h in plain
        ]
        for h in found.hypotheses:
            assert [each.token for each in h.token_logprobs] == h.tokens
            for i, each in enumerate(h.token_logprobs):
                p = model.row([*prompt, *h.tokens[:i]])[each.token]
                assert each.logprob == pytest.approx(math.log(p))


def test_on_the_command_line(capsys):
    arguments = ["generate", "The king", "--max-new-tokens", "4", "--num-beams", "4"]
    assert main([*arguments, "--num-beam-groups", "4", "--num-return-sequences", "4"]) == 0
    texts = capsys.readouterr().out.split("--------------------")
    assert len({text.strip() for text in texts}) == 4
    assert main([*arguments, "--diversity-penalty", "1"]) == 2
    assert "--diversity-penalty has no effect without --num-beam-groups" in capsys.readouterr().err
    assert main(["trace", *arguments[1:], "--num-beam-groups", "2"]) == 0
    lines = capsys.readouterr().out
    assert "#1" in lines and "group 1" in lines
