"""The state directory on a real file system: its path, its modes and its content."""

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from omac.adapters.files import lock
from omac.adapters.files.state import RUNS_KEPT, StateDir
from omac.adapters.linux import listen, process_identity
from omac.domain.kernel.ids import HostId, RunId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.run import Run

HOST = "0123456789abcdef"


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    """Return a state directory that does not exist yet."""
    return StateDir(str(tmp_path / "state"))


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal that a call ends with."""
    with pytest.raises(Refusal) as caught:
        call()
    assert caught.value.exit_code == 5 or caught.value.reason == "misuse"
    return caught.value


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"OMAC_STATE_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"OMAC_STATE_DIR": "", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/omac"),
        ({"XDG_STATE_HOME": "", "HOME": "/c"}, "/c/.local/state/omac"),
        ({"HOME": "/c"}, "/c/.local/state/omac"),
    ],
)
def test_where_it_is(environment: dict[str, str], path: str) -> None:
    """The path is omac's variable, else that of the desktop standard, else its default; an empty variable is unset."""
    assert StateDir.of(environment).path == path


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is made absolute, so that it stays the same when omac changes its folder."""
    monkeypatch.chdir(tmp_path)
    assert StateDir.of({"OMAC_STATE_DIR": "s"}).path == str(tmp_path / "s")
    assert StateDir("s").journal({"OMAC_JOURNAL": "j.db"}) == str(tmp_path / "j.db")


def test_where_the_journal_is(state: StateDir) -> None:
    """The journal is that of the flag, else of the variable, else journal.db; a URL is refused without its password."""
    assert state.journal({"OMAC_JOURNAL": "/e.db"}, "/f.db") == "/f.db"
    assert state.journal({"OMAC_JOURNAL": "/e.db"}) == "/e.db"
    assert state.journal({}) == os.path.join(state.path, "journal.db")
    refusal = refused(lambda: state.journal({"OMAC_JOURNAL": "postgresql://me:secret@host/db"}))
    assert "secret" not in refusal.message


def test_everything_is_private(state: StateDir) -> None:
    """The state directory's folders have mode 0700 and its files 0600, with any umask."""
    before = os.umask(0)
    try:
        state.host_id(lambda: HOST)
        state.begin_run(RunId("r1"))
        state.hold_server(state.journal({}))
        state.write_token(os.path.join(state.run_path(RunId("r1")), "control.token"), "t")
    finally:
        os.umask(before)
    paths = [Path(state.path), *Path(state.path).rglob("*")]
    assert len(paths) == 8
    for path in paths:
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_host_has_one_id(state: StateDir) -> None:
    """The id of a host is minted once, and a second call returns the same. Another state directory is another host."""
    assert state.host_id(lambda: HOST) == HOST
    assert state.host_id(lambda: "f" * 16) == HOST
    assert sorted(os.listdir(state.path)) == ["host-id"]
    assert StateDir(f"{state.path}-other").host_id(lambda: "f" * 16) == "f" * 16


