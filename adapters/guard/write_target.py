"""The canonical path that a write to a path changes, and the git checkout and repository that it lies in.

Functions read the file system at each call, without git, which would take longer than the whole hook. Paths are bytes,
so that no locale decides how a name is read. Functions raise Unclear and OSError.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.files import bounded
from omac.domain.guard.guard import Unclear
from omac.domain.kernel.paths import below

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator

LINKS_MAX = 40  # as the kernel (path_resolution(7))
POINTER_BYTES_MAX = 8192
PROC = b"/proc"  # its links are the reader's own: they lead this process elsewhere than the one that writes
GIT = b".git"


def resolve_write_target(path: bytes) -> bytes:
    """The canonical path that a write to the absolute `path` creates or changes.

    Links are followed as the kernel does; what is not there is taken as it is named: a tool may make the folders.
    """
    rest = path.split(b"/")[::-1]
    at = b""
    links = 0
    missing = False
    while rest:
        part = rest.pop()
        if part in (b"", b"."):
            continue
        if part == b"..":
            if missing:  # a tool that makes folders would make one there first
                raise Unclear("a path goes up from a folder that is not there")
            at = at.rpartition(b"/")[0]
            continue
        here = at + b"/" + part
        if below(here, PROC):
            raise Unclear("a path leads through /proc")
        try:
            status = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            missing = True
            at = here
            continue
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > LINKS_MAX:
                raise Unclear("a path has too many links in it")
            target = os.readlink(here)
            if target.startswith(b"/"):
                at = b""
            rest.extend(target.split(b"/")[::-1])
            continue
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise Unclear("a path leads to something that is neither a file nor a folder")
        at = here
    return at or b"/"


def top_level(workdir: bytes) -> bytes:
    """The canonical top folder of the innermost checkout that an existing folder lies in; without one, the folder."""
    if not workdir.startswith(b"/"):
        raise Unclear("the working directory of the session is no absolute path")
    folder = resolve_write_target(workdir)
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise Unclear("the working directory of the session is no folder")
    return next(checkouts(folder), folder)


def checkouts(path: bytes, root: bytes = b"") -> Iterator[bytes]:
    """The folders with a `.git` from a canonical path upwards, innermost first, as far as `root`, which is left out."""
    folder = path
    while folder != root:
        try:
            os.lstat(os.path.join(folder, GIT))
            yield folder
        except (FileNotFoundError, NotADirectoryError):
            pass
        if folder == b"/":
            return
        folder = os.path.dirname(folder)


def common_folder(checkout: bytes) -> bytes | None:
    """The canonical folder that all checkouts of a repository share; None where `.git` does not lead to one.

    That of a linked worktree is said by its `.git` file and by `commondir` behind that (gitrepository-layout(5)).
    """
    git = resolve_write_target(os.path.join(checkout, GIT))
    try:
        if stat.S_ISREG(os.lstat(git).st_mode):
            pointer = _line(git)
            if not pointer.startswith(b"gitdir:"):
                return None
            git = resolve_write_target(os.path.join(checkout, pointer[len(b"gitdir:") :].strip()))
        try:
            return resolve_write_target(os.path.join(git, _line(os.path.join(git, b"commondir"))))
        except (FileNotFoundError, NotADirectoryError):
            return git
    except FileNotFoundError:
        return None


def _line(path: bytes) -> bytes:
    content = bounded.read_start(path, POINTER_BYTES_MAX + 1)
    if len(content) > POINTER_BYTES_MAX or b"\0" in content:
        raise Unclear("a .git file is not what git writes")
    return content.rstrip(b"\r\n")
