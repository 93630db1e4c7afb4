"""What several commands need: options of the sampled distribution, prompts, progress bars."""

import contextlib
import os
import re
import sys
from pathlib import Path

from ..decoding.warp import OPTIONS
from ..errors import InputError
from ..kernels import DTYPES
from ..models import loading
from ..models.ids import IdTokenizer

DEFAULT_MODEL, DEFAULT_DRAFT = loading.EMBEDDED

SAMPLING_ONLY = tuple(name for name, row in OPTIONS.items() if row.shapes)


def add_model(parser):
    parser.add_argument(
        "-m",
        "--model",
        default=DEFAULT_MODEL,
        help="an embedded model, a directory or a Hugging Face id (default: %(default)s)",
    )
    add_dtype(parser)


def add_dtype(parser, name="dtype", of="the model", **options):
    """The option that says how a model's matrices are stored."""
    parser.add_argument(
        flag(name),
        choices=DTYPES,
        help=f"how the weights of {of} are stored (default: float32, or as converted)",
        **options,
    )


def add_prompt(parser):
    parser.add_argument(
        "prompt", nargs="?", help="the text to go on from; - reads it from standard input"
    )
    parser.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a UTF-8 file")


SHORT = {"temperature": ["-t"]}


def add_warp(parser, text=lambda row: row.help):
    """An option for every setting of `Warp`; text(row) is its line in the help."""
    for row in OPTIONS.values():
        how = {"action": "append"} if row.kind.several else {}
        kind, metavar = row.kind.parse, row.kind.metavar
        flags = [*SHORT.get(row.name, ()), row.option]
        parser.add_argument(*flags, type=kind, help=text(row), metavar=metavar, **how)


def is_given(value):
    """Whether an option stands on the command line: 0 does, a flag that is off does not."""
    return not (value is None or value is False or value == [])


def given(args, names):
    """Those options that stand on the command line, as a dict."""
    found = {name: getattr(args, name, None) for name in names}
    return {name: value for name, value in found.items() if is_given(value)}


def given_warp(args):
    """The settings of `Warp` that stand on the command line, as a dict."""
    found = given(args, OPTIONS)
    if not getattr(args, "escape", False):
        return found
    texts = {name for name, row in OPTIONS.items() if row.kind.parse is str and name in found}
    return found | {name: [unescape(text) for text in found[name]] for name in texts}


def refuse_without_effect(args, names, reason):
    """An option that would be ignored is an error."""
    for name in names:
        if is_given(getattr(args, name)):
            raise InputError(f"{flag(name)} has no effect {reason}")


def flag(name):
    """What the command line calls an option of the library."""
    return "--" + name.replace("_", "-")


def read_prompt(args):
    """The prompt as text. Of a file or standard input the last line break is left out."""
    if args.prompt is not None and args.prompt_file is not None:
        raise InputError("prompt: got one as an argument and one in a file, one was wanted")
    if args.prompt_file is not None:
        return read_text(args.prompt_file)
    if args.prompt == "-":
        return read_text("-")
    return unescape(args.prompt) if args.escape and args.prompt else args.prompt or ""


ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|$)", re.DOTALL)


def unescape(text):
    """The text with what its escapes stand for. Errors: `InputError` for one that is none."""

    def meant(found):
        name = found[1]
        if name in ESCAPES:
            return ESCAPES[name]
        code = int(name[1:], 16) if len(name) > 1 else -1
        if 0 <= code <= sys.maxunicode and not 0xD800 <= code <= 0xDFFF:
            return chr(code)
        wanted = r"one of \n \t \r \0 \\ \x41 \u0041 \U00000041"
        raise InputError(f"--escape: got {found[0]}, {wanted} was wanted")

    return ESCAPE.sub(meant, text)


def visible(text):
    """The text with escapes for control characters, but for line breaks and tabs.

    On a terminal they might move the cursor, change colours or send answers.
    """
    return "".join(c if c in "\n\t" or not _is_control(c) else f"\\x{ord(c):02x}" for c in text)


def _is_control(c):
    return c < " " or "\x7f" <= c <= "\x9f"


def read_text(path, option="--prompt-file"):
    """The text of a UTF-8 file, or for - of standard input, without its last line break."""
    source = "standard input" if path == "-" else path
    data = _standard_input() if path == "-" else _bytes_of(path, option)
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source}: got the byte 0x{data[error.start]:02x} at {error.start}, UTF-8 was wanted"
        ) from None
    return text.removeprefix("\ufeff").removesuffix("\n").removesuffix("\r")  # byte order mark


def _bytes_of(path, option):
    try:
        return Path(path).read_bytes()
    except OSError as error:
        wanted = "a file that can be read was wanted"
        got = path or "''"
        raise OSError(f"{option}: got {got}, {wanted} ({error.strerror})") from None
    except ValueError as error:  # a path that can be none
        raise InputError(f"{option}: got {path!r}, a path was wanted ({error})") from None


def read_prompts(path):
    """The lines of a UTF-8 file that are not blank."""
    prompts = [line for line in read_text(path, "--prompts").splitlines() if line.strip()]
    if not prompts:
        raise InputError(f"{path}: got no prompt, at least one line was wanted")
    return prompts


def _standard_input():
    """All of it: bytes, or text where it has none (a notebook)."""
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("standard input: it is closed, a prompt was wanted")
    return getattr(sys.stdin, "buffer", sys.stdin).read()


def check_place(option, path):
    """`InputError` where no file can be written: before a long run, and not after it.

    What is there already stays as it is; a device or a pipe gets an empty line.
    """
    target = Path(path)
    try:
        if not target.exists():
            if not target.absolute().parent.is_dir():
                raise InputError(
                    f"{option}: got {path}, a file in a directory that exists was wanted"
                )
            _try_to_write(target)
        elif target.is_file():
            target.open("r+b").close()
        else:
            with target.open("wb") as file:
                file.write(b"\n")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{option}: got {path}, a file that can be written was wanted ({reason})"
        ) from None


def _try_to_write(target):
    with target.open("xb") as file:
        try:
            file.write(bytes(2**20))  # a full disk takes an empty file
        finally:
            target.unlink()


def load(name, dtype=None, ids=False):
    """`minidecode.load` with a progress bar; on the way through layers too, for long prompts."""
    tokenizer = IdTokenizer() if ids else loading.OWN
    model, tokenizer = loading.load(name, dtype=dtype, tokenizer=tokenizer, progress=progress_bar())
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


def add_jobs(parser):
    parser.add_argument("--jobs", type=int, metavar="N", help="processes at work (default: 1)")


@contextlib.contextmanager
def processes(jobs):
    """An executor of that many processes, or None for one."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs: got {jobs}, at least 1 was wanted")
    if jobs in (None, 1):
        yield None
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as executor:
        yield executor


def wants_colour(wish):
    """Whether to colour standard output: wish is auto, always or never."""
    if wish != "auto":
        return wish == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


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


def numbers(option, text, kind):
    """The numbers of a list such as 1,2,4, each once."""
    try:
        return list(dict.fromkeys(kind(part) for part in text.split(",")))
    except ValueError:
        raise InputError(f"{option}: got {text!r}, numbers such as 1,2 were wanted") from None
