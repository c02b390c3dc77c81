"""Paths that git checks out: which names of an index or a tree stay inside the worktree and out of git's own folder.

git checks a path when it adds it to an index (verify_path in its read-cache.c), and not when it reads an index that is
there. A path is held here to what git checks, for every file system that git knows: Windows and macOS take more
spellings for `.git` than Linux does.
"""

from __future__ import annotations

import re

# macOS leaves these code points out when it compares names.
_IGNORED_BY_HFS = rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf"
_SUSPECT = rb"^/|/$|//|(?:^|[/\\])(?:\.|[gG][iI])|\xe2\x80|\xe2\x81|\xef\xbb\xbf|^$"
_GIT_ON_WINDOWS = rb"(?s)(?:\.git|git~1)[ .]*(?::.*)?"
_MODULES_ON_WINDOWS = rb"(?s)(?:\.gitmodules|gitmod~[1-4]|gi7eba~[0-9])[ .]*(?::.*)?"


def path_problem(path: bytes) -> str:
    """Return why a path must not be checked out, or an empty text; a folder's name does not end in "/" here."""
    if re.search(_SUSPECT, path) is None:
        return ""
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
    folded = re.sub(_IGNORED_BY_HFS, b"", name).lower()
    if b"git" not in folded:
        return False
    return any(re.fullmatch(_GIT_ON_WINDOWS, part) for part in folded.split(b"\\"))


def is_modules_name(name: bytes) -> bool:
    """Return whether a name is `.gitmodules` for some file system; git follows no symbolic link of that name."""
    folded = re.sub(_IGNORED_BY_HFS, b"", name).lower()
    return any(re.fullmatch(_MODULES_ON_WINDOWS, part) for part in folded.split(b"\\"))
