"""`minidecode inflate`: a small model at a large one's cost, written for any program to load."""

import sys

from .shared import DEFAULT_MODEL, progress_bar


def add(subparsers):
    parser = subparsers.add_parser(
        "inflate",
        help="grow a model to GPT-2's full size and cost",
        description="Write a model with the same next-token distribution at a larger GPT-2's cost.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "model", nargs="?", default=DEFAULT_MODEL, help="the model to grow (default: %(default)s)"
    )
    parser.add_argument(
        "--like", required=True, metavar="SHAPE", help="gpt2, gpt2-medium or gpt2-large"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty directory")


def run(args):
    from ..measure.inflate import write_inflated

    config, size = write_inflated(args.model, args.like, args.out, progress=progress_bar())
    print(
        f"{args.out}: {args.model} with {config.n_layer} layers of width {config.n_embd} "
        f"and {config.vocab_size} ids, {size / 1e9:.2f} GB",
        file=sys.stderr,
    )
