"""`omac journal seal`: old events move to read-only files, and every command reads them as before."""

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_omac import Omac, curl, omac_in
from tiers import spread
from tools.test_snapshots import called_often

from omac.domain.access.sealing import SealRequested
from omac.journal import segment as segments_module
from omac.journal.codec import Codec
from omac.journal.log_connection import JournalConnection

BATCH = 60  # calls between two checkpoints
CHECKPOINTS = 4


def folder(omac: Omac) -> Path:
    """Return the folder of the segments of a host's journal."""
    return omac.state / "journal.db.segments"


def files(omac: Omac) -> list[Path]:
    return sorted(folder(omac).iterdir())


def sql(omac: Omac, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as connection:
        return connection.execute(query).fetchall()


def moment() -> str:
    """Return the present time, between two events."""
    time.sleep(0.002)
    now = datetime.now(UTC).isoformat()
    time.sleep(0.002)
    return now


def sealed_to(omac: Omac) -> int:
    with closing(sqlite3.connect(omac.state / "journal.db", factory=JournalConnection)) as connection:
        return connection.sealed_to()


def grown(omac: Omac) -> list[str]:
    """Let a host's journal grow, with checkpoints; return a time behind each of them."""
    project = omac.approved("shop")
    times = []
    for number in range(CHECKPOINTS):
        called_often(omac, BATCH)
        if number % 2:
            omac.ok("revoke", "echo", cwd=project)
        else:
            omac.approve(project, "echo")
        omac.ok("checkpoint")
        times.append(moment())
    called_often(omac, BATCH)
    return times


@pytest.fixture(scope="module")
def original(house: Omac, tmp_path_factory: pytest.TempPathFactory) -> tuple[Omac, list[str], Path]:
    """Return a host with some checkpoints, the times behind them, and a copy of its state."""
    times = grown(house)
    copy = tmp_path_factory.mktemp("copy") / "state"
    shutil.copytree(house.state, copy, symlinks=True)
    return house, times, copy


@pytest.fixture
def host(original: tuple[Omac, list[str], Path]) -> Omac:
    """Return that host, reset to its state at the beginning."""
    omac, _, copy = original
    reset(omac, copy)
    return omac


def reset(omac: Omac, copy: Path) -> None:
    shutil.rmtree(omac.state)
    shutil.copytree(copy, omac.state, symlinks=True)


def answers(omac: Omac, until: int, *, snapshots: bool) -> list[str]:
    """Return the output of the commands about the positions up to `until`."""
    if not snapshots:
        shutil.rmtree(omac.state / "journals", ignore_errors=True)
    state = json.loads(omac.ok("status", "--json"))
    state.pop("position")
    return [
        json.dumps(state, sort_keys=True),
        *(omac.ok("replay", "--at", str(at), "--json") for at in (1, 2, until // 3, until // 2, until - 1, until)),
        omac.ok("audit", "--json", "--to", str(until)),
        omac.ok("audit", "--json", "--kind", "skill", "--to", str(until)),
        omac.ok("audit", "--count-by", "kind,skill", "--to", str(until), "--json"),
        *(omac.ok("audit", "explain", str(at), "--json") for at in (3, until // 2)),
        omac.ok("approvals", "--json"),
        omac.ok("proof", "consistency", str(omac.folder / "old"), str(omac.folder / "new")),
    ]


def keep_notes(omac: Omac) -> None:
    """Keep two checkpoints in files."""
    for name in ("old", "new"):
        (omac.folder / name).write_text(omac.ok("checkpoint"))
        called_often(omac, 2)


@pytest.mark.full
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.lists(st.integers(0, CHECKPOINTS), min_size=1, max_size=3).map(sorted),
    snapshots=st.booleans(),
)
def test_every_answer_is_the_same(original: tuple[Omac, list[str], Path], order: list[int], snapshots: bool) -> None:
    """Commands print the same bytes after any seals, up to any checkpoints, also if states are rebuilt from the events
    alone."""
    omac, times, copy = original
    reset(omac, copy)
    keep_notes(omac)
    until = json.loads(omac.ok("status", "--json"))["position"]
    before = answers(omac, until, snapshots=snapshots)
    for number in order:
        omac.ok("journal", "seal", *(("--before", times[number]) if number < CHECKPOINTS else ()))
    assert sealed_to(omac) > BATCH
    assert not sql(omac, f"SELECT 1 FROM event WHERE position <= {sealed_to(omac)}")
    assert answers(omac, until, snapshots=snapshots) == before
    verified = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["checked"]) == ([], verified["size"])
    omac.ok("journal", "check")


def test_a_segment(host: Omac) -> None:
    """A segment is a read-only file that names its journal, its positions and its checkpoint; its record agrees with
    the file."""
    done = json.loads(host.ok("journal", "seal", "--json"))["segment"]
    (path,) = files(host)
    assert (str(path), path.stat().st_mode & 0o777, folder(host).stat().st_mode & 0o777) == (done["file"], 0o400, 0o700)
    assert (path.stat().st_size, segments_module.digest_of_file(str(path))) == (done["bytes"], done["sha256"])
    row = json.loads(host.ok("audit", "--kind", "segment", "--json"))
    assert row["kind"] == "segment.sealed"
    assert path.name in row["detail"]
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        journal, first, last, _, note = connection.execute("SELECT * FROM segment").fetchone()
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (last,)
    assert (journal, first, last) == (json.loads(host.ok("journal", "stats", "--json"))["id"], 1, done["last"])
    assert note.splitlines()[:2] == [f"omac/{journal}", str(last)]
    assert json.loads(host.ok("journal", "stats", "--json"))["segments"] == 1


def test_the_rows_are_gone(host: Omac) -> None:
    """A seal leaves nothing of a sealed event in the journal's own file."""
    approval = b"sha256:"  # of a hash that was approved; no later event has one
    assert approval in (host.state / "journal.db").read_bytes()
    host.ok("journal", "seal")
    sql(host, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert approval not in (host.state / "journal.db").read_bytes()


def test_nothing_to_seal(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """A seal does nothing if no checkpoint is old enough, and none is later than the last seal."""
    assert "no checkpoint of that time" in host.ok("journal", "seal", "--keep", "400d")
    assert "no checkpoint of that time" in host.ok("journal", "seal", "--before", "2020-01-01")
    assert not files(host)
    host.ok("journal", "seal", "--before", original[1][1])
    assert "host has recorded no later checkpoint" in host.ok("journal", "seal", "--before", original[1][1])
    assert json.loads(host.ok("journal", "seal", "--before", original[1][1], "--json"))["segment"] is None
    assert "try: omac checkpoint" not in host.ok("journal", "seal", "--before", original[1][1])
    host.ok("journal", "seal")
    host.ok("settings", "set", "serve.auto_register", "false")
    assert "try: omac checkpoint  # signs" in host.ok("journal", "seal")
    assert len(files(host)) == 2


def test_a_journal_of_another_host(host: Omac, tmp_path: Path) -> None:
    """A restored journal of another host has no checkpoint of this host; the proposed command makes one."""
    backup, here = str(tmp_path / "backup.db"), {"OMAC_STATE_DIR": str(tmp_path / "state")}
    host.ok("journal", "backup", backup)
    host.ok("journal", "restore", backup, extra=here)
    done = host.run("journal", "seal", extra=here)
    assert "nothing is sealed: this host has recorded no checkpoint\n  try: omac checkpoint" in done.out + done.err
    host.ok("checkpoint", extra=here)
    assert "are sealed: " in host.ok("journal", "seal", extra=here)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--keep", "400d", "--before", "2020-01-01"), "give one"),
        (("--keep", "2020-01-01"), "an age such as 400d"),
        (("--before", "whenever"), "is not a time"),
    ],
)
def test_misuse(host: Omac, options: tuple[str, ...], words: str) -> None:
    done = host.run("journal", "seal", *options)
    assert (done.status, words in done.err) == (2, True), done


@pytest.mark.parametrize("moment", ["9999-12-31", "1000-01-01", "999999999d"])
def test_moments_that_no_journal_reaches(host: Omac, moment: str) -> None:
    """Times long before and after the journal are accepted like others."""
    for command in ("journal seal --before", "journal prune --yes --before", "audit --since", "audit --until"):
        done = host.run(*command.split(), moment)
        line = done.err.partition("\n")[0]
        is_expected = line in ("", "no row matches") or " were pruned on " in line
        assert (done.status, is_expected) == (0, True), (command, done)


def test_what_was_changed_is_not_sealed(host: Omac) -> None:
    """A changed event is not sealed, because a segment would make it look approved."""
    sql(host, "UPDATE event SET at = at + 1 WHERE position = 7")
    done = host.run("journal", "seal")
    assert (done.status, "position 7" in done.err, files(host)) == (10, True, []), done
    assert ("journal repair" in done.err, "journal restore" in done.err) == (False, True), done


def test_no_repair_reaches_into_a_segment(host: Omac) -> None:
    """The check reports a name that sealed events have and the journal lost; the repair changes nothing."""
    host.ok("checkpoint")
    host.ok("journal", "seal")
    sql(host, "UPDATE name SET text = 'x' WHERE text LIKE 'registration/%'")
    findings = [
        finding for finding in json.loads(host.run("journal", "check", "--json").out)["findings"] if finding["position"]
    ]
    assert findings
    for finding in findings:
        assert "in a sealed segment" in finding["problem"] or finding["position"] > sealed_to(host)
        assert finding["remedy"] == "none" or finding["position"] > sealed_to(host)
    refused = host.run("journal", "repair", "--yes")
    assert refused.status == 10
    assert f"beyond repair: at position {findings[0]['position']}" in refused.err
    assert "omac journal restore BACKUP" in refused.err
    assert host.run("audit").status == 10


def test_a_segment_whose_schema_is_no_text(host: Omac) -> None:
    """A segment is reported as altered even if its schema is not text, so that SQLite's message cannot be decoded."""
    host.ok("checkpoint")
    host.ok("journal", "seal")
    (path,) = files(host)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE segment", b"CREATE TABL\xda segment"))
    for line in (("journal", "check"), ("audit", "verify"), ("audit",)):
        done = host.run(*line)
        assert done.status == 10, done
        assert "segment-altered" in done.out or "cannot be read" in done.err


def test_a_checkpoint_of_another_key_seals_nothing(host: Omac) -> None:
    """A seal needs a checkpoint that this host's key has signed."""
    (host.state / "signing.key").unlink()
    done = host.run("journal", "seal")
    assert (done.status != 0, "has not signed" in done.err, files(host)) == (True, True, []), done


# ---- aggregates ----


def test_an_aggregate_goes_on(host: Omac) -> None:
    """Sealed approvals are known, and the next event of their stream has the next version."""
    project = host.root / "shop"
    host.ok("journal", "seal")
    assert "echo" in host.ok("list", cwd=project)
    host.approve(project, "echo")
    host.ok("revoke", "echo", cwd=project)
    host.ok("checkpoint")
    host.ok("journal", "seal")
    host.approve(project, "echo")
    host.ok("start", "--", "true", cwd=project)
    host.ok("journal", "check")


@pytest.mark.full
def test_beside_a_server(host: Omac) -> None:
    """A skill answers calls during a seal, and each call is on record."""
    project = host.root / "shop"
    host.approve(project, "echo")
    called_often(host, 3_000)
    host.ok("checkpoint")
    serving = host.serve()
    base = serving.activate(project)["skills"][0]["base"]
    statuses: list[int] = []
    ended = threading.Event()

    def call() -> None:
        while not ended.is_set():
            statuses.append(curl(f"{base}/echo/x").status)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        assert host.process("journal", "seal").status == 0
        assert host.process("approve", "echo", cwd=project).status == 0
    finally:
        ended.set()
        caller.join()
    assert serving.skill(project)["state"] == "ready"
    assert serving.end() == 0
    assert (set(statuses), len(files(host))) == ({200}, 1)
    host.ok("journal", "check")
    rows = host.audit("--path", "/echo/x")
    assert len(rows) == len(statuses)
    assert json.loads(host.ok("audit", "verify", "--json"))["findings"] == []


def test_while_another_seals(host: Omac) -> None:
    """A seal or a prune beside another seal is refused, and offers itself for afterwards."""
    lock = folder(host)
    lock.mkdir(mode=0o700, exist_ok=True)
    held = os.open(lock, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        for words in ("journal seal --keep 1d", "journal prune --keep 400d --yes"):
            done = host.run(*words.split())
            assert (done.status, f"try: omac {words}  # when it has ended\n" in done.err) == (5, True), done
    finally:
        os.close(held)


def test_two_at_once(host: Omac) -> None:
    """Several seals at once leave one segment and no damage; each succeeds, or is refused."""
    started = [host.start("journal", "seal") for _ in range(3)]
    codes = sorted(seal.process.wait(60) for seal in started)
    assert (codes[0], set(codes) <= {0, 5}) == (0, True)
    assert len(files(host)) == 1
    host.ok("journal", "check")
    host.ok("audit", "verify")


# ---- kill -9, a full disk ----


STEPS = {
    "before the file": "omac.tools.compose.sealing.written_segment",
    "in the file": "omac.journal.segment._flush",
    "before its name": "omac.journal.segment_writing.publish",
    "before the record": "omac.domain.access.sealing.ReportSealed",
    "before the list": "omac.journal.sql_recorder.list_segment",
    "before the rows go": "omac.journal.sql_recorder.delete_sealed",
    "while the rows go": "omac.journal.sealing.time.sleep",
}


class Killed(BaseException):
    """An exception that no handler of omac catches."""


@pytest.mark.parametrize("step", STEPS)
def test_it_ends_at_any_step(host: Omac, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A killed seal loses nothing, and the next seal undoes or finishes it."""
    until = json.loads(host.ok("status", "--json"))["position"]
    before = host.ok("audit", "--json", "--to", str(until))

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("omac.journal.sealing.ROWS", 50)
        patched.setattr(STEPS[step], killed)
        with pytest.raises(Killed):
            host.run("journal", "seal")
    assert host.ok("audit", "--json", "--to", str(until)) == before
    assert json.loads(host.ok("audit", "verify", "--json"))["findings"] == []
    host.ok("journal", "check")
    host.ok("journal", "seal")
    assert host.ok("audit", "--json", "--to", str(until)) == before
    assert (len(files(host)), sealed_to(host) > BATCH) == (1, True)
    assert not sql(host, f"SELECT 1 FROM event WHERE position <= {sealed_to(host)}")
    assert json.loads(host.ok("audit", "verify", "--json"))["findings"] == []
    host.ok("journal", "check")


LOST: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "overwritten": lambda path: flipped(path),
    "cut": lambda path: cut(path),
    "a pipe": lambda path: of_another_kind(lambda place: os.mkfifo(place))(path),
}


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("is_later", [False, True])
def test_a_file_lost_before_it_was_listed(
    host: Omac, monkeypatch: pytest.MonkeyPatch, how: str, is_later: bool
) -> None:
    """The journal still has the rows of a segment that is lost before it is listed. The next seal reports this and
    makes the segment again."""
    until = json.loads(host.ok("status", "--json"))["position"]
    before = host.ok("audit", "--json", "--to", str(until))

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(STEPS["before the list"], killed)
        with pytest.raises(Killed):
            host.run("journal", "seal")
    (path,) = files(host)
    LOST[how](path)
    if is_later:
        called_often(host, 5)
        host.ok("checkpoint")
    host.ok("journal", "check")
    host.ok("journal", "prune", "--keep", "0s", "--yes")
    host.ok("journal", "seal")
    (failed,) = [row for row in host.audit("--kind", "segment") if row["kind"] == "segment.seal-failed"]
    assert (path.name in failed["detail"], "was lost before it was listed" in failed["detail"]) == (True, True)
    assert len(files(host)) == 1
    assert not sql(host, f"SELECT 1 FROM event WHERE position <= {sealed_to(host)}")
    assert host.ok("audit", "--json", "--to", str(until)) == before
    assert json.loads(host.ok("audit", "verify", "--json"))["findings"] == []
    host.ok("journal", "check")
    called_often(host, 5)
    host.ok("checkpoint")
    host.ok("journal", "seal")
    host.ok("journal", "prune", "--keep", "0s", "--yes")
    host.ok("journal", "check")
    assert json.loads(host.ok("audit", "verify", "--json"))["findings"] == []


@pytest.mark.full
def test_killed_at_random_moments(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Repeated kill -9 during seals, with events appended in between, loses nothing that was recorded."""
    with omac_in(tmp_path_factory.mktemp("killed")) as omac:
        omac.approved("shop")
        for number in range(12):
            called_often(omac, 1_500)
            events = json.loads(omac.ok("journal", "stats", "--json"))["events"]
            omac.ok("checkpoint")
            started = omac.start("journal", "seal")
            time.sleep(0.25 + 0.06 * number)
            os.kill(started.process.pid, signal.SIGKILL)
            started.process.wait()
            verified = json.loads(omac.ok("audit", "verify", "--json"))
            assert (verified["findings"], verified["checked"] > events) == ([], True)
        omac.ok("journal", "check")
        omac.ok("journal", "seal")
        assert not list(folder(omac).glob("*.draft"))
        omac.ok("journal", "check")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk(host: Omac) -> None:
    """A full disk is reported and recorded, and the seal is undone. With space, the same command seals."""
    folder(host).mkdir(0o700)
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder(host))), check=True)
    try:
        done = host.run("journal", "seal")
        assert (done.status, "full" in done.err, "df -h" in done.err) == (5, True, True), done
        assert not files(host)
        host.ok("journal", "check")
    finally:
        subprocess.run(("umount", str(folder(host))), check=True)
    assert host.audit("--kind", "segment")[-1]["kind"] == "segment.seal-failed"
    host.ok("journal", "seal")
    host.ok("journal", "check")


# ---- damage ----


def edited(path: Path) -> None:
    path.chmod(0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("UPDATE event SET at = at + 1 WHERE position = (SELECT min(position) + 6 FROM event)")


def flipped(path: Path) -> None:
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xa5" * 4096
    path.write_bytes(content)


def swapped(path: Path) -> None:
    neighbor = next(file_beside for file_beside in sorted(path.parent.iterdir()) if file_beside != path)
    content, neighbor_content = path.read_bytes(), neighbor.read_bytes()
    for file, now in ((path, neighbor_content), (neighbor, content)):
        file.chmod(0o600)
        file.write_bytes(now)


def cut(path: Path) -> None:
    path.chmod(0o600)
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(b"")


def linked(path: Path) -> None:
    path.rename(path.parent / "x")
    path.symlink_to("x")


def of_another_kind(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return a function that replaces a file by something else."""

    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGE: dict[str, tuple[Callable[[Path], object], str, int]] = {  # kind, and how far into it the first bad position is
    "missing": (Path.unlink, "segment-missing", 0),
    "renamed": (lambda path: path.rename(path.with_name("elsewhere")), "segment-renamed", 0),
    "moved beside": (lambda path: path.rename(path.parents[1] / "elsewhere"), "segment-renamed", 0),
    "edited": (edited, "segment-altered", 6),
    "overwritten": (flipped, "segment-altered", 0),
    "truncated": (cut, "segment-truncated", 0),
    "emptied": (emptied, "segment-truncated", 0),
    "swapped": (swapped, "segment-swapped", 0),
    "a link": (linked, "segment-renamed", 0),
    "a folder": (of_another_kind(Path.mkdir), "segment-missing", 0),
    "a pipe": (of_another_kind(lambda path: os.mkfifo(path)), "segment-missing", 0),
}


@pytest.mark.parametrize(("damage", "which"), spread(DAMAGE, [0, 1]))
def test_damage(original: tuple[Omac, list[str], Path], host: Omac, damage: str, which: int) -> None:
    """Each kind of damage is found with its kind and first bad position; the file from a backup mends it."""
    for number in (0, 2):
        host.ok("journal", "seal", "--before", original[1][number])
    backup = host.folder / f"backup-{damage.replace(' ', '-')}-{which}.db"
    host.ok("journal", "backup", str(backup))
    path = files(host)[which]
    spoil, kind, offset = DAMAGE[damage]
    first = int(path.name[:12]) + offset if damage != "swapped" else 1
    spoil(path)
    for command in ("audit verify", "journal check"):
        done = host.run(*command.split(), "--json")
        findings = [finding for finding in json.loads(done.out)["findings"] if kind in json.dumps(finding)]
        assert (done.status, [finding["position"] for finding in findings][:1]) == (10, [first]), (command, done)
        assert "Traceback" not in host.run(*command.split()).err
    if damage not in ("edited", "overwritten"):  # which only who reads the whole file finds
        done = host.run("audit", "--json")
        assert (done.status, "segment" in done.err, "Traceback" in done.err) == (10, True, False), done
        assert any(line.startswith("  try: ") for line in done.err.splitlines())
    for command in ("journal seal", "journal repair --yes", f"journal backup {host.folder / 'no.db'}"):
        done = host.run(*command.split())
        assert (done.status, "Traceback" in done.err, "  try: " in done.err) == (10, False, True), (command, done)
    assert not (host.folder / "no.db").exists()
    for good in Path(f"{backup}.segments").iterdir():
        target = folder(host) / good.name
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        target.unlink(missing_ok=True)
        shutil.copy(good, target)
    host.ok("journal", "check")
    assert json.loads(host.ok("audit", "verify", "--json"))["findings"] == []


def test_a_segment_that_is_huge(host: Omac) -> None:
    """A huge segment is neither copied into a backup nor read to its end."""
    host.ok("journal", "seal")
    (path,) = files(host)
    path.chmod(0o600)
    os.truncate(path, 1 << 40)
    copy = host.folder / "huge.db"
    for command in (f"journal backup {copy}", "journal check", "audit verify", "journal seal"):
        done = host.run(*command.split())
        assert (done.status, str(1 << 40) in done.out + done.err) == (10, True), (command, done)
    assert not list(host.folder.glob("huge.db*"))


LISTS = {  # what somebody did to the journal's own list, and the first bad position
    "emptied": ("DELETE FROM segment", 1),
    "cut": ("DELETE FROM segment WHERE first > 1", 0),
    "without its first": ("DELETE FROM segment WHERE first = 1", 0),
    "dropped": ("DROP TABLE segment", 1),
    "another digest": ("UPDATE segment SET sha256 = 'ab'", 1),
    "another file": ("UPDATE segment SET file = '../../etc/passwd'", 0),
    "no numbers": ("UPDATE segment SET last = 'x'", 0),
    "another end": ("UPDATE segment SET last = last + 1 WHERE first > 1", 0),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_list_that_was_changed(original: tuple[Omac, list[str], Path], host: Omac, tmp_path: Path, what: str) -> None:
    """A changed list of segments is found, and no repair fills in sealed events. Only a changed digest, which readers
    of events do not compare, leaves them readable."""
    for number in (0, 2):
        host.ok("journal", "seal", "--before", original[1][number])
    statement, first = LISTS[what]
    rows = sql(host, "SELECT * FROM event")
    sql(host, statement)
    for command in ("audit verify", "journal check"):
        done = host.run(*command.split(), "--json")
        assert (done.status, "Traceback" in done.err) == (10, False), (command, done)
        if first and done.out:
            assert json.loads(done.out)["findings"][0]["position"] == first, done
    copy = tmp_path / "never.db"
    for command in ("journal repair --yes", "journal seal", "audit", "approvals", f"journal backup {copy}"):
        done = host.run(*command.split())
        is_readable = what == "another digest" and command in ("audit", "approvals")
        assert (done.status, "Traceback" in done.err) == (0 if is_readable else 10, False), (command, done)
    assert not list(tmp_path.iterdir())
    assert sql(host, "SELECT * FROM event") == rows


@pytest.mark.parametrize("statement", ["DELETE FROM sealed_version", "UPDATE sealed_version SET version = version + 1"])
def test_last_versions_that_were_changed(host: Omac, statement: str) -> None:
    """A repair makes the last versions of sealed streams again, from the segments."""
    host.ok("journal", "seal")
    before = sql(host, "SELECT * FROM sealed_version ORDER BY stream")
    sql(host, statement)
    done = host.run("journal", "check")
    assert (done.status, "last versions of sealed streams" in done.out) == (10, True), done
    host.ok("journal", "repair", "--yes")
    assert sql(host, "SELECT * FROM sealed_version ORDER BY stream") == before
    host.ok("journal", "check")


def test_a_record_that_cannot_follow(host: Omac) -> None:
    """A rewritten record of a seal is reported as damage, and its forged text does not reach the terminal."""
    host.ok("journal", "seal")
    forged = SealRequested(1, 2, "\x1b[31mred")
    kind, body = Codec().encode(forged)
    with closing(sqlite3.connect(host.state / "journal.db", isolation_level=None)) as connection:
        changed = "UPDATE event SET body = ? WHERE kind = (SELECT id FROM name WHERE text = ?)"
        assert connection.execute(changed, (body, kind)).rowcount == 1
    for command in ("journal seal", "journal prune --keep 0s --yes", "journal check", "audit verify"):
        done = host.run(*command.split())
        assert (done.status, "\x1b" in done.out + done.err, "defect" in done.err) == (10, False, False), (command, done)


def test_a_stream_whose_beginning_is_not_found(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """Missing last versions of sealed streams are reported as damage: omac decides nothing on half a stream."""
    host.ok("journal", "seal", "--before", original[1][1])
    sql(host, "DELETE FROM sealed_version")
    done = host.run("approve", "echo", cwd=host.root / "shop")
    assert (done.status, "version 1 of" in done.err, "omac journal repair" in done.err) == (10, True, True), done
    host.ok("journal", "repair", "--yes")
    host.approve(host.root / "shop", "echo")
    host.ok("journal", "check")


def test_a_repair_behind_a_segment(host: Omac) -> None:
    """Damage in the journal's own file is repaired as ever, and sealed with the next segment."""
    host.ok("journal", "seal")
    position = sealed_to(host) + 4
    sql(host, f"UPDATE event SET body = x'01' WHERE position = {position}")
    assert host.run("journal", "check").status == 10
    host.ok("journal", "repair", "--yes")
    host.ok("journal", "check")
    verified = json.loads(host.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["set_aside"]) == ([], [position])
    host.ok("checkpoint")
    host.ok("journal", "seal")
    host.ok("journal", "check")
    verified = json.loads(host.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["set_aside"], len(files(host))) == ([], [position], 2)


def test_a_start_reads_no_segment(host: Omac) -> None:
    """A lost segment stops no command that needs nothing of it."""
    host.ok("status")
    called_often(host, 5_000)  # the next to fold leaves a snapshot
    host.ok("checkpoint")
    host.ok("status")
    host.ok("journal", "seal")
    for path in files(host):
        path.rename(host.folder / path.name)
    serving = host.serve()
    assert serving.end() == 0
    host.ok("status")
    done = host.run("replay", "--at", "5")
    assert (done.status, "is missing" in done.err, "install -m 400" in done.err) == (10, True, True), done


# ---- backups ----


def test_a_backup_has_the_segments(original: tuple[Omac, list[str], Path], host: Omac) -> None:
    """A backup is a whole journal in another folder. A restore makes it the journal again, and keeps the previous one
    whole."""
    host.ok("journal", "seal", "--before", original[1][0])
    host.ok("journal", "seal", "--before", original[1][1])
    backup = host.folder / "copies" / "monday.db"
    backup.parent.mkdir(exist_ok=True)
    shutil.rmtree(backup.parent)
    backup.parent.mkdir()
    host.ok("journal", "backup", str(backup))
    copies = sorted(Path(f"{backup}.segments").iterdir())
    assert [file.name for file in copies] == [file.name for file in files(host)]
    assert {file.stat().st_mode & 0o777 for file in copies} == {0o400}
    host.ok("journal", "check", "--journal", str(backup))
    host.ok("audit", "verify", "--journal", str(backup))
    until = json.loads(host.ok("status", "--json"))["position"]
    before = host.ok("audit", "--json", "--to", str(until))
    host.ok("checkpoint")
    host.ok("journal", "seal")
    host.ok("journal", "restore", str(backup), "--yes")
    assert host.ok("audit", "--json", "--to", str(until)) == before
    assert len(files(host)) == 2
    host.ok("journal", "check")
    previous = host.state / "journal.db.before-restore-1"
    assert len(list(Path(f"{previous}.segments").iterdir())) == 3
    host.ok("journal", "check", "--journal", str(previous))


def test_a_backup_that_lost_a_segment_is_not_restored(host: Omac) -> None:
    """A backup that lacks a segment is not restored, because the present journal is worth more."""
    host.ok("journal", "seal")
    backup = host.folder / "lost.db"
    host.ok("journal", "backup", str(backup))
    next(Path(f"{backup}.segments").iterdir()).unlink()
    done = host.run("journal", "restore", str(backup), "--yes")
    assert (done.status, "is missing" in done.err) == (10, True), done
    host.ok("journal", "check")
    again = host.run("journal", "backup", str(backup))
    assert again.status == 2


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff\xfe"), "a b%41?mode=ro#'", "\n\x1b[31m"])
def test_a_folder_of_any_name(original: tuple[Omac, list[str], Path], host: Omac, name: str) -> None:
    """Segments are found beside their journal, whatever the name of its folder."""
    parent = host.folder / name
    parent.mkdir(exist_ok=True)
    journal = parent / "journal.db"
    host.ok("journal", "backup", str(journal))
    at = ("--journal", str(journal))
    host.ok("checkpoint", *at)
    host.ok("journal", "seal", *at)
    host.approve(host.root / "shop", "echo")
    for command in ("journal check", "audit verify", "audit --json", "checkpoint", "journal prune --keep 0s --yes"):
        done = host.run(*command.split(), *at)
        assert (done.status, "\x1b" in done.err + done.out) == (0, False), (command, done)
    host.ok("journal", "backup", str(parent / "copy.db"), *at)
    host.ok("audit", "verify", "--journal", str(parent / "copy.db"))
    shutil.rmtree(parent)
