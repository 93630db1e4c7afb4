"""The list of commands, and their parser."""

import argparse
import sys

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

    def _print_message(self, message, file=None):
        """Help that cannot be written is a failure, which argparse hides."""
        (file or sys.stderr).write(message or "")


def make_parser():
    parser = Parser(prog="minidecode", description="Text from GPT-2, by every way of decoding it.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    kinds = bench.add(subparsers)
    bench_speculative.add(kinds)
    bench_quality.add(kinds)
    return parser
