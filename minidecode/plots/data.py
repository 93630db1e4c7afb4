"""What the pictures of plots.py show, measured here: each function returns a dict, ready for JSON.

Running times are measured by bench_speculative.py, and metrics of texts by compare.py. All that is
measured here comes out the same each time.
"""

import itertools
import statistics

import numpy as np

from ..decoding.beam import beam_search
from ..decoding.chance import Dice
from ..decoding.run import prompt_ids
from ..decoding.settings import encode_texts
from ..decoding.warp import SETTINGS, Warp
from ..errors import InputError
from ..measure.metrics import token_logprobs
from ..models.labels import Spelling
from ..speculation.loop import speculative
from ..speculation.rounds import by_position, speculation_stats

# Brothers Grimm, "The Fox and the Geese" (1815), from Household Tales, translated by Margaret Hunt
# (1884; Project Gutenberg 5314), in the public domain. The embedded pair was not trained on it.
PASSAGE = (
    "The fox once came to a meadow in which was a flock of fine fat geese, on which he smiled and "
    'said, "I come in the nick of time, you are sitting together quite beautifully, so that I can '
    'eat you up one after the other." The geese cackled with terror, sprang up, and began to wail '
    "and beg piteously for their lives. But the fox would listen to nothing, and said, "
    '"There is no mercy to be had! You must die." At length one of them took heart and said, "If '
    "we poor geese are to yield up our vigorous young lives, show us the only possible favour and "
    "allow us one more prayer, that we may not die in our sins, and then we will place ourselves "
    'in a row, so that you can always pick yourself out the fattest." "Yes," said the fox, "that '
    'is reasonable, and a pious request. Pray away, I will wait till you are done." Then the first '
    'began a good long prayer, for ever saying, "Ga! Ga!" and as she would make no end, the second '
    'did not wait until her turn came, but began also, "Ga! Ga!" The third and fourth followed '
    "her, and soon they were all cackling together."
)
PROMPT_WORDS = 63  # its first two sentences

PHRASES = (
    '\n"What is the matter?" asked the fox.',  # beam search falls into this after the passage
    " I do not know.",
    " Ga! Ga!",
    " They played together every day and had lots of fun.",
)
CONTEXTS = ("She said that the", "Once upon a time, there was a little")  # flat, peaked
EXAMPLES = {n: row.example for n, row in SETTINGS.items() if row.shapes}
SHOWN = 16  # tokens of a filtered distribution


def probability(
    model,
    tokenizer,
    text=PASSAGE,
    *,
    prompt_words=PROMPT_WORDS,
    max_new_tokens=60,
    num_beams=4,
):
    """Token probabilities of a human text and of what beam search writes after its beginning.

    The first prompt_words words of `text` are the prompt of both; of each up to max_new_tokens are
    looked at. Source: Holtzman et al. 2020, figure 2. Errors: `InputError` for too short a text.
    """
    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens: got {max_new_tokens}, at least 1 was wanted")
    words = text.split()
    if prompt_words < 1:
        raise InputError(f"prompt_words: got {prompt_words}, at least 1 was wanted")
    if len(words) <= prompt_words:
        raise InputError(
            f"text: got {len(words)} words, more than the {prompt_words} of the prompt were wanted"
        )
    # Cut in the text as it is written: a prompt of words joined by spaces would not be its own.
    end = 0
    for word in words[:prompt_words]:
        end = text.index(word, end) + len(word)
    prompt = prompt_ids(model, tokenizer.encode(text[:end].lstrip()), tokenizer)
    human = tokenizer.encode(text[end:].rstrip())[:max_new_tokens]
    best = beam_search(model, prompt, num_beams=num_beams, max_new_tokens=max_new_tokens)[0]
    spelling = Spelling(tokenizer, model.eos)

    def part(name, tokens):
        logprobs = token_logprobs(model, prompt, tokens)
        return {
            "name": name,
            "tokens": [spelling.label(token) for token in tokens],
            "probabilities": np.exp(logprobs).tolist(),
            "geometric mean": float(np.exp(logprobs.mean())) if len(tokens) else None,
        }

    return {
        "prompt": text[:end].lstrip(),
        "texts": [
            part(f"beam search, {num_beams} beams", best.tokens),
            part("the human text", human),
        ],
    }


def repetition(model, tokenizer, phrases=PHRASES, *, prompt="", times=20):
    """The probability of each phrase when it has been said 0, 1, .. times - 1 times before.

    All follow `prompt`, or where it is empty the model's bos id. Source: Holtzman et al. 2020,
    figure 4. Probabilities are of the whole phrase; geometric means, of a token of it, compare
    phrases of different length.
    """
    if times < 1:
        raise InputError(f"times: got {times}, at least 1 was wanted")
    start = prompt_ids(model, prompt, tokenizer)
    found = []
    for phrase in phrases:
        tokens = tokenizer.encode(phrase)
        if not tokens:
            raise InputError(f"phrase: got {phrase!r}, at least one token was wanted")
        logprobs = token_logprobs(model, start, tokens * times).reshape(times, -1)
        found.append(
            {
                "phrase": phrase,
                "tokens": len(tokens),
                "probabilities": np.exp(logprobs.sum(axis=1)).tolist(),
                "geometric means": np.exp(logprobs.mean(axis=1)).tolist(),
            }
        )
    return {"prompt": prompt, "phrases": found}


