"""`minidecode trace`: a text with what happened at each token, as lines or as a page."""

import argparse
import itertools
import os
import shutil
import sys
from pathlib import Path

from ..errors import InputError
from ..generation import NEEDS, choose
from ..trace.terminal import head_lines, legend, legend_lines, step_lines, tree_lines
from .options import (
    add_decoding,
    check_dependants,
    drawing_options,
    limit_options,
    model_options,
    prompt_of,
)
from .shared import check_place, given, load, read_prompt, wants_colour

LEGEND = """\
With a draft there is one line per round: its number, drafts accepted and drafted, then the tokens.
{}
Colours are left out where standard output is no terminal or NO_COLOR is set; FORCE_COLOR or
--color always puts them in. Escapes stand for what cannot be seen: \\n, \\x1b, and \\xe2 for a byte
of a character that is not complete. Lines are wrapped to the terminal, or to COLUMNS."""


def add(subparsers):
    parser = subparsers.add_parser(
        "trace",
        help="show how a text came about, token by token",
        description="Write a text and show what happened at each token: what was drafted, "
        "accepted, rejected, drawn.",
        epilog=LEGEND.format("\n".join(legend_lines())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    add_decoding(parser, max_new_tokens=60)
    parser.add_argument(
        "--explain", action="store_true", help="p, q, the chance of acceptance and what was drawn"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a page to look around in; - is standard output"
    )
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def run(args):
    check_dependants(args)
    if args.num_beams is None and args.num_return_sequences is not None:
        raise InputError("--num-return-sequences has no effect in a trace without --num-beams")
    options = drawing_options(args)
    if args.html not in (None, "-"):
        check_place("--html", args.html)
    prompt = read_prompt(args)
    model, tokenizer = load(args.model, args.dtype, args.ids)
    from ..models.labels import Spelling
    from ..trace.page import page, summary
    from ..trace.tracing import TRACERS, recording_of, steps_of

    options |= model_options(args) | limit_options(args, tokenizer)
    choice = choose(model, options)
    if choice.decoder.function not in TRACERS:
        raise InputError(f"trace: {choice.decoder.title.lower()} cannot be traced yet")
    settings = settings_shown(args, choice)
    style = {"colour": wants_colour(args.color), "explain": args.explain, "width": width()}
    spelling = Spelling(tokenizer, model.eos)
    steps = steps_of(choice, prompt_of(args, prompt, tokenizer))
    recording = recording_of(choice, prompt, settings)
    quiet = args.html == "-"  # the page alone goes to standard output
    if args.num_beams is None:
        steps = checked(steps)
    if args.seed is None and "seed" in settings:
        print(f"seed: {settings['seed']}", file=sys.stderr)
    if args.num_beams is not None:
        recording.tree = steps
        show(tree_lines(steps, spelling, **style), quiet)
    else:
        if args.draft is not None and not quiet:
            print(legend(style["colour"]), file=sys.stderr)
        for number, traced in enumerate(steps, 1):
            recording.steps.append(traced)
            if number == 1 and args.explain and not quiet:
                print("\n".join(head_lines(traced, style["width"])))
            show(step_lines(number, traced, spelling, **style), quiet)
    print(summary(recording), file=sys.stderr)
    if args.html == "-":
        sys.stdout.write(page(recording, tokenizer, model.eos))
    elif args.html is not None:
        Path(args.html).write_text(page(recording, tokenizer, model.eos), encoding="utf-8")


def checked(steps):
    """The same steps, the first of them made: until then a setting may be refused."""
    steps = iter(steps)
    first = list(itertools.islice(steps, 1))
    return itertools.chain(first, steps)


def settings_shown(args, choice):
    """What was asked for, by name, with the defaults of the command."""
    names = ("model", *NEEDS, *itertools.chain(*NEEDS.values()), "num_return_sequences")
    shown = given(args, names)
    from ..trace.tracing import warp_and_seed

    return shown | warp_and_seed(choice)


def width():
    """Columns to fit the lines into; None where nobody has said and no terminal limits them."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return max(40, shutil.get_terminal_size().columns)
    return None


def show(lines, quiet):
    if not quiet:
        for line in lines:
            print(line)
        sys.stdout.flush()
