"""kill -9 of long commands that write, at moments spread over their work, leaves the journal whole.

The same command, typed again, does its work. Kills of seals and prunes are beside their other tests. Kills of an append
are in `tests/journal/test_sql_recorder.py`, of a server in `tests/tools/test_serve.py`, and of the import of an old
journal in `tests/journal/test_long_take_over.py`.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_omac import Omac
from tools.test_snapshots import called_often

CALLS = 20_000
KILLS = 5
BEGINS = 0.25  # of its time, that a command takes to load

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def busy(house: Omac) -> Omac:
    """Return a host with a long journal, sealed in part."""
    house.approved("shop")
    called_often(house, CALLS // 4)
    house.ok("checkpoint")
    house.ok("journal", "seal")
    called_often(house, CALLS * 3 // 4)
    return house


def events(omac: Omac) -> int:
    count: int = json.loads(omac.ok("journal", "stats", "--json"))["events"]
    return count


def require_whole(omac: Omac, least: int) -> None:
    """Check that every event is as it was recorded, and that the journal has at least so many."""
    verified = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["checked"]) == ([], verified["size"])
    assert verified["size"] >= least


def moments(omac: Omac, *words: str) -> Iterator[float]:
    """Run a command once, and yield moments of its work, in seconds after its start."""
    began = time.monotonic()
    omac.process(*words, cwd=omac.root / "shop")
    whole = time.monotonic() - began
    for number in range(KILLS):
        yield whole * (BEGINS + (1 - BEGINS) * number / KILLS)


def kill(omac: Omac, after_s: float, *words: str) -> bool:
    """Kill a command a moment after its start, and return whether it still ran then."""
    started = omac.start(*words)
    try:
        started.process.wait(after_s)
    except subprocess.TimeoutExpired:
        return started.end(signal.SIGKILL) == -signal.SIGKILL
    return False


def test_index(busy: Omac) -> None:
    """An index whose command was killed is completed by the next, and has the same rows."""
    words = ("audit", "--skill", "echo", "--json")
    folder = busy.state / "journals"

    def drop() -> None:
        for file in folder.glob("*.audit*"):
            file.unlink()

    drop()
    before = busy.ok(*words)
    drop()
    killed = 0
    for number, moment in enumerate(moments(busy, *words)):
        if number % 2:
            drop()
        killed += kill(busy, moment, *words)
        assert busy.ok(*words) == before
    assert killed
    require_whole(busy, 2 * CALLS)


def test_export(busy: Omac, tmp_path: Path) -> None:
    """A killed export leaves a whole bundle or none, and the next export removes its remains."""
    folder = tmp_path / "bundle"
    words = ("export", "--out", str(folder))
    key = busy.ok("key", "show").strip()
    killed = 0
    for moment in moments(busy, *words):
        shutil.rmtree(folder, ignore_errors=True)
        least = events(busy)
        killed += kill(busy, moment, *words)
        require_whole(busy, least)
        if folder.exists():
            busy.ok("export", "verify", str(folder), "--key", key)
    shutil.rmtree(folder, ignore_errors=True)
    busy.ok(*words)
    assert killed
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    busy.ok("export", "verify", str(folder), "--key", key)


@pytest.mark.parametrize("words", [("checkpoint",), ("revoke", "echo"), ("approve", "echo"), ("key", "rotate")])
def test_record(busy: Omac, words: tuple[str, ...]) -> None:
    """A killed command leaves the journal whole with all earlier events, and a checkpoint printed later verifies."""
    printed = busy.folder / "printed"
    at = (*words, "--workdir", str(busy.root / "shop")) if "echo" in words else words
    killed = 0
    for moment in moments(busy, *at):
        least = events(busy)
        killed += kill(busy, moment, *at)
        require_whole(busy, least)
    assert killed
    busy.ok(*at)
    printed.write_text(busy.ok("checkpoint"))
    busy.ok("audit", "verify", "--checkpoint", str(printed))
    busy.ok("journal", "check")
    assert json.loads(busy.ok("audit", "--kind", "skill", "-n", "1", "--json"))


def test_backup(busy: Omac, tmp_path: Path) -> None:
    """A killed backup does not pass the check unless it verifies; the next one, by another name, is whole."""
    copy = tmp_path / "copy.db"
    killed = 0
    for number, moment in enumerate(moments(busy, "journal", "backup", str(tmp_path / "first.db"))):
        copy = tmp_path / f"copy-{number}.db"
        least = events(busy)
        killed += kill(busy, moment, "journal", "backup", str(copy))
        require_whole(busy, least)
        if copy.exists() and busy.run("journal", "check", "--journal", str(copy)).status == 0:
            busy.ok("audit", "verify", "--journal", str(copy))
    assert killed
    busy.ok("journal", "backup", str(tmp_path / "last.db"))
    busy.ok("audit", "verify", "--journal", str(tmp_path / "last.db"))


def test_restore(busy: Omac, tmp_path: Path) -> None:
    """A killed restore leaves the old journal, the restored one, or a message with the command; no event is lost."""
    copy = tmp_path / "copy.db"
    busy.ok("journal", "backup", str(copy))
    least = events(busy)
    words = ("journal", "restore", str(copy), "--yes")
    killed = 0
    for moment in moments(busy, *words):
        killed += kill(busy, moment, *words)
        done = busy.run("audit", "verify", "--json")
        if done.status:
            assert "omac journal restore" in done.err, done
            busy.ok(*words)
        require_whole(busy, least)
        for path in busy.state.glob("journal.db.before-restore-*"):
            if path.suffix.removeprefix(".before-restore-").isdigit():
                verified = busy.run("audit", "verify", "--journal", str(path), "--json")
                assert verified.status == 0, (path, verified)
    assert killed
    busy.ok(*words)
    require_whole(busy, least)
    busy.ok("journal", "check")
    assert not list(busy.state.glob("journal.db.restoring*")), "what was killed is left behind"


class Killed(BaseException):
    """An exception that no handler of omac catches."""


@pytest.mark.parametrize("step", range(1, 7))
def test_restore_between_two_names(busy: Omac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A restore that ends at any of its renames is finished by the next, and the earlier journal is kept whole."""
    copy = tmp_path / "copy.db"
    busy.ok("journal", "backup", str(copy))
    busy.ok("revoke", "echo", "--workdir", str(busy.root / "shop"))
    least, before = events(busy), set(busy.state.glob("journal.db.before-restore-*"))
    renamed = 0
    rename = os.rename

    def renaming(source: str, target: str) -> None:
        nonlocal renamed
        if "journal.db" in source and ".draft" not in source:
            renamed += 1
            if renamed == step:
                raise Killed
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("omac.journal.backup.os.rename", renaming)
        try:
            busy.run("journal", "restore", str(copy), "--yes")
        except Killed:
            assert renamed == step
    done = busy.run("audit", "verify", "--json")
    assert done.status == 0 or "omac journal restore" in done.err, done
    busy.ok("journal", "restore", str(copy), "--yes")
    require_whole(busy, 2 * CALLS)
    moved = [path for path in set(busy.state.glob("journal.db.before-restore-*")) - before if path.suffix[-1].isdigit()]
    verified = [json.loads(busy.ok("audit", "verify", "--journal", str(path), "--json")) for path in moved]
    assert least in [report["size"] for report in verified]
    assert all(report["findings"] == [] for report in verified)
    busy.approve(busy.root / "shop", "echo")
