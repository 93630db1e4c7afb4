"""`minidecode trace`: a text with what happened at each token, as lines or as a page."""

import argparse
import itertools
import os
import sys
from pathlib import Path

from .. import generation
from ..decoding.chance import is_coupled
from ..decoding.warp import SETTINGS, Warp
from ..errors import InputError
from ..generation import NEEDS, choose
from .options import (
    add_decoding,
    check_dependants,
    drawing_options,
    limit_options,
    model_options,
)
from .shared import check_place, given, load, read_prompt

LEGEND = """\
With a draft there is a line a round: its number, drafts accepted and drafted, then the tokens.
                     on a terminal      without colours
  accepted drafts    green              as they are
  rejected draft     red, struck        [-like this-]
  its correction     blue, bold         {+like this+}
  bonus token        cyan, underlined   {*like this*}
Colours are left out where standard output is no terminal or NO_COLOR is set; FORCE_COLOR or
--color always puts them in. Escapes stand for what cannot be seen: \\n, \\x1b, and \\xe2 for a byte
of a character that is not complete."""


def add(subparsers):
    parser = subparsers.add_parser(
        "trace",
        help="show how a text came about, token by token",
        description="Write a text and show what happened at each token: what was drafted, "
        "accepted, rejected, drawn.",
        epilog=LEGEND,
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
    options = drawing_options(args)
    if args.html not in (None, "-"):
        check_place("--html", args.html)
    prompt = read_prompt(args)
    model, tokenizer = load(args.model, args.dtype)
    from ..models.labels import Spelling
    from ..trace.page import Recording, page, summary
    from ..trace.terminal import legend, step_lines, tree_lines

    options |= model_options(args) | limit_options(args, tokenizer)
    choice = choose(model, options)
    settings = settings_shown(args, choice)
    style = {"colour": wants_colour(args.color), "explain": args.explain}
    spelling = Spelling(tokenizer, model.eos)
    steps = trace(choice, prompt)
    recording = Recording(choice.decoder.title, prompt, settings, choice.decoder.roles)
    if args.seed is None and "seed" in settings:
        print(f"seed: {settings['seed']}", file=sys.stderr)
    quiet = args.html == "-"  # the page alone goes to standard output
    if args.num_beams is not None:
        recording.tree = steps
        show(tree_lines(steps, spelling, **style), quiet)
    else:
        if args.draft is not None and not quiet:
            print(legend(style["colour"]), file=sys.stderr)
        for number, traced in enumerate(steps, 1):
            recording.steps.append(traced)
            show(step_lines(number, traced, spelling, **style), quiet)
    print(summary(recording), file=sys.stderr)
    if args.html == "-":
        sys.stdout.write(page(recording, tokenizer, model.eos))
    elif args.html is not None:
        Path(args.html).write_text(page(recording, tokenizer, model.eos), encoding="utf-8")


def trace(choice, prompt):
    """The `Traced` steps of the decoder chosen, or its tree."""
    from ..trace.beam import trace_beam
    from ..trace.contrastive import trace_contrastive, trace_speculative_contrastive
    from ..trace.sampling import trace_sample
    from ..trace.speculative import trace_speculative

    tracers = {
        generation.sample: trace_sample,
        generation.beam_search: trace_beam,
        generation.contrastive: trace_contrastive,
        generation.speculative: trace_speculative,
        generation.speculative_contrastive: trace_speculative_contrastive,
    }
    if choice.decoder.function not in tracers:
        raise InputError(f"trace: {choice.decoder.title.lower()} cannot be traced yet")
    return tracers[choice.decoder.function](*choice.models, prompt, **choice.options)


def settings_shown(args, choice):
    """What was asked for, by name, with the defaults of the command."""
    settings = given(args, ("model", *NEEDS, *itertools.chain(*NEEDS.values())))
    warp, chance = choice.options.get("warp", Warp()), choice.options.get("chance")
    for name, row in SETTINGS.items():
        if getattr(warp, name) != row.off:
            settings[name] = getattr(warp, name)
    if chance is not None:
        settings["seed"] = f"{chance.seed}, coupled" if is_coupled(chance) else chance.seed
    return settings


def wants_colour(wish):
    if wish != "auto":
        return wish == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show(lines, quiet):
    if not quiet:
        for line in lines:
            print(line)
        sys.stdout.flush()
