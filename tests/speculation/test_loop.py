"""Speculative decoding keeps the target's law, text and limits, whatever the draft."""

import math

import numpy as np
import pytest
from builders import Fixed, bigram, cycle, penalty, random_gpt2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minidecode import (
    Dice,
    GumbelDice,
    InputError,
    ModelDraft,
    PromptLookupDraft,
    TableModel,
    Warp,
    exact,
    generate,
    greedy,
    sample,
    speculative,
    speculative_many,
)
from minidecode.kernels import backend
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.proof.suite import ticking_clock

GREEDY = Warp(temperature=0)


def gpt2(built):
    config, tensors = built
    return GPT2(Config.from_dict(config), tensors)


def ids(steps):
    return list(exact.tokens_of(steps))


class LeastLikely(ModelDraft):
    """Proposes the target's least likely token, with certainty."""

    def propose(self, history, k, warp, chance):
        drafted = []
        for _ in range(k):
            tokens = list(history) + drafted
            drafted.append(int(self.model.forward(tokens, self.model.new_cache())[-1].argmin()))
        return drafted, list(np.eye(self.model.vocab_size)[drafted])


# The law, exactly


def rows_strategy(V):
    """A row of probabilities with zeros, ties and near-zeros."""
    weights = st.lists(
        st.sampled_from([0.0, 0.0, 1e-9, 0.25, 1.0, 1.0, 3.0]), min_size=V, max_size=V
    )
    return weights.filter(any).map(lambda w: np.array(w) / sum(w))


@st.composite
def models(draw, V=3):
    """A table by last token, or by the whole history: different at each position."""
    rows = [draw(rows_strategy(V)) for _ in range(5)]
    if draw(st.booleans()):
        return lambda eos: TableModel(np.array(rows[:V]), eos=eos)
    return lambda eos: TableModel(
        lambda history: rows[sum((i + 1) * t for i, t in enumerate(history)) % len(rows)], eos=eos
    )


warps = st.builds(
    Warp,
    temperature=st.sampled_from([0, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 2]),
    top_p=st.sampled_from([1.0, 0.7]),
    epsilon=st.sampled_from([0.0, 0.2]),
    repetition_penalty=st.sampled_from([1.0, 2.0]),
    no_repeat_ngram_size=st.sampled_from([0, 2]),
)
drafts = st.sampled_from(["model", "unsure", "lookup", "foreign"])
rules = st.sampled_from(["token", "block"])


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(
    models(),
    models(),
    models(V=4),
    drafts,
    warps,
    st.integers(0, 3),
    st.sampled_from(["constant", "heuristic", "auto"]),
    st.sampled_from([(), (1,), (0, 2)]),
    st.integers(0, 4),
    rules,
)
def test_the_law_is_that_of_plain_sampling(
    target, small, padded, kind, warp, k, schedule, eos, n, rule
):
    make = {
        "model": lambda: ModelDraft(small(())),
        "unsure": lambda: ModelDraft(small(()), stop_below=0.5),
        "lookup": PromptLookupDraft,
        "foreign": lambda: ModelDraft(padded(())),  # has an id that the target lacks
    }[kind]

    def decoder(target, prompt, **options):
        return speculative(
            target,
            make(),
            prompt,
            num_draft_tokens=k,
            schedule=schedule,
            verify=rule,
            clock=ticking_clock(),
            **options,
        )

    report = exact.check(decoder, target(eos), [0, 1, 0], warp=warp, max_new_tokens=n)
    assert report.distance < 1e-12, report.worst()


