"""The parser of the command line, stricter than that of the standard library."""

import argparse
import difflib
import re
import sys


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that complains in one line and never guesses at abbreviations."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, **kwargs)

    def parse_known_args(self, args=None, namespace=None):
        """Complain here about what is unknown, where the options that may be meant are known."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [o for o in self._option_string_actions if o.startswith("--")]
            meant = perhaps(unknown[0].partition("=")[0], options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return namespace, unknown

    def error(self, message):
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            message += perhaps(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        message = re.sub(r"invalid (\S+) value: (.*)", _got_and_wanted, message)
        message = re.sub(r"'[^']{80,}'", lambda found: f"{found[0][:50]}...'", message)
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _print_message(self, message, file=None):
        """Help that cannot be written is a failure, which argparse hides."""
        (file or sys.stderr).write(message or "")


def _got_and_wanted(found):
    """argparse's complaint of a value in this project's words."""
    kind = {"int": "a whole number", "float": "a number"}.get(found[1], found[1])
    return f"got {found[2]}, {kind} was wanted"


def perhaps(name, names):
    """The name that was perhaps meant, as the end of a sentence."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"; {near[0]} was perhaps meant" if near else ""
