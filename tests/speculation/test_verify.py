"""The rules of verification, alone and in the loop: what they get and what they may answer."""

import itertools

import numpy as np
import pytest

from minidecode import (
    Dice,
    GumbelDice,
    InputError,
    LogitsError,
    TableModel,
    Warp,
    exact,
    sample,
    speculative,
    speculative_many,
    verify,
)
from minidecode.proof import mistakes
from minidecode.speculation.contrastive import speculative_contrastive
from minidecode.speculation.theory import chances_to_stand
from minidecode.speculation.verify import verify_block, verify_coupled

# verify, alone


def test_the_residual_is_divided_not_exponentiated():
    p, q = np.array([[0.6, 0.3, 0.1]] * 2), np.array([[0.3, 0.1, 0.6]])
    law = exact.law(lambda chance: verify(p, q, [2], chance))
    rejected = {token: m for (accepted, token), m in law.items() if accepted == 0}
    total = sum(rejected.values())
    assert total == pytest.approx(1 - 0.1 / 0.6)
    assert {t: m / total for t, m in rejected.items()} == pytest.approx({0: 0.6, 1: 0.4})


@pytest.mark.parametrize("row", [[0, 1, 0], [0.25] * 4])
def test_an_empty_residual_falls_back_to_p(row):
    assert exact.law(lambda chance: _rejecting(chance, row)) == {
        i: p for i, p in enumerate(row) if p
    }


def _rejecting(chance, row):
    chance.accept = lambda probability: False
    return verify([row, row], [row], [1], chance)[1]


def test_zero_drafts_draw_from_the_only_row():
    law = exact.law(lambda chance: verify([[0.5, 0.5]], [], [], chance))
    assert law == {(0, 0): 0.5, (0, 1): 0.5}


def test_what_the_target_never_says_is_rejected_even_at_u_zero():
    class Careless(Dice):
        def accept(self, probability):
            return True

    for rule in (verify, verify_block):
        assert rule([[0.0, 1.0]] * 2, [[1.0, 0.0]], [0], Careless(0)) == (0, 1)


@pytest.mark.parametrize("banned", [0, 1, 2])
@pytest.mark.parametrize("rule", [verify, verify_block, verify_coupled])
def test_a_row_of_zeros_has_no_token(rule, banned):
    p = np.full((3, 2), 0.5)
    p[banned] = 0
    law = exact.law(lambda chance: rule(p, np.full((2, 2), 0.5), [0, 1], chance))
    assert all((token is None) == (accepted == banned) for accepted, token in law)
    assert max(accepted for accepted, _ in law) == banned  # nobody comes further
    assert sum(law.values()) == pytest.approx(1)


# What a rule is given


class Watching:
    """The ratio test, which keeps what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, p, q, drafted, chance, position):
        self.seen.append((p, q, list(drafted), position))
        return verify(p, q, drafted, chance, position)


@pytest.mark.parametrize("padding", [0, 2])
def test_p_and_q_are_arrays_of_one_width(padding):
    rule = Watching()
    draft = TableModel(np.full((3 + padding, 3 + padding), 1 / (3 + padding)))
    steps = list(
        speculative(mistakes.TARGET, draft, [0], verify=rule, chance=Dice(0), max_new_tokens=12)
    )
    assert len(rule.seen) == len(steps)
    for p, q, drafted, _ in rule.seen:
        assert isinstance(p, np.ndarray) and p.dtype == q.dtype == np.float64
        assert len(p) == len(drafted) + 1 and len(q) == len(drafted)
        if len(drafted):
            assert p.shape[1] == q.shape[1]
        assert np.asarray(p).shape == p.shape


def test_every_row_of_p_is_that_after_the_drafts_before_it():
    rule = Watching()
    for seed in range(10):
        options = {"verify": rule, "chance": Dice(seed), "max_new_tokens": 8, "eos": None}
        text, seen = [0, 1], len(rule.seen)
        for step in speculative(mistakes.TARGET, mistakes.DRAFT, text, **options):
            p, _, drafted, position = rule.seen[seen]
            assert position == len(text)
            for i, row in enumerate(p):
                assert row == pytest.approx(mistakes.target_row(text + drafted[:i]))
            text, seen = text + list(step.tokens), seen + 1


def reading(order):
    """The ratio test, after all rows were read in some order, as another library's rule would."""

    def rule(p, q, drafted, chance, position):
        rows = dict(order([(i, np.array(row)) for i, row in enumerate(np.asarray(p))]))
        return verify([rows[i] for i in range(len(p))], np.asarray(q), drafted, chance, position)

    return rule


