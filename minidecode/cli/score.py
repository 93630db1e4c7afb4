"""`minidecode score`: what a model thinks of a text, token by token."""

import json
import math
import sys

from ..measure.scoring import score
from ..models.labels import Spelling, counted
from .shared import add_model, load, print_table, read_text, visible, wants_colour

# Backgrounds of the 256-colour palette from likely to surprising, each to so many bits.
SHADES = ((1, None), (4, 194), (7, 229), (10, 223), (14, 216), (math.inf, 210))


def add(subparsers):
    parser = subparsers.add_parser(
        "score",
        help="the log-probability of each token of a text, its perplexity, bits per byte",
        description="Read a text with a model: how surprising each token is, perplexity, bits per "
        "byte. On a terminal the text is coloured by surprise.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("file", metavar="FILE", help="a UTF-8 text; - is standard input")
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="one object with all numbers")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def run(args):
    text = read_text(args.file, "FILE")
    model, tokenizer = load(args.model)
    found = score(model, text, tokenizer=tokenizer)
    if args.json:
        print(json.dumps(as_json(found, tokenizer)))
        return
    if wants_colour(args.color):
        print("".join(shaded(t, lp, tokenizer) for t, lp in zip(found.tokens, found.logprobs)))
    else:
        names = Spelling(tokenizer, model.eos)
        rows = [(names.label(t), bits(lp)) for t, lp in zip(found.tokens, found.logprobs)]
        print_table([("token", "bits"), *rows])
    print(
        f"{counted(len(found.tokens), 'token')}, perplexity {shown(found.perplexity)}, "
        f"{shown(found.bits_per_byte)} bits per byte",
        file=sys.stderr,
    )


def bits(logprob):
    return None if logprob is None else f"{-logprob / math.log(2):.2f}"


def shown(number):
    return "n/a" if number is None else f"{number:.4g}"


def shaded(token, logprob, tokenizer):
    """The token's text on a ground that is the warmer the more surprising it is."""
    text = visible(tokenizer.token_bytes(token).decode("utf-8", errors="replace"))
    surprise = 0 if logprob is None else -logprob / math.log(2)
    shade = next(shade for most, shade in SHADES if surprise <= most)
    return text if shade is None else f"\x1b[30;48;5;{shade}m{text}\x1b[0m"


def as_json(found, tokenizer):
    return {
        "ids": found.tokens,
        "tokens": [tokenizer.decode([token]) for token in found.tokens],
        "logprobs": [None if v is None or v == -math.inf else v for v in found.logprobs],
        "perplexity": found.perplexity if found.perplexity != math.inf else None,
        "bits_per_byte": found.bits_per_byte if found.bits_per_byte != math.inf else None,
        "bytes": found.n_bytes,
    }
