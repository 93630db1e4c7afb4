"""Contrastive search against the published algorithm written plainly, its limits and refusals."""

import numpy as np
import pytest
from builders import bigram, oracle_logits, random_gpt2, toy_tokenizer, write

from minidecode import (
    Context,
    Dice,
    InputError,
    LogitsError,
    TableModel,
    Warp,
    contrastive_search,
    generate,
    greedy,
)
from minidecode.cli import main
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

FIXTURES = [random_gpt2(seed, 23, 2, 2, 16, 48) for seed in range(4)]


def gpt2(fixture):
    config, tensors = fixture
    return GPT2(Config.from_dict(config), tensors)


def text_of(steps):
    return [token for step in steps for token in step.tokens]


def oracle_states(config, tensors, tokens):
    """The last hidden states [n, d]: what a head that is the identity would return."""
    head = {"lm_head.weight": np.eye(config["n_embd"])}
    return oracle_logits(config | {"tie_word_embeddings": False}, tensors | head, tokens)


def by_the_paper(fixture, prompt, alpha, k, length):
    """The text, and the smallest distance between the two best scores of any step."""
    tokens, gaps = list(prompt), []
    for _ in range(length):
        logits = oracle_logits(*fixture, tokens)[-1]
        p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        context, scores = oracle_states(*fixture, tokens), {}
        for v in sorted(range(len(p)), key=lambda v: -p[v])[:k]:
            h = oracle_states(*fixture, [*tokens, v])[-1]
            cosines = [h @ c / np.linalg.norm(h) / np.linalg.norm(c) for c in context]
            scores[v] = (1 - alpha) * p[v] - alpha * max(cosines)
        best, *others = sorted(scores.values(), reverse=True)
        gaps.append(best - max(others, default=-np.inf))
        tokens.append(max(scores, key=scores.get))
    return tokens[len(prompt) :], min(gaps)


@pytest.mark.parametrize("alpha, k", [(0.6, 4), (0.3, 6), (1.0, 3), (0.5, 12)])
@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_text_is_that_of_the_published_algorithm(fixture, alpha, k):
    wanted, gap = by_the_paper(fixture, [3, 1, 4], alpha, k, 8)
    assert gap > 1e-5  # nothing that rounding could decide
    steps = contrastive_search(
        gpt2(fixture), [3, 1, 4], penalty_alpha=alpha, top_k=k, max_new_tokens=8, eos=None
    )
    assert text_of(steps) == wanted


@pytest.mark.parametrize("options", [{"penalty_alpha": 0}, {"top_k": 1}])
def test_without_penalty_or_with_one_candidate_it_is_greedy_decoding(options):
    model = gpt2(FIXTURES[0])
    limits = {"max_new_tokens": 15, "eos": 7}
    steps = contrastive_search(model, [2], **options, **limits)
    assert text_of(steps) == text_of(greedy(model, [2], **limits))


def test_equal_scores_fall_to_the_likelier_then_to_the_lower_id():
    config, tensors = bigram(np.full((5, 5), 0.2))
    tensors["h.0.mlp.c_proj.weight"][:] = 0
    tensors["wte.weight"][:] = 0  # all states are one
    model = gpt2((config, tensors))
    assert text_of(contrastive_search(model, [1], max_new_tokens=3, eos=None)) == [0, 0, 0]


def test_penalties_and_bans_come_before_the_candidates():
    model, options = gpt2(FIXTURES[1]), {"max_new_tokens": 10, "eos": None}
    plain = text_of(contrastive_search(model, [2], **options))
    banned = text_of(contrastive_search(model, [2], warp=Warp(suppress=plain[:2]), **options))
    assert not set(plain[:2]) & set(banned)
    few = Warp(suppress=range(2, 23))  # fewer are left than top_k wants
    assert set(text_of(contrastive_search(model, [2], warp=few, **options))) <= {0, 1}
    blocked = contrastive_search(model, [2], warp=Warp(suppress=range(23)), **options)
    assert [step.finish_reason for step in blocked] == ["blocked"]


def test_it_ends_as_every_decoder_does():
    model = gpt2(FIXTURES[2])
    whole = text_of(contrastive_search(model, [5], eos=None))
    assert len(whole) == model.n_positions - 1
    end = whole[6]
    found = generate(model, [5], penalty_alpha=0.6, eos=end)
    assert found.tokens == whole[: whole.index(end) + 1] and found.finish_reason == "eos"
    assert generate(model, [5], penalty_alpha=0.6, max_new_tokens=0).tokens == []
    later = generate(model, [5], penalty_alpha=0.6, eos=end, min_new_tokens=9, max_new_tokens=9)
    assert end not in later.tokens[:8]


def test_generate_takes_top_k_for_the_number_of_candidates():
    model, limits = gpt2(FIXTURES[3]), {"max_new_tokens": 8, "eos": None}
    for k in (2, 9):
        steps = contrastive_search(model, [5, 6], penalty_alpha=0.8, top_k=k, **limits)
        found = generate(model, [5, 6], penalty_alpha=0.8, top_k=k, **limits)
        assert found.tokens == text_of(steps)


