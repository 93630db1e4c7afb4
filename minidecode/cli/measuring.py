"""What the benchmarks share: the options that name other engines, and the checks of them."""

import tempfile

from ..errors import InputError, MinidecodeError
from ..kernels import DTYPES
from .shared import is_given, load, progress_bar, refuse_without_effect

LLAMA_CPP = ("llama_cpp", "gguf")


def add_output(parser, peers):
    """--json and the options for other engines; `peers` says what --peers measures besides."""
    parser.add_argument("--peers", action="store_true", help=f"{peers}, where installed")
    parser.add_argument(
        "--llama-cpp", metavar="DIR", help="with --peers: the directory of llama.cpp's programs"
    )
    parser.add_argument(
        "--gguf", metavar="FILE", nargs="+", help="the files that llama.cpp reads this model from"
    )
    parser.add_argument("--json", action="store_true")


def add_dtypes(parser, default):
    """--dtype for several storage types at once."""
    parser.add_argument(
        "--dtype",
        default=default,
        metavar="T,T..",
        help=f"how weights are stored: some of {', '.join(DTYPES)}, which take turns "
        "(default: %(default)s)",
    )


def dtypes(args):
    """The storage types of --dtype, each once."""
    found = words(args.dtype)
    for name in found:
        if name not in DTYPES:
            raise InputError(f"--dtype: got {name!r}, some of {', '.join(DTYPES)} was wanted")
    return found


def words(text):
    """The words of a list such as token,block, each once."""
    return list(dict.fromkeys(word.strip() for word in text.split(",")))


def check_peers(args, installed, missing, program):
    """The GGUF files for llama.cpp (none: without it); an error where no engine would be measured.

    installed: whether one of the other engines, of which `missing` names all, is; program: the
    one of llama.cpp's that is needed.
    """
    from ..measure import llama_cpp

    if not args.peers:
        refuse_without_effect(args, LLAMA_CPP, "without --peers")
        return []
    if not is_given(args.llama_cpp):
        refuse_without_effect(args, ("gguf",), "without --llama-cpp")
        if not installed:
            raise MinidecodeError(f"--peers: {missing} (extra `peers`)")
        return []
    if not is_given(args.gguf):
        raise InputError("--gguf: got no file, one or more for llama.cpp was wanted")
    llama_cpp.find_program(args.llama_cpp, program)
    return llama_cpp.check_files(args.gguf)


def check_gguf(args):
    """The GGUF files of the target; an error for what of --peers is missing."""
    from ..measure import peers

    installed, program = peers.is_installed(peers.Assisted), "llama-speculative-simple"
    gguf = check_peers(args, installed, "transformers is missing", program)
    if not gguf:
        refuse_without_effect(args, ("draft_gguf",), "without --peers and --llama-cpp")
        return []
    if args.draft_gguf is None:
        raise InputError("--draft-gguf: got none, the draft's file for llama.cpp was wanted")
    check_plain_and_draft(args)
    return gguf


def check_plain_and_draft(args):
    """What llama.cpp needs beside its speculative program and the files of the target."""
    from ..measure import llama_cpp

    llama_cpp.find_program(args.llama_cpp, "llama-bench")  # which decodes plainly
    llama_cpp.check_file(args.draft_gguf, "--draft-gguf")


def load_at_cost(name, like, dtype):
    """(model, tokenizer), grown to the cost of the shape `like` unless that is None."""
    from ..measure.inflate import load_inflated

    if like is None:
        return load(name, dtype)
    return load_inflated(name, like, dtype=dtype or "float32", progress=progress_bar())


def start_engines(stack, name, draft, *, like, dtype, wanted):
    """((target, tokenizer), peers); transformers reads the grown target from a directory.

    wanted: whether other engines are; without them there are no peers.
    """
    from .. import kernels
    from ..measure import peers
    from ..measure.inflate import write_inflated
    from ..models.loading import find

    if not (wanted and peers.is_installed(peers.Assisted)):
        return load_at_cost(name, like, dtype), []
    directory = find(name)
    if like is not None:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        write_inflated(name, like, directory, progress=progress_bar())
    assisted = peers.Assisted(directory, find(draft), kernels.num_threads() or 1)
    return load(directory, dtype), [assisted]


def llama_cpp_engines(args, gguf, tokenizer, lengths):
    """llama.cpp on each file of the target, drafting as many tokens as we do."""
    from .. import kernels
    from ..measure.llama_cpp import LlamaSpeculative

    threads = kernels.num_threads() or 1
    return [
        LlamaSpeculative(args.llama_cpp, file, args.draft_gguf, threads, tokenizer, lengths)
        for file in gguf
    ]
