"""The C++ sources, where they are beside the tests."""

from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[2] / "csrc").glob("*"))


@pytest.mark.skipif(not SOURCES, reason="the tests run without the sources")
def test_no_line_is_wider_than_100_columns():
    lines = [
        f"{path.name}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert not lines


@pytest.mark.skipif(not SOURCES, reason="the tests run without the sources")
def test_the_only_macro_is_the_namespace_of_an_instruction_set():
    """A macro has no scope: what a template or an inline function can say, they say."""
    macros = {
        line.split()[1].split("(")[0]
        for path in SOURCES
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("#define")
    }
    assert macros == {"ISA"}
