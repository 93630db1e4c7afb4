"""The KV cache: keys and values of every token seen, so that none is computed twice.

Kept in pages of 32 positions. A page never moves: growing copies nothing, and forks (beams) share
every page that is full. A page that another cache may also hold is copied before it is written.
"""

import numpy as np

from ..errors import ContextError, InputError

PAGE = 32  # positions a page; small enough that copying the last page of a fork is cheap


class KVCache:
    """Pages [n_layer, 2, n_head, PAGE, head_dim] (0 = keys, 1 = values) of float32.

    `length` tokens are in it; entries past `length` are never read. Not for two threads at once.
    """

    def __init__(self, n_layer, n_head, head_dim, n_positions):
        self.page_shape = (n_layer, 2, n_head, PAGE, head_dim)
        self.n_positions = n_positions
        self.length = 0
        self.pages = []
        self._owned = []  # per page: no other cache holds it

    def __repr__(self):
        return f"KVCache({self.length} of {self.n_positions} tokens)"

    @property
    def capacity(self):
        """Positions that fit without another page."""
        return len(self.pages) * PAGE

    def reserve(self, n):
        """Make room to write n tokens past `length`; `ContextError` beyond n_positions."""
        end = self.length + n
        if end > self.n_positions:
            raise ContextError(
                f"tokens: {self.length} in the cache and {n} new ones, "
                f"the model has {self.n_positions} positions"
            )
        for i in range(self.length // PAGE, len(self.pages)):
            if not self._owned[i]:
                self.pages[i] = self.pages[i].copy()
                self._owned[i] = True
        while self.capacity < end:
            self.pages.append(np.empty(self.page_shape, np.float32))
            self._owned.append(True)

    def write(self, layer, keys_and_values):
        """Put [2, h, n, head_dim] of one layer at positions length .. length+n.

        They count only once `advance` is called, after the last layer, so a pass that is
        interrupted leaves the cache as it was.
        """
        done, n = 0, keys_and_values.shape[2]
        while done < n:
            page, at = divmod(self.length + done, PAGE)
            m = min(PAGE - at, n - done)
            self.pages[page][layer, :, :, at : at + m] = keys_and_values[:, :, done : done + m]
            done += m

    def advance(self, n):
        self.length += n

    def truncate(self, length):
        """Roll back to the first `length` tokens; more than there are or below 0 is an error."""
        if not 0 <= length <= self.length:
            raise InputError(f"cache: cannot truncate {self.length} tokens to {length}")
        pages = -(-length // PAGE)
        del self.pages[pages:], self._owned[pages:]
        self.length = length

    def fork(self):
        """A second cache with the same tokens; memory is shared until one of the two writes."""
        twin = KVCache.__new__(KVCache)
        twin.__dict__.update(self.__dict__)
        self._owned = [False] * len(self.pages)
        twin.pages, twin._owned = list(self.pages), list(self._owned)
        return twin
