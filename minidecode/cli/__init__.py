"""The command line: finds the command, and turns every error into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. The commands are imported inside
`main`, so that Ctrl-C is quiet from the first moment.
"""

import sys

import minidecode

from ..errors import InputError, LogitsError, MinidecodeError
from .streams import leaving_at_once, mute, standard_streams


def make_parser():
    """The parser of all commands."""
    from . import (
        bench,
        bench_quality,
        bench_speculative,
        compare,
        convert,
        generate,
        inflate,
        info,
        plot,
        score,
        trace,
        verify,
    )
    from .parser import Parser

    parser = Parser(prog="minidecode", description="Text from GPT-2, by every way of decoding it.")
    parser.add_argument("--version", action="store_true", help="tell the version and end")
    parser.set_defaults(run=lambda args: show_version() if args.version else parser.print_help())
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in (generate, score, trace, compare, verify, plot, inflate, convert, info):
        command.add(subparsers)
    kinds = bench.add(subparsers)
    bench_speculative.add(kinds)
    bench_quality.add(kinds)
    return parser


def show_version():
    print(f"minidecode {minidecode.__version__}")


def main(argv=None):
    """Run one command; returns the exit code."""
    with standard_streams():
        try:
            with leaving_at_once():
                parser = make_parser()
            try:
                args = parser.parse_args(argv)
                return args.run(args) or 0
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:  # the reader of our output has seen enough, as in `| head`
            mute(sys.stdout)
            return 0
        except MinidecodeError as error:
            usage = isinstance(error, InputError) and not isinstance(error, LogitsError)
            return fail(error, 2 if usage else 1)
        except OSError as error:
            mute_where_full(sys.stdout)
            named = isinstance(error.filename, str) and error.strerror
            return fail(f"{error.filename}: {error.strerror}" if named else error, 1)
        except MemoryError as error:
            return fail(str(error) or "out of memory", 1)  # Python's own says nothing


def mute_where_full(stream):
    """What cannot be written now must not be tried again when Python ends."""
    try:
        stream.flush()
    except OSError:
        mute(stream)


def fail(error, code):
    from .shared import visible

    line = " ".join(str(error).split())
    print(f"minidecode: {visible(line)}", file=sys.stderr)
    return code
