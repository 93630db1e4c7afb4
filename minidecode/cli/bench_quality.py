"""`minidecode bench quality`: what narrow weights cost, on text that no embedded model has seen."""

import functools
import json

from .measuring import add_dtypes, dtypes
from .shared import DEFAULT_MODEL, load, print_table, progress_bar, read_text

COLUMNS = {  # figure: (heading, how it is written)
    "perplexity": ("perplexity", "{:.3f}"),
    "loss": ("against float32", "{:+.2%}"),
    "KL, nats": ("KL, nats", "{:.2g}"),
    "same greedy": ("same greedy token", "{:.1%}"),
}


def add(kinds):
    parser = kinds.add_parser(
        "quality",
        help="what narrow weights cost in perplexity",
        description="Hold a model with narrow weights against itself in float32, on held-out text.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="an embedded model, a directory or a Hugging Face id (default: %(default)s)",
    )
    add_dtypes(parser, "float16,bfloat16,int8,int4")
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="UTF-8, documents parted by lines <|endoftext|> (default: our own stories and books)",
    )
    parser.add_argument("--json", action="store_true")


def run(args):
    from ..measure import quality

    types = dtypes(args)
    paths = quality.TEXTS if args.text is None else {args.text: args.text}
    texts = {name: quality.split_documents(read_text(path), path) for name, path in paths.items()}
    load_type = functools.partial(load, args.model)
    measured = quality.measure_quality(load_type, types, texts, progress=progress_bar())
    measured = {"model": args.model, **measured}
    if args.json:
        print(json.dumps(measured))
    else:
        print_results(measured)


def print_results(measured):
    for number, (name, tokens) in enumerate(measured["tokens"].items()):
        blank = "\n" if number else ""
        print(f"{blank}{measured['model']} on {name}, {tokens} tokens")
        rows = [("", "weights, MB", *(heading for heading, _ in COLUMNS.values()))]
        for dtype, found in measured["types"].items():
            values = (form.format(found["texts"][name][f]) for f, (_, form) in COLUMNS.items())
            rows.append((dtype, f"{found['weights, MB']:.1f}", *values))
        print_table(rows)
