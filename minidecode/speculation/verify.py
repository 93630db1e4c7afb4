"""The rules of verification: which drafts stand, and which token follows them.

`verify` is the ratio test of Leviathan et al. and Chen et al. (2023): draft x, drawn from q, is
accepted with probability min(1, p(x)/q(x)); the first rejected one is replaced by a draw from
norm(max(0, p - q)), and where all were accepted a bonus token comes from the last row. The token at
each place is then distributed as p, whatever q is.

`verify_block` judges the drafts together (Sun et al., ICLR 2025), which keeps more of them, never
fewer on average, and is as exact. Read `verify` first.
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
        return i, draw(residual if np.count_nonzero(residual) else p[i], chance, position + i)
    k = len(drafted)
    return k, draw(p[k], chance, position + k)  # the bonus: nothing is subtracted


def draw(row, chance, position):
    """A token from row [V], which need not sum to 1; None where all of it is zero."""
    # count_nonzero: `any` takes ten times as long on a short row, and a proof asks it very often.
    return chance.choose(row, position) if np.count_nonzero(row) else None


def residual(p, q, scale=1.0):
    """max(0, scale p - q) [V], and its sum."""
    left = np.multiply(p, scale, dtype=np.float64)
    left -= q
    np.maximum(left, 0, out=left)
    return left, float(left.sum())


def verify_block(p, q, drafted, chance, position=0, residual=residual):
    """As `verify`, but a draft may be kept for what follows it: the last coin that falls counts.

    Let P_0 = 1 and P_i = min(1, P_{i-1} p(x_i)/q(x_i)) for the drafts x_1 .. x_k, and R_i the sum
    of max(0, P_i p - q) over the row behind x_i. Coins are thrown from the end: all k drafts are
    kept with probability P_k, else the first i with probability R_i / (R_i + 1 - P_i), for
    i = k-1 down to 0 (where it is 1). The next token comes from norm(max(0, P_i p - q)), after all
    k from p. This is algorithm 2 of the paper.

    Why it is exact. Averaged over the drafts behind x_i, i or more are kept with probability P_i.
    For i = k that is the first coin. If it holds for i+1, more than i are kept with probability
    sum of q min(1, P_i p/q) = sum of min(q, P_i p) = P_i - R_i, and with the coin of i itself
    P_i - R_i + (1 - P_i + R_i) R_i / (R_i + 1 - P_i) = P_i. So of the mass P_i that comes to the
    row behind x_i, token x gets min(q, P_i p) as a draft and max(0, P_i p - q) as a correction,
    together P_i p(x): it is distributed as p.

    Why it keeps more. `verify` keeps i with the product of min(1, p/q), which is at most P_i: there
    a bad ratio is never made good, here a later ratio above 1 brings P back up.
    residual: as the function above, for whoever has a faster one.
    """
    banned = (i for i in range(len(drafted)) if not np.count_nonzero(p[i]))
    k = next(banned, len(drafted))  # no text goes on behind a row of zeros
    reach = [1.0]  # P_0 .. P_k
    for i, x in enumerate(drafted[:k]):
        reach.append(min(1.0, reach[i] * float(p[i][x]) / float(q[i][x])))
    if reach[k] > 0 and chance.accept(reach[k]):
        return k, draw(p[k], chance, position + k)
    for i in reversed(range(k)):
        left, mass = residual(p[i], q[i], reach[i])
        # Without mass, x_i is kept only if P_i = 1: then p = q, and rounding alone leads here.
        coin = mass / (mass + (1 - reach[i])) if mass else float(reach[i] == 1)
        if coin > 0 and chance.accept(coin):
            return i, draw(left if mass else p[i], chance, position + i)


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
