"""`omac erase` erases the personal fields of a directory's events; the events themselves and all proofs stay."""

import json
import os
import shlex
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from contract.launches import Program
from polling import eventually
from real_omac import Omac, Serving, curl, omac_in
from started import looping
from tiers import some
from tools.test_seal_command import Killed, reset
from tools.test_snapshots import called_often

from omac.domain.kernel.ids import workdir_id
from omac.journal.snapshot_store import APART, SnapshotStore

WORDS = ("private-basket", "private-argument")


def in_state(omac: Omac, words: tuple[str, ...] = WORDS) -> list[str]:
    """Return the files of the state directory that hold one of the words, each with the word."""
    hits = []
    for path in sorted(omac.state.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            hits += [f"{path.relative_to(omac.state)}: {word}" for word in words if word.encode() in content]
    return hits


def used(omac: Omac, project: Path, basket: str = WORDS[0], argument: str = WORDS[1]) -> None:
    """Have an agent call a skill, and run a program in a sandbox."""
    serving = omac.serve()
    called(serving, project, basket)
    assert serving.end() == 0
    omac.ok("sandbox", "run", "--", "true", argument, cwd=project)


def called(serving: Serving, project: Path, basket: str) -> None:
    base = serving.activate(project)["skills"][0]["base"]
    curl(f"{base}/echo/{basket}")
    curl(f"{base.rsplit('/', 1)[0]}/nowhere/{basket}")


def sound(omac: Omac, closed: int = 0) -> None:
    """Check that the journal verifies without a finding, and how many events have a key that is gone off the record."""
    verified = json.loads(omac.ok("audit", "verify", "--json"))
    assert (verified["findings"], verified["closed"]) == ([], closed)
    omac.ok("journal", "check")


@pytest.fixture(scope="module")
def original(house: Omac, tmp_path_factory: pytest.TempPathFactory) -> tuple[Omac, Path]:
    """Return a host with two directories that an agent worked in and a long journal, and a copy of its state."""
    for name, basket, argument in (("shop", *WORDS), ("other", "elsewhere", "else-argument")):
        project = house.approved(name)
        used(house, project, basket, argument)
    called_often(house, 2_600)  # so that there are snapshots and an index; in the clear, as by an earlier omac
    house.ok("checkpoint")
    for socket in house.state.rglob("*.sock"):
        socket.unlink()
    copy = tmp_path_factory.mktemp("copy") / "state"
    shutil.copytree(house.state, copy, symlinks=True)
    return house, copy


@pytest.fixture
def host(original: tuple[Omac, Path]) -> Omac:
    """Return the original host with its state as it was in the beginning."""
    omac, copy = original
    reset(omac, copy)
    return omac


def test_what_was_asked_is_gone(host: Omac) -> None:
    """An erasure removes a directory's words from the audit and from every file of omac.

    Before it no file but logs has them in the clear. Other directories keep their words, and all proofs hold.
    """
    before = host.ok("audit", "--json")
    assert all(word in before for word in (*WORDS, "elsewhere", "else-argument"))
    assert not [hit for hit in in_state(host) if "/logs/" not in hit]
    output = host.ok("erase", str(host.root / "shop"), "--yes")
    assert "access.requested" in output
    assert "2600 events that an earlier omac recorded in the clear" in output
    after = host.ok("audit", "--json")
    assert not [word for word in WORDS if word in after]
    assert "elsewhere" in after
    assert "else-argument" in after
    assert "(erased)" in after
    assert " (erased) in " in host.ok("audit", "--kind", "access"), "behind the skill, and not part of its name"
    assert "subject.erased" in after
    assert not in_state(host)
    sound(host)


def test_a_key_that_was_taken_away(host: Omac) -> None:
    """The verification reports fields that read as erased though no erasure is recorded, in a segment as well."""
    keys = host.state / "subjects"
    sound(host)
    host.ok("journal", "seal")
    for taken in keys.iterdir():
        content = taken.read_bytes()
        taken.unlink()
        closed = json.loads(host.ok("audit", "verify", "--json"))["closed"]
        assert closed == 3, "two calls and a launch; what is empty is not encrypted"
        assert f"{closed} events have personal fields that read as (erased)" in host.ok("audit", "verify")
        taken.write_bytes(content)


@pytest.mark.full
def test_again(host: Omac) -> None:
    """A second erasure changes nothing; events that come afterwards have another key, and can be erased again."""
    shop = host.root / "shop"
    host.ok("erase", str(shop), "--yes")
    head = json.loads(host.ok("status", "--json"))["position"]
    assert "the key is gone" in host.ok("erase", workdir_id(str(shop)), "--yes")
    assert json.loads(host.ok("status", "--json"))["position"] == head
    used(host, shop, "later-basket", "later-argument")
    rows = host.ok("audit", "--json")
    assert "later-basket" in rows
    assert "later-argument" in rows
    assert WORDS[0] not in rows
    host.ok("erase", workdir_id(str(shop)), "--yes")
    assert not in_state(host, (*WORDS, "later-basket", "later-argument"))
    sound(host)


def test_it_asks(host: Omac) -> None:
    """`omac erase` refuses without a terminal or --yes, and for a folder without events."""
    refused = host.run("erase", str(host.root / "shop"))
    assert refused.status != 0
    assert "--yes" in refused.err
    assert WORDS[0] in host.ok("audit", "--json")
    unknown = host.run("erase", str(host.root / "none"), "--yes")
    assert unknown.status == 2
    assert "no event of" in unknown.err


def test_what_others_remove_meanwhile(host: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """An erasure is not held up by another process that removes a snapshot, or a log, just before it."""
    unlink, removed = os.unlink, list[str]()

    def removed_before(path: str, *, dir_fd: int | None = None) -> None:
        if path.endswith(".log") or os.path.basename(path).isdigit():
            unlink(path, dir_fd=dir_fd)
            removed.append(path[-4:])
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", removed_before)
    host.ok("erase", str(host.root / "shop"), "--yes")
    assert {".log"} < set(removed)
    assert not in_state(host)


@pytest.mark.full
def test_while_it_is_online(host: Omac) -> None:
    """A directory that a living run has online is not erased; another one is, beside that run.

    The erased directory gets a new key once it is used again.
    """
    serving = host.serve()
    shop = host.root / "shop"
    called(serving, shop, "third")
    run = serving.ready["run"]
    refused = host.run("erase", str(shop), "--yes")
    assert refused.status == 5
    message = f"is online in run {run}: nothing was erased\n"
    assert refused.err.endswith(f"{message}  try: omac deactivate {shop}\n  try: omac stop {run}\n"), refused
    host.ok("erase", str(host.root / "other"), "--yes")
    alone = looping(host, host.root / "other")
    refused = host.run("erase", str(host.root / "other"), "--yes")
    assert "try: omac deactivate" not in refused.err, "that asks a server, and this is none"
    assert "  try: omac stop " in refused.err
    alone.end()
    host.ok("deactivate", str(shop))
    host.ok("erase", str(shop), "--yes")
    called(serving, shop, "fourth")
    rows = host.ok("audit", "--json")
    assert "fourth" in rows
    assert "third" not in rows
    assert "elsewhere" not in rows
    assert serving.end() == 0
    assert not in_state(host, (*WORDS, "third", "elsewhere"))
    sound(host)


@pytest.mark.full
def test_what_a_run_remembers(host: Omac) -> None:
    """A run that lived before an erasure writes no command line into a snapshot after it."""
    serving = host.serve()
    host.ok("sandbox", "run", "--", "true", "remembered-argument", cwd=host.root / "shop")
    host.ok("status")  # takes it in
    host.ok("erase", str(host.root / "shop"), "--yes")
    before = set((host.state / "journals").glob("*.snapshots/*"))
    called_often(host, APART // 2 + 100)
    eventually(lambda: set((host.state / "journals").glob("*.snapshots/*")) - before, 30.0, "a snapshot of the run")
    assert serving.end() == 0
    assert not in_state(host, (*WORDS, "remembered-argument"))
    sound(host)


@pytest.mark.full
def test_a_state_that_was_folded_before(host: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that read the events before an erasure, and would keep a snapshot of them after it, keeps none."""
    for snapshot in (host.state / "journals").glob("*.snapshots/*"):
        snapshot.unlink()
    write, erasures = SnapshotStore.write, list[tuple[int, list[str]]]()

    def write_later(*arguments: Any) -> None:
        status = host.process("erase", str(host.root / "shop"), "--yes").status if not erasures else 0
        write(*arguments)
        erasures.append((status, in_state(host)))

    monkeypatch.setattr(SnapshotStore, "write", write_later)
    host.ok("status")
    assert erasures[0] == (0, [])
    sound(host)


@pytest.mark.full
def test_a_backup_has_the_keys(host: Omac, tmp_path: Path) -> None:
    """A backup keeps the keys in a file beside it; a restore brings back the fields, but not those erased since."""
    copy, keys = tmp_path / "copy.db", tmp_path / "copy.db.keys"
    output = host.ok("journal", "backup", str(copy))
    assert f"{keys}: the keys of personal fields (2)" in output
    assert keys.stat().st_mode & 0o777 == 0o600
    assert host.run("journal", "backup", str(copy)).status == 2
    assert WORDS[0] in host.ok("audit", "--json", "--journal", str(copy))
    host.ok("erase", str(host.root / "shop"), "--yes")
    assert WORDS[0] not in host.ok("audit", "--json", "--journal", str(copy))
    (host.state / "subjects" / workdir_id(str(host.root / "other"))).unlink()
    assert "elsewhere" not in host.ok("audit", "--json")
    for _ in range(2):  # the second time from a journal that knows of no erasure
        output = host.ok("journal", "restore", str(copy), "--yes")
        assert "keys of personal fields of 1 directory are" in output
        assert "1 key is not: what it encrypted was erased since" in output
        rows = host.ok("audit", "--json")
        assert "elsewhere" in rows
        assert WORDS[0] not in rows
    sound(host, closed=3)  # the erasure is on record in the journal that was replaced


@pytest.mark.full
@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_backup_after_an_erasure_in_a_journal_that_is_gone(host: Omac, tmp_path: Path, how: str) -> None:
    """A restore names the directories whose keys come back though they may have been erased: no journal says so."""
    copy, journal = tmp_path / "copy.db", host.state / "journal.db"
    host.ok("journal", "backup", str(copy))
    host.ok("erase", str(host.root / "shop"), "--yes")
    if how == "damaged":
        journal.write_bytes(b"\xa5" * 4096 + journal.read_bytes()[4096:])
    else:
        journal.unlink()
    done = host.run("journal", "restore", str(copy), "--yes")
    erase = f"omac erase {workdir_id(str(host.root / 'shop'))}"
    assert done.status == 0
    assert "1 directory had these keys no more, and the journal that was here cannot be read: what was" in done.err
    assert done.err.endswith(f"  try: {erase}  # if it was erased\n")
    assert WORDS[0] in host.ok("audit", "--json")
    host.ok(*shlex.split(erase)[1:], "--yes")
    assert WORDS[0] not in host.ok("audit", "--json")
    assert "had these keys no more" not in host.run("journal", "restore", str(copy), "--yes").err


@pytest.mark.full
def test_a_backup_on_another_host(host: Omac, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A backup restored on another host has its fields if its keys are there, and reads as erased without them."""
    copy = tmp_path / "copy.db"
    host.ok("journal", "backup", str(copy))
    with omac_in(tmp_path_factory.mktemp("another")) as another:
        another.ok("journal", "restore", str(copy), "--yes")
        assert all(word in another.ok("audit", "--json") for word in WORDS)
        another.ok("erase", workdir_id(str(host.root / "shop")), "--yes")
        assert not [word for word in WORDS if word in another.ok("audit", "--json")]
        sound(another)
    (tmp_path / "copy.db.keys").unlink()
    with omac_in(tmp_path_factory.mktemp("third")) as third:
        third.ok("journal", "restore", str(copy), "--yes")
        assert not [word for word in WORDS if word in third.ok("audit", "--json")]
        assert "the key is gone" in third.ok("erase", workdir_id(str(host.root / "shop")), "--yes")
        sound(third, closed=6)


STEPS = {
    "before the request": "omac.services.kernel.opened.OpenedJournal.execute",
    "before the key is removed": "omac.adapters.files.subject_keys.os.unlink",
    "before the folder is flushed": "omac.adapters.files.subject_keys.atomic.sync_folder",
    "before the wait": "omac.tools.compose.erasing.time.sleep",
    "before snapshots go": "omac.tools.compose.erasing._listed",
    "before the index goes": "omac.tools.compose.erasing.delete_index",
    "before logs go": "omac.tools.compose.erasing.StateDir.logs_of",
    "before the outcome": "omac.domain.access.erasure.ReportErased",
    "before the log is moved": "omac.journal.sql_recorder.SqlRecorder.checkpoint",
}


@pytest.mark.parametrize("step", some(STEPS, of=3))
def test_killed_at_any_step(host: Omac, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """An erasure that is killed at any step leaves a sound journal, and the next erasure completes it.

    Afterwards no file has the words, and the audit has one erasure.
    """
    shop = str(host.root / "shop")
    host.ok("status")
    host.ok("audit", "-n", "500", "--json")
    assert {".audit", ".snapshots"} <= {path.suffix for path in (host.state / "journals").iterdir()}
    assert [hit for hit in in_state(host) if ".audit" in hit]

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(STEPS[step], killed)
        with pytest.raises(Killed):
            host.run("erase", shop, "--yes")
    sound(host)
    is_begun = bool(json.loads(host.ok("status", "--json"))["unerased"])
    assert is_begun == (step not in ("before the request", "before the log is moved"))
    again = f"omac erase {workdir_id(shop)} # goes on with it"
    assert (f"\n  try: omac erase {workdir_id(shop)}  # goes on with it\n" in host.ok("status")) == is_begun
    for text in (host.ok("status"), host.run("doctor").out):
        assert (again in " ".join(text.split())) == is_begun
    host.ok("erase", workdir_id(shop), "--yes")
    assert json.loads(host.ok("status", "--json"))["unerased"] == []
    assert not in_state(host)
    rows = [json.loads(line) for line in host.ok("audit", "--json", "--kind", "subject").splitlines()]
    assert [row["kind"] for row in rows] == ["subject.erased"]
    sound(host)


@pytest.mark.full
def test_a_backup_after_an_erasure_that_cannot_be_read(host: Omac, tmp_path: Path) -> None:
    """A damaged event of an erasure undoes neither that nor an earlier one: the journal names each key twice."""
    copy = tmp_path / "copy.db"
    host.ok("journal", "backup", str(copy))
    for name in ("shop", "other"):
        host.ok("erase", str(host.root / name), "--yes")
    with closing(sqlite3.connect(host.state / "journal.db", isolation_level=None)) as connection:
        connection.execute(
            "UPDATE event SET body = x'c1' WHERE kind = (SELECT id FROM name WHERE text = 'subject.erased')"
        )
    assert "2 keys are not: what they encrypted was erased since" in host.ok("journal", "restore", str(copy), "--yes")
    assert not [word for word in (*WORDS, "elsewhere") if word in host.ok("audit", "--json")]


def test_a_backup_after_an_erasure_and_a_lost_segment(host: Omac, tmp_path: Path) -> None:
    """A restore respects an erasure even if the present journal has lost a segment with other events."""
    copy = tmp_path / "copy.db"
    host.ok("journal", "backup", str(copy))
    host.ok("journal", "seal")
    host.ok("erase", str(host.root / "shop"), "--yes")
    (segment,) = (host.state / "journal.db.segments").iterdir()
    segment.rename(tmp_path / segment.name)
    assert "1 key is not: what it encrypted was erased since" in host.ok("journal", "restore", str(copy), "--yes")
    assert not [word for word in WORDS if word in host.ok("audit", "--json")]


def test_a_backup_after_an_erasure_that_was_killed(host: Omac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore does not bring back a key that a killed erasure destroyed, though its outcome is not recorded."""
    copy = tmp_path / "copy.db"
    host.ok("journal", "backup", str(copy))

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(STEPS["before the wait"], killed)
        with pytest.raises(Killed):
            host.run("erase", str(host.root / "shop"), "--yes")
    assert "1 key is not: what it encrypted was erased since" in host.ok("journal", "restore", str(copy), "--yes")
    assert not [word for word in WORDS if word in host.ok("audit", "--json")]


@pytest.mark.full
def test_killed_at_random_moments(host: Omac) -> None:
    """An erasure that kill -9 ends again and again leaves a sound journal each time, and succeeds in the end."""
    shop = host.root / "shop"
    for number in range(8):
        started = host.start("erase", str(shop), "--yes")
        time.sleep(0.1 + 0.12 * number)
        os.kill(started.process.pid, signal.SIGKILL)
        started.process.wait()
        sound(host)
    host.ok("erase", str(shop), "--yes")
    assert not in_state(host)
    assert not [word for word in WORDS if word in host.ok("audit", "--json")]


@pytest.mark.full
def test_sealed_and_pruned_afterwards(host: Omac) -> None:
    """An erasure also erases fields in sealed segments, and a prune needs no key."""
    host.ok("checkpoint")
    host.ok("journal", "seal")
    rows = host.ok("audit", "--json")
    assert WORDS[0] in rows
    host.ok("erase", str(host.root / "shop"), "--yes")
    rows = host.ok("audit", "--json")
    assert WORDS[0] not in rows
    assert "elsewhere" in rows
    assert not in_state(host)
    sound(host)
    host.ok("journal", "prune", "--keep", "0s", "--yes")
    sound(host)
    assert "elsewhere" not in host.ok("audit", "--json")


@pytest.mark.parametrize("column", ["sealed", "body"])
def test_a_flipped_bit(host: Omac, column: str) -> None:
    """The proofs find a flipped bit in an encrypted field or a commitment, with or without the key."""
    path = str(host.state / "journal.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        query = f"SELECT position, {column} FROM event WHERE sealed IS NOT NULL LIMIT 1"
        position, content = connection.execute(query).fetchone()
        flipped = content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]
        connection.execute(f"UPDATE event SET {column} = ? WHERE position = ?", (flipped, position))
    for _ in range(2):
        done = host.run("audit", "verify", "--json")
        assert done.status == 10
        assert [(finding["position"], finding["kind"]) for finding in json.loads(done.out)["findings"]] == [
            (position, "altered")
        ]
        if host.run("audit", "--json").status == 0:
            break
        host.run("erase", str(host.root / "shop"), "--yes")


@pytest.mark.full
def test_what_cannot_be_read_is_set_aside(host: Omac) -> None:
    """A field that does not decrypt with its key is damage that the check names, and a repair sets the event aside."""
    path = str(host.state / "journal.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        query = "SELECT max(position), sealed FROM event WHERE sealed IS NOT NULL AND version IS NULL"
        position, content = connection.execute(query).fetchone()
        flipped = content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]
        connection.execute("UPDATE event SET sealed = ? WHERE position = ?", (flipped, position))
    assert host.run("audit", "--json").status == 10
    checked = host.run("journal", "check", "--json")
    (finding,) = json.loads(checked.out)["findings"]
    assert (checked.status, finding["position"]) == (10, position)
    assert "personal fields were changed" in finding["problem"]
    host.ok("journal", "repair", "--yes")
    sound(host)
    host.ok("audit", "--json")


def test_records_in_the_spool(host: Omac) -> None:
    """An erasure first records the events in the spool and erases their fields too; it removes rejected ones,
    and drafts of programs that were killed."""
    shop = host.root / "shop"
    spool = host.state / "spool"
    Program(spool).deny("a", root=str(shop), path="/etc/private-basket")
    (waiting,) = [path for path in spool.iterdir() if path.is_file()]
    (spool / "rejected").mkdir(exist_ok=True)
    (spool / "rejected" / "cut").write_bytes(waiting.read_bytes()[:-2])
    (spool / f".{waiting.name}").write_bytes(waiting.read_bytes()[:-2])
    assert [hit for hit in in_state(host) if "spool" in hit]
    host.ok("erase", str(shop), "--yes")
    assert "guard.denied" in host.ok("audit", "--json")
    assert not in_state(host)
    sound(host)


@pytest.mark.full
def test_a_launch_that_was_killed(host: Omac) -> None:
    """A living launch prevents an erasure; one whose omac was killed is ended, and no state has its command line."""
    shop = host.root / "shop"
    command = ("sh", "-c", "echo ready; sleep 60; : private-argument")
    started = host.start("sandbox", "run", "--workdir", str(shop), "--", *command)
    assert started.line() == "ready\n"
    refused = host.run("erase", str(shop), "--yes")
    assert refused.status == 5
    assert "runs in a sandbox" in refused.err
    started.end(signal.SIGKILL)
    assert "private-argument" in host.ok("status", "--json")
    eventually(lambda: host.run("erase", str(shop), "--yes").status == 0, 10.0, "an erasure: its processes are gone")
    assert "private-argument" not in host.ok("status", "--json") + host.ok("audit", "--json")
    host.ok("status")
    assert not in_state(host)
    sound(host)


def test_a_directory_that_is_not_known(omac: Omac) -> None:
    """An erasure of an unknown directory is refused with the command that lists the known ones."""
    omac.approved("shop")
    refused = omac.run("erase", str(omac.root / "shpo"), "--yes")
    assert (refused.status, "has personal fields" in refused.err) == (2, True)
    assert "  try: omac audit --count-by dir  # which directories it knows\n" in refused.err
    assert str(omac.root / "shop") in omac.ok("audit", "--count-by", "dir")
