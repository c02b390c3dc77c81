"""`omac sandbox run` for its user: visible files, streams, signals, the terminal and the record.

Attacks on the sandbox are in tests/escape.
"""

import json
import os
import pty
import random
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from real_sandbox import NOBODY, Box, box

from omac.domain.sandbox.hidden_names import MARKER_OIDS

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts and gives files away")
USERS = (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),)


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield a user's home, project and state directory, as root and as an unprivileged user."""
    with box(request.param) as made:
        yield made


@pytest.fixture
def mine() -> Iterator[Box]:
    """Yield the same as the present user, for tests that do not depend on the user."""
    with box(os.geteuid()) as made:
        yield made


GONE = """\
import os
from importlib.machinery import FileFinder
find = FileFinder.find_spec
def found(self, name, target=None):
    return None if name.startswith("omac.") and os.path.exists("gone") else find(self, name, target)
FileFinder.find_spec = found
from omac.adapters.git import launch_inspection
load = launch_inspection.load
def loading():
    load()
    open("loaded", "w").close()
launch_inspection.load = loading
from omac.tools.entry import main; main()
"""


GOING = """\
import os, shutil
from omac.adapters.git import git_folder
opened = git_folder.open_listable
def going(name, folder):
    if name == "going" and os.path.exists("ended"):
        shutil.rmtree(f"/proc/self/fd/{folder}/going")
    return opened(name, folder)
git_folder.open_listable = going
from omac.tools.entry import main; main()
"""


EARLY_SIGNAL = """\
import os, threading, time
from omac.adapters.sandbox import launch, stage
stage._SOURCE = "import time; time.sleep(0.3); " + stage._SOURCE
release = launch.HeldProgram.release
def released(run):
    os.kill(run.init, 19)
    release(run)
    threading.Timer(0.1, os.kill, (run.init, 18)).start()
    os.kill(os.getpid(), 15)
    print("se" + "nt", flush=True)
launch.HeldProgram.release = released
"""


def spooled(world: Box) -> list[dict[str, Any]]:
    """Return the records in the spool, in order."""
    return [json.loads(path.read_text()) for path in sorted((world.state / "spool").glob("[0-9]*.json"))]


def kinds(world: Box) -> list[str]:
    """Return the kinds of the records in the spool."""
    return [record["kind"].removeprefix("sandbox.") for record in spooled(world)]


def test_omac_is_removed_while_the_program_runs(mine: Box) -> None:
    """The end inspects what the program left, and passes its status on, where omac was removed or replaced by another
    version meanwhile."""
    (mine.workdir / "Makefile").write_text("all:\n")
    who = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (("init", "-q", "."), ("add", "Makefile"), (*who, "commit", "-q", "-m", "first")):
        assert mine.host("git", *words).status == 0
    change = "git config core.editor x; echo x >.envrc; echo x >>Makefile"
    script = f"until [ -e loaded ]; do sleep 0.1; done; {change}; >gone; exit 3"
    line = (sys.executable, "-c", GONE, "sandbox", "run", "--workdir", str(mine.workdir), "--", "sh", "-c", script)
    done = mine.host(*line)
    assert done.status == 3, done
    assert "core.editor: was set inside" in done.err
    assert ".envrc: is new or changed" in done.err
    assert "Makefile: is new or changed" in done.err


def test_the_host_removes_a_worktree_while_the_end_is_inspected(mine: Box) -> None:
    """The repository stays where it is when the host's git removes a worktree's folder just before it is judged."""
    commit = ("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "first")
    for words in (("init", "-q", "."), commit, ("worktree", "add", "-q", "../going")):
        assert mine.host("git", *words).status == 0
    line = (sys.executable, "-c", GOING, "sandbox", "run", "--workdir", str(mine.workdir), "--", "touch", "ended")
    done = mine.host(*line)
    assert (done.status, "set aside" in done.err) == (0, False), done
    assert os.listdir(mine.workdir / ".git" / "worktrees") == []
    assert mine.host("git", "log", "--format=%s").out == "first\n"


INTERRUPTED_END = """\
import os, threading
from omac.adapters.git import program
complaint = program.complaint
def slow(*words, **named):
    threading.Timer(0.1, os.killpg, (0, 2)).start()
    return complaint("-c", "alias.slow=!sleep 0.3", "slow") or complaint(*words, **named)
program.complaint = slow
os.setsid()
from omac.tools.entry import main; main()
"""


WITHOUT_THREADS = """\
import _thread
def refused(*_):
    raise RuntimeError("can't start new thread")
_thread.start_new_thread = refused
from omac.tools.entry import main; main()
"""


def test_a_shortage_says_nothing_about_the_policy(mine: Box) -> None:
    """A system that starts no thread for bubblewrap is reported as that: no path of the policy is to blame."""
    done = mine.host(*mine.changed(WITHOUT_THREADS, "true"))
    assert (done.status, "path" in done.err) == (7, False), done
    assert done.err.startswith("omac: the sandbox cannot be built: can't start new thread\n  try: ulimit -u; ")


def test_an_interrupt_while_git_works_at_the_end(mine: Box) -> None:
    """A ^C while git does for the host what was done inside, which the terminal sends to all of omac's group, reaches
    omac alone."""
    assert mine.host("git", "init", "-q").status == 0
    done = mine.host(*mine.changed(INTERRUPTED_END, "git", "config", "user.name", "Inside"))
    assert (done.status, "still inspecting" in done.err) == (0, True), done
    assert mine.host("git", "config", "user.name").out == "Inside\n", done


def test_only_the_project_and_the_system_are_there(world: Box) -> None:
    """The program works in the project, and sees nothing else of the home, /tmp and other folders."""
    world.give(world.home / ".ssh" / "id", "secret")
    world.give(world.top / "beside", "secret", 0o644)
    (world.workdir / "here").write_text("hello")
    os.chown(world.workdir / "here", world.uid, world.uid)
    script = f"cat here; echo new > there; find ~ -name id; cat {world.top}/beside; ls /tmp /run; id -u; pwd"
    done = world.run("sh", "-c", script)
    assert done.out.startswith("hello")
    assert "secret" not in done.out
    assert "No such file" in done.err
    assert done.out.split()[-2:] == [str(world.uid), str(world.workdir)]
    assert (world.workdir / "there").read_text() == "new\n"
    assert (world.workdir / "there").stat().st_uid == world.uid


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_exit_status(mine: Box, script: str, status: int) -> None:
    """The program's exit status is omac's, 128+n for a signal, and is recorded."""
    assert mine.run("sh", "-c", script).status == status
    assert spooled(mine)[-1]["fields"]["status"] == status


def test_a_request_on_a_descriptor(mine: Box) -> None:
    """omac start and omac serve pass environment and request as data on a descriptor. A request of another form is
    refused, and nothing runs."""
    script = 'echo "$A$INHERITED$OMAC_STATE_DIR"; cat /run/omac/bridge.token'
    fields = {"command": ["sh", "-c", script], "workdir": str(mine.workdir)}
    mine.give(mine.home / "token", "t0ken")
    fields |= {"env": ["A=1"], "bridge_token": str(mine.home / "token")}
    environment = mine.environment | {"INHERITED": "no"}
    handed_in = {"environment": mine.environment, "request": fields, "typed": ["start"]}
    mine.give(mine.home / "request", json.dumps(handed_in))
    line = mine.omac("sandbox", "run", "--request-descriptor", "7")
    done = mine.host("env", *(f"{name}={value}" for name, value in environment.items()),
                     "sh", "-c", f'exec 7<{mine.home}/request; exec "$@"', "sh", *line)  # fmt: skip
    assert (done.status, done.out) == (0, "1\nt0ken")
    mine.give(mine.home / "request")
    done = mine.host("sh", "-c", f'exec 7<{mine.home}/request; exec "$@"', "sh", *line)
    assert (done.status, done.out, done.err) == (1, "", ""), "the omac above has ended"
    for text in ("[]", '{"no_such_field": 1}', '{"environment": {}, "request": {"command": []}}'):
        mine.give(mine.home / "request", text)
        done = mine.host("sh", "-c", f'exec 7<{mine.home}/request; exec "$@"', "sh", *line)
        assert (done.status, done.out) == (2, "")
        assert "--request-descriptor names no request" in done.err


@pytest.mark.parametrize(("command", "status"), [("no-such-program", 127), ("./text", 126), ("/nowhere/at/all", 127)])
def test_what_cannot_be_run(mine: Box, command: str, status: int) -> None:
    """A missing program, or a file that is none, is reported before anything is launched, with a shell's exit codes."""
    mine.give(mine.workdir / "text", "echo no")
    done = mine.run(command)
    assert done.status == status, done.err
    assert "omac:" in done.err
    assert "Traceback" not in done.err


def test_a_command_of_many_words(world: Box) -> None:
    """A command may have more words than bubblewrap takes, of any bytes; only its own descriptors are there."""
    words = ["", "a b", "x\ny", "\udcff", *map(str, range(20_000))]
    script = 'printf "%s|" $# "$1" "$2" "$3" "$4"; for last; do :; done; echo $last /proc/$$/fd/*'
    done = world.run("sh", "-c", script, "sh", *words)
    assert done.status == 0, done.err
    said, *descriptors = re.split(r" /proc/\d+/fd/", done.out)
    assert said == f"{len(words)}||a b|x\ny|\ufffd|19999"
    assert len(descriptors) <= 4  # the standard three, and the folder that the shell lists
    assert (missing := world.run("nosuch", *words)).status == 127, missing


def test_streams_of_every_kind(mine: Box) -> None:
    """A file, a pipe and /dev/null serve as standard streams; 1 MiB arrives whole and in order."""
    data = os.urandom(1 << 20)
    source, sink = mine.top / "source", mine.top / "sink"
    source.write_bytes(data)
    line = mine.omac("sandbox", "run", "--workdir", str(mine.workdir), "--", "cat")
    with source.open("rb") as stdin, sink.open("wb") as stdout:
        subprocess.run(line, stdin=stdin, stdout=stdout, env=mine.environment, check=True, timeout=60)
    assert sink.read_bytes() == data
    piped = subprocess.run(line, input=data, capture_output=True, env=mine.environment, check=True, timeout=60)
    assert piped.stdout == data


def test_a_stream_that_is_a_file_cannot_be_opened_again(world: Box) -> None:
    """A file handed in for reading cannot be written through /proc/self/fd, and a folder cannot be listed through
    it."""
    precious = world.give(world.top / "precious", "precious")
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), "--")
    script = "cat; echo overwritten > /proc/self/fd/0; cat /proc/self/fd/0/../beside; ls -l /proc/self/fd"
    with precious.open("rb") as stdin:
        subprocess.run(
            [*line, "sh", "-c", script], stdin=stdin, capture_output=True, env=world.environment, timeout=60,
            user=world.uid or None, group=world.uid or None, extra_groups=world.extra_groups,
        )  # fmt: skip
    assert precious.read_text() == "precious"
    folder = os.open(world.home, os.O_RDONLY)
    try:
        done = subprocess.run(
            [*line, "ls", "/proc/self/fd/0/"], stdin=folder, capture_output=True, env=world.environment, timeout=60
        )
    finally:
        os.close(folder)
    assert b"project" not in done.stdout


