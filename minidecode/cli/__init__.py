"""The command line: finds the command, and turns every error into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. The commands are imported inside
`main`, so that Ctrl-C is quiet from the first moment.
"""

import sys

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
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (generate, score, trace, compare, verify, plot, inflate, convert, info):
        command.add(subparsers)
    kinds = bench.add(subparsers)
    bench_speculative.add(kinds)
    bench_quality.add(kinds)
    return parser


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
        except (OSError, MemoryError) as error:
            mute_where_full(sys.stdout)
            return fail(error or "out of memory", 1)


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
