"""adapters/git/inspection.py: an inspection ends in time, however much there is."""

import time
from pathlib import Path

import pytest

from omac.adapters.git import look
from omac.adapters.git.inspection import Budget
from omac.adapters.git.quarantine import Quarantine


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
