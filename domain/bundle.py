"""A skill's bundle: the files that make it what it is, and the hash that stands for them.

Two skills with the same hash have the same content under the same names. Caches, build output and editors' leavings
are left out, so that running a skill does not change it. Modes and times are not covered.

The bundle hash is a contract with other programs. It leaves out links and compiled Python, which can change what a
skill does; where a folder has any, `code_hash` says so.
"""

import hashlib
from collections.abc import Iterable

PRUNED_FOLDERS = frozenset(
    {
        ".cache",
        ".git",
        ".hg",
        ".idea",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        ".vscode",
        "__pycache__",
        "build",
        "dist",
        "node_modules",
        "target",
        "venv",
    }
)
IGNORED_FILES = frozenset({".DS_Store", "Thumbs.db", ".gitignore.swp"})
IGNORED_SUFFIXES = (".pyc", ".pyo", ".swp", "~")


def considered(relpath: str) -> bool:
    """Whether the regular file at `relpath` ("/" between its parts, relative to the skill folder) is in the bundle."""
    *folders, name = relpath.split("/")
    if name in IGNORED_FILES or not PRUNED_FOLDERS.isdisjoint(folders):
        return False
    # A file that is called just ".swp" has no stem that it could be the backup of: it is content.
    return name in IGNORED_SUFFIXES or not name.endswith(IGNORED_SUFFIXES)


def bundle_hash(files: Iterable[tuple[str, bytes]]) -> str:
    """The bundle hash, "sha256:" and 64 hex digits, of `(relpath, 32 raw bytes of SHA-256 of the content)` pairs.

    SHA-256 over relpath, NUL, digest, NUL of each file, in bytewise order of the whole relpath. The pairs may come in
    any order and are not filtered: give the considered ones. A relpath that is not UTF-8 counts as the bytes it was
    decoded from (surrogateescape).
    """
    outer = hashlib.sha256()
    for relpath, digest in sorted((relpath.encode(errors="surrogateescape"), digest) for relpath, digest in files):
        outer.update(relpath + b"\0" + digest + b"\0")
    return f"sha256:{outer.hexdigest()}"


def unhashed(relpath: str) -> bool:
    """Whether the file at `relpath` is compiled Python that the bundle hash leaves out, though it can be imported."""
    *folders, name = relpath.split("/")
    return PRUNED_FOLDERS.isdisjoint(folders) and name.endswith((".pyc", ".pyo"))


def code_hash(files: Iterable[tuple[str, bytes]], others: Iterable[tuple[str, bytes]]) -> str:
    """The bundle hash of `files`; with "+" and 16 hex digits for `others` (links, compiled Python) if there are any."""
    others = tuple(others)
    beside = f"+{bundle_hash(others)[7:23]}" if others else ""
    return bundle_hash(files) + beside
