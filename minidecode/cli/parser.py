"""The parser of the command line, stricter than that of the standard library."""

import argparse
import sys


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that complains in one line and never guesses at abbreviations."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _print_message(self, message, file=None):
        """Help that cannot be written is a failure, which argparse hides."""
        (file or sys.stderr).write(message or "")
