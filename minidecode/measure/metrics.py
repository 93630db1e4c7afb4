"""What a text is like, in numbers: how varied, how repetitive, how likely.

All but the last three take a sequence of items and count its n-grams (n items in a row). Items are
token ids, or words: `words(text)`. The same text has other values over words than over tokens, so
say which. Nothing is divided by zero: what a text is too short for is None.

The last three ask a model how likely the tokens are; logarithms are natural there, and to base 2 in
entropies. Sources stand with each function. Some papers give percent; here it is parts of 1.
"""

from collections import Counter

import numpy as np

from ..checks import check_tokens
from ..decoding.run import prompt_ids
from ..decoding.warp import log_softmax

BLOCK = 64  # tokens scored at once: bounds the memory for their logits


def words(text):
    """A text's words: what stands between white space, punctuation included."""
    return text.split()


def ngrams(items, n):
    """All n-grams of the sequence in order, as tuples."""
    items = list(items)
    return [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]


def ngram_entropy(items, n):
    """-sum f log2 f over the n-grams' frequencies f, in bits; None without an n-gram.

    0 where all are the same; log2 of their number, the most there can be, where all are different.
    So it grows with the text: compare texts of like length. (Ent-n of Zhang et al. 2018; base 2 as
    in the generation entropy of Meng et al. 2022.)
    """
    counts = np.array(list(Counter(ngrams(items, n)).values()), dtype=np.float64)
    if not len(counts):
        return None
    f = counts / counts.sum()
    return float(np.sum(f * -np.log2(f)))


def distinct(items, n):
    """distinct-n: different n-grams / all n-grams; None without any.

    Li et al. 2016, in the usual form: they themselves divide by the number of tokens.
    """
    found = ngrams(items, n)
    return len(set(found)) / len(found) if found else None


def rep(items, n):
    """rep-n: 1 - different n-grams / all n-grams; None without any (Welleck et al. 2020)."""
    share = distinct(items, n)
    return None if share is None else 1 - share


def share_in_repeats(items, n=4):
    """The part of the items inside an n-gram that stood earlier in the text; None for no items.

    An item counts once, however many repeated n-grams it is in, and a first occurrence not at all.
    (Rae et al. 2021, table A1, "duplicate n-gram character fraction", here over items.)
    """
    items = list(items)
    if not items:
        return None
    seen, inside = set(), np.zeros(len(items), dtype=bool)
    for i, ngram in enumerate(ngrams(items, n)):
        if ngram in seen:
            inside[i : i + n] = True
        seen.add(ngram)
    return float(inside.mean())


def zipf_exponent(items):
    """s of frequency ~ 1 / rank ** s: minus the least-squares slope of log f over log rank.

    None with fewer than two different items. About 1 in natural text, more where few words are
    used again and again. (Holtzman et al. 2020, section 5.)
    """
    counts = sorted(Counter(items).values(), reverse=True)
    if len(counts) < 2:
        return None
    x = np.log(np.arange(1, len(counts) + 1))
    y = np.log(counts)
    x, y = x - x.mean(), y - y.mean()
    return float(np.sum(x * -y) / np.sum(x * x))


def token_logprobs(model, prompt, tokens):
    """The model's log-probability [len(tokens)] of each token after the prompt and those before it.

    prompt: ids; an empty one starts from the bos id. Errors: `InputError` for what is no id,
    `ContextError` for more than the model has positions.
    """
    prompt, tokens = prompt_ids(model, prompt), list(tokens)
    if not tokens:
        return np.zeros(0)
    check_tokens(tokens, model.vocab_size)  # all of them: the last one is never fed
    cache = model.new_cache()
    found = [log_softmax(model.forward(prompt, cache)[-1])[tokens[0]]]
    for start in range(1, len(tokens), BLOCK):
        following = tokens[start : start + BLOCK]
        fed = tokens[start - 1 :][: len(following)]  # each token is predicted by the one before it
        rows = model.forward(fed, cache, n_logits=len(fed))  # [<= BLOCK, V]
        found += [log_softmax(row)[token] for row, token in zip(rows, following)]
    return np.array(found)


def mean_logprob(model, prompt, tokens):
    """The mean of `token_logprobs`, in nats; None without tokens."""
    found = token_logprobs(model, prompt, tokens)
    return float(found.mean()) if len(found) else None


def perplexity(model, prompt, tokens):
    """exp of minus `mean_logprob`: among how many equally likely tokens it is like choosing.

    None without tokens; inf where the model holds one for impossible.
    """
    mean = mean_logprob(model, prompt, tokens)
    if mean is None:
        return None
    with np.errstate(over="ignore"):
        return float(np.exp(-mean))
