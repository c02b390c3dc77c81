"""`omac doctor` reports findings about the machine and omac's own files, and --fix mends them."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from contract.journals import commit_now
from contract.media import small_disk
from real_omac import Done, Omac
from started import looping
from valued_skill import piped, valued, with_vault

from omac.domain.access.access import AccessRefused
from omac.domain.kernel.event import Draft
from omac.domain.kernel.ids import HostId, access_stream
from omac.domain.sandbox.own_files import set_aside_large
from omac.journal.opening import open_journal
from omac.tools.compose.own_files import OwnFiles


def doctor(omac: Omac, *options: str) -> Done:
    return omac.process("doctor", *options)


def own(omac: Omac, *options: str) -> list[dict[str, Any]]:
    """Return the findings about omac's own files."""
    findings = json.loads(doctor(omac, "--json", *options).out)["findings"]
    return [finding for finding in findings if finding["name"] == "own files"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def used(omac: Omac) -> Omac:
    """Return an omac with the files of a server, a start and a vault."""
    project = omac.approved("p")
    omac.ok("vault", "init", "--key-file", str(omac.folder / "key"))
    serving = omac.serve()
    serving.activate(project)
    assert omac.run("start", "--workdir", str(project), "--", "true").status == 0
    omac.ok("settings", "set", "secrets.store", "vault")
    return omac


def test_what_omac_makes_is_well(used: Omac) -> None:
    """The files that omac makes are well while a server runs, and --fix mends none of them."""
    (finding,) = own(used)
    assert (finding["level"], finding["fix"]) == ("ok", [])
    done = doctor(used, "--fix")
    assert done.status == 0, done
    assert "[mended]" not in done.out
    assert "[ok] own files:" in done.out
    assert "] bubblewrap: " in done.out
    assert used.run("status").status == 0


@pytest.mark.full
def test_modes_are_mended(used: Omac, tmp_path: Path) -> None:
    """--fix removes other users' rights to the state directory and to write the settings, and follows no link."""
    aside = tmp_path / "aside"
    aside.write_text("mine")
    aside.chmod(0o666)
    (used.state / "planted").symlink_to(aside)
    settings = Path(used.environment["XDG_CONFIG_HOME"]) / "omac/settings.toml"
    folder = used.state / "run" / os.readlink(used.state / "run" / "current")
    changed = {used.state / "journal.db": 0o644, used.state / "vault": 0o622, folder: 0o755, settings: 0o666}
    changed[used.state / "fingerprint.key"] = 0o400
    for path, wrong in {**changed, used.state: 0o777}.items():
        path.chmod(wrong)
    before = doctor(used)
    assert before.status == 5, before
    assert f"  try: chmod 700 {used.state}" in before.out
    assert "  try: omac doctor --fix" in before.out
    assert mode(used.state) == 0o777, "without --fix nothing is changed"
    done = doctor(used, "--fix")
    assert done.status == 0, done
    assert f"[mended] changed the mode of {used.state} from 777 to 700" in done.out
    modes = [mode(path) for path in (*changed, used.state)]
    assert modes == [0o600, 0o600, 0o700, 0o644, 0o600, 0o700]
    assert mode(aside) == 0o666
    assert own(used)[0]["level"] == "ok"
    assert used.run("status").status == 0, "the server goes on"


@pytest.mark.full
def test_the_sockets_of_killed_runs_are_removed(used: Omac) -> None:
    """--fix removes the sockets of killed runs, and so does the next start. Those of a living run stay, also where its
    lock was removed and Ctrl-Z stopped it; a run that ends in order leaves none."""
    runs, living, project = used.state / "run", used._servings[0], used.root / "p"

    def with_sockets() -> set[Path]:
        return {socket_path.parent.resolve() for socket_path in runs.glob("*/*.sock")}

    own_folder = {runs / living.ready["run"]}
    assert with_sockets() == own_folder, "a start has ended"
    for command in (["doctor", "--fix"], ["start", "--workdir", str(project), "--", "true"]):
        killed = looping(used, project)
        (folder,) = with_sockets() - own_folder
        killed.process.kill()
        killed.process.wait()
        (finding,) = own(used)
        assert (finding["says"].split()[0], finding["fix"][0]) == (str(folder), "omac doctor --fix")
        os.kill(living.process.pid, signal.SIGSTOP)
        (runs / "current" / "lock").unlink(missing_ok=True)
        done = used.process(*command)
        os.kill(living.process.pid, signal.SIGCONT)
        assert done.status == 0, done
        assert with_sockets() == own_folder
        assert list((folder / "logs").iterdir()), "its logs are kept"
        assert own(used)[0]["level"] == "ok"
    assert living.call("dirs").status == 200
    living.end()
    assert with_sockets() == set()


@pytest.mark.full
def test_old_run_folders_are_removed(used: Omac) -> None:
    """--fix removes all but the latest run folders, never that of a living run, and also a link that leads nowhere."""
    runs = used.state / "run"
    living = runs / os.readlink(runs / "current")
    for number in range(8):
        (runs / f"{number:012x}" / "logs").mkdir(parents=True, mode=0o700)
        (runs / f"{number:012x}").chmod(0o700)
    os.utime(living, (1, 1))
    done = doctor(used, "--fix")
    assert done.status == 0, done
    assert done.out.count("removed the folder of an ended run") == 4
    assert living.is_dir()
    used._servings[0].end()
    (runs / "current").unlink()
    (runs / "current").symlink_to("gone")
    assert {finding["fix"][0] for finding in own(used)} == {"omac doctor --fix"}
    mended = json.loads(doctor(used, "--fix", "--json").out)["mended"]
    assert f"removed {runs}/current, which led to a run that is gone" in mended
    assert not living.exists()
    assert own(used)[0]["level"] == "ok"


def test_a_missing_state_directory_is_made(omac: Omac) -> None:
    """A missing state directory is no problem, since omac makes it when it is needed; --fix makes it at once."""
    omac.state.rmdir()
    (finding,) = own(omac)
    assert finding["level"] == "ok"
    assert "does not exist yet" in finding["says"]
    assert f"made the state directory {omac.state}" in doctor(omac, "--fix").out
    assert mode(omac.state) == 0o700


@pytest.mark.full
def test_folders_above_are_nobody_elses_either(omac: Omac) -> None:
    """omac makes folders above its files with mode 700 even if the umask is 0: others could replace their content."""
    below = omac.state / "a/b/c"
    environment = {"OMAC_STATE_DIR": str(below / "omac"), "XDG_CONFIG_HOME": str(omac.state / "config/x")}
    careless = ("/bin/sh", "-c", 'umask 0 && exec "$@"', "sh")
    for command in (
        ("settings", "set", "serve.audit", "buffered"),
        ("vault", "init", "--key-file", str(omac.state / "key/a/b/key")),
        ("sandbox", "run", "--", "true"),
    ):
        assert omac.run(*command, extra=environment, within=careless).status == 0
    made = [path for path in omac.state.rglob("*") if path.is_dir()]
    assert {mode(path) for path in made if not path.is_relative_to(below / "omac")} == {0o700}


@pytest.mark.parametrize("below", ["", "/a/b"])
def test_a_disk_that_cannot_be_written(omac: Omac, below: str) -> None:
    """A read-only disk is a problem with or without a state directory, and each printed command can be pasted."""
    environment = {"OMAC_STATE_DIR": f"{omac.state}{below}"}
    within = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(omac.state), str(omac.state), "--")
    done = omac.run("doctor", "--fix", within=within, extra=environment)
    assert done.status == 5, done
    assert (
        f"own files: omac cannot write to {omac.state}, which its state directory needs: its file system is read-only\n"
        in done.out
    )
    assert f"  try: findmnt --target {omac.state}  # how it is mounted\n" in done.out
    for command in (["sandbox", "run", "--", "true"], ["vault", "init", "--key-file", f"{omac.folder}/key"]):
        done = omac.run(*command, within=within, extra=environment)
        fixes = re.findall(r"  try: (?:ls -ld|df -h|findmnt --target) (\S*)", done.err)
        assert set(fixes) == {str(omac.state)}, done