@settings(deadline=None, max_examples=100)
@given(models(), models(), st.integers(1, 3))
def test_each_draft_is_accepted_as_often_as_p_and_q_overlap(target, small, k):
    """Under the ratio test, which judges each by itself."""
    target, draft = target(()), small(())
    options = {"num_draft_tokens": k, "max_new_tokens": k + 1, "verify": "token"}
    pairs = {}  # (drafted before, accepted?) -> probability
    prompt = [0]

    def first_round(chance):
        step = next(speculative(target, draft, prompt, chance=chance, **options))
        return (step.drafted, step.accepted)

    for (drafted, accepted), probability in exact.law(first_round).items():
        for i in range(min(accepted + 1, k)):
            seen = pairs.setdefault(drafted[:i], [0.0, 0.0])
            seen[0] += probability * (accepted > i)
            seen[1] += probability
    for before, (accepted, tested) in pairs.items():
        p, q = (model.row([*prompt, *before]) for model in (target, draft))
        assert accepted / tested == pytest.approx(np.minimum(p, q).sum(), abs=1e-9)


# Vocabularies of two sizes


def test_padded_vocabularies_count_missing_ids_as_impossible():
    p8 = TableModel([[0.1] * 6 + [0.2] * 2] * 8)
    q6 = TableModel([[1 / 6] * 6] * 6)
    seen = {}

    def first(chance):
        step = next(speculative(p8, q6, [0], chance=chance, num_draft_tokens=1, max_new_tokens=2))
        seen[step.accepted] = True
        return step.accepted, step.tokens[0]

    law = exact.law(first)
    assert sum(m for (a, _), m in law.items() if a) == pytest.approx(0.6)
    corrected = {t: m for (a, t), m in law.items() if not a}
    assert corrected == pytest.approx({6: 0.2, 7: 0.2})


def test_ids_that_the_target_lacks_are_always_rejected():
    target, draft = TableModel([[1 / 6] * 6] * 6), TableModel([[0.01] * 7 + [0.93]] * 8)
    rounds = list(speculative(target, draft, [0], chance=Dice(1), max_new_tokens=40))
    for step in rounds:
        assert 7 not in step.tokens
        assert 7 not in step.drafted[: step.accepted]


@pytest.mark.parametrize("rule", ["token", "block"])
def test_an_id_that_the_target_lacks_is_rejected_with_its_residual(rule):
    """Left out before the test, it would hand its place to a plain draw from p."""
    target, draft = TableModel([[0.5, 0.3, 0.2]] * 3), TableModel([[0.4, 0.1, 0.1, 0.4]] * 4)

    def decoder(target, prompt, **options):
        return speculative(target, draft, prompt, num_draft_tokens=2, verify=rule, **options)

    assert exact.check(decoder, target, [0, 1], max_new_tokens=3).distance < 1e-12


# Texts, bit for bit where the kernels allow it

TEXTS = 100 if backend == "native" else 8  # NumPy's kernels take five times as long


def gap_is_clear(model, tokens, start):
    """Whether no greedy choice hangs on rounding, which NumPy's kernels do not fix."""
    logits = model.forward(tokens[:-1], model.new_cache(), n_logits=len(tokens) - start)
    top = np.sort(logits, axis=1)[:, -2:]
    return bool((top[:, 1] - top[:, 0] > 1e-3).all())


def assert_same(got, wanted, model, prompt):
    if backend == "native" or gap_is_clear(model, prompt + wanted, len(prompt)):
        assert got == wanted


@settings(deadline=None, max_examples=TEXTS)
@given(
    st.lists(st.integers(1, 4095), min_size=1, max_size=8),
    st.integers(1, 9),
    st.sampled_from(["constant", "heuristic", "auto"]),
    st.sampled_from(
        [Warp(temperature=0), Warp(temperature=0, repetition_penalty=1.3, no_repeat_ngram_size=3)]
    ),
    st.booleans(),
)
def test_greedy_text_is_that_of_greedy(storytellers, prompt, k, schedule, warp, lookup):
    target, draft = storytellers
    draft = PromptLookupDraft() if lookup else draft
    options = {"warp": warp, "max_new_tokens": 24}
    got = ids(speculative(target, draft, prompt, num_draft_tokens=k, schedule=schedule, **options))
    assert_same(got, ids(sample(target, prompt, **options)), target, prompt)