@pytest.mark.parametrize("ready", ["echo ready", "(sleep 0.2; echo ready) & kill -STOP $$"], ids=["", "suspended"])
def test_signals_reach_the_program(mine: Box, ready: str) -> None:
    """A SIGTERM for omac reaches the program, also a suspended one, which ends as it likes; its exit status is
    omac's."""
    line = mine.omac("sandbox", "run", "--workdir", str(mine.workdir), "--")
    script = f"trap 'echo bye; exit 9' TERM; {ready}; while :; do sleep 0.05; done"
    process = subprocess.Popen([*line, "sh", "-c", script], stdout=subprocess.PIPE, env=mine.environment, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (9, "bye\n")


def test_a_signal_before_the_program_is_started(mine: Box) -> None:
    """A signal for a program that was let go, and that bubblewrap has not yet started, waits for it."""
    done = mine.host(*mine.changed(EARLY_SIGNAL, "sleep", "5"))
    assert (done.status, done.out) == (143, "sent\n"), done


EARLY_INTERRUPT = """\
import os, time
from omac.adapters.sandbox import launch, without_namespaces
enter, release = without_namespaces.enter, launch.HeldProgram.release
def late(policy):
    time.sleep(0.3)
    enter(policy)
def released(run):
    release(run)
    os.kill(os.getpid(), 2)
without_namespaces.enter, launch.HeldProgram.release = late, released
"""


def test_an_interrupt_before_the_program_has_confined_itself(mine: Box) -> None:
    """An interrupt ends a program that is still omac's own code, as it ends any: that reports no failure."""
    done = mine.host(*mine.changed(EARLY_INTERRUPT, "sleep", "5", options=("--backend", "landlock")))
    assert done.status == 130, done
    assert "cannot be started" not in done.err


def test_nothing_outlives_omac(mine: Box) -> None:
    """A SIGKILL of omac ends all its processes: wrappers, children in the background and new sessions."""
    line = mine.omac("sandbox", "run", "--workdir", str(mine.workdir), "--")
    long = str(random.randrange(10_000, 10**6))
    script = f"(setsid sleep {long} &) ; nohup sleep {long} & echo ready; sleep {long}"
    with subprocess.Popen(
        [*line, "sh", "-c", script], stdout=subprocess.PIPE, env=mine.environment, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            eventually(lambda: len(_sleeping(long)) == 3, 10, "all three run")
        finally:
            process.kill()
    eventually(lambda: not _sleeping(long), 10, "all that ran in the sandbox is gone")


@contextmanager
def _running(mine: Box, script: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a sandbox, and yield its process once it has printed a line."""
    line = mine.omac("sandbox", "run", "--workdir", str(mine.workdir), "--", "sh", "-c", script)
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdout=pipe, stderr=pipe, env=mine.environment, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("beside", [False, True])
def test_a_state_directory_that_is_deleted_while_one_runs(mine: Box, beside: bool) -> None:
    """A launch inspects what is left, and removes what it made in `.git`, though the state directory was deleted; the
    launch that ends last does both where others began since."""
    mine.host("git", "init", "-q", cwd=mine.workdir)
    git = mine.workdir / ".git"
    before = sorted(git.rglob("*"))
    evil = "mkdir -p evil; cd evil; git init -q .; git config core.fsmonitor evil"
    wait = "while [ ! -e done ]; do sleep 0.05; done"
    with _running(mine, f"echo up; {wait}; {evil}; exit 3") as first:
        spool = mine.state / "spool"
        eventually(lambda: len(list(spool.glob("[0-9]*.json"))) == 2, 10, "the launch, and that it began, are recorded")
        shutil.rmtree(mine.state)
        if beside:
            with _running(mine, "echo up; while [ ! -e gone ]; do sleep 0.05; done") as second:
                (mine.workdir / "done").touch()
                _, stderr = first.communicate(timeout=20)
                assert "when that one ends, what this one left is inspected" in stderr
                assert (git / "commondir").exists()
                (mine.workdir / "gone").touch()
                _, stderr = second.communicate(timeout=20)
        else:
            (mine.workdir / "done").touch()
            _, stderr = first.communicate(timeout=20)
    assert first.returncode == 3, stderr
    config = mine.workdir / "evil" / ".git" / "config"  # judged while it runs, where the watch was quicker
    assert (config.exists() and "fsmonitor" in config.read_text(), "set aside" in stderr) == (False, True), stderr
    assert sorted(git.rglob("*")) == before
    assert mine.state.stat().st_mode & 0o777 == 0o700


def test_a_repository_that_is_made_while_one_runs(mine: Box) -> None:
    """Files that another launch makes to pin a new repository are not taken for those of the first program."""
    mine.host("git", "init", "-q", cwd=mine.workdir)
    with _running(mine, "echo up; while [ ! -e done ]; do sleep 0.05; done") as first:
        mine.host("git", "init", "-q", "nested", cwd=mine.workdir)
        for _ in range(3):
            second = mine.run("true")
            assert second.status == 0, second.err
        (mine.workdir / "done").touch()
        _, stderr = first.communicate(timeout=20)
        assert "set aside" not in stderr


def test_repositories_whose_names_end_lines(mine: Box) -> None:
    """A program may leave repositories whose names hold what ends a line or a word elsewhere: the next one is launched,
    and their hooks are pinned in it."""
    made = mine.run(
        "sh",
        "-c",
        r"""for c in '\r' '\v' '\f' '\034' '\302\205' '\342\200\250' '\n' '\\' ' ' '\t'; do
        git init -q "$(printf "a${c}b")"; done""",
    )
    assert made.status == 0, made.err
    done = mine.run("sh", "-c", 'for d in a*; do echo there; echo > "$d/.git/hooks/x" && echo changed; done; true')
    assert (done.status, done.out) == (0, "there\n" * 10), done.err


EVIL = (
    "git init -q n; git -C n config core.fsmonitor evil; while grep -q evil n/.git/config; do sleep 0.05; done; echo up"
)


def test_what_was_set_aside_meanwhile_is_told_by_who_did_it(mine: Box) -> None:
    """A file set aside in a project that two launches watch is reported by the launch that finds it first."""
    with _running(mine, "echo up; while [ ! -e done ]; do sleep 0.05; done") as watcher:
        done = mine.run("sh", "-c", EVIL)
        (mine.workdir / "done").touch()
        _, stderr = watcher.communicate(timeout=20)
    finding = (
        "n/.git/config: sets core.fsmonitor; that is taken out, the rest stays (if it was you who set it, set it again)"
    )
    assert finding in done.err + stderr


@pytest.mark.full
def test_what_was_set_aside_meanwhile_is_told_after_a_kill(mine: Box) -> None:
    """The next inspection reports what was set aside during a launch that was killed."""
    with _running(mine, f"{EVIL}; sleep 60") as first:
        first.kill()
    line = mine.omac("status")
    eventually(lambda: "something was set aside while it ran" in mine.host(*line).err, 20, "it is told")


@pytest.mark.parametrize("hashed", ["sha1", "sha256"])
def test_a_marker_that_was_committed_is_told(mine: Box, hashed: str) -> None:
    """A `git commit -a` commits omac's placeholder for a hidden file of the repository. omac reports this, and the file
    is unchanged."""
    project = mine.workdir
    names = ("config user.name A", "config user.email a@example.org")
    for words in (f"init -q --object-format={hashed}", *names, "commit -q --allow-empty -m 0"):
        assert mine.host("git", *words.split(), cwd=project).status == 0
    (project / ".env").write_text("A=1\n")
    mine.host("git", "add", ".env", cwd=project)
    mine.host("git", "commit", "-qm", "1", cwd=project)
    (project / ".env").write_text("A=secret\n")
    done = mine.run("sh", "-c", "echo x > f; git add f; git commit -qm f")
    assert "omac's placeholder" not in done.err
    done = mine.run("git", "commit", "-qam", "all")
    assert f"git in {project} read omac's placeholder instead of .env: " in done.err
    assert (project / ".env").read_text() == "A=secret\n"


def test_an_index_that_ends_anywhere_hides_no_findings(mine: Box) -> None:
    """An index that names omac's placeholder as the last of its bytes ends no launch with a traceback, whose record
    would lack what was found."""
    assert mine.host("git", "init", "-q").status == 0
    mine.give(mine.workdir / ".env", "KEY=1")
    index = 'import os; open(".git/index", "wb").write(b"DIRC" + bytes([0, 0, 0, 2] + [0] * 4) + bytes.fromhex(OID))'
    done = mine.run("python3", "-c", f"OID = {MARKER_OIDS[20]!r}; {index}; open('Makefile', 'w').write('all:')")
    assert done.status == 0
    assert "Traceback" not in done.err
    assert "Makefile: is new or changed" in done.err


@pytest.mark.parametrize(
    ("hashed", "script"),
    [
        ("sha1", "git switch -qc w; git add -A; git commit -qm w; git switch -q -"),
        ("sha1", "git stash -q -u"),
        ("sha256", "git add .env; git commit -qm w; git rm -q --cached .env; git commit -qm v"),
    ],
)
def test_the_marker_that_is_not_checked_out_is_told(mine: Box, hashed: str, script: str) -> None:
    """omac finds its placeholder in git's objects, even if the index does not show it, and reports it once."""
    for words in (("init", "-q", f"--object-format={hashed}"), ("commit", "-q", "--allow-empty", "-m", "one")):
        assert mine.host("git", *words).status == 0
    mine.give(mine.workdir / ".env", "KEY=1")
    warning = mine.run("sh", "-c", script).err
    assert "read omac's placeholder instead of a hidden file" in warning
    command = warning.partition("that stash: ")[2].splitlines()[0]
    stash = mine.host("sh", "-c", command)
    assert stash.status == 0
    assert ".env" in stash.out, warning
    assert "omac's placeholder" not in mine.run("true").err


AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--mount-proc", *(("--user", "--map-root-user") if os.geteuid() else ()))


@pytest.mark.parametrize("words", [("sandbox", "run", "--backend", "landlock"), ("start",)], ids=lambda words: words[0])
def test_omac_is_the_first_process_of_a_container(mine: Box, words: tuple[str, ...]) -> None:
    """omac launches as process 1, which no process adopted, as it does elsewhere."""
    if mine.host(*AS_PROCESS_1, "true").status:
        pytest.skip("no pid namespace can be made here")
    done = mine.host(*AS_PROCESS_1, *mine.omac(*words, "--", "echo", "up"))
    assert (done.status, done.out) == (0, "up\n"), done


def test_what_is_left_behind_ends_with_the_program(mine: Box) -> None:
    """A program's children in the background end when it ends, before omac does."""
    long = str(random.randrange(10_000, 10**6))
    done = mine.run("sh", "-c", f"sleep {long} & setsid sleep {long} & exit 5")
    assert done.status == 5
    assert not _sleeping(long)


def _sleeping(seconds: str) -> list[str]:
    sleeping = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                sleeping.append(folder.name)
        except OSError:
            continue
    return sleeping


def test_recorded_before_the_first_instruction(mine: Box) -> None:
    """The request is recorded when the program begins; its launch and its end follow."""
    spool = mine.state / "spool"
    line = mine.omac("sandbox", "run", "--workdir", str(mine.workdir), "--")
    process = subprocess.Popen(
        [*line, "sh", "-c", "echo ready; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=mine.environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    (first,) = [record for record in spooled(mine) if record["kind"] == "sandbox.launch-requested"]
    process.communicate(b"go\n", timeout=20)
    assert first["fields"]["workdir"] == str(mine.workdir)
    assert first["fields"]["argv"][0].endswith("/sh")
    assert len(first["fields"]["policy"]) == 64
    assert kinds(mine) == ["launch-requested", "launched", "exited"]
    assert spool.stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_recorded_is_not_launched(mine: Box) -> None:
    """A spool that cannot be written keeps the program from running; the refusal names the spool and the fix."""
    spool = mine.state / "spool"
    spool.symlink_to(mine.home)
    done = mine.run("sh", "-c", "touch ran")
    assert done.status == 5
    assert str(spool) in done.err
    assert "try:" in done.err
    assert not (mine.workdir / "ran").exists()


def test_secrets_of_the_command_line_are_not_recorded(mine: Box) -> None:
    """Arguments that look like secrets are left out of the record."""
    mine.run("echo", "--token", "hunter2hunter2", "PASSWORD=hunter3hunter3")
    assert "hunter" not in "".join(path.read_text() for path in (mine.state / "spool").iterdir())


def test_explain_says_all_and_does_nothing(world: Box) -> None:
    """The explanation lists every path with its access and reason, as text and as JSON; nothing is run or recorded."""
    done = world.host(*world.omac("sandbox", "run", "--explain", "--json", "--", "sh", "-c", "touch ran"))
    explanation = json.loads(done.out)
    paths = {entry["path"]: entry for entry in explanation["paths"]}
    assert paths[str(world.workdir)]["access"] == "write"
    assert paths["/usr"]["access"] == "read"
    assert paths[str(world.home)]["access"] == "private"
    assert all(entry["reason"] for entry in explanation["paths"])
    assert explanation["hidden"] == [str(world.state)]
    assert not (world.workdir / "ran").exists()
    assert not world.state.exists() or not list(world.state.iterdir())
    text = world.host(*world.omac("sandbox", "run", "--explain")).out
    assert f"write    {world.workdir}" in text
    caches = world.home / ".cache"
    assert f"write    {caches}/omac/" in text
    assert not caches.exists()
    assert world.run("true").status == 0
    assert caches.exists()


def test_folders_in_memory_are_no_larger_than_the_memory(mine: Box) -> None:
    """A private folder is in memory, so a memory limit limits its size."""
    size = ("stat", "-f", "-c", "%b %S", "/tmp")
    blocks, bytes_each = map(int, mine.run(*size, options=("--limit", "memory=64M")).out.split())
    assert blocks * bytes_each == 64 << 20
    blocks, bytes_each = map(int, mine.run(*size).out.split())
    assert blocks * bytes_each == 4 << 30


@AS_ROOT
def test_limits_are_those_of_the_backend_there_is() -> None:
    """Without bubblewrap no user namespace counts the sandbox's own processes, and the explanation states this."""
    hidden = 'mount --bind /dev/null "$(command -v bwrap)" && '
    nobody = 'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
    with box(NOBODY) as world:
        line = world.omac("sandbox", "run", "--explain", "--limit", "pids=50000", "--", "true")
        for first, counted in (
            (hidden, "which counts all that this user runs, in the sandbox and outside"),
            ("", "in the sandbox's own user namespace"),
        ):
            command = ["unshare", "--mount", "sh", "-c", first + nobody, "sh", *line]
            done = subprocess.run(command, cwd=world.workdir, env=world.environment, capture_output=True, text=True)
            assert f"limit    pids=50000 by RLIMIT_NPROC, {counted}\n" in done.stdout, done


def test_what_omac_keeps_is_its_users_alone(mine: Box) -> None:
    """No folder of the state directory can be read by others when a launch has set something aside."""
    assert mine.host("git", "init", "-q", ".").status == 0
    done = mine.run("ln", "-s", "x", ".git/y")
    assert "set aside as" in done.err
    folders = [mine.state, *(path for path in mine.state.rglob("*") if path.is_dir())]
    assert {path.name: oct(path.stat().st_mode & 0o77) for path in folders if path.stat().st_mode & 0o77} == {}
    assert any(path.parent.name == "set-aside" for path in folders)


@AS_ROOT
@pytest.mark.parametrize(("mode", "is_reported"), [(0o700, False), (0o711, True)])
def test_a_folder_of_another_user_in_the_project(mode: int, is_reported: bool) -> None:
    """A folder that the user cannot enter, such as a database's, is no finding of every launch; one whose content the
    program could have changed, had it known the names, is."""
    with box(NOBODY) as world:
        folder = world.workdir / "data"
        (folder / "base").mkdir(parents=True)
        os.chown(folder, 0, 0)
        folder.chmod(mode)
        done = world.run("true")
        assert (done.status, done.err.count("cannot be inspected: Permission denied")) == (0, is_reported), done


@AS_ROOT
@pytest.mark.parametrize("case", ["of another user", "read-only", "without rights"])
def test_a_repository_that_cannot_be_written(case: str) -> None:
    """A program reads a repository of another user's, or one on a read-only file system: nothing in it has to be made
    to be pinned. A folder whose mode a program could change is refused, with the command that mends it."""
    mounts = 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && exec "$@"'
    with box(0 if case == "read-only" else NOBODY) as world:
        (world.workdir / "file").touch()
        who = ("-c", "user.name=n", "-c", "user.email=e")
        for words in (("init", "-q", "."), ("add", "."), (*who, "commit", "-q", "-m", "first")):
            assert world.host("git", *words).status == 0
        git = world.workdir / ".git"
        if case == "of another user":
            subprocess.run(["chown", "-R", "0:0", str(git)], check=True)
        elif case == "without rights":
            git.chmod(0o500)
        script = "git -c safe.directory='*' log --format=%s; touch .git/made 2>/dev/null || echo kept"
        line = world.omac("sandbox", "run", "--", "sh", "-c", script)
        if case == "read-only":
            line = ["unshare", "--mount", "sh", "-c", mounts, "sh", *line]
        done = world.host(*line)
        if case == "without rights":
            assert (done.status, f"try: chmod u+rwx {git}\n" in done.err) == (7, True), done
        else:
            assert (done.status, done.out, done.err) == (0, "first\nkept\n", ""), done


@AS_ROOT
@pytest.mark.parametrize("typed", ["sandbox run -- echo 'a b'", "start -- echo 'a b'"])
def test_bubblewrap_is_missing(typed: str) -> None:
    """Without bubblewrap, a launch that needs it names it first, with the command that installs it, names three of the
    things that Landlock alone cannot keep, and proposes the line that was typed with a weaker option."""
    hidden = 'mount --bind /dev/null "$(command -v bwrap)" && exec "$@"'
    with box() as world:
        assert world.host("git", "init", "-q", ".", cwd=world.workdir).status == 0
        command = ["unshare", "--mount", "sh", "-c", hidden, "sh", *world.omac(*shlex.split(typed))]
        done = subprocess.run(command, cwd=world.workdir, env=world.environment, capture_output=True, text=True)
        problem, *fixes = done.stderr[done.stderr.index("omac: bubblewrap is not installed, and ") :].splitlines()
        assert done.returncode == 7
        assert problem.count(f"; {world.workdir}") == 2
        assert re.search(r"; and \d+ more$", problem)
        assert "install bubblewrap" in fixes[0]
        first, last = typed.split(" -- ")
        assert fixes[-1].startswith(f"  try: omac {first} --weaker-git -- {last}  # ")
        (world.workdir / ".git").rename(world.home / "moved")
        done = subprocess.run(command, cwd=world.workdir, env=world.environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "a b\n")
        assert "omac: bubblewrap is not installed: Landlock alone confines this" in done.stderr


@AS_ROOT
def test_namespaces_are_refused() -> None:
    """A launch that Landlock alone cannot keep proposes no such launch, where the kernel refuses user namespaces."""
    changed = 'mount --rbind / "$1" && exec /usr/sbin/chroot "$@"'  # unshare(2): EPERM for who is in a chroot
    with box() as world:
        assert world.host("git", "init", "-q", ".", cwd=world.workdir).status == 0
        (root := world.top / "root").mkdir()
        line = ["env", "-C", str(world.workdir), *world.omac("sandbox", "run", "--", "true")]
        command = ["unshare", "--mount", "sh", "-c", changed, "sh", str(root), *line]
        done = subprocess.run(command, env=world.environment, capture_output=True, text=True)
        assert done.returncode == 7, done
        assert re.search("^omac: .* user namespaces .*\nomac: Landlock alone cannot keep this: ", done.stderr, re.M)
        assert "--backend landlock" not in done.stderr


@pytest.mark.parametrize(
    ("options", "allowed", "refused"),
    [
        ((), "", "read change"),
        (("--read", "{}"), "read", "change"),
        (("--allow", "{}"), "read change", ""),
        (("--allow", "{}", "--deny", "{}/file"), "", "read change"),
    ],
)
def test_grants(world: Box, options: tuple[str, ...], allowed: str, refused: str) -> None:
    """The options --read, --allow and --deny grant what they name, and a denial takes precedence."""
    beside = world.give(world.top / "beside" / "file", "content", 0o644).parent
    beside.chmod(0o755)
    filled = tuple(option.format(beside) for option in options)
    for verb, script in (("read", "cat {}/file"), ("change", "echo changed > {}/file")):
        done = world.run("sh", "-c", script.format(beside), options=filled)
        assert (done.status == 0) == (verb in allowed), (verb, done)
        assert (done.status != 0) == (verb in refused)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--harness", "claude"), "mine\ntheirs\nname\n"),
        (("--harness", "claude", "--deny", "{}/.claude"), "name\n"),
        (("--harness", "claude", "--deny", "{}/.claude", "--allow", "{}/.claude/skills"), "theirs\nname\n"),
        (("--harness", "claude", "--deny", "{}/.config", "--deny", "{}/.claude"), ""),
    ],
)
def test_what_omac_would_show_by_itself_is_denied_too(mine: Box, options: tuple[str, ...], shown: str) -> None:
    """A denial of a folder counts for what a harness or git needs in it, but not for what a person grants there."""
    mine.give(mine.home / ".claude" / "settings.json", "mine\n")
    mine.give(mine.home / ".claude" / "skills" / "s" / "SKILL.md", "theirs\n")
    mine.give(mine.home / ".config" / "git" / "config", "[user]\n\tname = name\n")
    filled = tuple(option.format(mine.home) for option in ("--allow", "{}/.config", *options))
    script = "cat ~/.claude/settings.json ~/.claude/skills/s/SKILL.md; git config -f ~/.config/git/config user.name"
    done = mine.run("sh", "-c", script, options=filled)
    assert done.out == shown, done


def test_toolchains_and_certificates_are_denied_too(mine: Box) -> None:
    """A denial of a folder counts for what variables have omac show in it; a command that is named there can be run."""
    tool = mine.give(mine.home / ".cargo/bin/tool", "#!/bin/sh\ncat ~/certs/ca.pem ~/.cargo/bin/other\n", 0o755)
    mine.give(tool.parent / "other", "other\n")
    mine.give(mine.home / "certs/ca.pem", "certificate\n")
    extra = {"PATH": f"{mine.environment['PATH']}:{tool.parent}", "SSL_CERT_FILE": f"{mine.home}/certs/ca.pem"}
    assert mine.run("tool", extra=extra).out == "certificate\nother\n"
    denials = ("--deny", f"{mine.home}/.cargo", "--deny", f"{mine.home}/certs")
    done = mine.run("tool", options=denials, extra=extra)
    assert (done.out, "certs/ca.pem" in done.err, "bin/other" in done.err) == ("", True, True), done
    assert mine.run("sh", "-c", str(tool), options=denials, extra=extra).status == 127


@pytest.mark.parametrize("place", ["home", "above", "root", "state", "in-state"])
def test_places_that_are_never_granted(mine: Box, place: str) -> None:
    """A home folder and omac's own folders cannot be a working directory or be allowed; the refusal has a fix."""
    (mine.state / "run").mkdir()
    path = {
        "home": mine.home, "above": mine.top, "root": Path("/"), "state": mine.state, "in-state": mine.state / "run",
    }[place]  # fmt: skip
    assert mine.run("true", options=("--allow", str(path))).status == 2
    done = mine.run("true", workdir=path)
    assert done.status == 2
    assert "try:" in done.err


def test_the_state_directory_is_hidden_below_a_grant(mine: Box) -> None:
    """The state directory stays hidden in a folder that is granted."""
    folder = mine.top / "wide"
    (folder / "state").mkdir(parents=True)
    (folder / "file").write_text("seen")
    (folder / "state" / "journal.db").write_text("secret")
    done = mine.run(
        "sh", "-c", f"cat {folder}/file; cat {folder}/state/journal.db; echo x > {folder}/state/y; ls {folder}/state",
        options=("--allow", str(folder)), extra={"OMAC_STATE_DIR": str(folder / "state")},
    )  # fmt: skip
    assert done.out == "seen"
    assert not (folder / "state" / "y").exists()


def test_the_environment_is_built_from_nothing(mine: Box) -> None:
    """Only named variables reach the program; others are not even in the first process."""
    script = "env; tr '\\0' '\\n' < /proc/1/environ; tr '\\0' '\\n' < /proc/self/environ"
    extra = {"AWS_SECRET_ACCESS_KEY": "hunter2", "WANTED": "yes", "LD_PRELOAD": ""}
    done = mine.run("sh", "-c", script, options=("--env", "WANTED", "--env", "GIVEN=also"), extra=extra)
    assert "hunter2" not in done.out
    assert {"WANTED=yes", "GIVEN=also", "OMAC_SANDBOX=1", f"HOME={mine.home}"} <= set(done.out.split("\n"))


def test_a_variable_that_omac_sets_itself(mine: Box) -> None:
    """A value that --env gives, and that omac replaces by its own, is reported; what passes is not."""
    options = ("--env", "CARGO_HOME=/elsewhere", "--env", "TMPDIR", "--env", "HOME", "--env", "A=1")
    done = mine.run("sh", "-c", 'echo "$CARGO_HOME" "$TMPDIR" "$A"', options=options, extra={"TMPDIR": "/var/tmp"})
    assert (done.status, done.out.split()[1:]) == (0, ["/tmp", "1"])
    assert re.findall("omac: --env ([A-Z_]+) has no effect: omac sets it", done.err) == ["CARGO_HOME", "TMPDIR"]


def test_no_network_at_all(mine: Box) -> None:
    """A sandbox with --network none has only its own loopback; without the option it reaches the host's."""
    with subprocess.Popen(
        ["python3", "-c", "import socket; s=socket.create_server(('127.0.0.1',0)); print(s.getsockname()[1],flush=1);"
         "[s.accept() for _ in range(9)]"], stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            dial = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('connected')"
            assert mine.run("/usr/bin/python3", "-c", dial).out == "connected\n"
            assert mine.run("/usr/bin/python3", "-c", dial, options=("--network", "none")).status != 0
        finally:
            server.kill()


def test_listening_wants_an_open_port(mine: Box) -> None:
    """A program can listen on ports that the system assigns and on opened ones, on no other."""
    listen = "import socket, sys; s=socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('ok')"
    command = ("/usr/bin/python3", "-c", listen)
    assert mine.run(*command, "0").out == "ok\n"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    assert mine.run(*command, port).status != 0
    assert mine.run(*command, port, options=("--open-port", port)).out == "ok\n"


@pytest.mark.parametrize("layout", ["plain", "linked"])
def test_listening_on_a_range_of_ports(mine: Box, layout: str) -> None:
    """A program that finds a free port, and has another one listen there, works with the range that the system assigns
    ports from; ports beside the range stay closed. A linked worktree has a second set of rules for the same."""
    workdir = mine.workdir
    if layout == "linked":
        for words in ("init -q", "commit -q --allow-empty -m first", "worktree add -q ../linked"):
            assert mine.host("git", *words.split()).status == 0
        workdir = mine.workdir.parent / "linked"
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("utf-8").split()
    find = "import socket; free = socket.create_server(('127.0.0.1', 0)); port = free.getsockname()[1]; free.close()"
    listen = f"{find}; socket.create_server(('127.0.0.1', port)); print('ok'); socket.create_server(('', {first} - 1))"
    assigned = f"{first}-{last}"
    done = mine.run("/usr/bin/python3", "-c", listen, options=("--open-port", assigned), workdir=workdir)
    assert done.out == "ok\n"
    assert "Permission denied" in done.err
    profile = mine.home / ".config" / "omac" / "sandbox-profiles" / "notebook.toml"
    mine.give(profile, f'open_ports = ["{assigned}"]')
    assert mine.run("/usr/bin/python3", "-c", listen, options=("--profile", "notebook"), workdir=workdir).out == "ok\n"


STOPPABLE = (  # starts no child: dash hangs when a ^Z stops one that it has just begun (vfork)
    "import os, signal, time; signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'ag' + b'ain'));"
    "os.write(1, b'run' + b'ning'); any(time.sleep(0.05) for _ in range(1200))"
)


class Typed:
    """A shell on its own terminal, in which omac is started and gets keys."""

    def __init__(self, world: Box) -> None:
        environment = world.environment | {"PS1": "$ ", "TERM": "dumb"}
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(world.workdir)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        self.seen = ""

    def type(self, text: str) -> None:
        """Send keys, as a keyboard would."""
        os.write(self.terminal, text.encode())

    def expect(self, text: str, seconds: float = 20.0) -> None:
        """Read until `text` appears, and drop the output up to it."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"not seen within {seconds} s: {text!r}; but {self.seen!r}"
            if select.select([self.terminal], [], [], remaining)[0]:
                self.seen += os.read(self.terminal, 4096).decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def close(self) -> None:
        """End the shell and all processes left in its session."""
        os.kill(self.pid, signal.SIGHUP)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def typed(mine: Box) -> Iterator[Typed]:
    """Yield a terminal in the project."""
    shell = Typed(mine)
    yield shell
    shell.close()


def _command(world: Box, *command: str) -> str:
    import shlex

    return shlex.join(world.omac("sandbox", "run", "--", *command)) + "\n"


@pytest.mark.full
def test_interrupting_at_the_keyboard(mine: Box, typed: Typed) -> None:
    """A ^C is for the program. If the program handles it, both go on; otherwise omac ends with 130."""
    handles = (
        "import os,signal,time; signal.signal(2, lambda *a: os.write(1, b'handled\\n')); print('rea'+'dy', flush=1); "
        "time.sleep(1.5); print('went'+' on')"
    )
    typed.type(_command(mine, "/usr/bin/python3", "-c", handles))
    typed.expect("ready")
    typed.type("\x03")
    typed.expect("handled")
    typed.expect("went on")
    waits = "import signal,time; signal.signal(2, signal.SIG_DFL); print('rea'+'dy', flush=True); time.sleep(60)"
    typed.type(_command(mine, "/usr/bin/python3", "-c", waits))
    typed.expect("ready")
    typed.type("\x03")
    typed.expect("$ ")  # what is typed before the shell is back may be thrown away
    typed.type("echo status=$?\n")
    typed.expect("status=130")


def test_a_signal_before_the_stage_with_a_terminal(mine: Box, typed: Typed) -> None:
    """A signal ends the program also where it has not begun: what becomes it has only just been started."""
    typed.type(f"{shlex.join(mine.changed(EARLY_SIGNAL, 'sleep', '60'))}\n")
    typed.expect("sent\r\n")
    typed.expect("$ ")
    typed.type("echo status=$?\n")
    typed.expect("status=143")


def test_signals_with_a_terminal(mine: Box, typed: Typed) -> None:
    """A terminal changes nothing about the program's signals: they are at their defaults, and SIGTERM ends omac. The C
    library keeps two for itself, which posix_spawn(3) leaves ignored."""
    ignored = "echo ignored=$((0x$(sed -n 's/SigIgn:.//p' /proc/self/status) & ~0x180000000))"
    typed.type(_command(mine, "sh", "-c", f"{ignored}; echo re''ady; exec sleep 60"))
    typed.expect("ignored=0\r\n")
    typed.expect("ready")
    pid = next(
        int(folder.name) for folder in Path("/proc").glob("[0-9]*")
        if b"exec sleep 60" in _words(folder) and b"run" in _words(folder).split(b"\0")
    )  # fmt: skip
    os.kill(pid, signal.SIGTERM)
    typed.expect("$ ")
    typed.type("echo status=$?\n")
    typed.expect("status=143")


def _words(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


def test_job_control(mine: Box, typed: Typed) -> None:
    """A ^Z stops the program and gives the shell back; fg continues the program."""
    waits = "import time; print('rea'+'dy', flush=True); time.sleep(1); print('got', input())"
    typed.type(_command(mine, "/usr/bin/python3", "-c", waits))
    typed.expect("ready")
    typed.type("\x1a")
    typed.expect("Stopped")
    typed.expect("$ ")
    typed.type("echo sh''ell\n")
    typed.expect("shell")
    typed.type("fg\n")
    typed.expect("'got'")  # the shell says what goes on, and reads nothing any more
    typed.type("word\n")
    typed.expect("got word")


def _expect_held(beat: Path, typed: Typed) -> None:
    """Expect that nothing writes to a file until `fg`, and that something does from then on."""
    before = beat.read_text()
    time.sleep(0.4)
    assert beat.read_text() == before
    typed.type("fg\n")
    eventually(lambda: beat.read_text() not in ("", before), 20.0, "it goes on")


def test_nothing_inside_goes_on_while_omac_is_stopped(mine: Box, typed: Typed) -> None:
    """A process that stops the program stops itself, too, also in a session of its own: omac, which stops with the
    program, would set nothing aside that it leaves. With fg both go on."""
    beat = mine.workdir / "beat"
    beats = "while date +%s.%N > beat; do sleep 0.02; done"
    script = f"setsid bash -c 'sleep 0.3; kill -STOP '$$'; {beats}' & read word; echo got $word"
    typed.type(_command(mine, "bash", "-c", script))
    typed.expect("Stopped")
    _expect_held(beat, typed)
    typed.type("word\n")
    typed.expect("got word")


_BEATS = """
def beats():
    time.sleep(0.3)
    os.kill(os.getppid(), 19)
    while True:
        open('beat', 'w').write(str(time.time()))
        time.sleep(0.02)
"""
_WITHOUT_ITS_FIRST_THREAD = """
threading.Thread(target=beats).start()
ctypes.CDLL(None).syscall(60, 0)  # exit(2): of this thread alone
"""
_WOKEN_BY_A_TIMER = """
signal.signal(signal.SIGCONT, lambda *_: None)
timer, event = ctypes.c_void_p(), struct.pack('QiI48x', 0, signal.SIGCONT, 0)
libc = ctypes.CDLL('librt.so.1')
assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, struct.pack('4q', 0, 10**8, 0, 10**8), None) == 0
beats()
"""


@pytest.mark.full
@pytest.mark.parametrize("way", [_WITHOUT_ITS_FIRST_THREAD, _WOKEN_BY_A_TIMER], ids=["zombie", "timer"])
def test_no_process_inside_gets_round_the_stop(mine: Box, typed: Typed, way: str) -> None:
    """The kernel calls a process a zombie whose first thread alone has ended. SIGCONT lets one go on that sends it to
    itself."""
    beat = mine.workdir / "beat"
    (mine.workdir / "beats.py").write_text(f"import ctypes, os, signal, struct, threading, time\n{_BEATS}{way}")
    typed.type(_command(mine, "bash", "-c", "python3 beats.py & read word; echo got $word"))
    typed.expect("Stopped")
    _expect_held(beat, typed)
    typed.type("word\n")
    typed.expect("got word")


@pytest.mark.full
def test_a_program_of_the_background_stops_with_omac(mine: Box, typed: Typed) -> None:
    """A program that was started in the background has a session of its own, in which no ^Z reaches it after fg."""
    beat = mine.workdir / "beat"
    command = _command(mine, "bash", "-c", "while date +%s.%N > beat; do sleep 0.02; done").strip()
    typed.type(f"{command} &\n")
    eventually(lambda: beat.exists() and beat.read_text() != "", 20.0, "it begins")
    typed.type("fg\n")
    time.sleep(0.3)
    typed.type("\x1a")
    typed.expect("Stopped")
    _expect_held(beat, typed)
    typed.type("\x03")
    typed.expect("$ ")


def test_a_shell_inside_has_its_own_jobs(mine: Box, typed: Typed) -> None:
    """An interactive shell inside stops and continues jobs; afterwards the outer shell has the terminal again."""
    typed.type(_command(mine, "bash", "--norc", "-i"))
    typed.type("echo in''side\n")
    typed.expect("inside")
    typed.type(f"/usr/bin/python3 -c {shlex.quote(STOPPABLE)}\n")
    typed.expect("running")
    typed.type("\x1a")
    typed.expect("Stopped")
    typed.expect("bash-")  # its prompt
    typed.type("fg\n")
    typed.expect("again")
    typed.type("\x03")
    typed.expect("bash-")
    typed.type("exit 6\n")
    typed.expect("exit")
    typed.type("echo out''side $?\n")
    typed.expect("outside 6")


def test_the_size_of_the_window(mine: Box, typed: Typed) -> None:
    """The program sees the terminal's size and its changes, and cannot type into the terminal."""
    import fcntl
    import struct
    import termios

    typed.type(_command(mine, "sh", "-c", "stty size; echo re''ady; read x; stty size"))
    typed.expect("ready")
    fcntl.ioctl(typed.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    typed.type("\n")
    typed.expect("33 99")
    inject = "import fcntl,termios,sys; fcntl.ioctl(0, termios.TIOCSTI, b'x')"
    typed.type(_command(mine, "/usr/bin/python3", "-c", inject))
    typed.expect("Error")


def test_folders_of_a_group(mine: Box) -> None:
    """A program may set the group bit in a project that has it, and only there; it can never set a set-uid bit."""
    mine.workdir.chmod(0o2770)
    script = "umask 022; mkdir sub && chmod 2770 sub && touch file && chmod 755 file && echo made; chmod 4755 file"
    done = mine.run("sh", "-c", script)
    assert (done.status, done.out) == (1, "made\n"), done
    assert "Operation not permitted" in done.err
    assert (mine.workdir / "sub").stat().st_mode & 0o7777 == 0o2770
    assert (mine.workdir / "file").stat().st_mode & 0o7777 == 0o755
    mine.workdir.chmod(0o700)
    done = mine.run("sh", "-c", "chmod 700 file; chmod 2755 file; mkdir other; chmod 2770 other")
    assert done.err.count("Operation not permitted") == 2, done
    assert [(mine.workdir / name).stat().st_mode & 0o7777 for name in ("file", "other")] == [0o700, 0o755]


def test_a_broad_grant_of_settings_has_no_place_for_start_up_files(world: Box) -> None:
    """A grant of ~/.config allows settings, but no files that a login starts."""
    world.give(world.home / ".config" / "app" / "settings")
    options = ("--allow", str(world.home / ".config"))
    script = "cd ~/.config && echo x > app/settings; mkdir -p autostart/x systemd/user; echo x > autostart/evil.desktop"
    world.run("sh", "-c", script, options=options)
    assert (world.home / ".config" / "app" / "settings").read_text() == "x\n"
    assert not (world.home / ".config" / "autostart").exists()
    assert not (world.home / ".config" / "systemd").exists()


@pytest.mark.parametrize("flag", ["--read", "--allow"])
def test_the_root_is_no_grant(mine: Box, flag: str) -> None:
    """A grant of everything is refused, and the refusal explains what to grant instead."""
    done = mine.run("true", options=(flag, "/"))
    assert done.status == 2
    assert "name the folders" in done.err or "above your home" in done.err


@pytest.mark.parametrize(
    ("flag", "path", "says"),
    [
        ("--read", "/proc", "each sandbox has its own /proc"),
        ("--allow", "/proc/sys", "each sandbox has its own /proc"),
        ("--read", "/dev", "each sandbox has its own /dev"),
        ("--allow", "/dev/fuse", "each sandbox has its own /dev"),
        ("--allow", "/sys/kernel", "a program could change settings of the kernel"),
        ("--workdir", "/sys/kernel", "a program could change settings of the kernel"),
        pytest.param(
            *("--read", "/run", "cannot be made in what is read-only"),
            marks=pytest.mark.skipif(Path("/run/omac").exists(), reason="a grant of /run has made it"),
        ),
        ("--read", "/sys", ""),
        ("--allow", "/dev/shm", ""),
        ("--allow", "/var", ""),
    ],
)
def test_folders_of_the_system(mine: Box, flag: str, path: str, says: str) -> None:
    """A grant of what a sandbox has of its own, or of the kernel's settings, is refused with a fix. /var, with its link
    to /run, can be granted."""
    subprocess.run(["git", "init", "-q", "."], cwd=mine.workdir, check=True, env=mine.environment)
    os.chown(mine.workdir / ".git", mine.uid, mine.uid)
    if flag != "--workdir":
        done = mine.run("true", options=("--explain", flag, path))
    else:
        done = mine.run("true", workdir=Path(path))
    assert done.status == (2 if says else 0), done
    assert not says or f"omac: {flag} {path}: " in done.err
    assert says in done.err
    assert not says or "\n  try: " in done.err
    assert "/var/run" not in done.out


def test_a_home_that_is_the_root(mine: Box) -> None:
    """Containers run users of no database at home in /: the refusal says so, and its command mends that."""
    done = mine.run("true", extra={"HOME": "/"}, options=("--ephemeral-cache",))
    assert (done.status, "omac: the home folder is /" in done.err) == (7, True), done
    (command,) = re.findall("try: export HOME=(.*?)  #", done.err)
    home = subprocess.run(["sh", "-c", f"echo {command}"], capture_output=True, text=True, check=True).stdout.strip()
    try:
        assert mine.run("true", extra={"HOME": home}, options=("--ephemeral-cache",)).status == 0
    finally:
        shutil.rmtree(home)


def test_a_sandbox_that_cannot_be_built(mine: Box) -> None:
    """The refusal says that it is for one of the paths, and which command shows these."""
    done = mine.run("true", options=("--deny", "/"))
    assert (done.status, "so one of the policy's paths cannot be mounted\n" in done.err) == (7, True), done
    assert "  try: omac sandbox run --explain OPTIONS -- true" in done.err


KILLED_BUBBLEWRAP = """\
from omac.adapters.sandbox import launch
spawn = launch.UnderBubblewrap._spawn
launch.UnderBubblewrap._spawn = lambda self, line: spawn(self, ["/bin/sh", "-c", "kill -9 $$"])
"""


def test_a_bubblewrap_that_is_killed(mine: Box) -> None:
    """The refusal names the signal, as of a system without memory, and blames no path."""
    done = mine.host(*mine.changed(KILLED_BUBBLEWRAP, "true"))
    assert (done.status, "omac: signal 9 killed bubblewrap" in done.err) == (7, True), done
    assert "paths" not in done.err


def test_reading_the_home_does_not_show_credentials(world: Box) -> None:
    """The option --read of the whole home shows it without credentials and histories."""
    world.give(world.home / ".ssh" / "id", "secret")
    world.give(world.home / ".bash_history", "secret")
    world.give(world.home / "notes", "seen")
    done = world.run("sh", "-c", "cat ~/notes ~/.ssh/id ~/.bash_history", options=("--read", str(world.home)))
    assert done.out == "seen"


def test_a_journal_elsewhere(mine: Box) -> None:
    """A journal that a variable names is in no sandbox, and none is launched that could write beside it: a log of
    SQLite's that a program puts there would become part of the journal."""
    folder = mine.workdir / "data"
    for ending in ("", ".segments/1"):
        mine.give(folder / f"journal.db{ending}", "secret")
    mine.give(folder / "beside", "ordinary")
    extra = {"OMAC_JOURNAL": str(folder / "journal.db")}
    refused = mine.run("true", extra=extra)
    assert refused.status == 7
    assert f"{folder}/journal.db lies where the program may write" in refused.err
    assert f"--deny {folder}" in refused.err
    script = f"cat {folder}/journal.db {folder}/journal.db.segments/1 {folder}/beside; echo x > {folder}/journal.db-wal"
    for option, seen in (("--deny", ""), ("--read", "ordinary")):
        assert mine.run("sh", "-c", script, options=(option, str(folder)), extra=extra).out == seen
    assert {path.name for path in folder.iterdir()} == {"journal.db", "journal.db.segments", "beside"}
    missing = mine.run("true", extra={"OMAC_JOURNAL": str(mine.workdir / "none/journal.db")})
    assert (missing.status, "--deny" in missing.err) == (7, False), missing.err  # it denies what exists


def test_the_log_of_a_journal_that_is_opened_meanwhile(mine: Box) -> None:
    """A journal whose folder a program could read is hidden with its folder: the log that SQLite makes beside it later
    is in no sandbox either. What else the grant shows stays."""
    folder = mine.home / "shared/data"
    mine.give(folder / "journal.db", "secret")
    mine.give(folder.parent / "beside", "ordinary")
    line = mine.omac("sandbox", "run", "--workdir", str(mine.workdir), "--read", str(folder.parent), "--")
    script = f"echo up; read line; cat {folder}/* {folder}/journal.db-wal {folder.parent}/beside"
    environment = mine.environment | {"OMAC_JOURNAL": str(folder / "journal.db")}
    line += ["sh", "-c", script]
    with subprocess.Popen(line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        mine.give(folder / "journal.db-wal", "secret")
        assert running.communicate(b"\n", timeout=60)[0] == b"ordinary"


@pytest.mark.parametrize("variable", ["OMAC_JOURNAL_WITNESS", "OMAC_JOURNAL_WITNESS_TOKEN", "OMAC_VAULT_KEY_FILE"])
def test_a_file_of_omacs_that_is_still_to_be_made(mine: Box, variable: str) -> None:
    """None is launched that could make a file first which omac would believe later; once it exists it is hidden."""
    folder = mine.workdir / "data"
    file = folder / "own"
    extra = {variable: str(file)}
    mine.give(folder / "beside")
    refused = mine.run("true", extra=extra)
    assert refused.status == 7
    assert f"omac's file {file}, which does not exist yet, lies where the program may write" in refused.err
    assert f"--deny {folder}" in refused.err
    mine.give(file, "secret")
    done = mine.run("sh", "-c", f"cat {file}; mv {folder} {folder}.away; echo x > {file}; true", extra=extra)
    assert (done.status, done.out, file.read_text()) == (0, "", "secret"), done


def test_caches_cannot_be_made_for_other_projects(mine: Box) -> None:
    """With a temporary cache the folder of all caches may be missing: the program cannot make it either."""
    cache = mine.home / ".cache"
    mine.give(cache / "beside")
    options = ("--ephemeral-cache", "--allow", str(cache))
    done = mine.run("sh", "-c", "mkdir -p ~/.cache/omac/0123456789ab/tools; ls -A ~/.cache", options=options)
    assert done.out == "beside\nomac\n", done
    assert [path.name for path in cache.iterdir()] == ["beside"]


def test_a_package_that_holds_a_hidden_file(mine: Box) -> None:
    """A file of variables that a package brings keeps a package manager from removing it. The warning names the option
    that shows this file alone, and with it the file can be removed and replaced."""
    brought, own = mine.workdir / "node_modules" / "pkg" / ".env", mine.workdir / ".env"
    mine.give(brought, "PORT=1")
    mine.give(own, "KEY=secret")
    done = mine.run("rm", "-r", "node_modules")
    assert done.status == 1
    assert f"packages with hidden files cannot be removed inside: {brought}; --allow PATH shows one" in done.err
    script = "cat node_modules/pkg/.env; rm -r node_modules && mkdir node_modules; ! grep -q KEY= .env"
    done = mine.run("sh", "-e", "-c", script, options=("--allow", str(brought)))
    assert (done.status, done.out, done.err) == (0, "PORT=1", "")
    assert not list((mine.workdir / "node_modules").iterdir())


def test_a_project_in_a_folder_of_packages(mine: Box) -> None:
    """A file of variables is not taken for a package's because of where the project lies."""
    project = mine.give(mine.home / "vendor" / "shop" / ".env", "KEY=secret").parent
    done = mine.run("grep", "-c", "KEY=", ".env", workdir=project)
    assert (done.status, done.out, done.err) == (1, "0\n", "")


def test_a_copy_of_a_hidden_file_can_be_removed(mine: Box) -> None:
    """A build inside that copies a hidden file copies the marker: the next launch does not hide that, and cleans up."""
    mine.give(mine.workdir / ".env", "KEY=1")
    assert mine.run("sh", "-e", "-c", "mkdir -p out; cp .env out/.env").status == 0
    done = mine.run("rm", "-r", "out")
    assert (done.status, done.err) == (0, "")
    assert (mine.workdir / ".env").read_text() == "KEY=1"


def test_denying_what_is_not_there_is_told(mine: Box) -> None:
    """A denial that hides nothing is reported."""
    done = mine.run("true", options=("--deny", str(mine.workdir / ".env")))
    assert done.status == 0
    assert "hides nothing" in done.err


@pytest.mark.parametrize("denied", ["secrets", ".git/hooks", ".git"])
def test_denying_what_is_not_there_takes_no_protection_away(mine: Box, denied: str) -> None:
    """A repository or hook that the program makes in the place of a denial is pinned or inspected as anywhere else."""
    root = mine.workdir / "secrets" if denied == "secrets" else mine.workdir
    if denied == ".git/hooks":
        assert mine.host("git", "init", "-q", "--template=", ".").status == 0
    hook = f"mkdir -p {root}/.git/hooks; cp /bin/true {root}/.git/hooks/post-checkout"
    script = f"git init -q {root}; git -C {root} config core.fsmonitor evil; {hook}; exit 0"
    done = mine.run("sh", "-c", script, options=("--deny", str(mine.workdir / denied)))
    assert "hides nothing" in done.err
    assert not (root / ".git/hooks/post-checkout").exists(), done
    assert mine.host("git", "config", "core.fsmonitor", cwd=root).out == "", done


REPLACES = """
import os, shutil
from omac.adapters.sandbox import bubblewrap
left, arguments = [{times}], bubblewrap.arguments
def replacing(*words):
    if left[0]:
        left[0] -= 1
        shutil.copy("{index}", "{index}.new")
        os.rename("{index}.new", "{index}")
    return arguments(*words)
bubblewrap.arguments = replacing
"""


@pytest.mark.parametrize(("times", "status"), [(1, 0), (3, 0), (100, 7)])
def test_an_index_that_git_replaces_meanwhile(mine: Box, times: int, status: int) -> None:
    """A launch in a linked worktree begins although somebody commits in the clone just then, which replaces the index
    there; it is built again, and gets its whole standard input. What is replaced each time is refused, and the program
    does not run."""
    main = mine.home / "main"
    main.mkdir()
    mine.give(main / "f")
    mine.workdir.rmdir()
    for words in ("init -q", "add f", "commit -q -m first", f"worktree add -q {mine.workdir}"):
        assert mine.host("git", *words.split(), cwd=main).status == 0
    line = mine.changed(REPLACES.format(times=times, index=main / ".git" / "index"), "sh", "-c", "wc -c >> ran")
    fed = mine.give(mine.home / "fed", "x" * 300_000)
    done = mine.host("sh", "-c", f'"$@" < {fed}', "sh", *line)
    assert done.status == status, done
    assert ("was replaced while the sandbox was built" in done.err) == bool(status)
    assert "copy of the settings" not in done.err
    assert (mine.workdir / "ran").exists() != bool(status)
    assert status or (mine.workdir / "ran").read_text() == "300000\n"
    assert not status or mine.host("git", "-C", str(mine.workdir), "status", "--short").out == ""


@pytest.mark.full
def test_a_worktree_beside_its_own_clone(mine: Box) -> None:
    """A worktree and its clone may be granted at once: commits work in each, and the clone's pins hold."""
    main, linked = mine.home / "main", mine.home / "linked"
    main.mkdir()
    git = ("git", "-C", str(main))
    assert mine.host(*git, "init", "-q").status == 0
    assert mine.host(*git, "commit", "-q", "--allow-empty", "-m", "first").status == 0
    assert mine.host(*git, "worktree", "add", "-q", str(linked)).status == 0
    identity = "-c user.name=A -c user.email=a@example.org"
    for workdir, granted in ((linked, main), (main, linked)):
        flag = "--allow" if workdir == linked else "--root"
        script = f"for d in {main} {linked}; do git -C $d {identity} commit -q --allow-empty -m x || exit 1; done"
        done = mine.run("sh", "-c", script, workdir=workdir, options=(flag, str(granted)))
        assert done.status == 0, done
        before = (main / ".git/config").read_bytes()
        done = mine.run("sh", "-c", f"echo x > {main}/.git/config", workdir=workdir, options=(flag, str(granted)))
        assert (main / ".git/config").read_bytes() == before
        for name in ("commondir", "gitdir"):
            path = f"{main}/.git/worktrees/linked/{name}"
            assert mine.run("sh", "-c", f"echo x > {path}", workdir=workdir, options=(flag, str(granted))).status != 0
