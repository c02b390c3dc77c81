"""DESIGN section 2, "One way in": nothing outside of the journal and the execution path appends.

The import contract "Only the execution path appends to the journal" keeps modules from the writer and the recorder.
These tests find code that appends through a journal that was handed to it, or past all of it.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("domain", "journal", "projections", "services", "adapters", "tools")

APPENDS = ("commit", "save", "insert_events", "submit", "submit_soon")  # methods that make events durable
APPENDING = {
    "journal/application.py": {"insert_events"},
    "journal/commit_thread.py": {"commit"},
    "services/kernel/engine.py": {"submit", "submit_soon"},
    "services/kernel/opened.py": {"commit"},
}
SQL = re.compile(r"\s*(insert (or \w+ )?into|replace into|update .* set|delete from)\b", re.IGNORECASE | re.DOTALL)
WRITES_SQL = {
    f"journal/{name}.py" for name in ("sql_recorder", "leaves", "judgement", "store", "format", "repair", "backup")
}
WRITES_SQL |= {"journal/row_insert.py"}  # for the recorder
WRITES_SQL |= {"journal/audit_index.py", "journal/segment.py"}  # in files of their own
WRITES_SQL |= {"journal/sealing.py"}
WRITES_EVENTS = {
    "journal/repair.py",  # replaces rows in a transaction of its own
    "journal/segment.py",  # in the file of a segment
    "journal/sealing.py",  # deletes rows that a segment has
}
EVENTS = re.compile(r".*\b(into|update|from) event\b", re.IGNORECASE | re.DOTALL)
OPENS = ("open_for_writing", "SqlRecorder", "Writer", "RowInsert")  # makers of what can append
MAKING = {
    "journal/opening.py": {"open_for_writing", "SqlRecorder"},
    "journal/repair.py": {"open_for_writing"},
    "journal/sql_recorder.py": {"RowInsert"},
    "services/kernel/engine.py": {"Writer"},
}


def calls_of(tree: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the names among `names` that are called in a module: as functions, or as methods of any object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in names:
                yield called
        elif isinstance(node, ast.Attribute) and node.attr in names and isinstance(node.ctx, ast.Load):
            yield node.attr  # handed on to be called, as in capture(journal.commit, groups)
        elif isinstance(node, ast.Constant) and node.value in names:
            yield str(node.value)  # getattr(journal, "commit")


def sql_of(tree: ast.AST) -> Iterator[str]:
    """Yield the statements in a module that change a database."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if SQL.match(text):
                yield text


def modules_with(find: Callable[[ast.AST], Iterator[str]], words: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the matches of `find`, which have one of `words` in them, in each module of omac that has any, by its
    path."""
    matches: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if any(word in text.lower() for word in words) and (names := set(find(ast.parse(text)))):
                matches[str(path.relative_to(ROOT))] = names
    return matches


def modules_calling(names: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the names among `names` that each module of omac calls, by its path."""
    return modules_with(lambda tree: calls_of(tree, names), tuple(map(str.lower, names)))


def test_only_the_execution_path_appends() -> None:
    """The application appends, the writer commits for the engine, an opened journal for itself; no other code does."""
    assert modules_calling(APPENDS) == APPENDING


def test_only_the_store_writes_sql() -> None:
    """No code changes the tables past the recorder."""
    written = modules_with(sql_of, ("insert", "replace", "update", "delete"))
    assert written.keys() == WRITES_SQL
    events = {module for module, statements in written.items() if any(map(EVENTS.match, statements))}
    assert events == WRITES_EVENTS


def test_only_the_opening_makes_what_can_append() -> None:
    """A journal is opened for writing in one place, and a writer runs in an engine."""
    assert modules_calling(OPENS) == MAKING


def test_one_place_waits_for_threads() -> None:
    """Work in threads goes through the one module that waits where the system can start no thread."""
    assert set(modules_calling(("run_sync",))) == {"services/kernel/threads.py"}


@pytest.mark.parametrize(
    "line",
    [
        "journal.save(event)",
        "self._journal.commit(groups)",
        "outcome.capture(journal.commit, groups)",
        'getattr(journal, "insert_events")(rows)',
        "await engine._writer.submit(drafts)",
    ],
)
def test_a_second_door_is_found(line: str) -> None:
    """A call that appends is found in any spelling."""
    code = f"async def f():\n    {line}\n"
    assert list(calls_of(ast.parse(code), APPENDS))


def test_sql_past_the_recorder_is_found() -> None:
    """An SQL statement that writes is found on any object that executes it."""
    assert list(sql_of(ast.parse('raw.execute("INSERT INTO event VALUES (1)")')))


def test_the_import_contract_protects_writer_and_recorder() -> None:
    """import-linter enforces the contract (`./test`); this test only checks that it was not opened."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (door,) = [contract for contract in contracts if contract["type"] == "protected"]
    writers = {f"omac.journal.{name}" for name in ("group_commit", "commit_thread", "sql_recorder")}
    assert writers <= set(door["protected_modules"])
    assert set(door["allowed_importers"]) == {"omac.journal", "omac.services.kernel"}
    assert not door.get("ignore_imports")