def test_what_was_set_aside_takes_much_room(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that launches set aside are kept, and reported where they are many; the command removes old ones alone."""
    old, new = (omac.state / "set-aside" / launch for launch in ("old launch", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "pack").write_bytes(bytes(400_000))
    os.utime(old, (0, 0))
    path, size = OwnFiles(omac.environment).set_aside()
    assert size > 800_000
    assert set_aside_large(path, size) == ()
    monkeypatch.setattr("omac.domain.sandbox.own_files.SET_ASIDE_BYTES_MANY", 800_000)
    (finding,) = set_aside_large(path, size)
    assert finding.says.startswith("what launches set aside takes ")
    listing, removal = finding.fix
    listed = subprocess.run(["sh", "-c", listing], check=True, capture_output=True, text=True).stdout
    assert ("old launch" in listed, "new" in listed) == (True, False)
    subprocess.run(["sh", "-c", removal], check=True)
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    ("size", "level", "status"), [(100_000, "fail", 5), (8_000_000, "warn", 0), (100_000_000, "", 0)]
)
def test_a_disk_that_is_full(omac: Omac, size: int, level: str, status: int) -> None:
    """A full disk is a failure, one that soon will be a warning, each with the command that shows it."""
    done = omac.run("doctor", within=(*small_disk(omac.state, size), "--"))
    shown = re.search(rf"\[(\w+)\] disk: the disk of {omac.state} .*\n  try: df -h {omac.state}\n", done.out)
    assert (shown[1] if shown else "", done.status) == (level, status), done


@pytest.mark.full
def test_a_journal_ahead_of_the_clock(used: Omac) -> None:
    """A journal that was written while the clock was ahead is a warning: later events get a time that is not theirs."""
    assert "clock:" not in doctor(used).out
    with closing(open_journal(str(used.state / "journal.db"), "r", lambda: 2_000_000_000 * 10**9)) as journal:
        refused = AccessRefused(None, None, "", None, "GET", "", 404, "unknown-mount")
        commit_now(journal, [Draft(access_stream(HostId("h")), None, refused)])
    done = doctor(used)
    assert done.status == 0
    assert "[warn] clock: the journal's last event has the time 2033-05-18 " in done.out
    assert "  try: date  # is the clock right?\n" in done.out


@pytest.mark.full
def test_a_journal_that_cannot_be_read(omac: Omac) -> None:
    """A lost journal, an older copy, a damaged one, and whatever else is at its path is a failure, with the message,
    the command and the exit code of the commands that need it."""
    omac.approved("p")
    old, elsewhere = omac.folder / "old.db", omac.folder / "elsewhere.db"
    omac.ok("journal", "backup", str(old))
    omac.ok("settings", "set", "limits.concurrent_calls", "3")
    omac.ok("journal", "backup", str(elsewhere))
    journal = omac.state / "journal.db"
    sound = elsewhere.read_bytes()
    listening = socket.socket(socket.AF_UNIX)

    def damage() -> None:
        journal.write_bytes(sound)
        with closing(sqlite3.connect(journal, isolation_level=None)) as connection:
            connection.execute("UPDATE event SET body = x'00' WHERE position = 1")

    for put in (
        lambda: os.mkfifo(journal),
        journal.mkdir,
        lambda: listening.bind(str(journal)),
        lambda: journal.symlink_to("/dev/null"),
        lambda: journal.symlink_to(elsewhere),
        lambda: journal.write_bytes(bytes(8192)),
        lambda: journal.write_bytes(b""),
        lambda: shutil.copy(old, journal),
        damage,
        lambda: None,
    ):
        needs = ("audit",) if put is damage else ("settings", "set", "serve.audit", "strict")
        if journal.is_dir():
            journal.rmdir()
        for file in (journal, Path(f"{journal}-wal"), Path(f"{journal}-shm")):
            file.unlink(missing_ok=True)
        put()
        refused = omac.run(*needs)
        says, _, fixes = refused.err.removeprefix("omac: ").partition("\n")
        done = omac.run("doctor")
        assert done.status == refused.status != 0, (done, refused)
        assert f"[fail] journal: {says}\n{fixes}" in done.out
        assert "] witness: " not in done.out
    listening.close()
    journal.write_bytes(sound)
    assert omac.run("doctor").status == 0


def test_what_every_start_reads(omac: Omac) -> None:
    """Settings that cannot be read, and an id or a key that is none, are failures: no run starts with them."""
    omac.approved("shop")
    settings = Path(omac.environment["XDG_CONFIG_HOME"]) / "omac/settings.toml"
    settings.parent.mkdir(parents=True)
    settings.parent.chmod(0o700)
    settings.write_text("x = [")
    settings.chmod(0o600)
    refused = omac.run("settings", "show")
    says, _, fixes = refused.err.removeprefix("omac: ").partition("\n")
    done = omac.run("doctor")
    assert done.status == refused.status == 3, done
    assert f"[fail] settings: {says}\n{fixes}" in done.out
    settings.unlink()
    key = omac.state / "fingerprint.key"
    content = key.read_bytes()
    key.write_bytes(content[:5])
    done = omac.run("doctor")
    assert done.status == 5, done
    assert f"[fail] own files: {key} does not hold what omac wrote there" in done.out
    key.write_bytes(content)
    (omac.state / "spool").write_text("")
    assert f"[fail] own files: {omac.state}/spool does not hold" in omac.run("doctor").out
    (omac.state / "spool").unlink()
    assert omac.run("doctor").status == 0


def test_a_vault_that_is_damaged_or_gone(omac: Omac) -> None:
    """A vault that no skill can get its secrets from is a failure, with or without its key."""
    project, vault = valued(omac), with_vault(omac)
    assert piped(omac, b"xoxb-1", "secrets", "set", "slack", "TOKEN", "--workdir", str(project)).status == 0
    del omac.environment["OMAC_VAULT_KEY_FILE"]
    assert omac.run("doctor").status == 0
    content = vault.read_bytes()
    vault.write_bytes(content[:-1])
    done = omac.run("doctor")
    assert (done.status, f"[fail] vault: the vault {vault} is damaged" in done.out) == (10, True), done
    vault.unlink()
    done = omac.run("doctor")
    lost = f"[fail] vault: no vault exists at {vault}, which had secrets of slack\n"
    assert (done.status, lost in done.out) == (8, True), done
    assert f"  try: cp -p BACKUP {vault}\n  try: omac vault init  # without one: " in done.out
    omac.ok("journal", "backup", str(omac.folder / "copy.db"))
    vault.write_bytes(content)
    vault.chmod(0o600)
    assert omac.run("doctor").status == 0
    elsewhere = {"OMAC_STATE_DIR": str(omac.folder / "elsewhere")}  # where no secret of this host was ever kept
    omac.ok("journal", "restore", str(omac.folder / "copy.db"), extra=elsewhere)
    done = omac.run("doctor", extra=elsewhere)
    assert (done.status, "no vault exists" in done.out) == (0, False), done


@pytest.mark.full
def test_a_host_id_that_was_changed(omac: Omac) -> None:
    """A host id that is none, or was removed, refuses each start, and is written again from the journal: approvals are
    of a host. Where the journal has none, the command that begins again is proposed."""
    omac.approved("shop")
    path = omac.state / "host-id"
    content = path.read_text().strip()
    for changed in ("", content[:5], "a b c d e f", None):
        path.unlink() if changed is None else path.write_text(changed)
        refused = omac.run("approvals")
        assert (refused.status, "  try: omac doctor --fix  # " in refused.err) == (5, True), refused
        done = omac.run("doctor")
        assert done.status == 5, done
        assert f"[fail] own files: {path} does not hold a host id: it was removed, changed" in done.out
        assert f"[mended] wrote the host id that the journal has, {content}, to {path}\n" in doctor(omac, "--fix").out
        assert (path.read_text(), mode(path)) == (content, 0o600)
        assert "echo" in omac.ok("approvals")
    path.unlink()
    omac.state.joinpath("journal.db").unlink()
    assert f"  try: rm -r {omac.state}/journals  # begins as another host" in omac.run("doctor").out
    shutil.rmtree(omac.state / "journals")
    (omac.state / "journals" / "0123456789abcdef.snapshots").mkdir(parents=True)  # of a journal that was only read
    omac.ok("doctor")
    assert "echo" not in omac.ok("approvals")


@pytest.mark.full
def test_a_signing_key_that_is_lost_or_another(omac: Omac) -> None:
    """A key that cannot sign is found before the next checkpoint is due, and the proposed command mends it."""

    def found() -> list[dict[str, Any]]:
        findings = json.loads(doctor(omac, "--json").out)["findings"]
        return [finding for finding in findings if finding["name"] == "signing key"]

    omac.approved("shop")
    path = omac.state / "signing.key"
    path.unlink(missing_ok=True)
    assert found() == []  # none has signed yet
    assert not path.exists()
    omac.ok("checkpoint")
    assert found() == []
    kept = path.read_text()
    path.write_text("5" * 64)
    (another,) = found()
    assert (another["level"], "signs nothing in this journal" in another["says"]) == ("warn", True), another
    path.write_text("5" * 63)
    (garbled,) = found()
    assert "does not hold a key" in garbled["says"]
    path.unlink()
    (lost,) = found()
    assert "restore it from a backup" in lost["says"]
    assert not path.exists()
    path.write_text(kept)
    assert found() == []
    path.unlink()
    omac.ok(*lost["fix"][0].partition("  #")[0].split()[1:])
    assert found() == []


def test_what_omac_cannot_mend_has_a_command(omac: Omac) -> None:
    """A state directory that is a file, or belongs to another user, is a problem that --fix leaves."""
    omac.state.rmdir()
    omac.state.write_text("")
    done = doctor(omac, "--fix")
    assert done.status == 5
    assert f"{omac.state} is not a folder; the state directory has to be one" in done.out
    assert f"  try: ls -ld {omac.state}" in done.out
    omac.state.unlink()
    omac.state.mkdir()
    if os.geteuid() == 0:
        os.chown(omac.state, 12345, 12345)
        done = doctor(omac, "--fix")
        assert done.status == 5
        assert f"{omac.state} belongs to user 12345, not to you (0)" in done.out
        os.chown(omac.state, 0, 0)
