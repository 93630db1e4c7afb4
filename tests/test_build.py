"""What the build puts into the extension, and which kernels are then used."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minidecode import kernels

ROOT = Path(__file__).parent.parent
SETUP = ROOT / "setup.py"
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
# A mangled name in the namespace of an instruction set
CHOSEN = re.compile(r"_ZN?[A-Z]*(4avx2|6avx512|4vnni|7avxvnni)")
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
    assert {CHOSEN.match(name)[1] for name in chosen} == {"4avx2", "6avx512", "4vnni", "7avxvnni"}
    assert not {name: wide[name] for name in wide.keys() - chosen}


def test_setup_bakes_in_no_processor():
    if not SETUP.exists():
        pytest.skip("the tests run without the sources")
    literals = [n.value for n in ast.walk(ast.parse(SETUP.read_text())) if type(n) is ast.Constant]
    flags = [text for text in literals if isinstance(text, str) and text.startswith("-")]
    assert "-O3" in flags
    assert not [f for f in flags if re.match(r"-(m|ffast-math|Ofast|funsafe)", f)]


# Which kernels are used


def report(code, directory=None, **env):
    """(printed, on standard error) by a new Python; `directory` holds the package it imports."""
    paths = [str(directory)] if directory else []
    env = {"PYTHONPATH": os.pathsep.join([*paths, *filter(None, sys.path)])} | env
    env = {name: value for name, value in os.environ.items() if name not in CHOICES} | env
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=directory, capture_output=True, text=True
    )
    return done.stdout.strip(), done.stderr.strip()


CHOICES = ("MINIDECODE_BACKEND", "MINIDECODE_ISA", "MINIDECODE_THREADS", "OMP_NUM_THREADS")
WHICH = "from minidecode import kernels as k; print(k.backend, k.instruction_set())"
USE = "import numpy as np; from minidecode import kernels as k; k.softmax(np.zeros(3))"


@pytest.fixture
def without_extension(tmp_path):
    package = Path(kernels.__file__).parent.parent
    left_out = shutil.ignore_patterns("_native*", "weights", "__pycache__")
    shutil.copytree(package, tmp_path / "minidecode", ignore=left_out)
    return tmp_path


def test_numpy_can_be_forced():
    assert report(WHICH, MINIDECODE_BACKEND="numpy") == ("numpy None", "")


def test_the_compiled_kernels_are_used_where_they_are():
    if not list(Path(kernels.__file__).parent.glob("_native*")):
        pytest.skip("the compiled kernels are not built")
    for env in ({}, {"MINIDECODE_BACKEND": "native"}, {"MINIDECODE_BACKEND": ""}):
        printed, error = report(WHICH, **env)
        assert printed.startswith("native ") and error == ""


def test_without_the_extension_numpy_is_used_and_one_line_says_so(without_extension):
    printed, error = report(WHICH, without_extension)
    assert printed == "numpy None"
    assert "compiled kernels are missing" in error and error.count("\n") == 0
    assert report(WHICH, without_extension, MINIDECODE_BACKEND="numpy") == ("numpy None", "")


def test_without_the_extension_native_cannot_be_forced(without_extension):
    _, error = report(USE, without_extension, MINIDECODE_BACKEND="native")
    assert error.splitlines()[-1].endswith(
        "BackendError: MINIDECODE_BACKEND=native: the compiled kernels are missing"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MINIDECODE_BACKEND", "Native"),
        ("MINIDECODE_THREADS", "0"),
        ("MINIDECODE_THREADS", "two"),
        ("MINIDECODE_THREADS", "1.5"),
        ("MINIDECODE_THREADS", "99999999999"),
    ],
)
def test_a_variable_that_cannot_be_followed_is_named_where_a_kernel_is_used(name, value):
    _, error = report(USE, **{name: value})
    assert f"BackendError: {name}: got '{value}'" in error.splitlines()[-1]
    assert report("import minidecode", **{name: value}) == ("", "")


@pytest.mark.parametrize("value", ["0", "abc", "-1", "2.5", ",2", "99999999999", "²"])
def test_a_foreign_number_of_threads_that_makes_no_sense_is_passed_over_with_one_line(value):
    if not list(Path(kernels.__file__).parent.glob("_native*")):
        pytest.skip("the compiled kernels are not built")
    threads = "from minidecode import kernels as k; print(k.num_threads())"
    printed, error = report(threads, OMP_NUM_THREADS=value)
    assert printed == report(threads)[0]
    assert f"OMP_NUM_THREADS={value}" in error and error.count("\n") == 0
    assert report(threads, OMP_NUM_THREADS=value, MINIDECODE_THREADS="3") == ("3", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [("MINIDECODE_BACKEND", "cuda"), ("MINIDECODE_ISA", "avx3"), ("MINIDECODE_THREADS", "none")],
)
def test_info_says_which_variable_cannot_be_followed(name, value):
    code = "import sys; from minidecode.cli import main; sys.exit(print(main(['info'])))"
    printed, error = report(code, **{name: value})
    assert printed == "1"
    assert error.startswith(f"minidecode: {name}: got '{value}'") and error.count("\n") == 0


@pytest.mark.parametrize("value", ["avx1024", "AVX2"])
def test_an_instruction_set_that_there_is_not_is_refused(value):
    """A typing error must not pass for a choice: plain code is several times slower."""
    if not list(Path(kernels.__file__).parent.glob("_native*")):
        pytest.skip("the compiled kernels are not built")
    _, error = report(USE, MINIDECODE_ISA=value)
    assert f"MINIDECODE_ISA: got '{value}'" in error


@pytest.mark.parametrize("value", ["vnni", "avxvnni", "avx512", "avx2", "neondot", "neon", "plain"])
def test_an_instruction_set_of_another_processor_is_refused_where_a_kernel_is_used(value):
    if not list(Path(kernels.__file__).parent.glob("_native*")):
        pytest.skip("the compiled kernels are not built")
    from minidecode.kernels import native

    _, error = report(USE, MINIDECODE_ISA=value)
    if value in native.instruction_sets():
        assert error == "" and report(WHICH, MINIDECODE_ISA=value) == (f"native {value}", "")
    else:
        assert error.count("MINIDECODE_ISA") == 1
        assert f"got '{value}', which this processor has not; " in error.splitlines()[-1]
    assert report("import minidecode", MINIDECODE_ISA=value) == ("", "")


def test_both_kernels_can_be_imported_whichever_is_in_use():
    """A module becomes a name in its package: it must not take the place of another one."""
    if not list(Path(kernels.__file__).parent.glob("_native*")):
        pytest.skip("the compiled kernels are not built")
    both = "from minidecode.kernels import native, reference; "
    for env in ({}, {"MINIDECODE_BACKEND": "numpy"}):
        assert report(both + WHICH, **env) == report(WHICH, **env)
        printed, error = report(both + WHICH + "; k.set_num_threads(1)", **env)
        assert printed and error == ""


def test_an_empty_instruction_set_is_none_asked_for():
    assert report(WHICH, MINIDECODE_ISA="") == report(WHICH)
