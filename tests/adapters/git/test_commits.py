"""adapters/git/commits.py: the host's git lists a repository whose settings and refs an agent wrote."""

import os
import subprocess
from pathlib import Path

import pytest

from omac.adapters.git import program
from omac.adapters.git.commits import BranchHeads

CONFIG = """[core]
	repositoryformatversion = 1
[extensions]
	partialClone = origin
[remote "origin"]
	url = ext::sh -c touch% {ran}
	promisor = true
[protocol]
	allow = always
[protocol "ext"]
	allow = always
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a clone that lacks the commit of a branch, and whose settings name a program that fetches it."""
    folder = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".git" / "config").write_text(CONFIG.format(ran=tmp_path / "ran"))
    (folder / ".git" / "refs" / "heads" / "main").write_text("12" * 20 + "\n")
    return folder


@pytest.mark.parametrize("without", ["", "GIT_NO_LAZY_FETCH"])
def test_what_is_missing_is_not_fetched(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    """A missing commit is not fetched, even by a git that does not know `GIT_NO_LAZY_FETCH`."""
    if without:  # as if git had not read it
        monkeypatch.delitem(program.ALONE, without)
    assert BranchHeads(str(repository), os.environ).new_commits() == []
    problem = program.complaint(f"--git-dir={repository}/.git", "update-ref", "refs/heads/new", "34" * 20)
    # Whichever of the two gits was the first to say so: the other may end by SIGPIPE.
    assert "nonexistent object" in problem or "transport 'ext' not allowed" in problem
    assert not (tmp_path / "ran").exists()