@pytest.mark.parametrize("order", [list, reversed, lambda rows: rows[1:] + rows[:1]])
@pytest.mark.parametrize(
    "warp",
    [Warp(), Warp(no_repeat_ngram_size=1), Warp(no_repeat_ngram_size=2), Warp(temperature=0)],
)
@pytest.mark.parametrize("eos", [(), (1,), (0, 2)])
def test_a_rule_may_read_the_rows_in_any_order(order, warp, eos):
    def decoder(target, prompt, **options):
        return speculative(
            target, mistakes.DRAFT, prompt, num_draft_tokens=3, verify=reading(order), **options
        )

    report = exact.check(decoder, mistakes.TARGET, warp=warp, max_new_tokens=4, eos=eos)
    assert report.distance < 1e-12, report.worst()


def test_what_a_rule_changes_in_its_arrays_changes_nothing_else():
    def careless(p, q, drafted, chance, position):
        answer = verify(p, q, drafted, chance, position)
        p[:], q[:] = 7, 7
        return answer

    def decoder(target, prompt, **options):
        return speculative(target, mistakes.DRAFT, prompt, verify=careless, **options)

    assert exact.check(decoder, mistakes.TARGET, max_new_tokens=3).passed


# Rows that are no distribution


def broken_after(token, kind):
    """A target whose logits are no distribution wherever `token` came before."""
    rows = [[0.4, 0.3, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]]
    model = TableModel(rows)
    plain = model.forward_many

    def forward_many(batch, n_logits=1):
        histories = [cache.tokens + list(tokens) for tokens, cache in batch]
        results = plain(batch, n_logits)
        for history, logits in zip(histories, results):
            for i in range(len(logits)):
                if token in history[: len(history) - len(logits) + i + 1]:
                    logits[i] = kind
        return results

    model.forward_many = forward_many
    model.forward = lambda tokens, cache, n_logits=1: forward_many([(tokens, cache)], n_logits)[0]
    return model