def filters(model, tokenizer, contexts=CONTEXTS, settings=EXAMPLES):
    """What each setting of `Warp`, alone, leaves of the distribution after each context.

    Of every distribution the SHOWN likeliest tokens; `kept` tokens of the whole vocabulary are left
    with `mass` of the model's own probability.
    """
    spelling = Spelling(tokenizer, model.eos)
    found = []
    for context in contexts:
        ids = prompt_ids(model, context, tokenizer)
        logits = model.forward(ids, model.new_cache())[-1]  # [V]
        own = Warp()(logits, ids).astype(np.float64)
        shown = np.argsort(-own, kind="stable")[:SHOWN]
        left = []
        for name, value in settings.items():
            alone = encode_texts(SETTINGS, {name: value}, tokenizer)
            probs = Warp(**alone)(logits, ids)
            left.append(
                {
                    "setting": name,
                    "value": value if isinstance(value, int | float) else _written(value),
                    "probabilities": probs[shown].tolist(),
                    "kept": int(np.count_nonzero(probs)),
                    "mass": float(own[probs > 0].sum()),
                }
            )
        found.append(
            {
                "context": context,
                "entropy, bits": float(-(own * np.log2(np.where(own > 0, own, 1))).sum()),
                "tokens": [spelling.label(int(token)) for token in shown],
                "probabilities": own[shown].tolist(),
                "left": left,
            }
        )
    return {"vocabulary": model.vocab_size, "contexts": found}


def _written(value):
    """Several values as the command line writes them: 7, 9 or 7=1.5, 9=-inf or words."""
    parts = [value] if isinstance(value, str) else value
    return ", ".join("=".join(map(str, p)) if isinstance(p, tuple) else str(p) for p in parts)


def acceptance(
    target,
    draft,
    prompts,
    *,
    lengths,
    others=(),
    temperatures=(0.0, 1.0),
    max_new_tokens=64,
    verify="token",
    seed=0,
    progress=None,
):
    """How drafts fare at each place, and how many tokens a pass of the target brings for each k.

    A text for each of `prompts` (lists of ids), temperature and k of `lengths`. Acceptance at a
    place is among drafts whose predecessors were all accepted; `tested` counts those. Rounds that
    begin with no room for k + 1 tokens are left out. verify: the rule of verification.
    `overlap` is what theory.py takes for the acceptance of every draft: the mean of the sum of
    min(p, q) over the places of other texts, the ids of `others`.
    progress: tqdm or a class like it.
    """
    if not prompts or not lengths or not 1 <= min(lengths) <= max(lengths) < max_new_tokens:
        raise InputError(
            f"k: got {list(lengths)} for {len(prompts)} prompts, numbers from 1 to below the "
            f"{max_new_tokens} tokens of a text were wanted"
        )
    jobs = list(itertools.product(temperatures, lengths, range(len(prompts))))
    rounds = {}
    for temperature, k, number in progress(jobs, desc="texts") if progress else jobs:
        steps = speculative(
            target,
            draft,
            prompts[number],
            warp=Warp(temperature=temperature),
            chance=Dice(seed + number),
            num_draft_tokens=k,
            verify=verify,
            max_new_tokens=max_new_tokens,
            eos=None,
        )
        whole = rounds.setdefault(temperature, {}).setdefault(k, [])
        written = 0
        for step in steps:
            if written + k + 1 <= max_new_tokens:
                whole.append(step)
            written += len(step.tokens)
    return {
        "prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "verify": verify,
        "results": [
            _fare(temperature, by_k) | {"overlap": overlap(target, draft, others, temperature)}
            for temperature, by_k in rounds.items()
        ],
    }


def overlap(target, draft, texts, temperature):
    """The mean over all places of `texts` (lists of ids) of sum of min(p, q); None without any."""
    warp, found = Warp(temperature=temperature), []
    for ids in texts:
        p, q = (
            model.forward(ids, model.new_cache(), n_logits=len(ids)) for model in (target, draft)
        )
        for i, rows in enumerate(zip(p, q)):
            size = min(map(len, rows))  # one vocabulary may be padded
            both = [warp(row, ids[: i + 1])[:size] for row in rows]
            found.append(float(np.minimum(*both).sum()))
    return statistics.fmean(found) if found else None


def _fare(temperature, by_k):
    """The acceptance of one temperature from its rounds, k -> [Round]."""
    everything = list(itertools.chain(*by_k.values()))
    acceptance = speculation_stats(everything, 0)["acceptance_by_position"]
    passes = []
    for k, rounds in by_k.items():
        counts = [len(r.tokens) for r in rounds]
        passes.append(
            {
                "k": k,
                "tokens a pass": statistics.fmean(counts),
                "standard error": statistics.pstdev(counts) / len(counts) ** 0.5,
            }
        )
    return {
        "temperature": temperature,
        "acceptance by position": acceptance,
        "tested": [tested for tested, _ in by_position(everything)],
        "by k": passes,
    }
