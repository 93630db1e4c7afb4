"""Standard streams as users have them: closed, broken, full, or no files at all (a notebook).

Trouble with standard error loses what is told there and nothing else. Trouble with standard output
is the command's to report, unless its reader has seen enough, as in `| head`.
"""

import contextlib
import os
import signal
import sys
import threading


@contextlib.contextmanager
def standard_streams():
    """Makes both output streams usable for as long as it lasts."""
    _occupy_closed_descriptors()
    before = sys.stdout, sys.stderr
    sys.stdout = _usable(sys.stdout)
    sys.stderr = Patient(_usable(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class Patient:
    """A stream that takes what it is given, even where it can do nothing with it."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        return self._attempt(self.stream.write, text)

    def flush(self):
        self._attempt(self.stream.flush)

    def _attempt(self, function, *arguments):
        try:
            return function(*arguments)
        except (OSError, ValueError):  # broken or full; closed
            mute(self.stream)


def mute(stream):
    """What the stream still holds, and all that follows, goes nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _usable(stream):
    if stream is None or getattr(stream, "closed", False):
        return open(os.devnull, "w", encoding="utf-8")
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # a terminal that lacks a character shows another
    return stream


def _occupy_closed_descriptors():
    """Else the next file to be opened, say a checkpoint, would stand where output is written."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


@contextlib.contextmanager
def leaving_at_once():
    """Ctrl-C ends the process quietly: there is nothing to tidy up yet, and imports take long."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
