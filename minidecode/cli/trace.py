"""`minidecode trace`: a text with what happened at each token, as lines or as a page."""

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from ..decoding.chance import is_coupled
from ..errors import InputError
from .options import (
    BEAM_OPTIONS,
    CONTRAST_OPTIONS,
    DRAFT_OPTIONS,
    add_decoding,
    check_dependants,
    limit_options,
    model_options,
    warp_and_chance,
)
from .shared import given, load, read_prompt

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
    parser.add_argument("--html", metavar="FILE", help="write a page to look around in")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def run(args):
    check_dependants(args)
    options = warp_and_chance(args)
    if args.html is not None and not Path(args.html).absolute().parent.is_dir():
        raise InputError(f"--html: got {args.html}, a file in a directory that exists was wanted")
    prompt = read_prompt(args)
    model, tokenizer = load(args.model)
    from ..models.labels import Spelling
    from ..trace.page import Recording, page, summary
    from ..trace.terminal import legend, step_lines, tree_lines

    settings = settings_shown(args, options)
    options |= model_options(args) | limit_options(args, tokenizer)
    style = {"colour": wants_colour(args.color), "explain": args.explain}
    spelling = Spelling(tokenizer, model.eos)
    title, names, steps = decode(model, prompt, **options)
    recording = Recording(title, prompt, settings, names)
    if args.seed is None and "seed" in settings:
        print(f"seed: {settings['seed']}", file=sys.stderr)
    if args.num_beams is not None:
        recording.tree = steps
        show(tree_lines(steps, spelling, **style))
    else:
        if args.draft is not None:
            print(legend(style["colour"]), file=sys.stderr)
        for number, traced in enumerate(steps, 1):
            recording.steps.append(traced)
            show(step_lines(number, traced, spelling, **style))
    print(summary(recording), file=sys.stderr)
    if args.html is not None:
        Path(args.html).write_text(page(recording, tokenizer, model.eos), encoding="utf-8")


def decode(model, prompt, *, draft=None, amateur=None, **options):
    """(title, names of the two sides, `Traced` steps or the tree) of the decoder chosen."""
    from ..decoding.contrastive import Contrast
    from ..trace.beam import trace_beam
    from ..trace.contrastive import trace_contrastive, trace_speculative_contrastive
    from ..trace.sampling import trace_sample
    from ..trace.speculative import trace_speculative

    contrasted, drafted = ("expert", "amateur"), ("target", "draft")
    if "num_beams" in options:
        names = ("model", None)
        if amateur is not None:
            settings = {n: options.pop(n) for n in CONTRAST_OPTIONS if n in options}
            options |= {"amateur": amateur, "contrast": Contrast(**settings)}
            names = contrasted
        return "Beam search", names, trace_beam(model, prompt, **options)
    if amateur is not None and draft is None:
        steps = trace_contrastive(model, amateur, prompt, **options)
        return "Contrastive decoding", contrasted, steps
    if amateur is not None:
        if draft is not amateur:
            raise InputError("--draft: with --amateur the amateur drafts, and no other model")
        steps = trace_speculative_contrastive(model, amateur, prompt, **options)
        return "Speculative contrastive decoding", contrasted, steps
    if draft is not None:
        steps = trace_speculative(model, draft, prompt, **options)
        return "Speculative decoding", drafted, steps
    title = "Ancestral sampling" if options["warp"].temperature else "Greedy decoding"
    return title, ("model", None), trace_sample(model, prompt, **options)


def settings_shown(args, options):
    """What was asked for, by name, with the defaults of the command."""
    models = ("model", "draft", "amateur", "num_beams")
    settings = given(args, (*models, *DRAFT_OPTIONS, *CONTRAST_OPTIONS, *BEAM_OPTIONS))
    if "warp" not in options:
        return settings | options
    for field in dataclasses.fields(options["warp"]):
        value = getattr(options["warp"], field.name)
        if value != field.default:
            settings[field.name] = value
    chance = options.get("chance")
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


def show(lines):
    for line in lines:
        print(line)
    sys.stdout.flush()
