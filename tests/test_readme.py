"""The examples in README and in those of the folders run as they stand there."""

import re
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
READMES = [HOUSE / "README.md", *sorted((HOUSE / "minidecode").glob("*/README.md"))]
BLOCKS = [
    block
    for file in READMES
    for block in re.findall(r"```python\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL)
]
BORROWED = [block for block in BLOCKS if "proof.adapters" in block]
NEEDS_TORCH = [block for block in BORROWED if "torch" in block]


def run(block, capsys):
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    return names, capsys.readouterr().out


@pytest.mark.skipif(not BORROWED, reason="README has no example of an adapter yet")
def test_loops_that_draw_from_numpy_or_random_are_rejected_as_the_readme_says(capsys):
    (block,) = [block for block in BORROWED if block not in NEEDS_TORCH]
    _, out = run(block, capsys)
    assert out.startswith("NOT EXACT: total variation 0.101 after 294 paths")
    assert out.splitlines()[-1] == "1"


@pytest.mark.skipif(not NEEDS_TORCH, reason="README has no example of transformers yet")
def test_transformers_generate_is_exact_as_the_readme_says(capsys):
    pytest.importorskip("transformers", reason="transformers is not installed (extra `peers`)")
    (block,) = NEEDS_TORCH
    _, out = run(block, capsys)
    assert out.startswith("exact: total variation") and "after 129 paths" in out


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in BORROWED])
def test_every_other_example_of_the_readme_runs(block, capsys):
    _, out = run(block, capsys)
    assert "verify=mine" not in block or out.startswith("NOT EXACT: total variation 0.08")


@pytest.mark.parametrize("file", READMES, ids=lambda file: file.parent.name)
def test_what_a_readme_points_to_is_there(file):
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", file.read_text(encoding="utf-8"))
    missing = [link for link in links if not (file.parent / link).exists()]
    assert missing == []