def test_log_probabilities_are_told_and_a_context_is_refused():
    model, options = gpt2(FIXTURES[0]), {"penalty_alpha": 0.6, "max_new_tokens": 5, "eos": None}
    found = generate(model, [5, 6], logprobs=2, suppress=[3], **options)
    assert [each.token for each in found.logprobs] == found.tokens
    for each, i in zip(found.logprobs, range(5), strict=True):
        row = oracle_logits(*FIXTURES[0], [5, 6, *found.tokens[:i]])[-1]
        assert each.logprob == pytest.approx(row[each.token] - np.log(np.exp(row).sum()), abs=1e-4)
        assert len(each.top) == 2 and each.warped >= each.logprob - 1e-4
    with pytest.raises(InputError, match=r"^context: cannot be combined with contrastive search"):
        generate(model, [5, 6], context=Context(model), **options)


def test_the_hidden_states_are_those_of_the_paper_however_the_tokens_are_split():
    fixture, tokens = FIXTURES[0], [3, 1, 4, 1, 5, 9]
    model, cache = gpt2(fixture), None
    logits, states = model.forward(tokens, model.new_cache(), 2, hidden=True)
    assert (logits.shape, states.shape) == ((2, 23), (6, 16))
    np.testing.assert_allclose(states, oracle_states(*fixture, tokens), rtol=1e-3, atol=1e-4)
    assert np.array_equal(logits, model.forward(tokens, model.new_cache(), 2))
    cache, other = model.new_cache(), model.new_cache()
    (_, first), (none, states_of_other) = model.forward_many(
        [(tokens[:4], cache), ([7, 8], other)], [1, 0], hidden=True
    )
    _, second = model.forward(tokens[4:], cache, hidden=True)
    np.testing.assert_allclose(np.concatenate([first, second]), states, rtol=1e-5, atol=1e-5)
    assert none.shape == (0, 23) and states_of_other.shape == (2, 16)


def test_a_state_that_is_no_number_names_the_step():
    config, tensors = random_gpt2(0, 23, 1, 1, 16, 48)
    tensors["wpe.weight"][3] = np.nan  # the place of the second new token
    steps = contrastive_search(gpt2((config, tensors)), [1, 2], max_new_tokens=5, eos=None)
    next(steps)
    with pytest.raises(LogitsError, match=r"^step 3 .*hidden state"):
        next(steps)


def test_a_model_without_hidden_states_is_refused():
    table = TableModel(np.full((3, 3), 1 / 3))
    with pytest.raises(InputError, match=r"^model: got a TableModel, one with hidden states"):
        contrastive_search(table, [0])
    for call in (table.forward, lambda *args, **options: table.forward_many([args], **options)):
        with pytest.raises(InputError, match=r"^hidden: a table"):
            call([0], table.new_cache(), hidden=True)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"penalty_alpha": 1.5}, "penalty_alpha: got 1.5, a number from 0 to 1"),
        ({"penalty_alpha": float("nan")}, "penalty_alpha: got nan"),
        ({"penalty_alpha": 0.5, "top_k": 0}, "top_k: got 0"),
        ({"penalty_alpha": 0.5, "top_k": 2.0}, "top_k: got 2.0"),
        ({"penalty_alpha": 0.5, "warp": Warp(top_k=3)}, "top_k: got it in a warp"),
        ({"penalty_alpha": 0.5, "temperature": 0.7}, "temperature: has no effect with contrastive"),
        ({"penalty_alpha": 0.5, "top_p": 0.7}, "top_p: has no effect with contrastive"),
        ({"penalty_alpha": 0.5, "warp": Warp(top_p=0.7)}, "top_p: has no effect with contrastive"),
        ({"penalty_alpha": 0.5, "chance": Dice(1)}, "chance: has no effect with contrastive"),
        ({"penalty_alpha": 0.5, "amateur": object()}, "amateur: has no effect with contrastive"),
        ({"penalty_alpha": 0.5, "draft": object()}, "draft: has no effect with contrastive"),
        ({"penalty_alpha": 0.5, "mirostat": 3.0}, "mirostat: cannot be combined"),
        ({"penalty_alpha": 0.5, "num_beams": 2}, "penalty_alpha: has no effect with beam search"),
        ({"penalty_alpha": 0.5, "alpha": 0.2}, "alpha: has no effect without amateur"),
    ],
)
def test_what_cannot_be_is_refused_at_the_call(options, named):
    with pytest.raises(InputError, match=f"^{named}"):
        generate(gpt2(FIXTURES[0]), [0], max_new_tokens=2, **options)


def test_on_the_command_line(tmp_path, capsys):
    config, tensors = random_gpt2(5, 257, 1, 2, 16, 32, eos_token_id=256, bos_token_id=256)
    tokenizer = toy_tokenizer()
    path = str(write(tmp_path / "model", config, tensors, tokenizer))
    arguments = ["generate", "abc", "--model", path, "--max-new-tokens", "5", "--json"]
    assert main([*arguments, "--penalty-alpha", "0.4", "--top-k", "3", "--seed", "5"]) == 0
    steps = contrastive_search(
        gpt2((config, tensors)), [0, 1, 2], penalty_alpha=0.4, top_k=3, max_new_tokens=5
    )
    assert f'"ids": {text_of(steps)}' in capsys.readouterr().out
    for option in ("--top-p=0.5", "--greedy", "--num-beams=2", "--amateur=x", "--draft=x"):
        assert main([*arguments, "--penalty-alpha", "0.4", option]) == 2
        assert "has no effect" in capsys.readouterr().err
    assert main(["trace", *arguments[1:-1], "--penalty-alpha", "0.4"]) == 0
    assert "alike" in capsys.readouterr().out
