"""A skill's bundle: the files that make it what it is, and the hash that stands for them.

Two skills with the same hash have the same content under the same names. Caches, build output and editors' leavings
are left out, so that running a skill does not change it. Modes and times are not covered.

The bundle hash is a contract with other programs. It leaves out links and compiled Python, which can change what a
skill does; where a folder has any, `code_hash` says so.

The tree digest covers all there is: it addresses an approved copy, and nothing in a copy may change unseen.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

PRUNED_FOLDERS = frozenset({
    ".cache", ".git", ".hg", ".idea", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode",
    "__pycache__", "build", "dist", "node_modules", "target", "venv",
})  # fmt: skip
UNCOPIED_FOLDERS = frozenset({".git", ".hg", ".svn", "__pycache__"})  # no part of a tree or of its copy
IGNORED_FILES = frozenset({".DS_Store", "Thumbs.db", ".gitignore.swp"})
IGNORED_SUFFIXES = (".pyc", ".pyo", ".swp", "~")


def considered(relpath: str) -> bool:
    """Return whether the regular file at `relpath` ("/" between its parts, relative to the skill folder) is in the
    bundle."""
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
    """Return whether the file at `relpath` is compiled Python that the bundle hash leaves out, though it can be
    imported."""
    *folders, name = relpath.split("/")
    return PRUNED_FOLDERS.isdisjoint(folders) and name.endswith((".pyc", ".pyo"))


def code_hash(files: Iterable[tuple[str, bytes]], others: Iterable[tuple[str, bytes]]) -> str:
    """The bundle hash of `files`; with "+" and 16 hex digits for `others` (links, compiled Python) if there are any."""
    others = tuple(others)
    beside = f"+{bundle_hash(others)[7:23]}" if others else ""
    return bundle_hash(files) + beside


class TreeFile(NamedTuple):
    """A regular file: `content` is the 32 raw bytes of its SHA-256, `executable` its owner's bit."""

    relpath: str
    content: bytes
    executable: bool


class TreeLink(NamedTuple):
    """A symbolic link, and the text that it holds."""

    relpath: str
    target: str


class TreeFolder(NamedTuple):
    """A folder; the top one is not an entry of its own tree."""

    relpath: str


class TreeOrigin(NamedTuple):
    """The path of the tree itself, where files in it mention that: a copy says its own path in its place.

    It makes a tree that mentions itself another than one that mentions the same path as a stranger's.
    """

    source: str
    relpath: str = ""


TreeEntry = TreeFile | TreeLink | TreeFolder | TreeOrigin
TREE_DOMAIN = b"omac skill tree 1\n"  # no bundle hash begins like this: its first file's name ends in NUL


def tree_digest(entries: Iterable[TreeEntry]) -> str:
    """ "sha256:" and 64 hex digits over every file, link and folder of a tree but those in UNCOPIED_FOLDERS.

    SHA-256 over TREE_DOMAIN and each entry's record, in bytewise order of the relpaths. A record is a letter, the
    length of the relpath (8 bytes, big-endian) and the relpath; then for a file ("f") its content's SHA-256 and 1 or 0
    for executable, for a link ("l") the length of the target and the target, for a folder ("d") nothing, for the
    origin ("o") the length of the source and the source. The entries may come in any order and are not filtered.
    Names that are not UTF-8 count as their bytes (surrogateescape).
    """
    outer = hashlib.sha256(TREE_DOMAIN)
    for relpath, entry in sorted(((_bytes(entry.relpath), entry) for entry in entries), key=lambda pair: pair[0]):
        match entry:
            case TreeFile(_, content, executable):
                outer.update(b"f" + _framed(relpath) + content + (b"\1" if executable else b"\0"))
            case TreeLink(_, target):
                outer.update(b"l" + _framed(relpath) + _framed(_bytes(target)))
            case TreeOrigin(source):
                outer.update(b"o" + _framed(relpath) + _framed(_bytes(source)))
            case TreeFolder():
                outer.update(b"d" + _framed(relpath))
    return f"sha256:{outer.hexdigest()}"


def _framed(text: bytes) -> bytes:
    return len(text).to_bytes(8, "big") + text


def _bytes(name: str) -> bytes:
    return name.encode(errors="surrogateescape")