def test_two_that_mint_at_once_agree(state: StateDir) -> None:
    """Many processes that begin together all get the id that one of them minted."""
    program = (
        "import secrets, sys; from omac.adapters.files.state import StateDir; sys.stdin.read(1);"
        "print(StateDir(sys.argv[1]).host_id(lambda: secrets.token_hex(8)))"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, state.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("x")
        child.stdin.flush()
    ids = {child.communicate(timeout=20)[0] for child in children}
    assert len(ids) == 1
    assert sorted(os.listdir(state.path)) == ["host-id"]


@pytest.mark.parametrize("content", ["", "short", "with/slash/in/it", "x" * 100, "\n\n"])
def test_a_host_id_that_was_spoiled(state: StateDir, content: str) -> None:
    """A file that was cut off or changed is refused by name, because a new id would orphan all recorded events."""
    os.makedirs(state.path, mode=0o700)
    Path(state.path, "host-id").write_text(content)
    refusal = refused(lambda: state.host_id(lambda: HOST))
    assert (refusal.reason, f"{state.path}/host-id" in refusal.message) == ("state-unusable", True)


def test_a_host_id_that_is_not_text(state: StateDir) -> None:
    """A host id of bytes that are no ASCII is refused as well."""
    os.makedirs(state.path, mode=0o700)
    Path(state.path, "host-id").write_bytes(b"\xff" * 16)
    assert refused(lambda: state.host_id(lambda: HOST)).reason == "state-unusable"


def test_a_host_id_that_nobody_writes(state: StateDir) -> None:
    """A pipe and an endless file are refused, not waited for and not read to the end."""
    os.makedirs(state.path, mode=0o700)
    os.mkfifo(f"{state.path}/host-id")
    assert refused(lambda: state.host_id(lambda: HOST)).reason == "state-unusable"
    os.symlink("/dev/zero", f"{state.path}/fingerprint.key")
    assert refused(lambda: state.fingerprint_key(lambda: "0" * 64)).reason == "state-unusable"


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    """A file in place of the state directory is a refusal that names it and the variable to set."""
    (tmp_path / "state").write_text("")
    refusal = refused(lambda: StateDir(str(tmp_path / "state")).host_id(lambda: HOST))
    assert str(tmp_path / "state") in refusal.message
    assert any("OMAC_STATE_DIR" in line for line in refusal.fix)
    refused(lambda: StateDir(str(tmp_path / "state" / "below")).host_id(lambda: HOST))


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_place_where_others_may_write(tmp_path: Path, mode: int) -> None:
    """A state directory that others can write to is refused with the fix, for they could replace omac's socket."""
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    refusal = refused(lambda: StateDir(str(folder)).host_id(lambda: HOST))
    assert refusal.fix == (f"chmod 700 {folder}",)
    assert os.listdir(folder) == []
    subprocess.run(refusal.fix[0], shell=True, check=True)
    assert StateDir(str(folder)).host_id(lambda: HOST) == HOST


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_place_that_is_another_users(tmp_path: Path) -> None:
    """A state directory that belongs to another user is refused, even to root, who could use it."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12_345, 12_345)
    refusal = refused(lambda: StateDir(str(folder)).host_id(lambda: HOST))
    assert "belongs to user 12345" in refusal.message
    assert not any("chown" in command for command in refusal.fix)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a folder of root's")
def test_a_place_that_root_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory that is root's, as `sudo omac` makes one, is given back by the command that is proposed."""
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    refusal = refused(StateDir(str(tmp_path)).require_own)
    assert "belongs to user 0, not to you (1000)" in refusal.message
    assert refusal.fix[-1].startswith(f"sudo chown -R 1000 {tmp_path}  # ")


def test_a_run_is_alive_while_its_process_is(state: StateDir) -> None:
    """A run that began here is alive; a run that never began, or whose process has ended, is not."""
    state.begin_run(RunId("mine"))
    assert state.is_alive(RunId("mine"))
    assert not state.is_alive(RunId("nobodys"))
    program = "import sys; from omac.adapters.files.state import StateDir; StateDir(sys.argv[1]).begin_run('ended')"
    subprocess.run([sys.executable, "-c", program, state.path], check=True)
    assert os.path.isdir(state.run_path(RunId("ended")))
    assert not state.is_alive(RunId("ended"))


def test_a_recorded_process_lives_whatever_became_of_its_lock(state: StateDir) -> None:
    """A run whose lock or folder was removed is alive as long as its process is, by pid, start time and boot.

    A run with another start time, as in another pid namespace, is alive as long as its lock is held.
    """
    pid, run = os.getpid(), RunId("mine")
    ticks = process_identity.start_ticks(pid) or 0
    recorded = Run("started", pid=pid, start_ticks=ticks, boot_id=process_identity.boot_id())
    stranger, rebooted = replace(recorded, start_ticks=ticks - 1), replace(recorded, boot_id="another")
    state.begin_run(run)
    assert state.is_alive(run, stranger)
    assert not state.is_alive(run, rebooted)
    os.unlink(os.path.join(state.run_path(run), "lock"))
    assert state.is_alive(run, recorded)
    shutil.rmtree(os.path.join(state.path, "run"))
    assert state.is_alive(run, recorded)
    assert not state.is_alive(run, stranger)
    assert not state.is_alive(run, rebooted)
    assert not state.is_alive(run, Run())
    assert not state.is_alive(run)


def test_a_run_whose_lock_is_gone_still_answers(state: StateDir) -> None:
    """A run without a lock, which a cleaner may remove, is found by its socket as long as that is served."""
    folder = state.begin_run(RunId("mine"))
    state.point_current(RunId("mine"))
    state.name_journal(RunId("mine"), "/w/other.db")
    os.unlink(os.path.join(folder, "lock"))
    assert state.living_sockets() == []
    with listen.unix(os.path.join(folder, "control.sock")):
        assert state.living_sockets() == [os.path.join(folder, "control.sock")]
        assert state.journal_in_use({}) == "/w/other.db"
    assert state.living_sockets() == []


def test_a_run_begins_once(state: StateDir) -> None:
    """A second run with the same id is refused, so that two runs never share a folder."""
    state.begin_run(RunId("r1"))
    assert refused(lambda: state.begin_run(RunId("r1"))).reason == "state-unusable"


def test_a_run_is_never_seen_dead_while_it_begins(state: StateDir) -> None:
    """Runs that begin while other processes check and prune runs always count as alive, and keep their folders."""
    begin = (
        "import sys; from omac.adapters.files.state import StateDir; state = StateDir(sys.argv[1])\n"
        "for number in range(20): state.begin_run(f'{sys.argv[2]}n{number}')\n"
        "sys.stdin.read()\n"
    )
    line = [sys.executable, "-c", begin, state.path]
    state.begin_run(RunId("own"))
    processes = [subprocess.Popen([*line, name], stdin=subprocess.PIPE) for name in ("a", "b", "c")]
    seen: set[str] = set()
    try:
        deadline = time.monotonic() + 20
        while len(seen) < 61 and time.monotonic() < deadline:
            for name in os.listdir(os.path.join(state.path, "run")):
                if not name.startswith("."):
                    assert state.is_alive(RunId(name)), name
                    seen.add(name)
            state.prune_runs()
        assert len(seen) == 61
        assert len(state.living_sockets()) == 61
    finally:
        for process in processes:
            process.communicate()
    assert [os.path.basename(os.path.dirname(path)) for path in state.living_sockets()] == ["own"]


def test_the_server_is_asked_first(state: StateDir) -> None:
    """The socket of the run that run/current names comes first among the sockets of live runs."""
    for run in ("a", "b", "c"):
        state.begin_run(RunId(run))
    state.point_current(RunId("b"))
    names = [os.path.basename(os.path.dirname(path)) for path in state.living_sockets()]
    assert (names[0], set(names)) == ("b", {"a", "b", "c"})


def test_current_leads_to_the_latest(state: StateDir) -> None:
    """The link run/current leads to the latest run, even after a crash that left a draft of it."""
    for run in ("r1", "r2"):
        state.begin_run(RunId(run))
        state.point_current(RunId(run))
        assert os.path.dirname(os.path.realpath(state.current_socket())) == state.run_path(RunId(run))
    os.symlink("r1", os.path.join(state.run_path(RunId("r1")), "current"))
    state.point_current(RunId("r1"))
    assert os.readlink(os.path.join(state.path, "run", "current")) == "r1"


def test_one_server_for_a_journal(state: StateDir) -> None:
    """A second server for a journal is refused with the pid of the first, and with commands for the user."""
    state.hold_server(state.journal({}))
    program = (
        "import sys; from omac.adapters.files.state import StateDir; from omac.domain.kernel.refusal import Refusal\n"
        "try: StateDir(sys.argv[1]).hold_server(sys.argv[2])\n"
        "except Refusal as refusal: print(refusal.reason, refusal.message, *refusal.fix, sep='|')\n"
    )
    argv = [sys.executable, "-c", program, state.path, state.journal({})]
    parts = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip().split("|")
    assert parts[0] == "journal-in-use"
    assert f"pid {os.getpid()}" in parts[1]
    stop = f"omac stop {os.getpid()}  # where it is omac serve"
    assert parts[2:] == ["omac status", f"ps -fp {os.getpid()}  # which it is", stop]
    state.hold_server(state.journal({"OMAC_JOURNAL": os.path.join(state.path, "other.db")}))


def test_a_token_is_written_once(state: StateDir) -> None:
    """A token is written neither to an existing file nor through a link."""
    folder = state.begin_run(RunId("r1"))
    path = os.path.join(folder, "control.token")
    state.write_token(path, "first")
    refused(lambda: state.write_token(path, "second"))
    assert Path(path).read_text() == "first"
    trap = os.path.join(folder, "trap")
    os.symlink(os.path.join(folder, "elsewhere"), trap)
    refused(lambda: state.write_token(trap, "third"))
    assert not os.path.exists(os.path.join(folder, "elsewhere"))


def test_old_runs_are_removed_and_living_ones_kept(state: StateDir, tmp_path: Path) -> None:
    """The folders of ended runs, kept for their logs, are removed but for the newest few, and so is one that a process
    was killed over; live runs, one that is being made, and links stay."""
    state.begin_run(RunId("living"))
    state.point_current(RunId("living"))
    os.unlink(os.path.join(state.run_path(RunId("living")), "lock"))
    os.utime(state.run_path(RunId("living")), (0, 0))
    ended = [f"ended-{number}" for number in range(RUNS_KEPT + 3)]
    for age, run in enumerate(ended):
        os.makedirs(os.path.join(state.run_path(RunId(run)), "logs"))
        os.close(lock.hold(os.path.join(state.run_path(RunId(run)), "lock")))
        os.utime(state.run_path(RunId(run)), (1_000_000 - age, 1_000_000 - age))
    for name in (".killed", ".new"):
        os.mkdir(os.path.join(state.path, "run", name))
    os.utime(os.path.join(state.path, "run", ".killed"), (1, 1))
    precious = tmp_path / "precious"
    precious.mkdir()
    os.symlink(precious, os.path.join(state.path, "run", "link"))
    state.prune_runs([RunId("living")])
    names = set(os.listdir(os.path.join(state.path, "run")))
    assert names == {"living", "current", "link", ".new", *ended[:RUNS_KEPT]}
    assert precious.is_dir()
    state.prune_runs()
    left = set(os.listdir(os.path.join(state.path, "run")))
    assert left == {"link", ".new", *ended[:RUNS_KEPT]}, "run/current led to the run that is gone"


def at_once(state: StateDir, call: str, folders: list[Path]) -> None:
    """Have three processes make a call of a state directory for each of some folders, at once; none may fail."""
    program = (
        "import sys; from omac.adapters.files.state import StateDir; state = StateDir(sys.argv[1])\n"
        f"for path in map(str.strip, sys.stdin): {call}"
    )
    removing = [
        subprocess.Popen([sys.executable, "-c", program, state.path], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    time.sleep(0.5)  # for all to wait for their input
    for process in removing:
        assert process.stdin is not None
        process.stdin.write("".join(f"{folder}\n" for folder in folders).encode())
        process.stdin.flush()
    assert [process.communicate(timeout=20)[1].decode() for process in removing] == [""] * 3


def test_processes_remove_the_folder_of_one_run(state: StateDir) -> None:
    """Several processes remove the folder of an ended run at once, and none fails."""
    folders = [Path(state.run_path(RunId(f"ended{number}"))) for number in range(RUNS_KEPT + 5)]
    for age, folder in enumerate(folders):
        folder.mkdir(parents=True)
        for number in range(100):
            (folder / str(number)).touch()
        os.utime(folder, (1_000_000 - age, 1_000_000 - age))
    at_once(state, "state.remove_stale_run(path, ())", folders[RUNS_KEPT:])
    assert [folder.exists() for folder in folders] == [True] * RUNS_KEPT + [False] * 5


def test_processes_remove_the_sockets_of_one_run(state: StateDir) -> None:
    """Several processes remove the sockets of a killed run at once; none fails, and its folder keeps its time."""
    folders = [Path(state.run_path(RunId(f"killed{number}"))) for number in range(5)]
    for folder in folders:
        folder.mkdir(parents=True)
        for number in range(40):
            listen.unix(str(folder / f"{number}.sock")).close()
        os.utime(folder, (1_000_000, 1_000_000))
    at_once(state, "state.remove_dead_sockets(path)", folders)
    assert [(folder.stat().st_mtime, list(folder.iterdir())) for folder in folders] == [(1_000_000, [])] * 5


def test_each_journal_has_copies_of_its_own(tmp_path: Path) -> None:
    """Journals have frozen copies of their own, so that one does not remove copies of another."""
    state = StateDir(str(tmp_path))
    assert state.frozen(str(tmp_path / "journal.db"), "a" * 32) == str(tmp_path / "frozen")
    assert state.frozen("/elsewhere/j.db", "a" * 32) != state.frozen("/elsewhere/j.db", "b" * 32)


def test_a_sound_host_id_stays(tmp_path: Path) -> None:
    """A host id is written again where the file holds none, and an id that another process wrote meanwhile stays."""
    state = StateDir(str(tmp_path / "state"))
    minted = state.host_id(lambda: "0123456789abcdef")
    path = tmp_path / "state" / "host-id"
    assert (state.write_host_id(HostId("f" * 16)), path.read_text()) == (False, minted)
    path.write_text("no id")
    assert (state.write_host_id(minted), path.read_text()) == (True, minted)