@settings(deadline=None, max_examples=TEXTS)
@given(
    st.lists(st.integers(1, 4095), min_size=1, max_size=8),
    st.integers(1, 9),
    st.sampled_from(["constant", "heuristic", "auto"]),
    st.sampled_from([Warp(), Warp(temperature=0.8, top_p=0.95), Warp(top_k=20, epsilon=0.01)]),
    st.integers(0, 2**32),
)
def test_coupled_text_is_that_of_plain_sampling(storytellers, prompt, k, schedule, warp, seed):
    target, draft = storytellers
    options = {"warp": warp, "max_new_tokens": 24}
    wanted = ids(sample(target, prompt, chance=GumbelDice(seed), **options))
    got = ids(
        speculative(
            target,
            draft,
            prompt,
            chance=GumbelDice(seed),
            num_draft_tokens=k,
            schedule=schedule,
            **options,
        )
    )
    if backend == "native":
        assert got == wanted
    else:  # a draw may hang on rounding: up to the first that does, all is equal
        same = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), len(wanted))
        assert same >= len(wanted) - 8


@pytest.mark.parametrize("length", range(1, 9))
def test_every_prompt_length_and_draft_length_on_random_models(length):
    target = gpt2(random_gpt2(1, 31, 2, 2, 16, 64))
    draft = gpt2(random_gpt2(2, 31, 1, 1, 8, 64))
    prompt = np.random.default_rng(length).integers(0, 31, length).tolist()
    wanted = ids(greedy(target, prompt, max_new_tokens=24, eos=None))
    for k in range(1, 9):
        options = {"warp": GREEDY, "num_draft_tokens": k, "max_new_tokens": 24, "eos": None}
        got = ids(speculative(target, draft, prompt, **options))
        assert_same(got, wanted, target, prompt)


@pytest.mark.parametrize("warp", [GREEDY, Warp(temperature=0.8)])
def test_a_draft_that_is_the_target_is_always_accepted(warp):
    if backend == "numpy":
        pytest.skip("NumPy's products round by shape, so p and q differ in the last bits")
    model = gpt2(random_gpt2(3, 31, 2, 2, 16, 64))
    rounds = list(
        speculative(model, model, [5], warp=warp, chance=Dice(4), max_new_tokens=20, eos=None)
    )
    assert len(rounds) <= 5
    assert all(step.accepted == len(step.drafted) for step in rounds)
    stats = generate(model, [5], draft=model, warp=warp, max_new_tokens=20, eos=None).stats
    assert stats["acceptance_rate"] == 1
    assert stats["tokens_per_target_pass"] >= 4


def test_a_useless_draft_costs_a_pass_a_token_and_changes_nothing():
    model = gpt2(random_gpt2(4, 31, 2, 2, 16, 64))
    caches = []
    make_cache = model.new_cache
    model.new_cache = lambda: caches.append(make_cache()) or caches[-1]
    wanted = ids(greedy(model, [1, 2, 3], max_new_tokens=10, eos=None))
    caches.clear()
    steps = speculative(
        model, LeastLikely(model), [1, 2, 3], warp=GREEDY, max_new_tokens=10, eos=None
    )
    got = []
    for r, step in enumerate(steps, start=1):
        target_cache = next(c for c in caches if c.length)
        assert target_cache.length == 3 + r - 1  # all committed tokens but the pending one
        assert (step.accepted, len(step.tokens)) == (0, 1)
        got += step.tokens
    assert got == wanted


def test_temperature_near_zero_gives_no_nan():
    model = gpt2(random_gpt2(5, 31, 1, 1, 8, 64))
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        got = ids(
            speculative(model, model, [1], warp=Warp(temperature=1e-6), max_new_tokens=12, eos=None)
        )
    assert_same(got, ids(greedy(model, [1], max_new_tokens=12, eos=None)), model, [1])


