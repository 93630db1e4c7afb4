"""What is computed once, and a fork while it is computed."""

import os
import subprocess
import sys

import pytest

from minidecode.lazy import lazy


def test_it_is_computed_once_and_keeps_its_words():
    class Circle:
        calls = 0

        @lazy
        def area(self):
            """In square metres."""
            Circle.calls += 1
            return 3

    circle, other = Circle(), Circle()
    assert [circle.area, circle.area, other.area, Circle.calls] == [3, 3, 3, 2]
    assert Circle.area.__doc__ == "In square metres."


FORK = """
import os, sys, threading, time
from minidecode import Warp
from minidecode.kernels import pack, packing
import numpy as np

started, go_on = threading.Event(), threading.Event()
weights = [pack(np.ones((4, 4), np.float32)) for _ in range(2)]
columns = packing.Floats.columns

def slow(self, ids):
    started.set()
    go_on.wait()
    return columns(self, ids)

packing.Floats.columns = slow
thread = threading.Thread(target=lambda: weights[0].matrix)
thread.start()
started.wait()
child = os.fork()
if child == 0:  # while the parent's thread is amid its first
    packing.Floats.columns = columns
    os._exit(0 if (weights[0].matrix.sum(), weights[1].matrix.sum()) == (16, 16) else 1)
go_on.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_it_is_computed_does_not_hang_the_child():
    """On Python 3.10 and 3.11 functools.cached_property did."""
    done = subprocess.run([sys.executable, "-c", FORK], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
