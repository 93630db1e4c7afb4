"""The command line: finds the command, and turns every error into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import argparse
import os
import sys

from ..errors import InputError, LogitsError, MinidecodeError
from . import (
    bench,
    bench_speculative,
    compare,
    convert,
    generate,
    inflate,
    info,
    plot,
    trace,
    verify,
)

COMMANDS = (generate, trace, compare, verify, plot, inflate, convert, info)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that complains in one line and never guesses at abbreviations."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def make_parser():
    parser = Parser(prog="minidecode", description="Text from GPT-2, by every way of decoding it.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    bench_speculative.add(bench.add(subparsers))
    return parser


def main(argv=None):
    """Run one command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a terminal that lacks a character shows another
    try:
        args = make_parser().parse_args(argv)
        code = args.run(args) or 0
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MinidecodeError as error:
        usage = isinstance(error, InputError) and not isinstance(error, LogitsError)
        return fail(error, 2 if usage else 1)
    except (OSError, MemoryError) as error:
        return fail(error or "out of memory", 1)


def fail(error, code):
    line = " ".join(str(error).split())
    print(f"minidecode: {line}", file=sys.stderr)
    return code
