"""The journal in use and its spool: one answer for commands, servers and programs that cannot open a journal."""

import os
from pathlib import Path

import pytest

from omac.adapters.files.journal_in_use import closed, journal_in_use, spool_of
from omac.adapters.files.state import StateDir
from omac.domain.kernel.ids import RunId


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    """Return a state directory without runs."""
    return StateDir(str(tmp_path / "state"))


def test_the_own_journal_has_the_plain_spool(state: StateDir) -> None:
    """The journal in the state directory, which is the only one of most users, has the plain spool."""
    assert spool_of(state.path, journal_in_use(state.path, {})) == os.path.join(state.path, "spool")


def test_each_journal_has_a_spool_of_its_own(state: StateDir, tmp_path: Path) -> None:
    """Two journals of one state directory share no spool; two spellings of one journal do."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    paths = [f"{state.path}/journal.db", f"{state.path}/other.db", f"{tmp_path}/other.db", f"{tmp_path}/real/j.db"]
    spools = [state.spool(path) for path in paths]
    assert len(set(spools)) == len(paths)
    assert all(os.path.dirname(spool) == os.path.realpath(state.path) for spool in spools)
    assert state.spool(f"{tmp_path}/link/j.db") == state.spool(f"{tmp_path}/real/j.db")


def test_a_link_to_the_state_directory(state: StateDir, tmp_path: Path) -> None:
    """A state directory that is named through a link has the same spools."""
    os.mkdir(state.path)
    (tmp_path / "link").symlink_to(state.path)
    assert spool_of(str(tmp_path / "link"), str(tmp_path / "link" / "journal.db")) == state.spool(
        f"{state.path}/journal.db"
    )


def test_a_program_of_a_run_means_its_journal(state: StateDir) -> None:
    """A program of a run uses the run's journal, even if another server is current or the environment names another."""
    for run, journal in (("aa11", "/j/one.db"), ("bb22", "/j/two.db")):
        state.begin_run(RunId(run))
        state.name_journal(RunId(run), journal)
    state.point_current(RunId("bb22"))
    assert journal_in_use(state.path, {}) == "/j/two.db"
    assert journal_in_use(state.path, {"OMAC_JOURNAL": "/j/three.db"}) == "/j/three.db"
    assert journal_in_use(state.path, {"OMAC_JOURNAL": "/j/three.db"}, run="aa11") == "/j/one.db"


@pytest.mark.parametrize("run", ["gone", "../../etc", ""])
def test_a_run_that_is_not_there(state: StateDir, run: str) -> None:
    """A run that does not exist counts as none: the state directory's journal is in use."""
    assert journal_in_use(state.path, {}, run=run) == os.path.join(state.path, "journal.db")


def test_a_home_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the HOME of another user, as `sudo -u` keeps it, another one is proposed: no mode there is omac's to mend."""
    current = str(tmp_path / ".local" / "state" / "omac" / "run" / "current")
    denied = PermissionError(13, "Permission denied")
    assert closed(current, denied).fix[-1] == "omac doctor --fix  # mends modes"
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    proposed = f"export HOME=PATH  # one of your own: {tmp_path} belongs to user {owner}"
    assert closed(current, denied).fix == (f"ls -ld {tmp_path}", proposed)
