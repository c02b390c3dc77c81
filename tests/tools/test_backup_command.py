"""`omac journal backup` and `omac journal restore`: no command silently replaces a lost journal."""

import errno
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from unittest import mock

import pytest
from contract.launches import Program
from contract.media import needs_bubblewrap, read_only
from killed_restore import Killed
from polling import eventually
from real_omac import Done, Omac

from omac.journal import backup

BACKUPS = "omac.tools.compose.backups"
ATOMIC = "omac.adapters.files.atomic"


def position(omac: Omac) -> int:
    """Return the last position of the journal."""
    return int(json.loads(omac.ok("journal", "check", "--json"))["position"])


def test_from_loss_back_to_work(omac: Omac, tmp_path: Path) -> None:
    """Commands refuse to work once the journal is lost, until a backup that was made beside a server is restored."""
    project = omac.project("shop", "echo")
    serving = omac.serve()
    omac.approve(project, "echo")
    copy = tmp_path / "copy.db"
    made = json.loads(omac.ok("journal", "backup", str(copy), "--json"))
    assert made["path"] == str(copy)
    refused = omac.run("journal", "restore", str(copy), "--yes")
    assert refused.status == 5
    assert f"pid {serving.process.pid}" in refused.err
    serving.end()
    assert position(omac) > made["position"]
    (omac.state / "journal.db").unlink()
    approve = ("approve", "echo", "--workdir", str(project))
    read = (("status",), ("audit",), ("approvals",), ("audit", "verify"), ("journal", "check"), ("key", "show"))
    proven = (("checkpoint",), ("audit", "prove", "1"), ("journal", "backup", str(tmp_path / "other.db")))
    for command in (*read, *proven, ("journal", "seal"), ("serve", "--no-inner"), approve):
        done = omac.run(*command)
        assert done.status == 10, (command, done)
        assert "missing or empty" in done.err
        assert "try: omac journal restore BACKUP" in done.err
    assert not (omac.state / "journal.db").exists()
    assert "is restored to position" in omac.ok("journal", "restore", str(copy))
    assert position(omac) == made["position"]
    assert "echo" in omac.ok("approvals")
    assert [skill["name"] for skill in omac.serve().activate(project)["skills"]] == ["echo"]


def test_a_backup_that_was_changed(omac: Omac, tmp_path: Path) -> None:
    """A backup with another event than was recorded can be restored, and the command that omac prints next finds it."""
    omac.approved("shop")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("UPDATE event SET at = at + 1 WHERE position = 1")
    (command,) = re.findall("next: omac (.*)  #", omac.ok("journal", "restore", str(copy), "--yes"))
    found = omac.run(*shlex.split(command))
    assert found.status == 10, found
    assert "position 1: its event is not what was recorded" in found.out


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE journal RENAME TO other; CREATE VIEW journal AS SELECT * FROM other",
        "ALTER TABLE head ADD COLUMN x AS (hex(zeroblob(4)))",
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM spooled; END",
        "CREATE VIRTUAL TABLE other USING fts5(x)",
        "CREATE INDEX i ON event (hex(zeroblob(4)))",
        "CREATE TABLE other (x CHECK (length(hex(zeroblob(4))) > 0))",
    ],
    ids=("view", "generated column", "trigger", "virtual table", "index", "constraint"),
)
def test_a_backup_that_computes(omac: Omac, tmp_path: Path, change: str) -> None:
    """A file that would compute what is read of it, which may have no end or take all memory, or would change what is
    written to it, is neither restored nor read."""
    omac.approved("shop")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    with closing(sqlite3.connect(copy)) as connection:
        connection.executescript(change)
    before = position(omac)
    for command in (("journal", "restore", str(copy), "--yes"), ("audit", "--journal", str(copy))):
        done = omac.run(*command)
        assert (done.status, "computes" in done.err) == (10, True), done
    assert position(omac) == before


