"""A model written by hand: a table of probabilities behind the interface of a model."""

import math

import numpy as np
import pytest

from minidecode import TableModel, greedy
from minidecode.errors import ContextError, InputError


def ids(steps):
    return [token for step in steps for token in step.tokens]


TABLE = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.75, 0.0]])


def test_a_table_answers_with_float64_log_probabilities():
    model = TableModel(TABLE)
    logits = model.forward([0, 1, 2], model.new_cache(), n_logits=2)
    assert logits.dtype == np.float64 and logits.shape == (2, 3)
    assert logits[1, 2] == -np.inf
    assert np.exp(logits) == pytest.approx(TABLE[1:])
    assert model.vocab_size == 3


def test_a_table_reads_alike_in_pieces_and_in_batches():
    model = TableModel(lambda h: np.roll([0.7, 0.2, 0.1], sum(h) * len(h)))
    whole = model.forward([0, 1, 2, 1], model.new_cache(), n_logits=4)
    a, b = model.new_cache(), model.new_cache()
    model.forward([0], a)
    batch = model.forward_many([([1, 2, 1], a), ([0, 1], b)], n_logits=[3, 1])
    assert np.array_equal(batch[0], whole[1:]) and np.array_equal(batch[1], whole[1:2])
    assert (a.length, b.length) == (4, 2)
    assert model.forward([2], b, n_logits=0).shape == (0, 3)


def test_rows_are_made_only_where_they_are_wanted():
    asked = []

    def row(history):
        asked.append(history)
        return [0.5, 0.5]

    model = TableModel(row)
    asked.clear()
    model.forward([0, 1, 1, 0], model.new_cache(), n_logits=2)
    assert asked == [[0, 1, 1], [0, 1, 1, 0]]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [0.5, 0.5],
        [[0.5, 0.5]],
        [[1, 0], [0.5, 0.4]],
        [[2, -1], [0.5, 0.5]],
        [[math.nan, 1], [0.5, 0.5]],
        [[math.inf, 0], [0.5, 0.5]],
        np.zeros((2, 2, 2)),
        lambda history: [0.5, 0.6],
        lambda history: [[0.5, 0.5]],
        lambda history: 1.0,
    ],
    ids=str,
)
def test_rows_that_are_no_probabilities_are_refused(rows):
    with pytest.raises(InputError, match=r"^rows?"):
        TableModel(rows)


@pytest.mark.parametrize("late", [[0.5, 0.6], [1.0], [0.5, 0.25, 0.25]], ids=str)
def test_a_row_that_goes_wrong_later_is_refused_and_the_cache_as_before(late):
    model = TableModel(lambda history: [0.5, 0.5] if len(history) < 3 else late)
    cache = model.new_cache()
    model.forward([0, 1], cache)
    with pytest.raises(InputError, match=r"row after \[0, 1, 1\]"):
        model.forward([1], cache)
    assert cache.length == 2


def test_errors_of_a_table_are_those_of_a_model():
    model = TableModel(TABLE, n_positions=4)
    cache, full = model.new_cache(), model.new_cache()
    model.forward([0], cache)
    model.forward([0, 1, 2, 0], full)
    for bad in ([], [3], [-1], [1.5], [True]):
        with pytest.raises(InputError):
            model.forward(bad, cache)
    with pytest.raises(InputError):
        model.forward([1], cache, n_logits=2)
    with pytest.raises(ContextError, match="4 positions"):
        model.forward_many([([1], cache), ([1], full)])
    with pytest.raises(InputError):
        model.forward_many([([1], cache), ([1], cache)])
    assert (cache.length, full.length) == (1, 4)


def test_end_ids_of_a_table_are_checked():
    for bad in (-1, 3, [0, 3], 1.5):
        with pytest.raises(InputError):
            TableModel(TABLE, eos=bad)
    assert len(ids(greedy(TableModel(TABLE, eos=None), [0], max_new_tokens=9))) == 9


@pytest.mark.parametrize("bad", [[True], [1.0], [3], [-1], []])
def test_a_table_that_remembers_still_refuses(bad):
    table = TableModel(np.full((3, 3), 1 / 3))
    table.forward([0, 1], table.new_cache())
    table.forward([1], table.new_cache())
    with pytest.raises(InputError):
        table.forward(bad, table.new_cache())


def test_a_table_that_remembers_still_counts_its_positions():
    table = TableModel(np.full((2, 2), 0.5), n_positions=2)
    for _ in range(2):
        cache = table.new_cache()
        table.forward([0, 1], cache)
        assert cache.length == 2
        with pytest.raises(ContextError, match="positions"):
            table.forward([0], cache)
        assert cache.length == 2
