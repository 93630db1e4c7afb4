"""The caches: growing, rolling back and forking never change what a token's logits are."""

import numpy as np
import pytest
from builders import random_gpt2
from hypothesis import given, settings
from hypothesis import strategies as st

from minidecode import TableModel, greedy, kernels
from minidecode.errors import ContextError, InputError
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.kv_cache import PAGE, KVCache

N_POSITIONS = 3 * PAGE + 5
CONFIG, TENSORS = random_gpt2(1, 31, 2, 2, 16, N_POSITIONS)
MODEL = GPT2(Config.from_dict(CONFIG), TENSORS)
ROWS = np.random.default_rng(0).dirichlet(np.ones(31), size=N_POSITIONS + 31)
# A row by the whole history, so that a wrong one shows.
TABLE = TableModel(lambda h: ROWS[(sum(h) + len(h)) % len(ROWS)], n_positions=N_POSITIONS)
MODELS = [pytest.param(MODEL, id="GPT2"), pytest.param(TABLE, id="TableModel")]
both_models = pytest.mark.parametrize("model", MODELS)


def same(ours, theirs):
    """Equal bits with the compiled kernels and with tables, else 1e-4."""
    if kernels.backend == "native" or ours.dtype == np.float64:
        return np.array_equal(ours, theirs)
    return np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def filled(model, tokens):
    cache = model.new_cache()
    if len(tokens):
        model.forward(tokens, cache)
    return cache


def logits_after(model, tokens):
    """As a new cache has them."""
    return model.forward(tokens, model.new_cache())


@both_models
def test_length_counts_the_tokens_seen(model):
    cache = model.new_cache()
    assert cache.length == 0
    for n, total in ((3, 3), (1, 4), (40, 44), (1, 45)):
        model.forward([1] * n, cache)
        assert cache.length == total


@both_models
@pytest.mark.parametrize("length", [0, 1, 2, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 3])
def test_a_cache_rolled_back_is_as_if_it_had_never_gone_on(model, length):
    tokens = np.arange(2 * PAGE + 3) % 31
    cache = filled(model, tokens)
    cache.truncate(length)
    assert cache.length == length
    new = [9, 8, 7]
    right = logits_after(model, [*tokens[:length], *new])
    assert same(model.forward(new, cache), right)
    assert cache.length == length + 3


@both_models
def test_truncate_to_what_is_there_does_nothing(model):
    cache = filled(model, [1, 2, 3])
    cache.truncate(3)
    assert cache.length == 3
    assert same(model.forward([4], cache), logits_after(model, [1, 2, 3, 4]))


@both_models
@pytest.mark.parametrize("length", [-1, 4, 7, 10**9, -(10**9)])
def test_truncate_outside_of_what_is_there_is_an_error(model, length):
    cache = filled(model, [1, 2, 3])
    with pytest.raises(InputError, match=f"3 tokens to {length}"):
        cache.truncate(length)
    assert cache.length == 3
    with pytest.raises(InputError):
        model.new_cache().truncate(1)


@both_models
@pytest.mark.parametrize("length", [1.5, "1", None])
def test_truncate_to_no_number_leaves_the_cache_as_it_was(model, length):
    cache = filled(model, [1, 2, 3])
    with pytest.raises((TypeError, InputError)):
        cache.truncate(length)
    assert cache.length == 3
    assert same(model.forward([4], cache), logits_after(model, [1, 2, 3, 4]))


@both_models
@pytest.mark.parametrize("length", [1, 5, PAGE, PAGE + 5, 2 * PAGE])
def test_forks_go_their_own_ways(model, length):
    """One parent feeds three, and goes on itself: none may see another's tokens."""
    tokens = (np.arange(length) * 3 % 31).tolist()
    parent = filled(model, tokens)
    caches = [parent.fork(), parent.fork(), parent.fork(), parent]
    for token in (4, 9):
        for i, cache in enumerate(caches):
            model.forward([token + i], cache)
    for i, cache in enumerate(caches):
        assert cache.length == length + 2
        right = logits_after(model, [*tokens, 4 + i, 9 + i, 5])
        assert same(model.forward([5], cache), right)


@both_models
def test_a_fork_of_nothing_is_empty(model):
    parent = model.new_cache()
    twin = parent.fork()
    model.forward([3], parent)
    assert twin.length == 0
    assert same(model.forward([4], twin), logits_after(model, [4]))


@both_models
def test_a_fork_outlives_its_parent_and_its_parents_rollback(model):
    tokens = [*range(31), 1, 2, 3]
    parent = filled(model, tokens)
    twin = parent.fork()
    parent.truncate(2)
    model.forward([7] * 30, parent)
    del parent
    assert same(model.forward([5], twin), logits_after(model, [*tokens, 5]))