def test_a_segment_that_computes(omac: Omac, tmp_path: Path) -> None:
    """A segment that computes is refused, too: its digest in the journal is stated by whoever made the backup."""
    omac.approved("shop")
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    (segment,) = (tmp_path / "copy.db.segments").iterdir()
    segment.chmod(0o600)
    with closing(sqlite3.connect(segment)) as connection:
        connection.executescript("ALTER TABLE segment RENAME TO other; CREATE VIEW segment AS SELECT * FROM other")
    with closing(sqlite3.connect(copy)) as connection, connection:
        stated = (segment.stat().st_size, sha256(segment.read_bytes()).hexdigest())
        connection.execute("UPDATE segment SET bytes = ?, sha256 = ?", stated)
    done = omac.run("journal", "restore", str(copy), "--yes")
    assert (done.status, "computes" in done.err) == (10, True), done


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda keys: keys.write_text(keys.read_text() + more_keys(keys, 1_000)), "has at most 1000"),
        (lambda keys: os.truncate(keys, 1 << 40), "is larger than"),
        (lambda keys: (keys.unlink(), keys.symlink_to("/dev/zero")), "is not a regular file"),
    ],
    ids=["more than are read", "larger than the memory", "endless"],
)
def test_keys_of_a_backup_that_somebody_wrote(
    omac: Omac, tmp_path: Path, forge: Callable[[Path], object], says: str
) -> None:
    """No file of keys takes all memory, or keeps a directory's own key from being read: that would encrypt by another,
    which its maker knows."""
    project = omac.project("shop", "echo")
    omac.ok("sandbox", "run", "--", "true", cwd=project)
    omac.approve(project, "echo")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    before = {path.name: path.read_bytes() for path in (omac.state / "subjects").iterdir()}
    forge(tmp_path / "copy.db.keys")
    done = omac.run("journal", "restore", str(copy), "--yes")
    assert (done.status, says in done.err) == (5, True), done
    assert {path.name: path.read_bytes() for path in (omac.state / "subjects").iterdir()} == before != {}


def more_keys(keys: Path, count: int) -> str:
    """Return lines with other keys of the first directory in a file of keys."""
    subject = keys.read_text().partition(" ")[0]
    return "".join(f"{subject} {number:064x}\n" for number in range(count))


@needs_bubblewrap
def test_a_folder_of_segments_that_cannot_be_moved(omac: Omac, tmp_path: Path) -> None:
    """A restore is refused if the folder of segments cannot be moved, as on a mount, and the journal stays in place."""
    project = omac.approved("shop")
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    omac.ok("revoke", "echo", cwd=project)
    before = position(omac)
    segments = str(omac.state / "journal.db.segments")
    mounted = ("bwrap", "--dev-bind", "/", "/", "--bind", segments, segments)
    done = omac.run("journal", "restore", str(copy), "--yes", within=mounted)
    assert (done.status, segments in done.err, "busy" in done.err) == (5, True, True), done
    assert position(omac) == before
    omac.ok("audit", "verify")
    names = sorted(path.name for path in omac.state.iterdir())
    assert not [name for name in names if "restor" in name], names
    omac.ok("journal", "restore", str(copy), "--yes")
    assert position(omac) < before


@needs_bubblewrap
@pytest.mark.full
def test_a_state_that_cannot_be_written(omac: Omac, tmp_path: Path) -> None:
    """A state on read-only media is verified and proven like any other, and its key is there and cannot be changed."""
    omac.approved("shop")
    key = omac.ok("key", "show")
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    within = read_only(omac.state)
    assert omac.process("key", "show", within=tuple(within)).out == key
    proof = omac.process("audit", "prove", "1", within=tuple(within))
    assert proof.status == 0, proof
    (tmp_path / "proof").write_text(proof.out)
    omac.ok("proof", "verify", str(tmp_path / "proof"), "--key", key.strip())
    assert omac.process("checkpoint", within=tuple(within)).status == 0
    for words in (("rotate",), ("rotate", "--lost"), ("move", "--to", "vault")):
        done = omac.process("key", *words, within=tuple(within))
        assert (done.status != 0, "Traceback" in done.err, "defect" in done.err) == (True, False, False), done
    assert omac.ok("key", "show") == key


def test_restoring_over_later_events(omac: Omac, tmp_path: Path) -> None:
    """A restore names the events that the backup lacks, drops them only with --yes, and keeps the replaced journal."""
    project = omac.approved("shop")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    again = omac.run("journal", "backup", str(copy))
    assert again.status == 2
    assert "exists already" in again.err
    before = position(omac)
    omac.ok("approve", "echo", "--revoke", "--workdir", str(project))
    later = position(omac)
    refused = omac.run("journal", "restore", str(copy))
    assert refused.status == 2
    assert f"{later - before} later position" in refused.err
    assert "any revocation among them is undone" in refused.err
    assert position(omac) == later
    done = omac.ok("journal", "restore", str(copy), "--yes")
    assert position(omac) == before
    replaced = done.splitlines()[1].rpartition(" ")[2]
    assert json.loads(omac.ok("journal", "check", "--json", "--journal", replaced))["position"] == later


def test_a_backup_that_is_not_there(omac: Omac, tmp_path: Path) -> None:
    """A restore reports that no backup exists at the path, suggests listing its folder, and changes nothing."""
    omac.approved("shop")
    before = position(omac)
    done = omac.run("journal", "restore", str(tmp_path / "nope.db"))
    assert done.status == 5
    assert f"no backup exists at {tmp_path}/nope.db" in done.err
    assert f"try: ls -ld {tmp_path}" in done.err
    assert position(omac) == before


