"""What the build puts into the extension: portable code, wide registers only where chosen."""

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from minidecode import kernels

ROOT = Path(__file__).parent.parent
SETUP = ROOT / "setup.py"
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
CHOSEN = re.compile(r"_ZN?[A-Z]*(4avx2|6avx512)")  # a mangled name in namespace avx2 or avx512
# Registers of 256 and 512 bits, and the instructions (all begin with v) that came with them.
WIDE = re.compile(r"\t(v[a-z0-9]+\s|.*%[yz]mm)")


def disassembly():
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("objdump is not installed")
    found = sorted(Path(kernels.__file__).parent.glob("_native*.so"))
    if not found:
        pytest.skip("the compiled kernels are not built")
    listing = subprocess.run([objdump, "-d", *found], capture_output=True, text=True, check=True)
    if "x86-64" not in listing.stdout[:1000]:
        pytest.skip("these registers are those of x86-64 processors")
    return listing.stdout.splitlines()


def test_wide_registers_are_used_only_where_the_processor_was_asked():
    """std:: templates count too: the linker keeps one copy, which older processors may run."""
    wide, function = {}, None
    for line in disassembly():
        if head := FUNCTION.match(line):
            function = head[1]
        elif WIDE.search(line):
            wide.setdefault(function, line.strip())
    chosen = {name for name in wide if CHOSEN.match(name)}
    assert {CHOSEN.match(name)[1] for name in chosen} == {"4avx2", "6avx512"}
    assert not {name: wide[name] for name in wide.keys() - chosen}


def test_setup_bakes_in_no_processor():
    if not SETUP.exists():
        pytest.skip("the tests run without the sources")
    literals = [n.value for n in ast.walk(ast.parse(SETUP.read_text())) if type(n) is ast.Constant]
    flags = [text for text in literals if isinstance(text, str) and text.startswith("-")]
    assert "-O3" in flags
    assert not [f for f in flags if re.match(r"-(m|ffast-math|Ofast|funsafe)", f)]
