"""The git common directory of a project's folder, as approvals by repository need it: proved in both directions.

A `.git` file is a claim, for an agent may have written it. The common directory counts only if its own
`worktrees/NAME/gitdir` names the worktree. Each folder is opened once, through no symbolic link; what is read and
compared after that is relative to the open folders.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from omac.adapters.files import bounded
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.without_links import born_ns, opened_folder
from omac.adapters.git.pointers import BYTES_MAX, PATH_BYTES_MAX, unsafe
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.skills.repository import WorktreeFolder


def worktree_folder(workdir: str) -> WorktreeFolder:
    """Return of which repository the canonical folder `workdir` is a part.

    Raises Refusal: misuse where it is in none, git-unsafe where what is there proves nothing.
    """
    root = workdir
    while True:
        with _opened(root) as here:
            mode = _mode(".git", here)
            if mode:
                common, inode, made_ns = _common(root, here, mode)
                project = "" if root == workdir else os.path.relpath(workdir, root)
                return WorktreeFolder(common, inode, made_ns, project)
        if root == "/":
            message = f"{workdir} is in no git repository, so nothing can hold for its worktrees"
            raise Refusal("misuse", message, fix=[f"git -C {quoted(workdir)} worktree list"])
        root = os.path.dirname(root)


def _common(root: str, here: int, mode: int) -> tuple[str, int, int]:
    dot = f"{root}/.git"
    _require_own(here, root)
    if stat.S_ISDIR(mode):
        with _opened(".git", here, dot) as git:
            if (redirected := _content("commondir", git, dot)) is not None and redirected.strip() != b".":
                raise unsafe(f"{dot}/commondir makes git take its configuration from elsewhere", list_command(dot))
            return _identified(dot, git)
    if not stat.S_ISREG(mode):
        raise unsafe(f"{dot} is neither a folder nor a file, so it proves no repository", list_command(dot))
    admin = _path_in(".git", here, dot, prefix=b"gitdir: ")
    common = os.path.dirname(os.path.dirname(admin))
    if os.path.basename(os.path.dirname(admin)) != "worktrees":
        raise unsafe(f"{dot} names {admin}, which is no linked worktree's folder in a repository", list_command(admin))
    with _opened(common) as shared, _opened(f"worktrees/{os.path.basename(admin)}", shared, admin) as own:
        commondir = _path_in("commondir", own, f"{admin}/commondir")
        if commondir != common:
            raise unsafe(f"{admin}/commondir names {commondir} in place of {common}", list_command(admin))
        owner = _path_in("gitdir", own, f"{admin}/gitdir")
        if owner != dot:
            repair = f"git -C {quoted(root)} worktree repair  # if the worktree was moved by hand"
            raise unsafe(f"{dot} names {admin}, which is of another worktree: its 'gitdir' says {owner}", repair)
        return _identified(common, shared)


def _identified(common: str, folder: int) -> tuple[str, int, int]:
    """Return path, inode and time of birth of a common directory."""
    if not all(_mode(name, folder) for name in ("HEAD", "objects", "refs")):
        raise unsafe(f"{common} is not a git folder", list_command(common))
    _require_own(folder, common)
    made_ns = born_ns(folder)
    if made_ns is None:
        raise unsafe(f"the file system of {common} does not record when a folder was made, so omac cannot identify it")
    return common, os.fstat(folder).st_ino, made_ns


def _require_own(folder: int, path: str) -> None:
    if os.fstat(folder).st_uid != os.geteuid():
        raise unsafe(f"{path} belongs to another user", list_command(path))


def _mode(name: str, folder: int) -> int:
    """Return lstat's mode of an entry of an open folder; 0 where nothing is."""
    try:
        return os.lstat(name, dir_fd=folder).st_mode
    except OSError:
        return 0


@contextmanager
def _opened(path: str, folder: int | None = None, shown: str = "") -> Iterator[int]:
    """Open a folder through no symbolic link, closed in the end. Raises Refusal (git-unsafe)."""
    descriptor = -1
    try:
        if folder is None:
            descriptor = opened_folder(path)
        else:
            for part in path.split("/"):
                descriptor, above = os.open(part, FOLDER_FLAGS, dir_fd=folder), descriptor
                if above >= 0:
                    os.close(above)
                folder = descriptor
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise unsafe(f"{shown or path} cannot be opened as a folder without a link: {error.strerror}") from None
    with Descriptor(descriptor):
        yield descriptor


def _content(name: str, folder: int, shown: str) -> bytes | None:
    try:
        return bounded.read(name, BYTES_MAX, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unsafe(f"{shown} cannot be read: {error.strerror}") from None


def _path_in(name: str, folder: int, shown: str, *, prefix: bytes = b"") -> str:
    """Return the absolute path that a pointer file holds, as text alone: what is opened is opened without links.

    A relative one begins at the folder of the file, as git takes it (`extensions.relativeWorktrees`).
    """
    content = _content(name, folder, shown) or b""
    raw = content.removeprefix(prefix).rstrip(b"\r\n")
    if not content.startswith(prefix) or not raw or b"\0" in raw or b"\n" in raw or len(raw) > PATH_BYTES_MAX:
        raise unsafe(f"{shown} does not hold a path as git writes it", list_command(shown))
    return os.path.normpath(os.path.join(os.path.dirname(shown), os.fsdecode(raw))).replace("//", "/")
