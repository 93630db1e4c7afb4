"""What narrow weights cost: how far a model's next-token distribution moves on text it never saw.

Every token is predicted from the true ones before it. p is the distribution with float32 weights, q
the one with narrow weights. Perplexity alone hides errors that cancel; the divergence KL(p || q)
hides none, and the share of equal greedy tokens says how often a greedy text changes course.

perplexity    exp of the mean negative log-probability of the true token
KL            sum of p * log(p / q), nats a token, the mean over all places
same greedy   the part of the places where p and q have the same likeliest token, lower id first
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..decoding.warp import log_softmax
from ..errors import InputError
from .speed import weight_bytes

TEXTS = {name: Path(__file__).with_name("texts") / f"{name}.txt" for name in ("stories", "books")}
END = "<|endoftext|>"  # stands between documents
REFERENCE = "float32"
BLOCK = 64  # places compared at once: bounds the memory for logits


@dataclass(frozen=True)
class Quality:
    """One model against another on one text; all but the number of tokens are means."""

    tokens: int
    perplexity: float
    reference_perplexity: float
    kl: float
    same_greedy: float

    @property
    def loss(self) -> float:
        """By which part the perplexity is above the reference's; below 0 where it is better."""
        return self.perplexity / self.reference_perplexity - 1


def split_documents(text: str, source: str | Path = "text") -> list[str]:
    """The documents of a text, those between its `<|endoftext|>`.

    Errors: `InputError`, which names `source`, where there is none.
    """
    documents = [part.strip("\n") for part in text.split(END)]
    documents = [part for part in documents if part]
    if not documents:
        raise InputError(f"{source}: got no text, some was wanted")
    return documents


def windows(model, documents: list[list[int]]) -> list[list[int]]:
    """The ids of each document, the bos id first, cut so that each piece fits into the context.

    A piece begins with the last token of the one before: that one is given, all others predicted.
    """
    start = [] if model.bos is None else [model.bos]
    found = []
    for document in documents:
        tokens = [*start, *document]
        found += [
            tokens[i : i + model.n_positions + 1]
            for i in range(0, len(tokens) - 1, model.n_positions)
        ]
    return found


def compare_models(reference, model, pieces, *, progress=None) -> Quality:
    """`model` against `reference` on the token ids of `windows`.

    Both need one vocabulary. Errors: `InputError` where nothing is to be predicted, or where an id
    is none of the model's. progress: tqdm or a class like it.
    """
    if not pieces:
        raise InputError("text: got no token to predict, at least one was wanted")
    total = np.zeros(4)  # log p and log q of the true tokens, divergence, equal greedy tokens
    for piece in progress(pieces, desc="pieces of text") if progress else pieces:
        total += _compare_piece(reference, model, piece)
    tokens = sum(len(piece) - 1 for piece in pieces)
    log_p, log_q, kl, same = (total / tokens).tolist()
    return Quality(tokens, _exp(-log_q), _exp(-log_p), kl, same)


def _exp(x):
    with np.errstate(over="ignore"):  # inf where a model holds a true token for impossible
        return float(np.exp(x))


def _compare_piece(reference, model, piece):
    caches = reference.new_cache(), model.new_cache()
    total = np.zeros(4)
    for start in range(0, len(piece) - 1, BLOCK):
        fed, following = piece[start:-1][:BLOCK], piece[start + 1 :][:BLOCK]
        rows = [
            each.forward(fed, cache, n_logits=len(fed))  # [<= BLOCK, V]
            for each, cache in zip((reference, model), caches)
        ]
        for token, p_logits, q_logits in zip(following, *rows):
            log_p, log_q = log_softmax(p_logits), log_softmax(q_logits)
            same = np.argmax(p_logits) == np.argmax(q_logits)
            total += log_p[token], log_q[token], divergence(log_p, log_q), same
    return total


def divergence(log_p: np.ndarray, log_q: np.ndarray) -> float:
    """KL(p || q) in nats; what p rules out counts nothing, and never below 0 by rounding."""
    p = np.exp(log_p)
    possible = p > 0
    return max(0.0, float(p[possible] @ (log_p[possible] - log_q[possible])))


def measure_quality(
    load: Callable, dtypes: Iterable[str], texts: dict[str, list[str]], *, progress=None
) -> dict:
    """Every storage type of one model on every text: {"tokens": ..., "types": ...}, for JSON.

    load(dtype) -> (model, tokenizer); texts: name -> documents. float32, against which all are
    held, comes first whether or not it is among `dtypes`. Two models are in memory at a time.
    """
    reference, tokenizer = load(REFERENCE)
    pieces = {
        name: windows(reference, [tokenizer.encode(document) for document in documents])
        for name, documents in texts.items()
    }
    types = {}
    for dtype in dict.fromkeys([REFERENCE, *dtypes]):
        model = reference if dtype == REFERENCE else load(dtype)[0]
        types[dtype] = {"weights, MB": weight_bytes(model) / 1e6, "texts": {}}
        for name in texts:
            found = compare_models(reference, model, pieces[name], progress=progress)
            types[dtype]["texts"][name] = {
                "perplexity": found.perplexity,
                "loss": found.loss,
                "KL, nats": found.kl,
                "same greedy": found.same_greedy,
            }
    tokens = {name: sum(len(piece) - 1 for piece in pieces[name]) for name in texts}
    return {"tokens": tokens, "types": types}
