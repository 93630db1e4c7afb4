"""The house: its public names, and the arrows between its rooms that must never exist."""

import ast
import re
from pathlib import Path

import pytest

import minidecode

PACKAGE = Path(minidecode.__file__).parent
FILES = sorted(p for p in PACKAGE.rglob("*.py") if "weights" not in p.parts)

PUBLIC = """
    BackendError CheckpointError Context ContextError Dice GumbelDice InputError LogitsError
    MinidecodeError ModelDraft PromptLookupDraft Result Round Score Step TableModel TokenizerError
    Warp beam_search
    contrastive contrastive_search diverse_beam_search exact generate generate_many greedy load
    sample score speculative speculative_contrastive speculative_many stochastic_beam_search traced
    verify
""".split()  # noqa: SIM905

WINGS = "kernels models decoding speculation proof trace measure plots cli".split()  # noqa: SIM905
SHARED = {  # by the commands
    "cli.options",
    "cli.shared",
    "cli.streams",
    "cli.comparing",
    "cli.measuring",
}
HEAVY = {"torch", "transformers", "ctranslate2", "matplotlib"}


def name_of(path):
    """The dotted name below the package: "decoding.warp", "" for its __init__."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in FILES}


def imports_of(path):
    """(module below the package or name of another package, whether inside a function) of each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    package = ["minidecode", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree):
        inside = id(node) not in top
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, inside
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            whole = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{whole}.{alias.name}"
                known = full.removeprefix("minidecode.") in NAMES
                yield full if known else whole, inside


def ours(path):
    """The modules of the house that a file imports, as names below the package."""
    for module, inside in imports_of(path):
        if module == "minidecode" or module.startswith("minidecode."):
            yield module.removeprefix("minidecode").removeprefix("."), inside


def within(module, *rooms):
    return any(module == room or module.startswith(room + ".") for room in rooms)


def wing(module):
    return module.split(".")[0]


def forbidden(name, module, inside):
    """The arrow from `name` to `module`, both below the package, or None if it may be."""
    if name in ("errors", "lazy") or (name == "checks" and module != "errors"):
        return "errors and lazy import nothing of the house, checks only errors"
    if within(name, "kernels") and not within(module, "kernels", "errors", "checks", "lazy"):
        return "kernels import only errors, checks and lazy"
    if within(name, "models") and within(module, "decoding", "speculation", "generation"):
        return "models know no decoder"
    if within(name, "decoding", "speculation") and within(module, "models"):
        return "decoders know no model but the one they are given"
    if within(name, "decoding") and within(module, "speculation"):
        return "decoding knows nothing of speculation"
    if name == "speculation.verify":
        return "the rules of verification import NumPy and nothing else"
    if within(name, "proof"):
        if within(module, "models") and module != "models.table":
            return "proof takes of models only the table"
        if within(module, "trace", "measure", "plots", "generation"):
            return "proof needs no show and no numbers"
    if within(name, "trace") and within(module, "models") and module != "models.labels":
        return "trace takes of models only the labels"
    if within(module, "trace") and not within(name, "trace", "cli") and not inside:
        return "only the command line imports trace; who displays a result does so late"
    if within(name, "measure") and within(module, "trace", "proof", "plots"):
        return "measure needs neither trace nor proof nor plots"
    if within(module, "cli") and not within(name, "cli") and name != "__main__":
        return "nothing imports the command line"
    if wing(name) == "cli" and name not in ("cli", "cli.commands") and wing(module) == "cli":
        return None if module in SHARED else "a command never imports another command"
    if (
        within(name, *WINGS)
        and within(module, *WINGS)
        and WINGS.index(wing(module)) > WINGS.index(wing(name))
    ):
        return "an arrow never runs back up"
    return None


@pytest.mark.parametrize("name", NAMES)
def test_no_arrow_runs_where_none_may(name):
    for module, inside in ours(NAMES[name]):
        assert not forbidden(name, module, inside), (module, forbidden(name, module, inside))


@pytest.mark.parametrize("name", NAMES)
def test_other_libraries_are_named_only_where_they_may_be(name):
    for module, inside in imports_of(NAMES[name]):
        top = module.split(".")[0]
        if within(name, "decoding", "speculation"):
            assert top not in ("tokenizers", "safetensors")
        if name == "speculation.verify":
            assert top == "numpy"
        if top == "matplotlib":
            assert name == "plots.figure" and inside
        elif top in HEAVY:
            assert name == "measure.peers" or within(name, "proof.adapters")
            assert inside


def test_every_rule_of_the_house_refuses_an_arrow_that_breaks_it():
    wrong = [
        ("errors", "checks"),
        ("checks", "kernels"),
        ("kernels.reference", "decoding.warp"),
        ("models.gpt2", "decoding.run"),
        ("decoding.run", "models.gpt2"),
        ("decoding.step", "speculation.rounds"),
        ("speculation.verify", "checks"),
        ("proof.exact", "models.gpt2"),
        ("proof.suite", "measure.compare"),
        ("trace.page", "models.tokenizer"),
        ("generation", "trace.page"),
        ("measure.speed", "proof.exact"),
        ("measure.speed", "cli.shared"),
        ("cli.plot", "cli.compare"),
        ("measure.compare", "plots.data"),
    ]
    assert all(forbidden(name, module, False) for name, module in wrong)


def test_the_public_names_are_these():
    assert minidecode.__all__ == PUBLIC
    assert all(hasattr(minidecode, name) for name in PUBLIC)


def test_editors_and_python_find_every_public_name_in_the_same_place():
    """The package opens at once: names are imported when asked for, and listed for editors too."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [guarded] = [node for node in tree.body if isinstance(node, ast.If)]
    shown = {
        (node.module, alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {(home, name) for home, names in minidecode._HOMES.items() for name in names}
    assert shown == homes
    assert sorted(name for _, name in homes) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(minidecode))
    with pytest.raises(AttributeError, match="no attribute 'temperature'"):
        minidecode.temperature  # noqa: B018


def test_no_folder_or_file_hides_behind_a_public_function():
    shown = {path.stem for path in PACKAGE.glob("*.py")} | {p.name for p in PACKAGE.iterdir()}
    assert not shown & (set(PUBLIC) - {"exact"})


def test_every_folder_of_the_package_is_installed():
    """An editable installation sees them all; a wheel holds those that pyproject.toml lists."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    listed = set(re.findall(r'^    "(minidecode[\w.]*)",$', text, flags=re.MULTILINE))
    folders = {path.parent for path in PACKAGE.rglob("__init__.py")}
    wanted = {".".join(["minidecode", *f.relative_to(PACKAGE).parts]) for f in folders}
    assert wanted - {"minidecode.weights"} <= listed
