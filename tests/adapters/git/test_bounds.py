"""adapters/git/inspection.py: an inspection ends in time, however much there is, and passes nothing it cannot read."""

import errno
import os
import subprocess
import time
from pathlib import Path

import pytest

from omac.adapters.git import look
from omac.adapters.git.git_folder import GitFolder
from omac.adapters.git.inspection import Budget
from omac.adapters.git.quarantine import Quarantine
from omac.domain.git.folder import WHOLE, Folder


@pytest.mark.parametrize(("lines", "is_judged"), [(1, True), (30_000, False)], ids=["short", "long"])
def test_reading_is_paid_for(lines: int, is_judged: bool, tmp_path: Path) -> None:
    """A few files that are long spend the time of many that are short: what they leave no time for is set aside."""
    project = tmp_path / "project"
    project.mkdir()
    baseline = look.note((str(project),), {}, time.time_ns())
    for number in range(3):
        for name in ("objects", "refs"):
            (project / f"n{number}" / ".git" / name).mkdir(parents=True)
        (project / f"n{number}" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (project / f"n{number}" / ".git" / "config").write_text("[core]\n" + "\tfilemode = true\n" * lines)
    quarantine = Quarantine(str(tmp_path / "state"), "launch")
    findings = look.act((str(project),), {}, baseline, quarantine, Budget(0))
    assert [one for one in findings if "was not inspected" in one.what] == ([] if is_judged else findings)
    assert all((project / f"n{number}" / ".git" / "HEAD").exists() == is_judged for number in range(3))


def test_a_disk_that_fails_lets_nothing_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git folders that the disk does not let omac read are set aside, those that it does are judged."""
    project = tmp_path / "project"
    for name in (".", "nested", "zz"):
        subprocess.run(["git", "init", "-q", str(project / name)], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(project / "bare.git")], check=True)
    inspect = GitFolder.inspect

    def failing(self: GitFolder, folder: int) -> None:
        path = os.readlink(f"/proc/self/fd/{folder}")
        if not path.endswith("zz/.git"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        inspect(self, folder)

    folders = {f"{project}/.git": Folder(WHOLE, str(project), f"{project}/.git")}
    baseline = look.note((str(project),), folders, time.time_ns())
    (project / "zz/.git/hooks/post-checkout").write_text("#!/bin/sh\n")
    monkeypatch.setattr(GitFolder, "inspect", failing)
    findings = look.act((str(project),), folders, baseline, Quarantine(str(tmp_path / "state"), "launch"))
    for folder in (project, project / "nested"):
        assert (folder / ".git").is_file(), findings
        assert subprocess.run(["git", "status"], cwd=folder, capture_output=True).returncode
    assert not (project / "bare.git/HEAD").exists()
    assert (project / "zz/.git").is_dir()
    assert not (project / "zz/.git/hooks/post-checkout").exists()
