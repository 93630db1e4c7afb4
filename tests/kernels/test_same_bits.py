"""The same bits whatever the threads and the instruction set."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernels.cases import compiled, digests, native, no_warnings, printed_with

TESTS = Path(__file__).parent.parent
pytestmark = no_warnings


@compiled
def test_bits_do_not_depend_on_the_number_of_threads():
    old = native.num_threads()
    try:
        seen = []
        for n in (1, 2, 3, 4):
            native.set_num_threads(n)
            assert native.num_threads() == n
            seen.append(digests(native))
    finally:
        native.set_num_threads(old)
    assert seen[0] == seen[1] == seen[2] == seen[3]


@compiled
def test_bits_do_not_depend_on_the_instruction_set():
    names = [name for name in native.instruction_sets() if name != "plain"]  # which has no FMA
    if len(names) < 2:
        pytest.skip(f"this processor has one instruction set with FMA or none: {names}")
    seen = {}
    for name in names:
        used, *seen[name] = printed_with(name, "digests")
        assert used == name
    for name in names[1:]:
        assert seen[name] == seen[names[0]], name


@compiled
def test_plain_code_computes_the_same_numbers():
    """Not the same bits: without FMA a product is rounded before it is added."""
    code = (
        "import numpy as np, kernels.cases as t\n"
        "if t.native.instruction_set() != 'plain': raise SystemExit('other code in use')\n"
        "for name, arguments in t.large_calls():\n"
        "    ours = getattr(t.native, name)(*arguments)\n"
        "    theirs = getattr(t.reference, name)(*arguments)\n"
        "    for a, b in zip(*[x if type(x) is tuple else (x,) for x in (ours, theirs)]):\n"
        "        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)\n"
    )
    if "plain" not in native.instruction_sets():
        pytest.skip("64-bit ARM has no plain code, NEON is its least")
    paths = [str(TESTS), *filter(None, sys.path)]
    env = os.environ | {"MINIDECODE_ISA": "plain", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
