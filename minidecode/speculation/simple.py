"""Speculative decoding in twenty lines, to read before loop.py.

Leviathan et al. and Chen et al. (2023): a draft proposes k tokens, one pass of the target judges
them all, and the text is distributed as if the target had written it alone. Here nothing is cached
and no text ends early; loop.py adds that, and limits, schedules, other rules and other drafts.
"""

import numpy as np

from ..decoding.warp import Warp


def simple_speculative(target, draft, prompt, *, chance, k=4, warp=None, max_new_tokens=20):
    """The ids [max_new_tokens] that follow `prompt`. p are the target's rows [V], q the draft's."""
    warp, text, end = warp or Warp(), list(prompt), len(prompt) + max_new_tokens
    while len(text) < end:
        # 1. The draft proposes k tokens, each drawn from its own distribution.
        drafted, q = [], []
        for _ in range(k):
            q += distributions(draft, text + drafted, warp, 1)
            drafted.append(chance.choose(q[-1], len(text) + len(drafted)))
        # 2. One pass of the target gives its distribution at each of these places and after them.
        p = distributions(target, text + drafted, warp, k + 1)
        # 3. Draft x stands with probability min(1, p(x) / q(x)).
        for i, x in enumerate(drafted):
            if chance.accept(min(1.0, float(p[i][x] / q[i][x]))):
                text.append(x)
                continue
            # 4. The first that does not is replaced by a draw from what p has more than q.
            more = np.maximum(p[i] - q[i], 0)
            text.append(chance.choose(more / more.sum(), len(text)))
            break
        else:
            # 5. Where all stand, the last row gives a token more.
            text.append(chance.choose(p[k], len(text)))
    return text[len(prompt) : end]


def distributions(model, tokens, warp, n):
    """The model's distributions [V] after each of the last n beginnings of `tokens`."""
    logits = model.forward(tokens, model.new_cache(), n_logits=n)  # [n, V]
    first = len(tokens) - n + 1
    rows = (warp(row, tokens[: first + i]) for i, row in enumerate(logits))
    return [row.astype(np.float64) for row in rows]
