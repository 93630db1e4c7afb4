"""`minidecode trace`: a text with what happened at each token, as lines or as a page."""

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from ..errors import InputError
from .generate import warp_and_chance
from .shared import (
    DRAFT_OPTIONS,
    SAMPLING_ONLY,
    add_draft,
    add_model,
    add_prompt,
    add_warp,
    draft_options,
    given_warp,
    load,
    read_prompt,
    refuse_without_effect,
)

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

CONTRAST = {  # name: (type, help)
    "alpha": (float, "plausible is what has this share of the likeliest token's probability"),
    "beta": (float, "strength of the contrast in the form of O'Brien and Lewis"),
    "amateur_temperature": (float, "above 1 softens what the amateur has against a token"),
}
BEAM = {
    "num_return_sequences": (int, "number the best so many hypotheses"),
    "length_penalty": (float, "above 0 favours long hypotheses (default: 1)"),
}
EARLY_STOPPING = {"true": True, "false": False, "never": "never"}


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
    add_prompt(parser)
    add_model(parser)
    parser.add_argument("--greedy", action="store_true", help="always take the likeliest token")
    add_warp(parser)
    parser.add_argument("--max-new-tokens", type=int, default=60, metavar="N")
    add_draft(parser)
    parser.add_argument(
        "--amateur", metavar="MODEL", help="contrastive decoding against this model"
    )
    add_numbers(parser, CONTRAST)
    parser.add_argument("--num-beams", type=int, metavar="N", help="beam search, N hypotheses wide")
    add_numbers(parser, BEAM)
    parser.add_argument(
        "--early-stopping", choices=EARLY_STOPPING, help="when to stop (default: false)"
    )
    parser.add_argument("--seed", type=int, help="same seed, same text (default: a fresh one)")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; repeatable"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="write on past an end token")
    parser.add_argument(
        "--explain", action="store_true", help="p, q, the chance of acceptance and what was drawn"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page to look around in")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def add_numbers(parser, options):
    for name, (kind, text) in options.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, help=text, metavar=kind.__name__.upper())


def run(args):
    check(args)
    prompt = read_prompt(args)
    model, tokenizer = load(args.model)
    from ..page import page, summary
    from ..spelling import Spelling
    from ..transcript import legend, step_lines, tree_lines

    limits = {"tokenizer": tokenizer, "max_new_tokens": args.max_new_tokens}
    if args.ignore_eos:
        limits["eos"] = None
    style = {"colour": wants_colour(args.color), "explain": args.explain}
    spelling = Spelling(tokenizer, model.eos)
    if args.num_beams is not None:
        recording = beams(args, model, prompt, limits)
        show(tree_lines(recording.tree, spelling, **style))
    else:
        if args.stop:
            limits["stop"] = args.stop
        decoder = contrasted if args.amateur else speculated if args.draft else plain
        recording, steps = decoder(args, model, prompt, limits)
        if args.draft is not None:
            print(legend(style["colour"]), file=sys.stderr)
        if args.seed is None and "seed" in recording.settings:
            print(f"seed: {recording.settings['seed']}", file=sys.stderr)
        for number, traced in enumerate(steps, 1):
            recording.steps.append(traced)
            show(step_lines(number, traced, spelling, **style))
    print(summary(recording), file=sys.stderr)
    if args.html is not None:
        Path(args.html).write_text(page(recording, tokenizer, model.eos), encoding="utf-8")


def check(args):
    """Refuse what does not go together, before anything is loaded."""
    if args.amateur is None:
        refuse_without_effect(args, CONTRAST, "without --amateur")
    else:
        refuse_without_effect(args, ["draft"], "with --amateur")
    if args.num_beams is None:
        refuse_without_effect(args, [*BEAM, "early_stopping"], "without --num-beams")
    else:
        others = ["draft", "greedy", "seed", "coupled", *SAMPLING_ONLY]
        refuse_without_effect(args, others + ["stop"] * bool(args.stop), "with --num-beams")
    if args.draft is None:
        refuse_without_effect(args, DRAFT_OPTIONS, "without --draft")
    if args.html is not None and not Path(args.html).absolute().parent.is_dir():
        raise InputError(f"--html: got {args.html}, a file in a directory that exists was wanted")


def beams(args, model, prompt, limits):
    from ..contrastive import Contrast
    from ..page import Recording
    from ..tree import trace_beam

    options = given(args, BEAM) | given_warp(args)
    if args.early_stopping is not None:
        options["early_stopping"] = EARLY_STOPPING[args.early_stopping]
    settings, names = {"model": args.model, "beams": args.num_beams} | options, ("model", None)
    if args.amateur is not None:
        contrast = given(args, CONTRAST)
        settings |= {"amateur": args.amateur} | contrast
        names = ("expert", "amateur")
        options |= {"amateur": load(args.amateur)[0], "contrast": Contrast(**contrast)}
    tree = trace_beam(model, prompt, num_beams=args.num_beams, **options, **limits)
    return Recording("Beam search", prompt, settings, names, tree=tree)


def contrasted(args, model, prompt, limits):
    from ..page import Recording
    from ..trace import trace_contrastive

    contrast = given(args, CONTRAST)
    options = contrastive_chance(args)
    settings = {"expert": args.model, "amateur": args.amateur} | contrast | said(options)
    amateur, _ = load(args.amateur)
    steps = trace_contrastive(model, amateur, prompt, **options, **contrast, **limits)
    return Recording("Contrastive decoding", prompt, settings, ("expert", "amateur")), steps


def speculated(args, model, prompt, limits):
    from ..page import Recording
    from ..trace import trace_speculative

    options, drafts = warp_and_chance(args), draft_options(args)
    draft = drafts.pop("draft")
    settings = {"target": args.model, "draft": args.draft} | drafts | said(options)
    steps = trace_speculative(model, draft, prompt, **options, **drafts, **limits)
    return Recording("Speculative decoding", prompt, settings, ("target", "draft")), steps


def plain(args, model, prompt, limits):
    from ..page import Recording
    from ..trace import trace_sample

    options = warp_and_chance(args)
    title = "Ancestral sampling" if options["warp"].temperature else "Greedy decoding"
    steps = trace_sample(model, prompt, **options, **limits)
    return Recording(title, prompt, {"model": args.model} | said(options)), steps


def contrastive_chance(args):
    """As `warp_and_chance`, but greedy unless something is said of sampling."""
    if any(
        getattr(args, name) not in (None, False) for name in (*SAMPLING_ONLY, "seed", "coupled")
    ):
        return warp_and_chance(args)
    from ..warp import Warp

    return {"warp": Warp(temperature=0, **given_warp(args))}


def given(args, names):
    """Those options that stand on the command line."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def said(options):
    """What was asked of warp and chance, to be shown."""
    warp, chance = options["warp"], options.get("chance")
    settings = {
        field.name: getattr(warp, field.name)
        for field in dataclasses.fields(warp)
        if getattr(warp, field.name) != field.default
    }
    if chance is not None:
        settings["seed"] = f"{chance.seed}, coupled" if chance.coupled else chance.seed
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