@pytest.mark.parametrize("kind", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("eos", [(1,), (1, 2)])
def test_nothing_behind_an_accepted_end_token_is_verified(kind, eos):
    target = broken_after(1, kind)

    def text(decoder, chance):
        return exact.tokens_of(decoder(target, chance=chance, eos=eos, max_new_tokens=4))

    def fast(target, **options):
        return speculative(target, mistakes.DRAFT, [0], num_draft_tokens=3, **options)

    plain = exact.law(lambda chance: text(lambda t, **o: sample(t, [0], **o), chance))
    law = exact.law(lambda chance: text(fast, chance))
    assert exact.total_variation(law, plain) < 1e-12


@pytest.mark.parametrize("kind", [np.nan, np.inf, -np.inf])
def test_a_broken_row_counts_only_where_the_text_comes_to_it(kind):
    """With the probability, and at the step, at which plain sampling meets it."""

    def outcome(decoder):
        def program(chance):
            tokens = []
            try:
                for step in decoder(chance):
                    tokens += step.tokens
            except LogitsError as error:
                return str(error)
            return tuple(tokens)

        return exact.law(program)

    options = {"max_new_tokens": 4, "eos": None}
    target = broken_after(1, kind)
    plain = outcome(lambda chance: sample(target, [0], chance=chance, **options))
    fast = outcome(
        lambda chance: speculative(target, mistakes.DRAFT, [0], chance=chance, **options)
    )
    assert exact.total_variation(plain, fast) < 1e-12
    assert any("step 3" in key for key in plain if isinstance(key, str))


# What a rule may answer


@pytest.mark.parametrize(
    "answer, message",
    [
        ((5, 0), "got 5 accepted drafts of 4"),
        ((-1, 0), "got -1 accepted"),
        ((0, None), "no next token after 0"),
        ((0, 3), "next token 3"),
        ((0, -1), "next token -1"),
    ],
)
def test_an_answer_against_the_contract_is_refused(answer, message):
    steps = speculative(
        mistakes.TARGET, mistakes.DRAFT, [0], verify=lambda *_: answer, max_new_tokens=9
    )
    with pytest.raises(InputError, match=message):
        next(steps)


def test_an_answer_may_be_of_numpys_integers():
    def rule(p, q, drafted, chance, position):
        return tuple(np.array(verify(p, q, drafted, chance, position)))

    options = {"chance": Dice(3), "max_new_tokens": 9}
    [first, *_] = speculative(mistakes.TARGET, mistakes.DRAFT, [0], verify=rule, **options)
    assert {type(token) for token in first.tokens} == {int}


# A chance of one's own


class TwoMethods:
    """A chance with what the contract asks for, and nothing else."""

    def __init__(self, inner):
        self.choose, self.accept = inner.choose, inner.accept


def test_a_chance_need_not_say_that_it_is_not_coupled():
    options = {"max_new_tokens": 12, "num_draft_tokens": 3}
    two = mistakes.TARGET, mistakes.DRAFT

    def tokens(decoder, chance):
        return exact.tokens_of(decoder(*two, [0], chance=chance, **options))

    for decoder in (speculative, speculative_contrastive):
        assert tokens(decoder, TwoMethods(Dice(5))) == tokens(decoder, Dice(5))
    _, first = next(speculative_many(*two, [[0]], chances=[TwoMethods(Dice(5))], **options))
    assert first.tokens == next(speculative(*two, [0], chance=Dice(5), **options)).tokens


@pytest.mark.parametrize("rule", [verify, Watching()])
def test_a_rule_of_ones_own_is_refused_where_the_noise_is_shared(rule):
    options = {"verify": rule, "max_new_tokens": 4}
    two = mistakes.TARGET, mistakes.DRAFT
    with pytest.raises(InputError, match="verify: has no effect with a coupled chance"):
        speculative(*two, [0], chance=GumbelDice(1), **options)
    with pytest.raises(InputError, match="verify"):
        speculative_contrastive(*two, [0], chance=GumbelDice(1), **options)
    with pytest.raises(InputError, match="verify"):
        speculative_many(*two, [[0], [1]], chances=[Dice(0), GumbelDice(1)], **options)


# Blocks


def random_block(seed, V):
    """Rows that depend on all drafted before, with zeros: functions of the drafts so far."""
    rng = np.random.default_rng(seed)
    rows = {}

    def row(side, before):
        if (side, before) not in rows:
            fresh = rng.dirichlet(np.full(V, 0.7))
            fresh[fresh < 0.1] = 0
            rows[side, before] = fresh / fresh.sum()
        return rows[side, before]

    return row


def block_law(rule, seed, k, V=3):
    """{(drafted, accepted, token): probability}, drafts drawn from q one after the other."""
    row = random_block(seed, V)

    def program(chance):
        drafted = ()
        for i in range(k):
            drafted += (chance.choose(row("q", drafted), i),)
        p = np.array([row("p", drafted[:i]) for i in range(k + 1)])
        q = np.array([row("q", drafted[:i]) for i in range(k)])
        return drafted, *rule(p, q, drafted, chance, 0)

    # The rows are drawn as they are asked for: once over all drafts, so that they are fixed.
    for depth in range(k + 1):
        for before in itertools.product(range(V), repeat=depth):
            row("p", before), row("q", before)
    return exact.law(program), row


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_blocks_keep_i_drafts_with_the_mean_of_reach(seed, k):
    """So the acceptance that is counted does not depend on k, which theory and `auto` build on."""
    law, row = block_law(verify_block, seed, k)
    for i in range(1, k + 1):
        kept = sum(m for (_, accepted, _), m in law.items() if accepted >= i)
        wanted = 0.0
        for drafted in itertools.product(range(3), repeat=i):
            q = [row("q", drafted[:j])[x] for j, x in enumerate(drafted)]
            p = [row("p", drafted[:j])[x] for j, x in enumerate(drafted)]
            if min(q) > 0:
                ratios = np.divide(p, q)
                wanted += np.prod(q) * chances_to_stand(ratios, "block")[-1]
        assert kept == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_blocks_keep_more_than_the_ratio_test_and_the_same_of_one_draft(seed):
    def kept(rule, k):
        law, _ = block_law(rule, seed, k)
        return sum(m * accepted for (_, accepted, _), m in law.items())

    assert kept(verify_block, 1) == pytest.approx(kept(verify, 1))
    assert kept(verify_block, 2) > kept(verify, 2) - 1e-12
    assert kept(verify_block, 3) > kept(verify, 3) - 1e-12


def test_a_later_draft_makes_a_bad_ratio_good():
    """x_1 has ratio 1/2 and x_2 has 2: the ratio test keeps both in half of the rounds."""
    p, q = np.array([[0.4, 0.6], [0.8, 0.2], [0.5, 0.5]]), np.array([[0.8, 0.2], [0.4, 0.6]])
    both = {
        rule: sum(
            m
            for (accepted, _), m in exact.law(lambda c, r=rule: r(p, q, [0, 0], c)).items()
            if accepted == 2
        )
        for rule in (verify, verify_block)
    }
    assert both == {verify: pytest.approx(0.5), verify_block: pytest.approx(1.0)}
    assert chances_to_stand([0.5, 2]) == [0.5, 0.5]
    assert chances_to_stand([0.5, 2], "block") == [0.5, 1.0]


@pytest.mark.parametrize("ratio", [5e-324, 1e-300, 1e300])
def test_extreme_ratios_give_no_warning(ratio):
    small = min(ratio, 1 / ratio)
    p, q = np.array([[small, 1 - small]] * 3), np.array([[0.5, 0.5]] * 2)
    with np.errstate(all="raise", under="ignore"):
        for a, b in ((p, q), (np.vstack([q, q[:1]]), p[:2])):
            for drafted in itertools.product(range(2), repeat=2):
                law = exact.law(lambda c, a=a, b=b, d=drafted: verify_block(a, b, d, c))
                assert sum(law.values()) == pytest.approx(1)


@pytest.mark.parametrize("decoder", [speculative, speculative_contrastive])
def test_rules_go_by_name(decoder):
    options = {"warp": Warp(), "max_new_tokens": 30}
    two = TableModel(mistakes.target_row), mistakes.DRAFT

    def steps(rule):
        return list(decoder(*two, [0], chance=Dice(7), verify=rule, **options))

    def without_times(rule):
        return [(s.tokens, s.drafted, s.accepted) for s in steps(rule)]

    assert without_times("block") == without_times(verify_block) == without_times(None)
    assert without_times("token") == without_times(verify) != without_times("block")


def test_the_text_of_equal_models_is_kept_whole_by_both_rules():
    for rule in ("token", "block"):
        steps = speculative(
            mistakes.TARGET, mistakes.TARGET, [0], verify=rule, chance=Dice(1), max_new_tokens=25
        )
        assert all(step.accepted == len(step.drafted) for step in steps)
