"""A journal's file is opened by SQLite alone: closing any other descriptor of it drops the locks of the process."""

import ast
from collections.abc import Iterator
from pathlib import Path

JOURNAL = Path(__file__).parents[2] / "journal"
OPENERS = {"open", "connect", "read_bytes", "read_text", "write_bytes", "write_text", "copyfile"}
ALLOWED = {
    ("file.py", "_connect"): "sqlite3 alone, to read",
    ("file.py", "_lacks_descriptors"): "the folder of all folders",
    ("file.py", "_roll_back"): "sqlite3 alone, to undo what a kill left half written",
    ("store.py", "open_for_writing"): "sqlite3 alone, to write",
    ("store.py", "_create_file"): "O_EXCL: a file that nobody has open",
    ("backup.py", "_backed_up"): "O_EXCL: a file that nobody has open",
    ("backup.py", "_copy"): "sqlite3 alone, of the new file",
    ("backup.py", "_move_log"): "sqlite3 alone, while nobody has it",
    ("backup.py", "_into_one_file"): "sqlite3 alone, of the copy that nobody has",
    ("backup.py", "_require_as_known"): "sqlite3 alone, of what was moved away",
    ("mark.py", "read"): "a mark",
    ("mark.py", "write"): "a mark",
    ("spool.py", "_write"): "a record of the spool",
    ("spool.py", "flush"): "a record of the spool",
    ("spool.py", "open_folder"): "a folder",
    ("spool.py", "_create"): "a folder",
    ("inbox.py", "_content"): "a record of the spool",
    ("snapshot_store.py", "write"): "a snapshot",
    ("snapshot_store.py", "read"): "a snapshot",
    ("bundle_verification.py", "_opened"): "a file of a bundle",
    ("log_connection.py", "_require_listed"): "sqlite3 alone, to read",
    ("segment.py", "open_segment"): "a segment",
    ("segment.py", "_drafted"): "a segment that is being written",
    ("segment.py", "same_events"): "a segment that is being written",
    ("segment.py", "copy_segments"): "a segment of a backup",
    ("segment.py", "sync_folder"): "a folder",
    ("segment.py", "_content"): "a segment",
    ("segment.py", "_flush"): "a segment that is being written",
    ("audit_index.py", "_opened"): "the audit's index, a file of its own",
}


def openings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each place where a module opens something: the module's name, and that of the function."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OPENERS:
            around = [scope for scope in functions if scope.lineno <= node.lineno <= (scope.end_lineno or 0)]
            yield path.name, max(around, key=lambda scope: scope.lineno).name if around else ""


def test_the_code_that_opens_files_is_known() -> None:
    """The places that open a file are listed. A new place must not open a journal's file, but by SQLite or while no
    process has it open."""
    calls = {opening for path in JOURNAL.glob("*.py") for opening in openings(path)}
    assert calls == set(ALLOWED)
