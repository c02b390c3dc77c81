"""A git repository as a scope: what a person approves or gives for it holds in each of its worktrees.

Rules

1. A repository is its git common directory: the path, the inode, and when the folder was made. One that was deleted
   and made again at the same path is another.
2. A worktree counts only if the common directory names it, and it names the common directory.
3. What is approved holds for files with exactly the approved digest, in the same project folder of a worktree, under
   the same base and name. What is given holds for what is approved in this way.
"""

import hashlib

import msgspec

from omac.domain.kernel.ids import WorkdirId

PREFIX = "repository-"  # of its scope; a workdir id has hexadecimal digits only


class WorktreeFolder(msgspec.Struct, frozen=True):
    """A project's folder in a worktree of a repository.

    `common` is the path of the git common directory, `inode` and `born_ns` identify it. `project` is the folder's path
    below the worktree's root, empty for the root.
    """

    common: str
    inode: int
    born_ns: int
    project: str = ""

    @property
    def scope(self) -> WorkdirId:
        """The key of registrations and credentials that hold in each worktree."""
        parts = (self.common, str(self.inode), str(self.born_ns), self.project)
        text = "\0".join(parts).encode("utf-8", "surrogateescape")
        return WorkdirId(PREFIX + hashlib.sha256(text).hexdigest())

    @property
    def shown(self) -> str:
        """The name of this place for people."""
        below = f"{self.project} in " if self.project else ""
        return f"{below}every worktree of {self.common}"


def is_repository(scope: str) -> bool:
    """Return whether a scope is that of a repository."""
    return scope.startswith(PREFIX)
