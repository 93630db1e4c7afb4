"""The rules of verification: which drafts stand, and which token follows them.

`verify` is the ratio test of Leviathan et al. and Chen et al. (2023): draft x, drawn from q, is
accepted with probability min(1, p(x)/q(x)); the first rejected one is replaced by a draw from
norm(max(0, p - q)), and where all were accepted a bonus token comes from the last row. The token at
each place is then distributed as p, whatever q is.
"""

import numpy as np


def verify(p, q, drafted, chance, position=0):
    """Accept drafts and draw the token after them -> (accepted, next_token).

    p [k + 1, V]: the target's distributions at the places of the k drafts and at the one after.
    q [k, V]: the distributions that the drafts were drawn from. A row of p that is all zeros says
    that every token is banned there: whoever comes to it returns (accepted, None).
    position: that of the first draft in the sequence, for `chance`.
    """
    for i, x in enumerate(drafted):
        if p[i][x] > 0 and chance.accept(min(1.0, float(p[i][x]) / float(q[i][x]))):
            continue
        residual = np.maximum(np.subtract(p[i], q[i], dtype=np.float64), 0)
        # Rejection means q(x) > p(x), so some mass of p lies elsewhere; rounding can still lose it.
        return i, draw(residual if residual.any() else p[i], chance, position + i)
    k = len(drafted)
    return k, draw(p[k], chance, position + k)  # the bonus: nothing is subtracted


def draw(row, chance, position):
    """A token from row [V], which need not sum to 1; None where all of it is zero."""
    return chance.choose(row, position) if np.any(row) else None


def verify_coupled(p, q, drafted, chance, position=0):
    """As `verify` for a chance whose noise the draft shared: accept what equals the target's draw.

    The result is what the target alone would have drawn with this noise, token for token.
    """
    for i, x in enumerate(drafted):
        token = draw(p[i], chance, position + i)
        if token != x:
            return i, token
    k = len(drafted)
    return k, draw(p[k], chance, position + k)
