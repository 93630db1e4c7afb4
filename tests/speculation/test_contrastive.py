"""Speculative contrastive decoding has the law, and the greedy text, of contrastive decoding."""

import numpy as np
import pytest
from builders import Fixed
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import Dice, GumbelDice, TableModel, Warp, exact
from minidecode.decoding.contrastive import contrastive
from minidecode.kernels import backend
from minidecode.proof.suite import ticking_clock
from minidecode.speculation.contrastive import speculative_contrastive


def ids(steps):
    return list(exact.tokens_of(steps))


def table(seed, V=3):
    """Rows that depend on the whole history, some with zeros."""
    rows = np.random.default_rng(seed).dirichlet(np.ones(V), size=5)
    rows[rows < 0.05] = 0
    rows /= rows.sum(axis=1, keepdims=True)
    return TableModel(lambda h: rows[sum((i + 1) * t for i, t in enumerate(h)) % 5], eos=(2,))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.05, 0.3, 1.0]),
    st.sampled_from([None, 0.0, 0.5]),
    st.sampled_from([0.7, 1.0, 3.0]),
    st.sampled_from(
        [Warp(), Warp(temperature=0.6, top_k=2), Warp(no_repeat_ngram_size=2), Warp(temperature=0)]
    ),
    st.integers(0, 3),
    st.sampled_from(["constant", "auto"]),
    st.sampled_from([None, (2,)]),
    st.sampled_from(["token", "block"]),
)
def test_the_law_is_that_of_contrastive_sampling(
    seed, alpha, beta, temperature, warp, k, schedule, eos, rule
):
    expert, amateur = table(seed), table(seed + 1)
    settings_ = {"alpha": alpha, "beta": beta, "amateur_temperature": temperature, "warp": warp}
    limits = {"max_new_tokens": 3, "eos": eos}

    def plain(chance):
        return ids(contrastive(expert, amateur, [0, 1], chance=chance, **settings_, **limits))

    def fast(chance):
        options = {"num_draft_tokens": k, "schedule": schedule, "clock": ticking_clock()}
        options["verify"] = rule
        return ids(
            speculative_contrastive(
                expert, amateur, [0, 1], chance=chance, **settings_, **options, **limits
            )
        )

    assert exact.total_variation(exact.law(plain), exact.law(fast)) < 1e-12


@pytest.mark.parametrize("seed", [3, 8])
@pytest.mark.parametrize("lengths", [(3, 0), (2, 0, 1), (3, 0, 3), (1,)])
@pytest.mark.parametrize("rule", ["token", "block"])
def test_no_schedule_leaves_the_amateurs_old_rows_behind(seed, lengths, rule):
    both = table(seed), table(seed + 1)
    options = {"warp": Warp(), "max_new_tokens": 4, "eos": None}

    def plain(chance):
        return ids(contrastive(*both, [0, 1], chance=chance, **options))

    def fast(chance):
        fixed = {"schedule": Fixed(*lengths), "verify": rule}
        return ids(speculative_contrastive(*both, [0, 1], chance=chance, **fixed, **options))

    assert exact.total_variation(exact.law(plain), exact.law(fast)) < 1e-12


needs_native = pytest.mark.skipif(
    backend == "numpy", reason="NumPy's products round by shape, so near ties may fall otherwise"
)


@needs_native
@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("alpha, beta", [(0.1, None), (0.05, 0.5), (1.0, None)])
def test_greedy_text_is_the_same(storytellers, k, alpha, beta):
    for prompt in ([629, 534, 259, 439], [426, 719, 342], [7]):
        options = {"alpha": alpha, "beta": beta, "max_new_tokens": 24}
        wanted = ids(contrastive(*storytellers, prompt, **options))
        assert (
            ids(speculative_contrastive(*storytellers, prompt, num_draft_tokens=k, **options))
            == wanted
        )


@needs_native
def test_coupled_text_is_the_same(storytellers):
    options = {"warp": Warp(temperature=0.9), "max_new_tokens": 24}
    wanted = ids(contrastive(*storytellers, [629], chance=GumbelDice(4), **options))
    assert (
        ids(speculative_contrastive(*storytellers, [629], chance=GumbelDice(4), **options))
        == wanted
    )


def test_the_shorter_context_ends_both_alike():
    expert, amateur = table(1), table(2)
    amateur.n_positions = 6
    for decoder in (contrastive, speculative_contrastive):
        steps = list(decoder(expert, amateur, [0, 1], chance=Dice(0), eos=None))
        assert len(ids(steps)) == 4
        assert steps[-1].finish_reason == "context"
