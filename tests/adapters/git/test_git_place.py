"""The places that a git folder's settings may lead to."""

from pathlib import Path

import pytest

from omac.adapters.git.git_place import GitPlace


@pytest.mark.parametrize(("folder", "is_own"), [("project/sub", True), ("home/.agent/sub", False)])
def test_a_worktree_is_in_the_project(tmp_path: Path, folder: str, is_own: bool) -> None:
    """A worktree outside the project is not the git folder's own, although its pointer names that: an agent of another
    project could put a link in its place, and a checkout would follow."""
    base = Path(tmp_path.resolve())
    git = base / "project/.git/modules/sub"
    git.mkdir(parents=True)
    worktree = base / folder
    worktree.mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {git}\n")
    place = GitPlace(str(git), "", str(base / "project/.git"), (str(base / "project"),), set())
    assert place.is_own_worktree(str(worktree)) is is_own
