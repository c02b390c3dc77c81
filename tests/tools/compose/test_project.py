"""tools/compose/project.py: the folder where a project begins."""

import os
from pathlib import Path

import pytest

from omac.tools.compose.project import project_of


@pytest.mark.parametrize("mark", [".git", ".agents/skills", ".claude/skills"])
def test_a_project_begins_at_the_nearest_mark(tmp_path: Path, mark: str) -> None:
    """A project begins at the nearest marked folder, from the folder itself up to the home folder."""
    here = tmp_path / "project" / "deep" / "below"
    here.mkdir(parents=True)
    assert project_of(str(here), str(tmp_path)) == str(here)
    (tmp_path / mark).mkdir(parents=True)
    assert project_of(str(here), str(tmp_path)) == str(here)
    assert project_of(str(here), "/elsewhere") == str(tmp_path)
    (tmp_path / "project" / mark).mkdir(parents=True)
    assert project_of(str(here), "/elsewhere") == str(tmp_path / "project")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", ["mark", "folder"])
def test_what_another_user_put_there_makes_no_project(tmp_path: Path, given: str) -> None:
    """Another user's .git in a shared folder does not make the shared folder a project."""
    here = tmp_path / "shared" / "mine"
    here.mkdir(parents=True)
    mark = tmp_path / "shared" / ".git"
    mark.mkdir()
    os.chown(mark if given == "mark" else mark.parent, 65534, 65534)
    assert project_of(str(here), "/elsewhere") == str(here)
