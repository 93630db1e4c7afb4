"""A language model written by hand: its next-token probabilities are given, not computed.

Every decoder runs on it as on GPT-2, so a decoder's output law can be worked out exactly.
"""

import numpy as np

from ..checks import check_batch, id_tuple
from ..errors import ContextError, InputError

REMEMBERED = 100_000  # rows, after which a table forgets them and starts anew


class TableCache:
    """Keeps what a `KVCache` stands for: the tokens seen so far."""

    def __init__(self, tokens=()):
        self.tokens = list(tokens)

    @property
    def length(self):
        return len(self.tokens)

    def __repr__(self):
        return f"TableCache({self.length} tokens)"

    def truncate(self, length):
        if not 0 <= length <= self.length:
            raise InputError(f"cache: cannot truncate {self.length} tokens to {length}")
        del self.tokens[length:]

    def fork(self):
        return TableCache(self.tokens)


class TableModel:
    """`rows` is a [V, V] array (row by last token) or a function: token history -> row [V].

    Rows are probabilities, the logits their float64 logarithms (-inf for 0). A function is asked
    once per history: the proof comes back to each many thousand times. `eos` is an id or several,
    as in a checkpoint. Errors: `InputError` for rows that are not probabilities.
    """

    def __init__(self, rows, *, n_positions=1024, eos=(), bos=None):
        self._table, self._known, self._passes = None, {}, {}
        if callable(rows):
            self._row = rows
            self.vocab_size = None  # known when the first row is seen; asked for below
            self.vocab_size = len(self.row([0]))
        else:
            table = np.asarray(rows, dtype=np.float64)
            if table.ndim != 2 or table.shape[0] != table.shape[1]:
                raise InputError(f"rows: got shape {table.shape}, [V, V] was wanted")
            self.vocab_size = len(table)
            self._table, self._row = table, self._last_row
            for token in range(len(table)):
                self.row([token])
        self.n_positions = n_positions
        self.eos = id_tuple(eos, self.vocab_size)
        self.bos = bos

    def __repr__(self):
        return f"TableModel({self.vocab_size} ids, {self.n_positions} positions)"

    def new_cache(self):
        return TableCache()

    def row(self, history):
        """The probabilities [V] of the token after `history`."""
        row = np.asarray(self._row(list(history)), dtype=np.float64)
        if row.ndim != 1 or (self.vocab_size is not None and len(row) != self.vocab_size):
            raise InputError(f"row after {history}: got shape {row.shape}, [V] was wanted")
        if not (row >= 0).all() or not abs(row.sum() - 1) < 1e-6:
            raise InputError(f"row after {history}: got {row}, probabilities of sum 1 were wanted")
        return row

    def forward(self, tokens, cache, n_logits=1, hidden=False):
        """As `GPT2.forward`, in float64. A pass seen before is looked up, checks and all."""
        _refuse_hidden(hidden)
        for token in tokens if type(tokens) is list else (None,):
            if type(token) is not int:  # True and 1.0 are equal to 1, and are no ids
                return self.forward_many([(tokens, cache)], n_logits)[0]
        key = n_logits, tuple(cache.tokens), *tokens
        known = self._passes.get(key)
        if known is None:
            known = self.forward_many([(tokens, cache)], n_logits)[0]
            _remember(self._passes, key, known)
        else:
            cache.tokens += tokens
        return known.copy()

    def forward_many(self, batch, n_logits=1, hidden=False):
        """As `GPT2.forward_many`, in float64."""
        _refuse_hidden(hidden)
        tokens, counts = check_batch(batch, n_logits, self.vocab_size)
        histories = [cache.tokens + ids.tolist() for ids, (_, cache) in zip(tokens, batch)]
        for history in histories:
            if len(history) > self.n_positions:
                raise ContextError(
                    f"tokens: got {len(history)}, the table has {self.n_positions} positions"
                )
        results = [self._logits(history, count) for history, count in zip(histories, counts)]
        for history, (_, cache) in zip(histories, batch):
            cache.tokens = history  # only now: an error leaves the caches as they were
        return results

    def _logits(self, history, count):
        """The logits [count, V] after each of the last `count` tokens of history."""
        ends = range(len(history) - count + 1, len(history) + 1)
        return np.array([self._log_row(history[:end]) for end in ends]).reshape(
            count, self.vocab_size
        )

    def _log_row(self, history):
        """The logits [V] after `history`, computed once."""
        key = history[-1] if self._table is not None else tuple(history)
        if key not in self._known:
            with np.errstate(divide="ignore"):
                _remember(self._known, key, np.log(self.row(history)))
        return self._known[key]

    def _last_row(self, history):
        return self._table[history[-1]]


def _refuse_hidden(hidden):
    if hidden:
        raise InputError("hidden: a table of probabilities has no hidden states")


def _remember(known, key, value):
    if len(known) >= REMEMBERED:
        known.clear()
    known[key] = value
