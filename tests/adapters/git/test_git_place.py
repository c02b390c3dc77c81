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


@pytest.mark.parametrize("is_in_use", [True, False])
@pytest.mark.parametrize(("pointer", "is_named"), [("own", True), ("other", False), ("", None)])
def test_a_worktree_that_is_added(tmp_path: Path, pointer: str, is_named: bool | None, *, is_in_use: bool) -> None:
    """git writes the admin folder of a new worktree before the pointer to it, which is judged later then."""
    base = Path(tmp_path.resolve())
    git = base / "project/.git/worktrees/beside"
    git.mkdir(parents=True)
    beside = base / "beside"
    beside.mkdir()
    if pointer:
        (beside / ".git").write_text(f"gitdir: {git if pointer == 'own' else base}\n")
    place = GitPlace(str(git), str(beside), str(base / "project/.git"), (str(base / "project"),), set())
    place.is_in_use = is_in_use
    assert place.is_named_by(f"{beside}/.git") is (is_in_use if is_named is None else is_named)