actions = st.lists(
    st.tuples(
        st.sampled_from(["forward", "forward", "truncate", "fork"]),
        st.integers(0, 10**6),  # which cache
        st.integers(0, 10**6),  # how many tokens
    ),
    max_size=14,
)


@both_models
@settings(max_examples=60, deadline=None, derandomize=True)
@given(actions=actions)
def test_any_course_of_events_ends_where_the_tokens_lead(model, actions):
    caches, texts = [model.new_cache()], [[]]
    for action, which, n in actions:
        i = which % len(caches)
        if action == "forward":
            room = model.n_positions - 1 - len(texts[i])
            new = [(n + k) % 31 for k in range(min(room, 1 + n % 40))]
            if new:
                model.forward(new, caches[i])
                texts[i] = texts[i] + new
        elif action == "truncate":
            length = n % (len(texts[i]) + 1)
            caches[i].truncate(length)
            texts[i] = texts[i][:length]
        else:
            caches.append(caches[i].fork())
            texts.append(texts[i])
    assert [cache.length for cache in caches] == [len(text) for text in texts]
    together = model.forward_many([([5], cache) for cache in caches])
    for logits, text in zip(together, texts):
        assert same(logits, logits_after(model, [*text, 5]))


@both_models
def test_rows_after_greedy_steps_are_those_of_no_cache_at_all(model):
    """And the cache holds each token once: prompt, then one a step."""
    tokens, cache = [3, 1, 4], model.new_cache()
    pending = tokens
    for step in range(10):
        logits = model.forward(pending, cache)
        assert cache.length == 3 + step
        assert same(logits, logits_after(model, tokens))
        pending = [int(logits[0].argmax())]
        tokens = tokens + pending
    run = [t for step in greedy(model, [3, 1, 4], max_new_tokens=10) for t in step.tokens]
    assert run == tokens[3:]


@both_models
def test_a_full_cache_takes_no_more_but_can_be_rolled_back(model):
    tokens = (np.arange(N_POSITIONS) % 31).tolist()
    cache = filled(model, tokens)
    with pytest.raises(ContextError, match=f"{N_POSITIONS} positions"):
        model.forward([1], cache)
    with pytest.raises(ContextError):
        model.forward([1], cache.fork())
    assert cache.length == N_POSITIONS
    cache.truncate(N_POSITIONS - 1)
    right = logits_after(model, tokens)
    assert same(model.forward(tokens[-1:], cache), right)


# Pages


def test_entries_past_the_length_are_never_read():
    cache = filled(MODEL, range(20))
    cache.truncate(10)
    for page in cache.pages:
        page[:, :, :, 10:] = np.nan
    assert same(MODEL.forward([5], cache), logits_after(MODEL, [*range(10), 5]))


def test_capacity_grows_with_the_tokens_and_shrinks_with_them():
    cache = MODEL.new_cache()
    assert cache.capacity == 0 and cache.pages == []
    for length in (1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE):
        MODEL.forward([1] * (length - cache.length), cache)
        assert length <= cache.capacity < length + PAGE
    cache.truncate(PAGE)
    assert cache.capacity == PAGE
    assert cache.pages[0].shape == (2, 2, 2, PAGE, 8)
    assert cache.pages[0].dtype == np.float32


def test_forks_share_the_pages_that_are_full_and_copy_no_other():
    parent = filled(MODEL, [1] * (2 * PAGE + 3))
    twin = parent.fork()
    assert all(a is b for a, b in zip(parent.pages, twin.pages))
    MODEL.forward([2], twin)
    MODEL.forward([3], parent)
    shared = [a is b for a, b in zip(parent.pages, twin.pages)]
    assert shared == [True, True, False]


def test_a_page_of_ones_own_is_not_copied():
    cache = filled(MODEL, [1] * 5)
    (page,) = cache.pages
    MODEL.forward([2], cache)
    assert cache.pages[0] is page


def test_what_was_reserved_and_not_used_does_no_harm():
    cache = filled(MODEL, [1, 2])
    cache.reserve(2 * PAGE)
    assert cache.length == 2
    twin = cache.fork()
    assert same(MODEL.forward([3] * 40, twin), logits_after(MODEL, [1, 2] + [3] * 40))
    assert same(MODEL.forward([4] * 40, cache), logits_after(MODEL, [1, 2] + [4] * 40))


def test_keys_and_values_land_at_their_positions():
    cache = KVCache(n_layer=2, n_head=3, head_dim=4, n_positions=100)
    held = np.arange(2 * 40 * 3 * 4, dtype=np.float32).reshape(2, 40, 3, 4)
    for part in (held[:, :30], held[:, 30:]):
        n = part.shape[1]
        cache.reserve(n)
        cache.write(1, part.swapaxes(1, 2))
        cache.advance(n)
    stored = np.concatenate([page[1] for page in cache.pages], axis=2)  # [2, h, t, head_dim]
    assert np.array_equal(stored[:, :, :40].swapaxes(1, 2), held)
