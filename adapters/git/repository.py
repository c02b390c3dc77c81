"""A repository as it is on disk: where its worktree, its git folder and its common folder are, and by whose word.

Rules

1. A git folder below the workdir may be named by any file there: using it gives nothing that the workdir does not.
2. A git folder elsewhere counts only if it names this worktree itself: an admin folder by its `gitdir`, any other by
   `core.worktree`. A `.git` file alone proves nothing, for an agent may have written it.
3. The common folder of an admin folder is the one it lies in (`COMMON/worktrees/NAME`), whatever `commondir` says.
4. No derived path passes through a symbolic link.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.git import pointers
from omac.adapters.git.pointers import unsafe
from omac.domain.git import config
from omac.domain.kernel import PlainData
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import list_command, quoted

PLAIN = "plain"  # `.git` is a folder of the worktree
LINKED = "linked"  # `git worktree add`: an admin folder in another repository's common folder
APART = "apart"  # a whole git folder elsewhere: submodules, --separate-git-dir
BARE = "bare"  # the folder is the git folder


class Repository(PlainData):
    """`root` is the worktree, `dot` its `.git` ("" for bare), `git` its own folder, `common` the shared one."""

    kind: str
    root: str
    dot: str
    git: str
    common: str

    def __repr__(self) -> str:
        return f"Repository({self.kind!r}, {self.root!r}, git={self.git!r}, common={self.common!r})"


def identify(root: str, workdir: str) -> Repository | None:
    """The repository whose worktree, or whose bare self, is the canonical folder `root`, at or below `workdir`. None:
    there is none. Raises Refusal (git-unsafe): what is there claims what it cannot prove."""
    dot = f"{root}/.git"
    mode = mode_of(dot)
    if mode == 0:
        return Repository(BARE, root, "", root, root) if is_git_folder(root) else None
    if stat.S_ISLNK(mode):
        raise unsafe(
            f"{dot} is a symbolic link; replace it by a file with the line 'gitdir: FOLDER'", list_command(dot)
        )
    if stat.S_ISDIR(mode):
        _require_no_redirection(dot)
        return Repository(PLAIN, root, dot, dot, dot) if is_git_folder(dot) else None
    git = pointers.target(dot)
    require_real(git, dot)
    if not stat.S_ISDIR(mode_of(git)):
        raise unsafe(f"{dot} names {git}, which does not exist", f"git -C {quoted(root)} worktree repair")
    if os.path.lexists(f"{git}/commondir") and pointers.common(git) != git:
        return _linked(root, dot, git, workdir)
    if not is_git_folder(git):
        raise unsafe(f"{dot} names {git}, which is not a git folder")
    if not below(git, workdir):
        _require_own_worktree(root, git)
    return Repository(APART, root, dot, git, git)


def is_git_folder(path: str) -> bool:
    """Return whether git would take a folder for a git folder: HEAD, objects and refs are there, of whatever kind."""
    return mode_of(f"{path}/HEAD") != 0 and os.path.exists(f"{path}/objects") and os.path.exists(f"{path}/refs")


def require_real(path: str, said_by: str) -> None:
    """Raise Refusal where a path passes through a symbolic link."""
    if os.path.realpath(path) != path:
        raise unsafe(f"{said_by} leads to {path} through a symbolic link")


def mode_of(path: str) -> int:
    """Return lstat's mode; 0 where nothing is, or where nothing can be known."""
    try:
        return os.lstat(path).st_mode
    except (OSError, ValueError):
        return 0


def is_folder(path: str) -> bool:
    """Return whether a path is a folder, and no link to one."""
    return stat.S_ISDIR(mode_of(path))


def _linked(root: str, dot: str, admin: str, workdir: str) -> Repository:
    """Return the repository of a linked worktree, by rules 1 to 3. Raises Refusal."""
    common = pointers.common(admin)
    folder = os.path.dirname(admin)
    if common is None or os.path.basename(folder) != "worktrees" or common != os.path.dirname(folder):
        raise unsafe(f"{admin}/commondir names {common}, and an admin folder lies in its common folder's 'worktrees'")
    if below(admin, workdir) and not below(common, workdir):
        raise unsafe(f"{admin} lies in the workdir, and claims the repository {common} outside it")
    if not is_git_folder(common):
        raise unsafe(f"{dot} leads to {common}, which is not a git folder")
    owner = pointers.back(admin)
    if owner != dot and os.path.realpath(owner) != dot:
        raise unsafe(
            f"{dot} names {admin}, which belongs to another worktree: its 'gitdir' says {owner}",
            f"git -C {quoted(root)} worktree repair  # if the worktree was moved by hand",
        )
    return Repository(LINKED, root, dot, admin, common)


def _require_own_worktree(root: str, git: str) -> None:
    """Raise Refusal by rule 2, for a git folder that is not an admin folder."""
    worktree = ""
    try:
        content = pointers.read(f"{git}/config", pointers.CONFIG_BYTES_MAX) or b""
        for key, value in config.parse(content.decode(errors="surrogateescape")):
            if key == "core.worktree":
                worktree = os.path.normpath(os.path.join(git, value))
    except ValueError as error:
        raise unsafe(f"{git}/config is not a configuration that git reads: {error}") from None
    if worktree != root and (not worktree or os.path.realpath(worktree) != root):
        problem = f"says {worktree}" if worktree else "names no worktree"
        raise unsafe(
            f"{root}/.git names the git folder {git}, whose core.worktree {problem}: it may be another worktree's",
            f"cat {quoted(f'{root}/.git')}  # if it is right, set core.worktree in the folder that it names",
        )


def _require_no_redirection(git: str) -> None:
    """A git folder of its own has no `commondir`, but for the one that omac holds its place with."""
    content = pointers.read(f"{git}/commondir", pointers.BYTES_MAX)
    if content is not None and content.strip() != b".":
        raise unsafe(
            f"{git}/commondir makes git take its configuration from elsewhere", list_command(f"{git}/commondir")
        )
