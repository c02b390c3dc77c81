"""Witnesses of checkpoints: a real file, real sockets in place of the system's log, and runs that are killed."""

import base64
import errno
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from notes import notes_of
from polling import eventually
from real_omac import Done, Omac
from tools.test_snapshots import called_often

from omac.adapters.files import lock
from omac.adapters.files.note_file import NoteFile
from omac.adapters.linux.system_log import JournaldWitness, SyslogWitness
from omac.services.kernel.checkpointing import WORTH

NOTE = "omac/checkpoint\nabc\n7\n\n\u2014 omac/host AAAA\n"


@pytest.fixture
def used(omac: Omac) -> Omac:
    """Return a host whose next run has something to sign."""
    omac.approved("shop")
    called_often(omac, WORTH)
    return omac


@pytest.fixture
def notes(used: Omac, tmp_path: Path) -> Path:
    """Return the file that is the host's witness."""
    path = tmp_path / "elsewhere" / "omac.notes"
    path.parent.mkdir(mode=0o755)
    kept_by(used, str(path))
    return path


def kept_by(omac: Omac, word: str) -> None:
    omac.environment["OMAC_JOURNAL_WITNESS"] = word


def ran(omac: Omac) -> Done:
    done = omac.run("start", "--workdir", str(omac.root / "shop"), "--", "true")
    assert done.status == 0, done
    return done


def witnessed(omac: Omac) -> list[tuple[str, tuple[object, ...]]]:
    """Return the recorded deliveries of checkpoints."""
    events = [event.event for event in omac.events() if type(event.event).__module__.endswith("access.witness")]
    return [(type(event).__name__, tuple(getattr(event, name) for name in event.__struct_fields__)) for event in events]


@pytest.mark.full
def test_a_file_gets_each_checkpoint_once(used: Omac, notes: Path) -> None:
    """A checkpoint is delivered to the file once, and its delivery is recorded; only the owner can read the file."""
    ran(used)
    first = notes.read_text()
    assert first.endswith("\n\n")
    assert notes.stat().st_mode & 0o777 == 0o600
    ((name, (size, to)),) = witnessed(used)
    assert (name, to) == ("CheckpointWitnessed", str(notes))
    assert used.ok("checkpoint")
    ran(used)
    assert notes.read_text().startswith(first)
    assert len(witnessed(used)) == 2
    called_often(used, WORTH)
    ran(used)
    assert [event for event, _ in witnessed(used)] == ["CheckpointWitnessed"] * 3
    assert isinstance(size, int)
    assert used.run("audit", "verify", "--checkpoint", str(notes)).status == 0


