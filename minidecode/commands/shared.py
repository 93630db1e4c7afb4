"""What several commands need: options of the sampled distribution, prompts, progress bars."""

import sys
from pathlib import Path

from ..errors import InputError

DEFAULT_MODEL = "storyteller-6m"

WARP_OPTIONS = {  # name: (type, help)
    "temperature": (float, "below 1 sharpens the distribution, above 1 flattens it, 0 is greedy"),
    "top_k": (int, "keep the k likeliest tokens"),
    "top_p": (float, "keep the smallest set of tokens whose mass reaches this"),
    "epsilon": (float, "drop tokens less likely than this"),
    "repetition_penalty": (float, "above 1 makes tokens seen before less likely"),
    "no_repeat_ngram_size": (int, "never write an n-gram of this size twice"),
}
DRAFT_OPTIONS = ("num_draft_tokens", "schedule")
PROMPT_LOOKUP = "prompt-lookup"
CONTRAST_OPTIONS = ("alpha", "beta", "amateur_temperature")
BEAM_OPTIONS = ("length_penalty", "early_stopping", "num_return_sequences")
SAMPLING_ONLY = ("temperature", "top_k", "top_p", "epsilon")


def add_model(parser):
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="an embedded model, a directory or a Hugging Face id (default: %(default)s)",
    )


def add_prompt(parser):
    parser.add_argument(
        "prompt", nargs="?", help="the text to go on from; - reads it from standard input"
    )
    parser.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a UTF-8 file")


def add_warp(parser):
    for name, (kind, text) in WARP_OPTIONS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, help=text, metavar=kind.__name__.upper())


def add_draft(parser):
    """The options of speculative decoding."""
    parser.add_argument(
        "--draft",
        metavar="MODEL",
        help="decode speculatively with drafts from this model, or from the text itself: "
        f"{PROMPT_LOOKUP}",
    )
    parser.add_argument(
        "--num-draft-tokens", type=int, metavar="K", help="tokens to draft at first (default: 4)"
    )
    parser.add_argument("--schedule", help="constant (default), heuristic or auto: how K changes")
    parser.add_argument(
        "--coupled",
        action="store_true",
        help="noise tied to positions: the same text with and without a draft",
    )


def add_contrast(parser):
    """The options of contrastive decoding."""
    parser.add_argument(
        "--amateur",
        metavar="MODEL",
        help="decode contrastively against this model; as --draft too: speculatively",
    )
    parser.add_argument(
        "--alpha", type=float, help="how plausible a token must be to the model (default: 0.1)"
    )
    parser.add_argument("--beta", type=float, help="strength of the later form of the score")
    parser.add_argument("--amateur-temperature", type=float, metavar="FLOAT", help="default: 1")


def add_beams(parser):
    """The options of beam search."""
    parser.add_argument("--num-beams", type=int, metavar="N", help="beam search with N beams")
    parser.add_argument(
        "--length-penalty", type=float, metavar="FLOAT", help="above 0 favours length (default: 1)"
    )
    parser.add_argument(
        "--early-stopping", choices=("true", "false", "never"), help="default: false"
    )
    parser.add_argument("--num-return-sequences", type=int, metavar="N", help="default: 1")


def check_dependants(args):
    """Refuse options of a decoder that was not chosen; needs nothing loaded."""
    for name, dependants in (
        ("draft", DRAFT_OPTIONS),
        ("amateur", CONTRAST_OPTIONS),
        ("num_beams", BEAM_OPTIONS),
    ):
        if getattr(args, name) is None:
            refuse_without_effect(args, dependants, f"without --{name.replace('_', '-')}")


def draft_options(args, amateur=None):
    """The arguments of `generate` for speculative decoding; loads the draft."""
    if args.draft is None:
        return {}
    if args.draft == PROMPT_LOOKUP:
        from ..draft import PromptLookupDraft

        draft = PromptLookupDraft()
    else:
        draft = amateur if args.draft == args.amateur else load(args.draft)[0]
    return {"draft": draft, **given(args, DRAFT_OPTIONS)}


def contrast_options(args):
    """The arguments of `generate` for contrastive decoding; loads the amateur."""
    if args.amateur is None:
        return {}
    return {"amateur": load(args.amateur)[0], **given(args, CONTRAST_OPTIONS)}


def beam_options(args):
    """The arguments of `generate` for beam search."""
    if args.num_beams is None:
        return {}
    options = {"num_beams": args.num_beams, **given(args, BEAM_OPTIONS)}
    if args.early_stopping in ("true", "false"):
        options["early_stopping"] = args.early_stopping == "true"
    return options


def is_given(value):
    """Whether an option stands on the command line: 0 does, a flag that is off does not."""
    return not (value is None or value is False or value == [])


def given(args, names):
    """Those options that stand on the command line, as a dict."""
    return {name: getattr(args, name) for name in names if is_given(getattr(args, name))}


def given_warp(args):
    """The settings of `Warp` that stand on the command line, as a dict."""
    return given(args, WARP_OPTIONS)


def refuse_without_effect(args, names, reason):
    """An option that would be ignored is an error."""
    for name in names:
        if is_given(getattr(args, name)):
            raise InputError(f"--{name.replace('_', '-')} has no effect {reason}")


def read_prompt(args):
    """The prompt as text. Of a file or standard input the last line break is left out."""
    if args.prompt is not None and args.prompt_file is not None:
        raise InputError("prompt: got one as an argument and one in a file, one was wanted")
    if args.prompt_file is not None:
        source, data = args.prompt_file, Path(args.prompt_file).read_bytes()
    elif args.prompt == "-":
        source, data = "standard input", sys.stdin.buffer.read()
    else:
        return args.prompt or ""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source}: got the byte 0x{data[error.start]:02x} at {error.start}, UTF-8 was wanted"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def load(name):
    """`minidecode.load` with a progress bar; on the way through layers too, for long prompts."""
    from ..loading import load

    model, tokenizer = load(name, progress=progress_bar())
    bar = progress_bar()
    if bar is not None:
        model.watch = lambda blocks: bar(blocks, desc="reading the prompt", unit=" layers")
    return model, tokenizer


def progress_bar():
    """tqdm, set up to show only what takes more than a second; None without a terminal."""
    if not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **{"delay": 1, "leave": False, "file": sys.stderr} | kwargs)

    return Bar


def print_table(rows, file=None):
    """Rows of cells as aligned columns, numbers to the right; the first row is the head."""
    cells = [["n/a" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        print("  ".join([first, *rest]).rstrip(), file=file or sys.stdout)
