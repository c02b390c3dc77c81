"""A repository with a linked worktree nested in its main checkout, as agents get them, and folders around it.

The repository is not below /tmp, which every agent may write to.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
PLAIN = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}


def git(*arguments: str, cwd: Path) -> str:
    """Return the output of a git command."""
    done = subprocess.run([*GIT, *arguments], cwd=cwd, env=PLAIN, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Ground:
    """A ground: the checkout `main`; below `main/.builders` the agent's `worktree`, and another agent's `sibling`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.main = folder / "repo"
        self.worktree = self.main / ".builders" / "one"
        self.sibling = self.main / ".builders" / "two"
        self.home = folder / "home"
        self.outside = folder / "outside"
        self.state = folder / "state"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a hook of the agent in `worktree`."""
        return {
            **PLAIN,
            "HOME": str(self.home),
            "OMAC_STATE_DIR": str(self.state),
            "CLAUDE_PROJECT_DIR": str(self.worktree),
        }

    git = staticmethod(git)


@contextmanager
def ground(above: str = "/var/tmp") -> Iterator[Ground]:
    """Yield a ground of a test's own, and remove it afterwards."""
    made = Ground(Path(tempfile.mkdtemp(prefix="omac-ground-", dir=above)).resolve())
    try:
        for folder in (made.home, made.outside, made.main / "src"):
            folder.mkdir(parents=True)
        (made.outside / "there").write_text("theirs\n")
        (made.main / "src" / "a.py").write_text("pass\n")
        made.git("init", "-q", cwd=made.main)
        made.git("add", ".", cwd=made.main)
        made.git("commit", "-q", "-m", "first", cwd=made.main)
        for worktree in (made.worktree, made.sibling):
            made.git("worktree", "add", "-q", str(worktree), cwd=made.main)
        yield made
    finally:
        shutil.rmtree(made.folder)
