"""Journals that earlier omacs wrote, each of a day with a skill: they are read, taken over, and proven from then on.

An omac whose highest format was N wrote `golden/format-N.db.gz`. In it a skill is approved and called, its sidecar
crashes and is restarted, a setting is changed, and a program runs in a sandbox. In the last one omac also installs its
hooks in Claude Code. From format 5 on it has a checkpoint, signed by the key beside it, and an export. Format 6 has a
seal that failed, format 7 a checkpoint of another journal. In format 8 personal fields are encrypted, with the key
beside it, and with a key that was erased. In format 9 the key that signs was moved, into a vault and back.
In format 10 calls that came together share a record.
`format-1-first.db.gz` is of the very first omac that people had, without sandboxes: its events lack the column
`happened`.
"""

import gzip
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from polling import eventually
from real_omac import Omac, omac_in

from omac.adapters.files.state import StateDir
from omac.adapters.files.subject_keys import read_all
from omac.domain.access.access import AccessRefused, AccessRequested
from omac.domain.sandbox.launch import LaunchRequested
from omac.journal.event_kinds import SCHEMA
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.journal.verification import verify
from omac.projections.evidence.accesses import audit_rows
from omac.projections.snapshot import encoded
from omac.projections.system import System

GOLDEN = sorted((Path(__file__).parent / "golden").glob("format-*.db.gz"))


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name.removesuffix(".db.gz"))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    unpacked = tmp_path / "journal.db"
    unpacked.write_bytes(gzip.decompress(request.param.read_bytes()))
    unpacked.chmod(0o600)
    return str(unpacked)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of the golden journal."""
    golden: Path = request.node.callspec.params["path"]
    return golden.name


def test_there_is_one_of_each_form() -> None:
    """Every format up to today's has a golden journal, and the first format has two."""
    formats = []
    for packed in GOLDEN:
        connection = sqlite3.connect(":memory:")
        with closing(connection):
            connection.deserialize(gzip.decompress(packed.read_bytes()))
            formats.append(connection.execute("SELECT schema FROM journal").fetchone()[0])
    assert sorted(formats) == [1, *range(1, SCHEMA + 1)]


def test_it_is_read(path: str) -> None:
    """Every event of a golden journal is decoded and folded; the audit names the skill and the outcome of its calls."""
    with closing(ReadJournal(path)) as journal:
        system = System().replay(journal.records())
        rows = [row for row in audit_rows(journal.records()) if row.kind == "access"]
    assert [(row.skill, row.outcome, row.status) for row in rows[:3]] == [
        ("echo", "completed", 200), ("echo", "completed", 200), ("echo", "aborted", 502),
    ]  # fmt: skip
    (registration,) = system.registrations.entries.values()
    assert registration.state.approved is not None
    assert not system.accesses.open


def test_its_personal_fields(tmp_path: Path) -> None:
    """Personal fields are read with their keys; erased ones, and those without a key here, are read as "(erased)"."""
    (packed,) = [path for path in GOLDEN if path.name == "format-8.db.gz"]
    (tmp_path / "journal.db").write_bytes(gzip.decompress(packed.read_bytes()))
    (tmp_path / "journal.db").chmod(0o600)
    keys = StateDir(str(tmp_path / "state")).subject_keys(str(tmp_path / "journal.db"), "id")
    fields: list[object] = []
    for _ in range(2):
        with closing(ReadJournal(str(tmp_path / "journal.db"), keys=lambda _: keys)) as journal:
            events = [record.event for record in journal.records()]
        fields.append([event.path for event in events if isinstance(event, AccessRequested | AccessRefused)])
        fields.append([event.argv[1:] for event in events if isinstance(event, LaunchRequested)])
        keys.add(read_all(str(packed.with_name("format-8.subjects"))))
    assert fields[:2] == [["(erased)"] * 4, [(), ()]]
    assert fields[2:] == [["/status", "/echo/hello", "/crash", "/"], [("an-argument",), ()]]


def test_calls_that_share_a_record(tmp_path: Path) -> None:
    """Calls that share a record of a golden journal are rows of their own, with their paths where the key is."""
    (packed,) = [path for path in GOLDEN if path.name == "format-10.db.gz"]
    (tmp_path / "journal.db").write_bytes(gzip.decompress(packed.read_bytes()))
    (tmp_path / "journal.db").chmod(0o600)
    keys = StateDir(str(tmp_path / "state")).subject_keys(str(tmp_path / "journal.db"), "id")
    keys.add(read_all(str(packed.with_name("format-10.subjects"))))
    with closing(ReadJournal(str(tmp_path / "journal.db"), keys=lambda _: keys)) as journal:
        rows = [row for row in audit_rows(journal.records()) if row.kind == "access"][3:]
    paths = sorted(f"/echo/{turn}/{number}" for turn in range(2) for number in range(6))
    assert (sorted(row.path for row in rows), {row.outcome for row in rows}) == (paths, {"completed"})
    assert len({row.position for row in rows}) < len(rows) == len({row.access for row in rows})


def test_it_is_taken_over(path: str, name: str) -> None:
    """Opening an old journal keeps its events, byte for byte, and gives them leaves, which count as late."""
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute("SELECT * FROM event ORDER BY position").fetchall()
    late = len(before) if has_no_leaves(path) else 0
    with closing(ReadJournal(path)) as old:
        state = encoded(System().replay(old.records()))
    open_journal(path, "run", lambda: 1).close()
    with closing(sqlite3.connect(path)) as connection:
        after = connection.execute("SELECT * FROM event ORDER BY position").fetchall()
    if "-first" in name:
        before = [(*row, None) for row in before]  # the column that it lacked
    assert after == before
    verified = verify(path)
    assert (verified.findings, verified.checked, verified.late) == ((), len(before), late)
    with closing(ReadJournal(path)) as old:
        assert encoded(System().replay(old.records())) == state