@pytest.mark.full
def test_what_a_rewriter_cannot_reach(used: Omac, notes: Path) -> None:
    """The file reveals a journal that was cut together with its checkpoints, which the journal alone does not."""
    ran(used)
    with closing(sqlite3.connect(used.state / "journal.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = (used.state / "journal.db").read_bytes()
    called_often(used, WORTH)
    ran(used)
    (used.state / "journal.db").write_bytes(older)
    for leftover in used.state.glob("journals/*"):
        if leftover.is_file():
            leftover.unlink()  # what omac itself remembers of the journal
    assert used.run("audit", "verify").status == 0, "inside, nothing shows"
    done = used.run("audit", "verify", "--checkpoint", str(notes))
    assert (done.status, "truncated" in done.out) == (10, True), done


@pytest.mark.full
def test_one_that_is_away_is_owed(used: Omac, notes: Path) -> None:
    """A failed delivery is recorded once and reported by the doctor; the next run delivers the latest checkpoint."""
    notes.parent.rename(notes.parent.with_name("gone"))
    done = ran(used)
    assert "does not get the checkpoint" in done.err
    called_often(used, WORTH)
    ran(used)
    ((name, (_, to, why)),) = witnessed(used)
    assert (name, to, why) == ("WitnessFailed", str(notes), "No such file or directory")
    (row,) = [row for row in used.attempts() if row["kind"] == "witness.failed"]
    assert str(notes) in row["detail"]
    checked = used.process("doctor").out
    assert "does not get checkpoints: No such file" in checked
    assert f"try: mkdir -p {notes.parent}\n" in checked
    lapse = "no checkpoint is delivered to a witness since position 0: No such file or directory\n  try: omac doctor"
    assert lapse in used.ok("status")
    kept_by(used, "none")
    assert "delivered" not in used.ok("status"), "nobody is to keep them"
    kept_by(used, str(notes))
    assert lapse in used.ok("status")
    notes.parent.with_name("gone").rename(notes.parent)
    ran(used)
    assert witnessed(used)[-1][0] == "CheckpointWitnessed"
    assert notes.read_text().count("\n\u2014 ") == 1
    assert f"{notes} keeps checkpoints" in used.process("doctor").out
    assert "delivered" not in used.ok("status")
    kept = notes.read_text()
    for change in (lambda: notes.write_text(""), notes.unlink):
        change()
        assert f"{notes} was changed or replaced: it is without the last checkpoint" in used.process("doctor").out
    notes.write_text(f"{kept}\n{kept}")
    assert f"{notes} keeps checkpoints" in used.process("doctor").out


@pytest.mark.full
def test_a_witness_that_was_named_later(used: Omac, notes: Path) -> None:
    """The doctor reports that a new witness has no checkpoint yet, and names the witness of the last one."""
    elsewhere = notes.with_name("elsewhere")
    ran(used)
    kept_by(used, str(elsewhere))
    report = used.process("doctor").out
    assert f"{elsewhere} is to keep checkpoints and got none yet; the last one, which counts" in report
    assert f"went to {notes}; omac start" in report


def test_a_witness_in_a_folder_that_does_not_exist(used: Omac, notes: Path) -> None:
    """The doctor warns of a missing folder before a delivery fails, and its proposed command makes the folder."""
    folder = notes.with_name("no folder")
    kept_by(used, str(folder / "notes"))
    report = used.process("doctor").out
    assert f"[warn] witness: {folder}/notes is to keep checkpoints and cannot: the folder {folder} does not" in report
    assert f"  try: mkdir -p '{folder}'\n" in report
    folder.mkdir()
    waits = "is to keep checkpoints and got none yet; omac start and omac serve deliver them"
    assert waits in used.process("doctor").out


def test_a_delivery_that_was_not_recorded_is_not_repeated(used: Omac, notes: Path) -> None:
    """A note that a killed run left unrecorded is not delivered twice: the next run finds it in the file."""
    ran(used)
    text = notes.read_text()
    note = text.removesuffix("\n")
    NoteFile(str(notes)).deliver(1, note)
    assert notes.read_text() == text


@pytest.mark.full
def test_killed_at_any_moment(used: Omac, notes: Path) -> None:
    """Killed runs leave only whole notes in the file, each once, and the journal agrees with them."""
    for pause in (0.2, 0.3, 0.4, 0.5, 0.6, 0.8):
        started = used.start("start", "--workdir", str(used.root / "shop"), "--", "true")
        try:
            started.process.wait(pause)
        except subprocess.TimeoutExpired:
            os.kill(started.process.pid, signal.SIGKILL)
        started.process.wait()
    ran(used)
    whole, cut = notes_of(notes.read_text())
    assert (len(whole) == len(set(whole)) >= 1, cut) == (True, 0)
    assert used.run("audit", "verify", "--checkpoint", str(notes)).status == 0


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "in the text": lambda note: note[:20],
    "before the signature": lambda note: note[: note.index(b"\n\n") + 2],
    "in the signature": lambda note: note[:-40],
    "before its last line ends": lambda note: note.rstrip(b"\n"),
    "lost": lambda note: bytes(len(note)),
    "no text": lambda note: b"\xff\xfe\x1b[31m" * 20,
}


@pytest.mark.full
@pytest.mark.parametrize("cut", CUTS)
def test_a_note_that_breaks_off(used: Omac, notes: Path, cut: str) -> None:
    """A note cut off by a loss of power damages neither the note before it nor those behind it."""
    ran(used)
    whole = notes.read_bytes()
    for _ in range(2):
        notes.write_bytes(notes.read_bytes() + CUTS[cut](whole))
        used.ok("checkpoint")
        ran(used)
    done = used.run("audit", "verify", "--checkpoint", str(notes), "--json")
    assert (done.status, json.loads(done.out)["findings"], "\x1b" in done.err) == (0, [], False), done
    is_whole = cut == "before its last line ends"
    assert ("2 of its checkpoints break off" in done.err) == (not is_whole), done
    assert len(notes_of(notes.read_text(errors="replace"))[0]) == (5 if is_whole else 3)


@pytest.mark.parametrize("what", ["a link", "a folder", "others can write it", "others can change its folder"])
def test_a_place_that_is_not_ones_own(tmp_path: Path, what: str) -> None:
    """omac writes no note to a link, a folder, or a path that other users can change."""
    folder = tmp_path / "place"
    folder.mkdir(mode=0o755)
    path = folder / "notes"
    target = tmp_path / "target"
    match what:
        case "a link":
            path.symlink_to(target)
        case "a folder":
            path.mkdir()
        case "others can write it":
            path.write_text("")
            path.chmod(0o666)
        case _:
            folder.chmod(0o777)
    with pytest.raises(OSError, match=r"link|directory|change"):
        NoteFile(str(path)).deliver(7, NOTE)
    assert not target.exists()
    assert not path.is_file() or path.read_text() == ""


def test_a_disk_that_stalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note is delivered when it is on the disk, though another delivery of it, which was given up, wrote it before
    the disk refused it."""
    witness, waits, goes_on = NoteFile(str(tmp_path / "notes")), threading.Event(), threading.Event()
    flush, flushed = os.fsync, list[int]()

    def stalled(_: int) -> None:
        waits.set()
        goes_on.wait()
        raise OSError(errno.EIO, "Input/output error")

    def noted(file: int) -> None:
        flush(file)
        flushed.append(file)

    monkeypatch.setattr(lock, "OPENED_WAIT_S", 0.1)
    monkeypatch.setattr(os, "fsync", stalled)
    with ThreadPoolExecutor(1) as given_up:
        first = given_up.submit(witness.deliver, 7, NOTE)
        waits.wait()
        monkeypatch.setattr(os, "fsync", noted)
        try:
            with pytest.raises(OSError, match="another delivery"):
                witness.deliver(7, NOTE)
        finally:
            goes_on.set()
        assert isinstance(first.exception(), OSError)
    for times in (1, 2):  # by a run that was killed before it flushed it, and by the next
        witness.deliver(7, NOTE)
        assert ((tmp_path / "notes").read_text(), len(flushed)) == (NOTE + "\n", times)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk(tmp_path: Path) -> None:
    """A note that does not fit leaves nothing behind, and a later note has its own lines."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(small)), check=True)
    try:
        filled = small / "filled"
        filled.write_bytes(b"x" * (60 << 10))
        witness = NoteFile(str(small / "notes"))
        with pytest.raises(OSError, match=r"No space|is full"):
            witness.deliver(7, NOTE * 200)
        filled.unlink()
        witness.deliver(7, NOTE)
        assert (small / "notes").read_text() == NOTE + "\n"
    finally:
        subprocess.run(("umount", str(small)), check=True)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Yield a socket in place of the system's log."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(path))
        log.settimeout(5)
        yield log


def test_journald_gets_the_note_as_it_is(tmp_path: Path) -> None:
    """Journald gets the note by its native protocol, with the length before a field of several lines."""
    with listening(tmp_path / "socket") as log:
        JournaldWitness(str(tmp_path / "socket")).deliver(7, NOTE)
        datagram = log.recv(1 << 16)
    fields, _, rest = datagram.partition(b"OMAC_NOTE\n")
    assert fields.decode().splitlines() == [
        "MESSAGE=omac signed the checkpoint of 7 events", "PRIORITY=5", "SYSLOG_IDENTIFIER=omac", "OMAC_SIZE=7",
    ]  # fmt: skip
    assert int.from_bytes(rest[:8], "little") == len(NOTE.encode())
    assert rest[8:] == NOTE.encode() + b"\n"


def test_syslog_gets_it_on_one_line(tmp_path: Path) -> None:
    """Syslog gets one line, whose last word is the encoded note."""
    with listening(tmp_path / "socket") as log:
        SyslogWitness(str(tmp_path / "socket")).deliver(7, NOTE)
        line = log.recv(1 << 16).decode()
    assert line.startswith("<13>omac[")
    assert base64.b64decode(line.split()[-1]).decode() == NOTE


@pytest.mark.full
def test_the_system_log_is_the_default_where_it_is(used: Omac, tmp_path: Path) -> None:
    """A run sends its checkpoint to /dev/log by default; without that socket, the doctor warns."""
    kept_by(used, "auto")
    quiet = ("bwrap", "--dev-bind", "/", "/", "--tmpfs", "/run/systemd", "--dev", "/dev")
    alone = used.run("doctor", within=quiet)
    assert "[warn] witness: checkpoints are kept in the journal alone" in alone.out
    assert "omac settings set journal.witness" in alone.out
    with listening(tmp_path / "log") as log:
        within = (*quiet, "--ro-bind", str(tmp_path / "log"), "/dev/log")
        done = used.run("start", "--no-sandbox", "--workdir", str(used.root / "shop"), "--", "true", within=within)
        assert done.status == 0, done
        assert "checkpoint of" in log.recv(1 << 16).decode()
    assert [name for name, _ in witnessed(used)] == ["CheckpointWitnessed"]


def test_an_idle_server_signs_nothing_more(used: Omac, notes: Path) -> None:
    """The record of a delivery is no reason for the next checkpoint."""
    serving = used.serve(extra={"OMAC_JOURNAL_WITNESS": str(notes)})
    eventually(lambda: used.ok("checkpoint") and notes.exists(), 20.0, "the first checkpoint")
    eventually(lambda: len(witnessed(used)) >= 1, 20.0, "its delivery")
    assert serving.end() == 0


def test_words_that_name_nobody(omac: Omac) -> None:
    """The refusal of an unknown witness lists the possible ones."""
    done = omac.run("settings", "set", "journal.witness", "nobody")
    assert (done.status, "journald, syslog, the https address of a server or an absolute path" in done.err) == (
        2,
        True,
    ), done
    assert omac.run("settings", "set", "journal.witness", "/mnt/elsewhere/omac.notes").status == 0
    del omac.environment["OMAC_JOURNAL_WITNESS"]
    assert "/mnt/elsewhere/omac.notes" in omac.ok("settings", "show")