def test_an_old_copy_put_back_by_hand(omac: Omac, tmp_path: Path) -> None:
    """A copied file cannot undo a revocation: readers and writers refuse the older journal."""
    project = omac.approved("shop")
    shutil.copy(omac.state / "journal.db", tmp_path / "old.db")
    omac.ok("approve", "echo", "--revoke", "--workdir", str(project))
    shutil.copy(tmp_path / "old.db", omac.state / "journal.db")
    for command in (("approvals",), ("serve", "--no-inner")):
        done = omac.run(*command)
        assert done.status == 10, (command, done)
        assert "older copy" in done.err


@pytest.mark.full
def test_a_plain_copy_beside_an_idle_server(omac: Omac, tmp_path: Path) -> None:
    """The journal's file alone holds all events shortly after the last one."""
    omac.online("shop")
    copy = tmp_path / "copy.db"

    def whole() -> bool:
        copy.unlink(missing_ok=True)
        shutil.copy(omac.state / "journal.db", copy)
        checked = omac.run("journal", "check", "--json", "--journal", str(copy))
        return checked.status == 0 and json.loads(checked.out)["position"] == position(omac)

    eventually(whole, 15, "a plain copy holds everything")


def test_on_another_host(omac: Omac, tmp_path: Path) -> None:
    """A restore names the host whose approvals a backup has, unless it is this one: nothing is approved here."""
    omac.approved("shop")
    copy, elsewhere = tmp_path / "copy.db", {"OMAC_STATE_DIR": str(tmp_path / "elsewhere")}
    omac.ok("journal", "backup", str(copy))
    note = f"are those of another host ({(omac.state / 'host-id').read_text()}), and hold on no other: approve"
    done = omac.run("journal", "restore", str(copy), extra=elsewhere)
    assert (done.status, note in " ".join(done.out.split())) == (0, True), done
    assert "nothing is approved" in omac.run("approvals", extra=elsewhere).err
    assert "another host" not in omac.ok("journal", "restore", str(copy), "--yes")


def test_what_lived_on_another_host(omac: Omac, tmp_path: Path) -> None:
    """The status shows people nothing of a run of the backup's host, whose end no other host can record."""
    Program(omac.state / "spool").launch("aa", "launch-requested", "launched")
    assert "sandbox aa in /w/shop: ended without a record" in omac.ok("status")
    copy, elsewhere = tmp_path / "copy.db", {"OMAC_STATE_DIR": str(tmp_path / "elsewhere")}
    omac.ok("journal", "backup", str(copy))
    assert omac.run("journal", "restore", str(copy), extra=elsewhere).status == 0
    assert "ended without a record" not in omac.run("status", extra=elsewhere).out
    assert json.loads(omac.run("status", "--json", extra=elsewhere).out)["sandboxes"][0]["launch"] == "aa"


def test_no_backup_to_restore(omac: Omac, tmp_path: Path) -> None:
    """A restore refuses a text file, an empty file and a missing file, and proposes nothing that makes a journal of
    them."""
    text, empty = tmp_path / "text", tmp_path / "empty"
    text.write_text("not a journal, " * 100)
    empty.touch()
    for source, status in ((text, 10), (empty, 5), (tmp_path / "nothing", 5)):
        done = omac.run("journal", "restore", str(source))
        assert (done.status, "omac serve" in done.err) == (status, False), done
    assert not (omac.state / "journal.db").exists()


def test_a_backup_that_was_killed_is_none(omac: Omac, tmp_path: Path) -> None:
    """A backup gets its name only once its keys are beside it; the next one names the unfinished files to remove. No
    other file has keys that were being written."""
    omac.approved("shop")
    omac.ok("start", "--workdir", str(omac.root / "shop"), "--", "true")
    copy = tmp_path / "copy.db"
    before = set(os.listdir(tmp_path))
    kill = mock.patch(f"{ATOMIC}.os.fsync", side_effect=Killed)
    with kill, mock.patch(f"{ATOMIC}._remove"), mock.patch(f"{BACKUPS}.discard"), pytest.raises(Killed):
        omac.run("journal", "backup", str(copy))
    assert set(os.listdir(tmp_path)) - before == {"copy.db.unfinished"}
    for suffix in ("-wal", "-shm", "-journal", ".segments"):  # of a kill at other moments
        (tmp_path / f"copy.db.unfinished{suffix}").touch()
    again = omac.run("journal", "backup", str(copy))
    (proposed,) = re.findall(r"^  try: (rm -rf .*)$", again.err, re.MULTILINE)
    assert again.status == 2
    subprocess.run(["sh", "-c", proposed], check=True)
    assert set(os.listdir(tmp_path)) == before, "the command removes all of it"
    omac.ok("journal", "backup", str(copy))
    assert sorted(file.name for file in tmp_path.glob("copy*")) == ["copy.db", "copy.db.keys"]


