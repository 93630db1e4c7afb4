"""`minidecode convert`: narrow weights written once, to be mapped into memory at every start."""

import sys

from ..models.loading import convert
from .shared import DEFAULT_MODEL, add_dtype, progress_bar


def add(subparsers):
    parser = subparsers.add_parser(
        "convert",
        help="write a model with narrow weights, ready at once when it is loaded",
        description="Write a model's directory with its matrices packed as a narrower type. It is "
        "mapped into memory when it is loaded, so that even a large model is ready at once.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, help="default: %(default)s")
    add_dtype(parser, required=True)
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty directory")


def run(args):
    model = convert(args.model, args.out, dtype=args.dtype, progress=progress_bar())
    size = sum(weight.nbytes for _, weight in model.named_weights())
    print(f"{args.out}: {args.model} in {model.dtype}, {size / 1e6:.1f} MB", file=sys.stderr)