# Limits


def test_tokens_behind_the_end_token_are_neither_returned_nor_counted():
    model = gpt2(cycle())
    result = generate(
        model, [0], draft=model, warp=GREEDY, eos=5, num_draft_tokens=4, max_new_tokens=20
    )
    assert result.tokens == [1, 2, 5]
    assert result.finish_reason == "eos"
    stats = result.stats
    assert (stats["rounds"], stats["accepted"], stats["drafted"]) == (1, 3, 3)
    assert stats["tokens_per_target_pass"] == 3


@pytest.mark.parametrize("end", range(1, 7))
def test_the_end_token_may_stand_anywhere_in_a_block(end):
    model = gpt2(cycle())
    path = [1, 2, 5, 3, 4, 0]
    options = {"warp": GREEDY, "eos": path[end - 1], "max_new_tokens": 20}
    steps = list(speculative(model, model, [0], num_draft_tokens=4, **options))
    assert ids(steps) == path[:end]
    assert steps[-1].finish_reason == "eos"
    for step in steps:
        assert len(step.tokens) == step.accepted + (step.next_token is not None)


@pytest.mark.parametrize("n", range(11))
def test_a_block_never_passes_the_limit(n):
    model = gpt2(cycle())
    options = {"warp": GREEDY, "max_new_tokens": n, "eos": None}
    rounds = list(speculative(model, model, [0], num_draft_tokens=8, **options))
    assert ids(rounds) == ids(greedy(model, [0], max_new_tokens=n, eos=None))
    assert len(ids(rounds)) == n
    left = n
    for step in rounds:
        assert len(step.drafted) <= left - 1  # the target itself always adds one
        left -= len(step.tokens)


@pytest.mark.parametrize("n, reason", [(4, "length"), (10, "context"), (None, "context")])
def test_the_targets_context_ends_both_ways_of_decoding_alike(n, reason):
    model = gpt2(random_gpt2(6, 31, 1, 2, 16, 16))
    prompt = list(range(12))
    plain = list(greedy(model, prompt, max_new_tokens=n, eos=None))
    options = {"warp": GREEDY, "max_new_tokens": n, "eos": None}
    fast = list(speculative(model, model, prompt, num_draft_tokens=8, **options))
    assert_same(ids(fast), ids(plain), model, prompt)
    assert len(ids(fast)) == 4
    assert fast[-1].finish_reason == plain[-1].finish_reason == reason


def test_a_draft_past_its_own_context_ends_and_the_text_goes_on():
    target = gpt2(random_gpt2(7, 31, 2, 2, 16, 32))
    draft = gpt2(random_gpt2(8, 31, 1, 1, 8, 8))
    prompt = [1, 2, 3, 4, 5, 6]
    options = {"warp": GREEDY, "max_new_tokens": 12, "eos": None}
    rounds = list(speculative(target, draft, prompt, **options))
    assert_same(
        ids(rounds), ids(greedy(target, prompt, max_new_tokens=12, eos=None)), target, prompt
    )
    assert rounds[-1].drafted == ()
    stats = generate(target, prompt + prompt, draft=draft, **options).stats
    assert (stats["drafted"], stats["acceptance_rate"]) == (0, None)


def test_nothing_drafted_is_no_rate_at_all():
    model = gpt2(cycle())
    stats = generate(model, [0], draft=model, max_new_tokens=1).stats
    assert (stats["rounds"], stats["drafted"], stats["accepted"]) == (1, 0, 0)
    assert stats["acceptance_rate"] is None
    assert stats["acceptance_by_position"] == []


