"""`minidecode compare`: decoders side by side, with what chance alone moves."""

import csv
import json
import math
import sys

from ..measure import compare
from .comparing import METHODS, as_json, measure
from .shared import DEFAULT_DRAFT, add_dtype, add_jobs, add_model, print_table, read_prompts

HEADS = {name: head for name, (head, _) in compare.HEADINGS.items()}
BLOCKS = tuple(HEADS)[:5], tuple(HEADS)[5:]  # of columns, so that a table fits 100 of them
HUMAN = "(human text)"


def add(subparsers):
    parser = subparsers.add_parser(
        "compare",
        help="decoders side by side: variety, repetition, likelihood, speed",
        description="Write texts with several methods and measure them: entropy in bits, distinct "
        "n-grams and the share inside repeated 4-grams, all of words; perplexity under the model; "
        "speed. Means over the seeds with standard errors; what has no error has no chance in it. "
        "The last line is of human text, the beginnings of held-out stories.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "methods",
        nargs="*",
        metavar="METHOD",
        help="greedy, beam:4, stochastic:4, search:0.6, sample:temperature=0.7,top_p=0.9, "
        "contrastive:alpha=0.1 (with k=4 its amateur drafts), speculative:k=4, and the like "
        f"(default: {' '.join(METHODS)})",
    )
    add_model(parser)
    for name, methods in (("draft", "speculative"), ("amateur", "contrastive")):
        parser.add_argument(
            f"--{name}",
            metavar="MODEL",
            help=f"the second model of {methods} methods ({DEFAULT_DRAFT} for the default model)",
        )
    add_dtype(parser, "draft_dtype", "the second model")
    parser.add_argument(
        "--prompts", metavar="FILE", help="prompts, one per line (default: 8 stories)"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=100, metavar="N")
    parser.add_argument("--ignore-eos", action="store_true", help="write on past an end token")
    add_jobs(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true")
    output.add_argument("--csv", action="store_true")


def run(args):
    prompts = read_prompts(args.prompts) if args.prompts is not None else compare.PROMPTS
    measured = measure(
        args.methods,
        prompts,
        model=args.model,
        draft=args.draft,
        amateur=args.amateur,
        seeds=args.seeds,
        max_new_tokens=args.max_new_tokens,
        ignore_eos=args.ignore_eos,
        jobs=args.jobs,
    )
    rows = [(method.label, estimates) for method, estimates in measured.compared]
    if measured.human is not None:
        rows.append((HUMAN, measured.human))
    if args.json:
        print(json.dumps(as_json(measured)))
    elif args.csv:
        write_csv(rows)
    else:
        print_blocks(rows)


def print_blocks(rows):
    """The columns in two tables, one below the other."""
    for number, names in enumerate(BLOCKS):
        if number:
            print()
        heads = ("", *(HEADS[name] for name in names))
        print_table([heads, *([label, *map(cell, map(found.get, names))] for label, found in rows)])


def write_csv(rows):
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["method", *(n for name in HEADS for n in (name, f"{name}_error"))])
    for label, estimates in rows:
        cells = (c for n in HEADS for c in (estimates[n].mean, estimates[n].standard_error))
        writer.writerow([label, *("" if cell is None else cell for cell in cells)])


def cell(estimate):
    """The mean, to the first digit of its error where it has one."""
    if estimate.mean is None:
        return None
    if not estimate.standard_error:
        return f"{estimate.mean:.3g}"
    decimals = max(0, -math.floor(math.log10(estimate.standard_error)))
    return f"{estimate.mean:.{decimals}f} ±{estimate.standard_error:.{decimals}f}"
