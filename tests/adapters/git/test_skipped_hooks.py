"""Hooks that git skipped are derived from the logs of a repository, among which a program may make any file."""

import os
from pathlib import Path
from typing import Any

import pytest
from programs import program_at

from omac.adapters.git.repository import PLAIN, Repository
from omac.adapters.git.skipped_hooks import ENTRIES_MAX, SkippedHooks


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    """Return a folder with a hook for pushes."""
    folder = tmp_path / "hooks"
    folder.mkdir()
    program_at(folder / "pre-push", "#!/bin/sh\n")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a repository with the log of a branch of a remote."""
    dot = tmp_path / "project" / ".git"
    (dot / "logs" / "refs" / "remotes" / "origin").mkdir(parents=True)
    (dot / "logs" / "refs" / "remotes" / "origin" / "main").write_text("one\n")
    return Repository(PLAIN, str(dot.parent), str(dot), str(dot), str(dot))


def test_a_push_is_seen(hooks: Path, repository: Repository) -> None:
    """A push lets the log of a remote's branch grow, and the warning names the hook for pushes."""
    skipped = SkippedHooks(str(hooks), repository, "--read hooks")
    assert skipped.warning() == ""
    with open(f"{repository.common}/logs/refs/remotes/origin/main", "a") as log:
        log.write("two\n")
    assert "pre-push" in skipped.warning()


def test_a_link_leads_to_no_log(hooks: Path, repository: Repository, tmp_path: Path) -> None:
    """Logs behind a link belong to another repository, and cause no warning."""
    logs = Path(repository.common, "logs", "refs")
    (logs / "remotes").rename(tmp_path / "elsewhere")
    (logs / "remotes").symlink_to(tmp_path / "elsewhere")
    skipped = SkippedHooks(str(hooks), repository, "--read hooks")
    (tmp_path / "elsewhere" / "origin" / "other").write_text("a log of another repository\n")
    assert skipped.warning() == ""


def test_folders_without_end_are_left(hooks: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of folders that are read has a bound, however many a program makes."""
    for number in range(60):
        for below in range(60):
            os.makedirs(f"{repository.common}/logs/refs/remotes/{number}/{below}")
    read: list[str] = []
    real = os.scandir

    def scandir(path: str) -> Any:
        read.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    SkippedHooks(str(hooks), repository, "--read hooks")
    assert ENTRIES_MAX * 0.9 < len(read) <= ENTRIES_MAX + 1
