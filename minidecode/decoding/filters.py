"""The filters in NumPy, a function of a few lines each; `Warp` says in which order they apply.

    penalty(logits [V], history, value) -> logits [V]   makes tokens more or less likely
    ban(history, value) -> ids                          that must not come next
    cut(logits [V], value) -> kept [V]                  booleans, read off before the temperature
    filter(probs [V], value) -> kept [V]                booleans; `Warp` renormalises what is kept

None of them changes what it is given. Temperature, top-k, top-p and epsilon are one pass in the
kernels (`kernels.reference.sampling_filter`); `epsilon` stands here for where others go between.
"""

import numpy as np


def repetition_penalty(logits, history, penalty):
    """Of ids seen before divide positive logits and multiply negative ones, once for each id.

    Source: Keskar et al. 2019 (CTRL), section 4.1.
    """
    logits = logits.copy()
    seen = _seen(history, len(logits))
    old, by = logits[seen], np.asarray(penalty).astype(logits.dtype)
    logits[seen] = np.where(old > 0, old / by, old * by)  # an overflow is refused later, as inf
    return logits


def no_repeat_ngram_size(history, n):
    """The ids that would complete an n-gram that `history` holds already, ascending.

    Source: Paulus et al. 2017.
    """
    history = list(history)
    start = len(history) - (n - 1)  # where the unfinished n-gram begins
    if n == 0 or start < 0:
        return []
    prefix = history[start:]
    return sorted({history[i + n - 1] for i in range(start) if history[i : i + n - 1] == prefix})


def epsilon(probs, least):
    """What is not below `least`, and the likeliest. Source: Hewitt et al. 2022."""
    kept = probs >= least
    kept[np.argmax(probs)] = True
    return kept


def _seen(history, V):
    """The ids in `history`, once each, without those that a smaller vocabulary lacks."""
    ids = np.unique(np.asarray(history, dtype=np.int64))
    return ids[ids < V]
