"""The only source of randomness: whoever decides anything by chance asks one of these objects.

A chance has two methods, and nothing else in minidecode draws a random number:

    choose(probs, position) -> token     draw a token for that position of the sequence
    accept(probability) -> bool          true with that probability

Two things are optional: `coupled`, true where draft and target draw with the same noise, and
`gumbel(size)`, the noise that stochastic beam search needs.

`Dice` rolls; `GumbelDice` rolls with noise tied to the position, so that two decoders with one seed
write the same text; `exact.Enumerator` does not roll at all but takes every branch in turn.
"""

import hashlib

import numpy as np

from ..checks import is_whole, shown
from ..errors import InputError, MinidecodeError


def as_chance(chance):
    """`chance`, or a fresh `Dice` where it is None; `InputError` for what is none."""
    if chance is None:
        return Dice()
    if not hasattr(chance, "choose"):  # `accept` is asked for by speculation alone
        hint = f"; Dice({chance}) has that seed" if is_whole(chance) else ""
        raise InputError(f"chance: got {shown(chance)}, a Dice or GumbelDice was wanted{hint}")
    return chance


def chances_for(prompts, chances):
    """One chance for each prompt, None where none was given. Errors: `InputError`."""
    if isinstance(prompts, str):
        raise InputError(f"prompts: got {shown(prompts)}, a list of prompts was wanted")
    found = [None] * len(prompts) if chances is None else list(chances)
    if len(found) != len(prompts):
        raise InputError(f"chances: got {len(found)} for {len(prompts)} prompts")
    own = [id(c) for c in found if c is not None and not is_coupled(c)]
    if len(set(own)) < len(own):
        raise InputError("chances: one object stands for two prompts, one each was wanted")
    return found


def is_coupled(chance):
    """Whether draft and target share the noise of this chance; a chance need not say so."""
    return getattr(chance, "coupled", False)


def check_seed(seed):
    """A seed as a non-negative int, or a fresh one from the operating system for None."""
    if seed is None:
        return int(np.random.SeedSequence().entropy % 2**32)
    if not is_whole(seed) or seed < 0:  # of any size
        raise InputError(f"seed: got {shown(seed)}, a whole number of at least 0 was wanted")
    return int(seed)


def possible(probs):
    """The tokens with a probability above 0, and their probabilities in float64."""
    probs = np.asarray(probs)
    tokens = np.flatnonzero(probs != 0)  # of booleans: ten times faster than of floats
    weights = probs[tokens].astype(np.float64)
    _check_weights(weights, weights.sum())
    return tokens, weights


def _check_weights(weights, total):
    if not 0 < total < np.inf or weights.min() < 0:
        raise InputError(
            "probabilities to draw from: a finite positive sum and none below 0 wanted"
        )


def inverse_cdf(probs, u):
    """The first token whose cumulative probability exceeds u, a number in [0, 1).

    The sum runs in float64 and u is scaled by its total: a running float32 sum over 50,000 tokens
    misses 1 by enough to make the last ones unreachable. A token of probability 0 exceeds no sum
    that the one before it does not, so it is never the first; where rounding leaves none, the last
    possible one is taken.
    """
    weights = np.asarray(probs, dtype=np.float64)
    cumulative = np.cumsum(weights)
    total = cumulative[-1] if len(cumulative) else 0.0
    _check_weights(weights, total)
    index = int(np.searchsorted(cumulative, u * total, side="right"))
    return index if index < len(weights) else int(np.flatnonzero(weights)[-1])


class Dice:
    """Ordinary random draws from a private generator; `seed=None` takes a fresh seed.

    `seed` holds the seed in use either way. Not to be shared between threads.
    """

    coupled = False

    def __init__(self, seed=None):
        self.seed = check_seed(seed)
        self._generator = np.random.default_rng(self.seed)

    def __repr__(self):
        return f"Dice({self.seed})"

    def uniform(self):
        """The next random number, in [0, 1)."""
        return self._generator.random()

    def choose(self, probs, position):
        return inverse_cdf(probs, self.uniform())

    def gumbel(self, size):
        """Standard Gumbel noise [size], for stochastic beam search."""
        return self._generator.gumbel(size=size)

    def accept(self, probability):
        # strictly below, so that probability 0 never passes and 1 always does
        return self.uniform() < probability


def _philox_key(seed):
    """(key, what stands above the position in the counter): a seed's place among Philox streams.

    Philox (Salmon et al. 2011) turns a key of 128 bits and a counter of 256 into random bits, so
    streams are apart when their keys or the upper halves of their counters are. Up to 2**128 the
    seed is the key and no two (seed, position) share a stream. A larger one is hashed to 192 bits
    with the topmost set, which no small seed has: two of them meet with probability 2**-191.
    """
    if seed < 2**128:
        return seed, 0
    digest = hashlib.blake2b(seed.to_bytes(-(-seed.bit_length() // 8), "big"), digest_size=24)
    number = int.from_bytes(digest.digest(), "big")
    return number >> 64, number % 2**63 | 2**63


class GumbelDice:
    """Draws token t at position i as argmax of log p(t) + g(seed, i)[t], g standard Gumbel noise.

    The noise depends on the seed and the position only, not on how many draws came before. So a
    draft that draws with the same object usually meets the target's own draw, and speculation that
    accepts a draft exactly when it equals that draw writes the very text of plain sampling.
    Under the ratio test u < p/q shared noise would bias the residual, hence no `accept` here.
    """

    coupled = True

    def __init__(self, seed=None):
        self.seed = check_seed(seed)
        self._key = _philox_key(self.seed)

    def __repr__(self):
        return f"GumbelDice({self.seed})"

    def noise(self, position, size):
        """g(seed, position) for tokens 0 .. size-1; a longer vocabulary only appends."""
        key, above = self._key
        bits = np.random.Philox(key=key, counter=above << 192 | position << 128)
        u = np.random.Generator(bits).random(size)  # [0, 1)
        with np.errstate(divide="ignore"):  # u = 0 gives -inf, the proper limit
            return -np.log(-np.log(u))

    def choose(self, probs, position):
        tokens, weights = possible(probs)
        scores = np.log(weights) + self.noise(position, len(probs))[tokens]
        return int(tokens[np.argmax(scores)])

    def accept(self, probability):
        raise MinidecodeError(
            "GumbelDice has no ratio test: its noise is shared, so a draft is accepted when it "
            "equals the target's own draw"
        )
