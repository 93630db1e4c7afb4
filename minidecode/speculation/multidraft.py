"""Several drafts for one place: the rules, for readers. Nothing in the house runs them.

A draft model may propose m tokens x_1 .. x_m for the next place, as the branches of a tree, and one
pass of the target scores them all. They are tested one after the other: x_j, drawn from q_j, is
accepted with probability min(1, p_j(x_j)/q_j(x_j)), where p_1 = p; if it is rejected, the rest
p_{j+1} = norm(max(0, p_j - q_j)) goes to the next one, and after m rejections the token is drawn
from what is left. Each test alone is the ratio test of `verify`, and makes of what is drawn from
q_j what is drawn from p_j; so the token is distributed as p.

`verify_independent`: all drafts are drawn from the same q (SpecInfer, Miao et al. 2024).
`verify_distinct`: without replacement, so that no draft is tested twice: q_{j+1} is q_j without
x_j (recursive speculative decoding, Jeon et al. 2024); `draw_distinct` draws them.

In a tree an accepted draft is the next node, whose branches are then tested in the same way.

Why the house drafts chains. Where a row of the target's pass is cheap, what counts is the number of
tokens for a number of rows. With the embedded pair at T = 1 and 8 rows, a chain of 8 brought 3.33
tokens per pass, a tree of widths (2, 1, 1, 1) 3.06 and one of (4, 1) 2.50, both without replacement
(40 prompts, 64 tokens each): what stands behind a second guess is seldom reached, and the chain
uses its rows further on.
"""

import numpy as np

from .verify import draw


def verify_independent(p, q, drafted, chance, position=0):
    """Drafts drawn from the same q -> (index of the accepted one or None, the token).

    p, q [V]: the distributions at the one place of the drafts.
    """
    p, q = np.array(p, np.float64), np.asarray(q, np.float64)
    for j, x in enumerate(drafted):
        if p[x] > 0 and chance.accept(min(1.0, float(p[x] / q[x]))):
            return j, x
        p = remainder(p, q)
    return None, draw(p, chance, position)


def verify_distinct(p, q, drafted, chance, position=0):
    """Drafts that `draw_distinct` drew from q -> (index of the accepted one or None, the token)."""
    p, q = np.array(p, np.float64), np.array(q, np.float64)
    for j, x in enumerate(drafted):
        if p[x] > 0 and chance.accept(min(1.0, float(p[x] / q[x]))):
            return j, x
        p, q = remainder(p, q), without(q, x)
    return None, draw(p, chance, position)


def draw_distinct(q, width, chance, position=0):
    """Up to `width` different tokens: each drawn from q [V] without those before it."""
    q, drafted = np.array(q, np.float64), []
    while q.any() and len(drafted) < width:
        drafted.append(chance.choose(q, position))
        q = without(q, drafted[-1])
    return drafted


def remainder(p, q):
    """norm(max(0, p - q)); p where rounding has left nothing of it."""
    left = np.maximum(p - q, 0)
    return left / left.sum() if left.any() else p


def without(q, x):
    """q [V] with token x taken out; all zeros where it was the only one."""
    q = q.copy()
    q[x] = 0
    return q / q.sum() if q.any() else q
