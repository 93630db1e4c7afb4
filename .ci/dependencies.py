"""Prints what pyproject.toml names: the packages to build with, to run and to test, one a line."""

import re
from pathlib import Path

text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
for name in ("requires", "dependencies", "test"):
    listed = re.search(rf"^{name} = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)[1]
    print(*re.findall(r'"(.+?)"', listed), sep="\n")