def test_blocking_ends_both_ways_of_decoding_alike():
    model = gpt2(penalty())
    warp = Warp(temperature=0, no_repeat_ngram_size=2)
    for k in range(1, 6):
        steps = list(
            speculative(
                model, model, [0], warp=warp, num_draft_tokens=k, max_new_tokens=30, eos=None
            )
        )
        assert ids(steps) == [1, 2, 0, 2, 3, 1, 3, 0, 3, 2, 1, 0, 0]
        assert steps[-1].finish_reason == "blocked"


@pytest.mark.parametrize("lengths", [(3, 0, 0, 3), (0, 2, 5, 1), (1, 7, 0, 4)])
def test_no_schedule_changes_the_text_or_leaves_a_stale_draft(lengths):
    model = gpt2(random_gpt2(9, 31, 2, 2, 16, 64))
    options = {"warp": GREEDY, "max_new_tokens": 20, "eos": None}
    rounds = list(speculative(model, model, [1, 2], schedule=Fixed(*lengths), **options))
    assert_same(ids(rounds), ids(greedy(model, [1, 2], max_new_tokens=20, eos=None)), model, [1, 2])
    if backend == "native":
        assert all(step.accepted == len(step.drafted) for step in rounds)


class Recording(Fixed):
    def __init__(self, *lengths):
        super().__init__(*lengths)
        self.seen = []

    def observe(self, k, drafted, *_):
        self.seen.append((k, drafted))


def test_a_round_that_a_limit_cut_short_teaches_the_schedule_nothing():
    model = gpt2(cycle())
    schedule = Recording(4)
    options = {"warp": GREEDY, "max_new_tokens": 8, "eos": None, "schedule": schedule}
    lengths = [len(step.drafted) for step in speculative(model, model, [0], **options)]
    assert lengths == [4, 2]  # the second round had room for three tokens only
    assert schedule.seen == [(4, 4)]


@pytest.mark.parametrize("n, seen", [(3, []), (4, [(3, 3)]), (5, [(3, 3)]), (8, [(3, 3)] * 2)])
def test_a_round_cut_by_a_single_draft_teaches_nothing(n, seen):
    model = gpt2(cycle())
    schedule = Recording(3)
    options = {"warp": GREEDY, "max_new_tokens": n, "eos": None, "schedule": schedule}
    assert len(ids(speculative(model, model, [0], **options))) == n
    assert schedule.seen == seen


def test_times_are_told_only_of_a_pass_over_all_drafts_and_one_token():
    class Timed(Fixed):
        seen = ()

        def observe(self, k, drafted, accepted, seconds):
            self.seen += ((drafted, accepted, seconds),)

    target = TableModel([[0.5, 0.5, 0.0]] * 3)
    foreign = TableModel([[0.0, 0.0, 0.0, 1.0]] * 4)  # an id that is never fed
    ending = TableModel([[0.0, 0.0, 1.0]] * 3)  # an end token that the target never says
    plain = TableModel([[0.5, 0.5, 0.0]] * 3)
    for draft, timed in ((foreign, False), (ending, False), (plain, True)):
        schedule = Timed(2)
        options = {"chance": Dice(0), "max_new_tokens": 12, "eos": 2, "schedule": schedule}
        list(speculative(target, draft, [0], **options))
        first, *later = schedule.seen
        assert first[2] is None  # it read the prompt
        assert later
        for drafted, _, seconds in later:
            assert drafted == 2
            assert (seconds is not None) == timed


class CountingModel:
    """Counts the tokens that a model is fed."""

    def __init__(self, model):
        self.__dict__.update(model.__dict__)
        self.model, self.fed, self.calls = model, 0, 0

    def new_cache(self):
        return self.model.new_cache()

    def forward(self, tokens, cache, n_logits=1):
        self.fed += len(tokens)
        self.calls += 1
        return self.model.forward(tokens, cache, n_logits)


