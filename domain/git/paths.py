"""Paths that git checks out: which names of an index or a tree stay inside the worktree and out of git's own folder.

git checks a path when it adds it to an index (verify_path in its read-cache.c), and not when it reads an index that is
there. A path is held here to what git checks, for every file system that git knows: Windows and macOS take more
spellings for `.git` than Linux does.
"""

from __future__ import annotations

# macOS leaves these code points out when it compares names.
_IGNORED_BY_HFS = [
    chr(code).encode() for code in (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
]
_SUSPECT = (b"//", b"/.", b"/gi", b"\\", b"\xe2", b"\xef")  # in paths in lower case, each between slashes
_OF_GIT = frozenset((b".git", b"git~1"))
_OF_MODULES = frozenset(
    (b".gitmodules", *(b"gitmod~%d" % digit for digit in range(1, 5)), *(b"gi7eba~%d" % digit for digit in range(10)))
)


def paths_problem(paths: list[bytes]) -> tuple[bytes, str]:
    """Return the first path that must not be checked out, and why, or empty texts.

    A folder's name does not end in "/" here. Most paths are plain: they are looked through together.
    """
    folded = b"/%b/" % b"/\0/".join(paths).lower()
    if any(mark in folded for mark in _SUSPECT):
        for path in paths:
            if problem := path_problem(path):
                return path, problem
    return b"", ""


def path_problem(path: bytes) -> str:
    """Return why a path must not be checked out, or an empty text."""
    for part in path.split(b"/"):
        if part == b"":
            return "is absolute, empty, or has an empty part"
        if part in (b".", b".."):
            return f"has the part {part.decode()!r}"
        if is_git_name(part):
            return "leads into git's own folder"
    return ""


def is_git_name(name: bytes) -> bool:
    """Return whether a name is `.git` for some file system: in any case, Windows or macOS spelling."""
    return not _OF_GIT.isdisjoint(_names_on_windows(name))


def is_modules_name(name: bytes) -> bool:
    """Return whether a name is `.gitmodules` for some file system; git follows no symbolic link of that name."""
    return not _OF_MODULES.isdisjoint(_names_on_windows(name))


def _names_on_windows(name: bytes) -> list[bytes]:
    """Return the names that Windows opens for the parts of a name, without the characters that macOS ignores."""
    if not name.isascii():
        for ignored in _IGNORED_BY_HFS:
            name = name.replace(ignored, b"")
    return [part.partition(b":")[0].rstrip(b" .") for part in name.lower().split(b"\\")]
