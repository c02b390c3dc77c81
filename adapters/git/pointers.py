"""The small files by which git's folders name each other: `.git`, `commondir`, `gitdir` (gitrepository-layout(5)).

Any program that writes a worktree can write such a file, so it is a claim: `repository.py` decides what is believed.
"""

from __future__ import annotations

import errno
import os

from omac.adapters.files import bounded
from omac.domain.kernel.refusal import Refusal

BYTES_MAX = 8192  # of a file that holds one path
CONFIG_BYTES_MAX = 1 << 20
PATH_BYTES_MAX = 4095  # PATH_MAX without its NUL


def target(dot: str) -> str:
    """The folder that the `.git` file of a worktree names, absolute and without dots. Raises Refusal: git-unsafe."""
    content = read(dot, BYTES_MAX)
    if content is None or not content.startswith(b"gitdir: "):
        raise unsafe(f"{dot} is not a file that git writes: it does not begin with 'gitdir: '")
    return _path(dot, content[8:])


def common(admin: str) -> str | None:
    """The folder that `commondir` of a git folder names; None where there is no such file. Raises Refusal."""
    content = read(f"{admin}/commondir", BYTES_MAX)
    return None if content is None else _path(f"{admin}/commondir", content)


def back(admin: str) -> str:
    """The `.git` file that the admin folder of a linked worktree names as its own. Raises Refusal."""
    content = read(f"{admin}/gitdir", BYTES_MAX)
    if content is None:
        raise unsafe(f"{admin} has no file 'gitdir', so it is not the admin folder of a worktree")
    return _path(f"{admin}/gitdir", content)


def read(path: str, bytes_max: int) -> bytes | None:
    """A regular file's content; None where there is none. Raises Refusal: it is something else, or longer."""
    try:
        return bounded.read(path, bytes_max)
    except bounded.NotRegular:
        raise unsafe(f"{path} is not a file") from None
    except bounded.TooLarge:
        raise unsafe(f"{path} is longer than {bytes_max} bytes") from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        if error.errno == errno.ELOOP:
            raise unsafe(f"{path} is a symbolic link, and git never makes one there") from None
        raise unsafe(f"{path} cannot be read: {error.strerror}") from None


def read_leniently(path: str, bytes_max: int) -> bytes:
    """A regular file's content; empty where there is none, or where it is something else, longer, or cannot be read."""
    try:
        return read(path, bytes_max) or b""
    except Refusal:
        return b""


def is_plain(path: str) -> bool:
    """Return whether a path goes upwards at its beginning only, as those do that git writes: of another one a folder on
    the way decides where it leads."""
    parts = path.removeprefix("/").split("/")
    names = [number for number, part in enumerate(parts) if part != ".."]
    first = names[0] if names else len(parts)
    return "\0" not in path and not (path.startswith("/") and first) and ".." not in parts[first:]


def unsafe(message: str, *fix: str) -> Refusal:
    """Return the refusal (git-unsafe) of git files that cannot be trusted: nothing is granted by what they say."""
    return Refusal("git-unsafe", message, fix=fix)


def _path(file: str, content: bytes) -> str:
    """Return the path that is a file's content, as git takes it: without line ends, relative to the file's folder."""
    raw = content.rstrip(b"\r\n")
    if not raw or b"\0" in raw or b"\n" in raw or len(raw) > PATH_BYTES_MAX:
        raise unsafe(f"{file} does not hold a path")
    written = os.path.join(os.path.dirname(file), os.fsdecode(raw))
    path = os.path.normpath(written).replace("//", "/")
    if ".." in written.split("/") and os.path.realpath(written) != os.path.realpath(path):
        raise unsafe(
            f"{file} leads to {path} for a reader, and elsewhere for git, through a symbolic link before a '..'"
        )
    return path