def has_no_leaves(path: str) -> bool:
    """Return whether an omac without proofs wrote it: before format 5."""
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("SELECT schema FROM journal").fetchone()[0] < 5)


@pytest.mark.full
def test_it_is_sealed(host: Omac) -> None:
    """Events of a golden journal move into a segment, and audit and replay read all of them as before."""
    until = json.loads(host.ok("journal", "stats", "--json"))["events"]
    before = host.ok("audit", "--json", "--to", str(until)), host.ok("replay", "--at", str(until), "--json")
    host.ok("start", "--", "true", cwd=host.root / "shop")
    host.ok("checkpoint")
    host.ok("journal", "seal")
    assert (host.state / "journal.db.segments").exists()
    assert (host.ok("audit", "--json", "--to", str(until)), host.ok("replay", "--at", str(until), "--json")) == before
    host.ok("journal", "check")
    host.ok("start", "--", "true", cwd=host.root / "shop")
    assert json.loads(host.ok("audit", "verify", "--json"))["findings"] == []


@pytest.fixture
def host(
    request: pytest.FixtureRequest, path: str, tmp_path_factory: pytest.TempPathFactory, used: Path
) -> Iterator[Omac]:
    """Yield a host that has a golden journal."""
    golden: Path = request.node.callspec.params["path"]
    with host_with(path, golden, tmp_path_factory.mktemp("host"), used) as omac:
        yield omac


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the state directory of an omac that has run once."""
    with used_state(tmp_path_factory.mktemp("used")) as state:
        yield state


@contextmanager
def used_state(folder: Path) -> Iterator[Path]:
    """Yield the state directory of an omac that has run once, in a folder."""
    with omac_in(folder) as omac:
        omac.ok("start", "--", "true", cwd=omac.project("shop"))
        yield omac.state


@contextmanager
def host_with(path: str, golden: Path, folder: Path, used: Path) -> Iterator[Omac]:
    """Yield a host that has the journal at `path`, which is that of a golden one, and otherwise the state `used`."""
    key = golden.with_name(golden.name.replace(".db.gz", ".key"))
    with omac_in(folder) as omac:
        omac.project("shop")
        shutil.copytree(used, omac.state, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
        for file in omac.state.glob("journal.db*"):
            file.unlink()
        for mark in (omac.state / "journals").iterdir():
            mark.unlink()
        with closing(ReadJournal(path)) as journal:
            run = next(iter(journal.records())).stream
        (omac.state / "host-id").write_text(run.split("/")[1])
        if key.exists():  # of the checkpoints in it
            (omac.state / "signing.key").write_text(key.read_text())
            (omac.state / "signing.key").chmod(0o600)
        subjects = golden.with_name(golden.name.replace(".db.gz", ".subjects"))
        if subjects.exists():
            keys = StateDir(str(omac.state)).subject_keys(str(omac.state / "journal.db"), "")
            keys.add(read_all(str(subjects)))
        shutil.move(path, omac.state / "journal.db")  # which may be on another disk
        yield omac


@pytest.mark.full
def test_a_day_with_it(host: Omac) -> None:
    """Today's omac goes on with a golden journal: approvals, audit, a start, and a verification with late proofs."""
    is_late = has_no_leaves(str(host.state / "journal.db"))
    assert "echo" in host.ok("approvals")
    assert len(host.audit("--kind", "access")) >= 3
    host.ok("start", "--", "true", cwd=host.root / "shop")
    result = json.loads(host.ok("audit", "verify", "--json"))
    assert (result["findings"], result["late"] > 30 or not is_late, result["size"] > result["late"]) == ([], True, True)
    assert ("got their proofs later" in host.ok("audit", "verify")) == is_late


def test_a_copy_of_it(host: Omac) -> None:
    """A golden journal that is backed up and restored gives the same audit and replay, and an export that verifies."""
    until = json.loads(host.ok("journal", "stats", "--json"))["events"]
    printed = host.ok("audit", "--json"), host.ok("replay", "--at", str(until), "--json")
    copy = host.folder / "copy.db"
    host.ok("journal", "backup", str(copy))
    host.ok("journal", "restore", str(copy), "--yes")
    assert (host.ok("audit", "--json"), host.ok("replay", "--at", str(until), "--json")) == printed
    host.ok("export", "--out", str(host.folder / "evidence"))
    key = host.ok("key", "show").strip()
    host.ok("export", "verify", str(host.folder / "evidence"), "--key", key)


@pytest.mark.full
@pytest.mark.parametrize("path", GOLDEN[::3], ids=lambda path: path.name.removesuffix(".db.gz"), indirect=True)
def test_killed_while_it_is_taken_over(host: Omac) -> None:
    """A first opening killed by kill -9 at any moment lets the next start go on, and loses no event."""
    events = json.loads(host.ok("journal", "stats", "--json"))["events"]
    for _ in range(4):
        started = host.start("start", "--", "sleep", "30")
        eventually((host.state / "journal.db-wal").exists, 20.0, "the journal to be opened")
        os.kill(started.process.pid, signal.SIGKILL)
        started.process.wait()
    host.ok("start", "--", "true", cwd=host.root / "shop")
    result = json.loads(host.ok("audit", "verify", "--json"))
    assert (result["findings"], result["size"] > events) == ([], True)
    host.ok("journal", "check")
