"""The filters in NumPy, a function of a few lines each; `Warp` applies those that are set.

In this order, which is that of transformers for all that it has (it puts processors last):

    processors         logits -> logits: functions of the user's own
    logit_bias, repetition_penalty, presence_penalty, frequency_penalty
                       (logits [V], history, value) -> logits [V]
    no_repeat_ngram_size, bad_words, end_after, suppress
                       (history, value) -> ids that must not come next
    top_n_sigma        (logits [V], value) -> kept [V], before the temperature, which it ignores
    temperature, top_k, top_p
                       one pass in the kernels, see `kernels.reference.sampling_filter`
    min_p, typical_p, epsilon, eta
                       (probs [V], value) -> kept [V]; what is kept is renormalised each time

`history` is all ids so far, those of the prompt too. `kept` are booleans. A logit of -inf is
probability 0. No function changes what it is given.
"""

import numpy as np

from ..errors import InputError


def processors(logits, history, functions):
    """The logits after functions (logits [V], history) -> logits [V] of the user's own.

    Each is given copies, so that it may write into them. Errors: `InputError` for another shape.
    """
    for function in functions:
        found = function(logits.copy(), list(history))
        array = None if found is None else np.asarray(found)
        if array is None or array.shape != logits.shape or array.dtype.kind not in "fiu":
            got = "None" if array is None else f"{array.dtype} of shape {array.shape}"
            raise InputError(
                f"processors: got {got} from {function!r:.50}, logits of shape {logits.shape} "
                "were wanted"
            )
        logits = array.astype(logits.dtype)
    return logits


def logit_bias(logits, history, biases):
    """Add numbers to the logits of ids: biases is ((id, number), ...); -inf bans.

    As `logit_bias` of OpenAI's interface, llama.cpp and vLLM, `sequence_bias` of transformers.
    """
    logits = logits.copy()
    for token, number in biases:
        if token < len(logits) and logits[token] < np.inf:  # NaN and inf stay, to be refused
            logits[token] += number
    return logits


def repetition_penalty(logits, history, penalty):
    """Of ids seen before divide positive logits and multiply negative ones, once for each id.

    Source: Keskar et al. 2019 (CTRL), section 4.1. The prompt counts, as there, in transformers,
    vLLM and llama.cpp.
    """
    logits = logits.copy()
    seen, _ = _seen(history, len(logits))
    old, by = logits[seen], np.asarray(penalty).astype(logits.dtype)
    logits[seen] = np.where(old > 0, old / by, old * by)  # an overflow is refused later, as inf
    return logits


def presence_penalty(logits, history, penalty):
    """Subtract the penalty from the logits of ids seen before, once for each id.

    Source: OpenAI's interface. The prompt counts, as in llama.cpp; not so at OpenAI and in vLLM.
    """
    logits = logits.copy()
    seen, _ = _seen(history, len(logits))
    logits[seen] -= penalty
    return logits


def frequency_penalty(logits, history, penalty):
    """Subtract the penalty from the logits of ids seen before, as often as they were seen.

    Source: OpenAI's interface. The prompt counts, as in llama.cpp; not so at OpenAI and in vLLM.
    """
    logits = logits.copy()
    seen, times = _seen(history, len(logits))
    logits[seen] -= penalty * times
    return logits


def no_repeat_ngram_size(history, n):
    """The ids that would complete an n-gram that `history` holds already, ascending.

    Source: Paulus et al. 2017. The prompt counts, as in transformers.
    """
    history = list(history)
    start = len(history) - (n - 1)  # where the unfinished n-gram begins
    if n == 0 or start < 0:
        return []
    prefix = history[start:]
    return sorted({history[i + n - 1] for i in range(start) if history[i : i + n - 1] == prefix})


def bad_words(history, sequences):
    """The ids that would complete one of the sequences of ids, ascending; a single id always.

    As `bad_words_ids` of transformers: only this very sequence of ids is banned, not another
    spelling of the same text, and the beginning of one may lie in the prompt.
    """
    longest = max(map(len, sequences))
    tail = tuple(history[max(0, len(history) - longest) :])
    return sorted({s[-1] for s in sequences if tail[max(0, len(tail) - len(s) + 1) :] == s[:-1]})


def end_after(history, length_and_ids):
    """The end ids, as long as the history is shorter than a length."""
    length, ids = length_and_ids
    return ids if len(history) < length else ()


def suppress(history, ids):
    """These ids, always. As `suppress_tokens` of transformers."""
    return ids


def top_n_sigma(logits, n):
    """What is not more than n standard deviations below the maximum.

    Source: Tang et al. 2024. The deviation is that of all logits above -inf, divided by their
    number, as in llama.cpp. A temperature scales both sides alike, so it makes no difference.
    """
    finite = logits[logits > -np.inf].astype(np.float64)
    return logits >= finite.max() - n * finite.std()


def min_p(probs, share):
    """What has at least this share of the largest probability. Source: Nguyen et al. 2024."""
    return probs >= share * probs.max()


def typical_p(probs, mass):
    """The smallest set of mass `mass` whose surprise, -log p, is nearest to the entropy.

    Source: Meister et al. 2022. Ties fall to the lower id. It may cut the likeliest token.
    """
    possible = np.flatnonzero(probs)
    surprise = -np.log(probs[possible])
    away = np.abs(surprise - _entropy(probs))
    order = possible[np.argsort(away, kind="stable")]
    reached = np.cumsum(probs[order])
    kept = np.zeros(len(probs), dtype=bool)
    kept[order[: np.searchsorted(reached, mass * reached[-1]) + 1]] = True
    return kept


def epsilon(probs, least):
    """What is not below `least`, and the likeliest. Source: Hewitt et al. 2022, section 4."""
    kept = probs >= least
    kept[np.argmax(probs)] = True
    return kept


def eta(probs, least):
    """What is not below min(least, sqrt(least) * exp(-entropy)), and the likeliest.

    Source: Hewitt et al. 2022, section 4; `eta_cutoff` of transformers.
    """
    return epsilon(probs, min(least, np.sqrt(least) * np.exp(-_entropy(probs))))


def _seen(history, V):
    """The ids in `history` and how often each; none that a smaller vocabulary lacks."""
    ids, times = np.unique(np.asarray(history, dtype=np.int64), return_counts=True)
    return ids[ids < V], times[ids < V]


def _entropy(probs):
    """In nats."""
    possible = probs[probs > 0]
    return -(possible * np.log(possible)).sum()