def test_no_token_is_computed_twice():
    target = CountingModel(gpt2(random_gpt2(10, 31, 2, 2, 16, 128)))
    draft = CountingModel(gpt2(random_gpt2(11, 31, 1, 1, 8, 128)))
    rounds = list(speculative(target, draft, [1, 2, 3], chance=Dice(0), max_new_tokens=40))
    new = len(ids(rounds))
    rejected = sum(len(s.drafted) - s.accepted for s in rounds)
    assert target.calls == len(rounds)
    # every committed token but the last, and every rejected draft, once
    assert target.fed == 3 + new - 1 + rejected
    assert draft.fed <= 3 + new - 1 + rejected


def test_state_does_not_leak_from_one_call_to_the_next(storytellers):
    target, draft = storytellers
    draft = ModelDraft(draft)
    options = {"warp": Warp(temperature=0.7), "max_new_tokens": 20}
    first = list(speculative(target, draft, [629, 534], chance=Dice(1), **options))
    list(speculative(target, draft, [77], chance=Dice(2), **options))
    again = list(speculative(target, draft, [629, 534], chance=Dice(1), **options))
    assert [s.tokens for s in first] == [s.tokens for s in again]
    assert [s.accepted for s in first] == [s.accepted for s in again]


def test_seeds_decide_the_text(storytellers):
    target, draft = storytellers

    def text(seed):
        return ids(
            speculative(target, draft, [629], chance=Dice(seed), max_new_tokens=20, eos=None)
        )

    assert text(0) == text(0) != text(1)


# Several prompts at once


@pytest.mark.parametrize("coupled", [False, True])
def test_each_of_many_is_what_it_is_alone(storytellers, coupled):
    target, draft = storytellers
    prompts = [[629, 534, 259, 439], [426], [7, 8, 9], [629]]
    warp = Warp() if coupled else GREEDY
    chances = [GumbelDice(i) if coupled else Dice(i) for i in range(len(prompts))]
    options = {"warp": warp, "max_new_tokens": 24, "num_draft_tokens": 3}
    many = [[] for _ in prompts]
    reasons = {}
    for i, step in speculative_many(target, draft, prompts, chances=chances, **options):
        many[i] += step.tokens
        reasons[i] = step.finish_reason
    if backend == "numpy":
        pytest.skip("NumPy's products round by shape, so near ties may fall otherwise in a batch")
    for i, prompt in enumerate(prompts):
        chance = GumbelDice(i) if coupled else Dice(i)
        assert many[i] == ids(speculative(target, draft, prompt, chance=chance, **options))
        assert reasons[i] in ("length", "eos")


def test_many_prompts_need_a_draft_each():
    model = gpt2(cycle())
    draft = ModelDraft(model)
    with pytest.raises(InputError, match="one each"):
        list(speculative_many(model, [draft, draft], [[0], [1]], max_new_tokens=2))
    dice = Dice(0)
    with pytest.raises(InputError, match="chances: one object"):
        list(speculative_many(model, model, [[0], [1]], chances=[dice, dice], max_new_tokens=2))
    with pytest.raises(InputError, match="schedule: one object"):
        list(speculative_many(model, model, [[0], [1]], schedule=Fixed(2), max_new_tokens=2))
    with pytest.raises(InputError, match="2, with 1 drafts"):
        list(speculative_many(model, [draft], [[0], [1]], max_new_tokens=2))


# Frequencies, once, with the real dice


def test_frequencies_with_real_dice():
    p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    target, draft = gpt2(bigram(np.array([p] * 3))), gpt2(bigram(np.array([q] * 3)))
    counts, accepted, n = np.zeros(3), 0, 4000
    for seed in range(n):
        step = next(
            speculative(
                target,
                draft,
                [0],
                chance=Dice(seed),
                num_draft_tokens=1,
                max_new_tokens=2,
                eos=None,
            )
        )
        counts[step.tokens[0]] += 1
        accepted += step.accepted
    assert np.abs(counts / n - p).max() < 4.5 * math.sqrt(0.25 / n)
    assert abs(accepted / n - 0.7) < 4.5 * math.sqrt(0.21 / n)
