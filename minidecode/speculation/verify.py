"""The rules of verification: which drafts stand, and which token follows them.

`verify` is the ratio test of Leviathan et al. and Chen et al. (2023): draft x, drawn from q, is
accepted with probability min(1, p(x)/q(x)); the first rejected one is replaced by a draw from
norm(max(0, p - q)), and where all were accepted a bonus token comes from the last row. The token at
each place is then distributed as p, whatever q is.
"""

import numpy as np


def verify(p, q, drafted, chance, position=0):
    """Accept drafts and draw the token after them -> (accepted, next_token).

    p: the target's distributions [V] at the k drafted places and the one after; q: the k that the
    drafts were drawn from. position: of the first draft in the sequence, for `chance`.
    """
    for i, x in enumerate(drafted):
        p_i, q_i = p[i], q[i]  # [V]
        if p_i[x] > 0 and chance.accept(min(1.0, float(p_i[x]) / float(q_i[x]))):
            continue
        residual = np.maximum(np.subtract(p_i, q_i, dtype=np.float64), 0)
        # Rejection means q(x) > p(x), so some mass of p lies elsewhere; rounding can still lose it.
        return i, chance.choose(residual if residual.any() else p_i, position + i)
    k = len(drafted)
    return k, chance.choose(p[k], position + k)  # the bonus: nothing is subtracted


def verify_coupled(p, q, drafted, chance, position=0):
    """As `verify` for a chance whose noise the draft shared: accept what equals the target's draw.

    The result is what the target alone would have drawn with this noise, token for token.
    """
    for i, x in enumerate(drafted):
        token = chance.choose(p[i], position + i)
        if token != x:
            return i, token
    k = len(drafted)
    return k, chance.choose(p[k], position + k)
