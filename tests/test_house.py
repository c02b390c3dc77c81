"""Newcomers find their way in the code: few kinds of folders, short modules, short functions."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("domain", "journal", "projections", "services", "adapters", "tools")
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
CONTEXTS = {
    "access", "credentials", "directories", "evidence", "guard", "harness", "kernel", "legacy", "sandbox", "settings",
    "sidecars", "skills",
}  # fmt: skip
ROOMS = {
    "domain": CONTEXTS | {"git"},
    "journal": set(),
    "projections": CONTEXTS,
    "services": CONTEXTS,
    "adapters": CONTEXTS | {"caches", "control", "facade", "files", "git", "http", "linux"},
    "tools": {"cli", "compose", "hotpath", "terminal"},
}
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


@pytest.mark.parametrize("layer", LAYERS)
def test_rooms_have_the_names_of_contexts(layer: str) -> None:
    rooms = {path.parent.relative_to(ROOT / layer).as_posix() for path in (ROOT / layer).rglob("*.py")}
    assert rooms - {"."} <= ROOMS[layer]


def test_no_module_is_longer_than_a_reader_takes_in() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in MODULES}
    assert len(lengths) > 300
    assert not {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX}


@functools.cache
def definitions() -> list[tuple[Path, str, int]]:
    """Return the modules and names of all functions, with their lines, and of all classes, with 0."""
    found = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((path, node.name, (node.end_lineno or 0) - node.lineno + 1))
            elif isinstance(node, ast.ClassDef):
                found.append((path, node.name, 0))
    return found


def test_no_function_is_longer_than_a_screen() -> None:
    functions = {f"{path.relative_to(ROOT)}: {name}": lines for path, name, lines in definitions() if lines}
    assert len(functions) > 2_000
    assert not {name: lines for name, lines in functions.items() if lines > FUNCTION_LINES_MAX}


def test_a_public_class_name_means_one_thing() -> None:
    modules: dict[str, list[str]] = {}
    for path, name, lines in definitions():
        if not lines and not name.startswith("_"):
            modules.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert len(modules) > 300
    assert not {name: files for name, files in modules.items() if len(files) > 1}


def test_no_group_is_repeated_possessively() -> None:
    """Before Python 3.11.5 such a pattern, and an atomic group, match more than they should (cpython issue 106052)."""
    possessive = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>")
    assert possessive.search("(?:a+|b)*+")
    assert not [path for path in MODULES if possessive.search(path.read_text())]


def test_no_command_asks_a_registry_for_omac() -> None:
    """omac is in no registry: a command that looks it up there fails, or installs what others put under its name."""
    install = re.compile(r"\b(?:uv|pipx?)\b[^\n`]* install\b[^\n`]*[ '\"]omac(?:\[|['\"`]|$)", re.MULTILINE)
    assert install.search("uv tool install 'omac[parquet]'")
    assert install.search("pip install omac")
    files = [*MODULES, ROOT / "src/bin/omac", *ROOT.glob("*.md"), *(ROOT / "docs").iterdir()]
    assert not [path for path in files if install.search(path.read_text())]


def test_each_connection_is_closed() -> None:
    """`with` ends a transaction of sqlite3 only; Python 3.13 warns about the connection, in whatever test runs then."""
    kept = re.compile(r"\bwith sqlite3\.connect\(")
    assert kept.search("    with sqlite3.connect(path) as connection:")
    own = Path(__file__)
    files = [*MODULES, *(path for path in own.parent.rglob("*.py") if path != own)]
    assert not [path for path in files if kept.search(path.read_text())]