def test_a_backup_that_was_killed_in_its_last_moment(omac: Omac, tmp_path: Path) -> None:
    """The keys of a backup that was killed ahead of its name are among the files to remove."""
    omac.approved("shop")
    omac.ok("start", "--workdir", str(omac.root / "shop"), "--", "true")
    copy = tmp_path / "copy.db"
    kill = mock.patch("omac.journal.backup.os.rename", side_effect=Killed)
    left = (mock.patch(f"{BACKUPS}.discard"), mock.patch(f"{BACKUPS}._discard_keys"))
    with kill, left[0], left[1], pytest.raises(Killed):
        omac.run("journal", "backup", str(copy))
    again = omac.run("journal", "backup", str(copy))
    (command,) = re.findall("  try: rm -rf (.*)  # unless", again.err)
    assert (again.status, f"{copy}.keys" in command) == (2, True), again
    for name in command.split():
        Path(name).unlink(missing_ok=True)
    omac.ok("journal", "backup", str(copy))


@pytest.mark.full
def test_a_backup_that_failed_leaves_no_keys(omac: Omac, tmp_path: Path) -> None:
    """A backup that cannot get its name leaves no keys either: nobody would look for them at an erasure."""
    omac.approved("shop")
    omac.ok("start", "--workdir", str(omac.root / "shop"), "--", "true")
    copy, before = tmp_path / "copy.db", set(os.listdir(tmp_path))
    with mock.patch("omac.journal.backup.os.rename", side_effect=OSError(errno.EIO, "Input/output error")):
        done = omac.run("journal", "backup", str(copy))
    assert (done.status, "copy.db cannot be written" in done.err) == (5, True), done
    assert set(os.listdir(tmp_path)) == before
    omac.ok("journal", "backup", str(copy))


def beside_a_restore(omac: Omac, copy: Path, step: str, *words: str, cwd: Path) -> tuple[Done, Done]:
    """Restore a backup, and have another process do a command at a step; return what both did."""
    others: list[Done] = []
    real = getattr(backup, step)

    def then(*arguments: object) -> object:
        if not others:
            others.append(Done(-1, "", ""))
            others[0] = omac.process(*words, cwd=cwd)
        return real(*arguments)

    with mock.patch.object(backup, step, then):
        done = omac.run("journal", "restore", str(copy), "--yes")
    return done, others[0]


@pytest.mark.full
@pytest.mark.parametrize("step", ["back_up", "_into_one_file", "_free"])
@pytest.mark.parametrize(
    "words",
    [("key", "rotate"), ("revoke", "echo"), ("journal", "prune", "--keep", "0s", "--yes"), ("erase", ".", "--yes")],
    ids=lambda words: words[0] if words[0] != "journal" else words[1],
)
def test_what_is_recorded_beside_a_restore(omac: Omac, tmp_path: Path, words: tuple[str, ...], step: str) -> None:
    """Records of a command beside a restore are in the journal afterwards, or the command is refused."""
    project = omac.approved("shop")
    omac.ok("sandbox", "run", "--", "true", "word", cwd=project)
    omac.ok("checkpoint")
    omac.ok("journal", "seal")
    copy = tmp_path / "copy.db"
    omac.ok("journal", "backup", str(copy))
    before = position(omac)
    restore, other = beside_a_restore(omac, copy, step, *words, cwd=project)
    if words[0] in ("erase", "journal"):
        assert (restore.status, other.status) == (0, 5), (restore, other)
        assert (
            f"a restore of the journal {omac.state / 'journal.db'} is at work" in other.err or "subjects" in other.err
        )
    else:
        assert (restore.status, other.status) == (5, 0), (restore, other)
        assert f"went on while it was being restored, from position {before} to {position(omac)}" in restore.err
        assert "nothing was changed\n  try: omac audit --from" in restore.err
    assert sorted(path.name for path in omac.state.glob("journal.db*") if not path.name.endswith(("-wal", "-shm"))) == [
        "journal.db",
        *(["journal.db.before-restore-1", "journal.db.before-restore-1.segments"] if not restore.status else []),
        "journal.db.segments",
    ]
    assert json.loads(omac.ok("audit", "verify", "--json"))["findings"] == []
    omac.ok("checkpoint")
    omac.ok("journal", "restore", str(copy), "--yes")
