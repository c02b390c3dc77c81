"""Races against omac: paths that are swapped while a sandbox is built, and processes that try to outlive it."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from polling import eventually
from real_sandbox import USERS, Box
from tiers import everything

BACKENDS = ("bubblewrap", "landlock")
UP = ("sh", "-c", f"echo up; sleep 60.{os.getpid()}")
LASTING = str(10_000_000 + os.getpid())  # seconds, by which a process is found
UNBOUND = """\
from omac.adapters.sandbox import bubblewrap
bubblewrap.NAMESPACES = tuple(word for word in bubblewrap.NAMESPACES if word != "--die-with-parent")
"""
LAUNCHES = 25 if everything() else 5
SWAP = """\
import os, sys
path, decoy, aside = sys.argv[1:]
while True:
    os.rename(path, aside); os.symlink(decoy, path)
    os.unlink(path); os.rename(aside, path)
"""
DAEMON = """\
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        os.close(0); os.close(1); os.close(2)
        open('daemon', 'w').write('started')
        time.sleep(int(sys.argv[1]))
    os._exit(0)
os.wait()
while not os.path.exists('daemon'): time.sleep(0.01)
print('up', flush=True)
if len(sys.argv) > 2: time.sleep(60)
"""


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return the backend that confines the program."""
    return str(request.param)


@pytest.mark.parametrize("swapped", ["workdir", "allowed"])
@pytest.mark.full
def test_a_folder_swapped_for_a_link_at_launch(world: Box, backend: str, swapped: str) -> None:
    """A process that swaps a folder for a link to a precious one, again and again, never gets the precious one touched.

    The swapped folder is `granted` in a project that others may change: as a folder of its own grant, or as the one
    that holds the working directory. A launch works, or is refused with a reason; without swaps it works.
    """
    precious = world.give(world.top / "precious" / "keep").parent
    shared = world.workdir
    target = shared / "granted"
    (target / "inner").mkdir(parents=True)
    for path in (target, target / "inner"):
        os.chown(path, world.uid, world.uid)
    if swapped == "workdir":  # the precious one has all that is looked for
        options, workdir = ("--backend", backend, "--root", str(shared)), target / "inner"
        world.give(precious / "inner" / "keep")
    else:
        options, workdir = ("--backend", backend, "--allow", str(target)), shared
    script = (
        f"echo x > {target}/planted; echo x > planted; echo x > {precious}/planted; echo x > {precious}/inner/planted"
    )
    with subprocess.Popen(
        [sys.executable, "-c", SWAP, str(target), str(precious), str(shared / "aside")],
        cwd="/",
        stderr=subprocess.DEVNULL,
    ) as swapping:
        try:
            for _ in range(LAUNCHES):
                done = world.run("sh", "-c", script, options=options, workdir=workdir)
                assert not list(precious.rglob("planted")), done
                assert "Traceback" not in done.err
        finally:
            swapping.kill()
    if not target.exists() or target.is_symlink():
        target.unlink(missing_ok=True)
        (shared / "aside").rename(target)
    (target / "planted").unlink(missing_ok=True)
    done = world.run("sh", "-c", f"echo x > {target}/planted", options=options, workdir=workdir)
    assert done.status == 0, done
    assert (target / "planted").exists()


def test_a_daemon_ends_with_the_program(world: Box, backend: str) -> None:
    """A daemon that has left its session and closed all its streams ends when the program does."""
    done = world.run("/usr/bin/python3", "-c", DAEMON, LASTING, options=("--backend", backend))
    assert done.out == "up\n", done
    assert not _running(LASTING)


SECONDS = "40"
CHAIN = """\
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    signal(SIGCHLD, SIG_IGN);
    time_t end = time(0) + atoi(words[2]);
    for (int chains = atoi(words[1]); chains; chains--)
        if (!fork()) {
            setsid(); close(0); close(1); close(2);
            while (time(0) < end) if (fork() > 0) _exit(0);
            _exit(0);
        }
    usleep(300000);
    return 3;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="the processes have to be quick")
@pytest.mark.full
def test_processes_that_fork_and_end_at_once(world: Box) -> None:
    """Landlock alone kills processes that fork and end at once when the program ends, long before their own end.

    Ten chains are enough for that; fifty use up the processes that a container may have, which every other test needs.
    """
    source = world.give(world.top / "chain.c", CHAIN)
    program = world.workdir / "chain"
    subprocess.run(("cc", "-O", "-o", str(program), str(source)), check=True)
    program.chmod(0o755)
    line = world.omac("sandbox", "run", "--backend", "landlock", "--", str(program), "10", SECONDS)
    user = world.uid or None
    start = time.monotonic()
    with (world.top / "out").open("w") as out:  # a process of omac's carries what is printed to a file
        done = subprocess.run(
            line, cwd=world.workdir, env=world.environment, user=user, group=user, stdout=out, stderr=-1, text=True
        )
    assert done.returncode == 3, done.stderr
    assert time.monotonic() - start < int(SECONDS) / 2
    assert not _running(SECONDS, str(program))


def test_what_its_background_processes_leave_is_reaped(world: Box, backend: str) -> None:
    """A program may leave thousands of ended processes behind in a day; none of them stays until its own end."""
    script = "for i in $(seq 300); do (true &); done; echo left; read -r _"
    line = world.omac("sandbox", "run", "--backend", backend, "--workdir", str(world.workdir), "--", "sh", "-c", script)
    user = world.uid or None
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=world.environment, user=user, group=user
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"left\n"
        eventually(lambda: not _zombies_of(process.pid), 5, "what has ended is reaped")


def test_the_next_launch_removes_the_temporary_folder_of_one_that_was_killed(world: Box) -> None:
    """Landlock alone gives a program no /tmp: a launch removes what a killed one left there, not what a living one
    has."""
    above = world.top / "temporary"
    above.mkdir()
    os.chown(above, world.uid, world.uid)
    mine = world.give(above / "omac-program-of-mine.txt")
    line = world.omac("sandbox", "run", "--backend", "landlock", "--workdir", str(world.workdir), "--")
    environment, user = world.environment | {"TMPDIR": str(above)}, world.uid or None
    script = ("sh", "-c", 'echo x > "$TMPDIR/left"; echo up; read -r _')

    def begun() -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [*line, *script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, user=user, group=user,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    with begun() as killed:
        killed.kill()
    assert len(list(above.glob("*/left"))) == 1
    with begun() as first, begun() as second:
        assert len(list(above.glob("*/left"))) == 2
        first.communicate(b"\n")
        second.communicate(b"\n")
    assert list(above.iterdir()) == [mine]


def test_a_daemon_ends_with_omac(world: Box) -> None:
    """A daemon also ends when omac is killed, which can then do nothing about it; with Landlock alone it may stay."""
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), "--")
    user = world.uid or None
    process = subprocess.Popen(
        [*line, "/usr/bin/python3", "-c", DAEMON, LASTING, "stay"], stdout=subprocess.PIPE, env=world.environment,
        user=user, group=user, cwd=world.workdir,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert _running(LASTING)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    eventually(lambda: not _running(LASTING), 10, "the daemon is gone")


def test_omac_inside_reaches_nothing(world: Box) -> None:
    """omac can be started inside; it finds neither the journal nor the spool of the omac outside."""
    world.run("true")
    before = sorted(path.name for path in (world.state / "spool").iterdir())
    omac = shlex.join(
        [sys.executable, "-c", "from omac.tools.entry import main; main()", "sandbox", "run", "--", "true"]
    )
    script = f"{omac}; find / -name spool"
    done = world.run("sh", "-c", script)
    assert str(world.state) not in done.out
    after = [path.name for path in (world.state / "spool").iterdir() if path.name not in before]
    assert len(after) == 3  # of the outer launch


def _zombies_of(omac: int) -> list[int]:
    """Return the ended processes that omac, or what it has started, has not waited for."""
    parents, ended = dict[int, int](), list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            parents[int(folder.name)] = int(parent)
            ended += [int(folder.name)] if state == "Z" else []

    def is_of_omac(pid: int) -> bool:
        return pid == omac or (pid in parents and is_of_omac(parents[pid]))

    return [pid for pid in ended if is_of_omac(pid)]


def _running(*words: str) -> list[Path]:
    folders = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if {word.encode() for word in words} <= set((folder / "cmdline").read_bytes().split(b"\0")):
                folders.append(folder)
        except OSError:
            continue
    return folders


@pytest.mark.full
def test_two_launches_in_one_repository(world: Box) -> None:
    """Files that one launch made to be pinned stay until the other launch ends, too, and are gone after both."""
    assert world.host("git", "init", "-q", ".").status == 0
    before = sorted(str(path) for path in (world.workdir / ".git").rglob("*"))
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), "--", "sh", "-c", "echo up; sleep 1.5")
    user = world.uid or None
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=world.environment, user=user, group=user) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"up\n"
        script = "sleep 2.5; for f in commondir config.worktree info/attributes; do echo evil > .git/$f; done"
        second = world.run("sh", "-c", script)
    refused = [line for line in second.err.splitlines() if line.endswith(": Read-only file system")]
    assert [line.split()[-4] for line in refused] == [".git/commondir:", ".git/info/attributes:"], second
    assert "config.worktree: config: the copy of the settings in the sandbox cannot be read" in second.err
    assert sorted(str(path) for path in (world.workdir / ".git").rglob("*")) == before


def test_what_a_killed_launch_has_made_is_removed_by_the_next(world: Box) -> None:
    """Placeholders of a killed launch are removed by the next launch, in whatever project that is."""
    assert world.host("git", "init", "-q", ".").status == 0
    _killed(world, world.omac("sandbox", "run", "--workdir", str(world.workdir), "--", *UP))
    assert (world.workdir / ".git" / "commondir").exists()
    elsewhere = world.give(world.home / "other" / "file").parent
    assert world.run("true", workdir=elsewhere).status == 0
    assert not (world.workdir / ".git" / "commondir").exists()


@pytest.mark.parametrize("world", USERS, ids=lambda uid: f"uid{uid}", indirect=True)
def test_omac_that_is_killed_before_the_sandbox_is_bound_to_it(world: Box) -> None:
    """bubblewrap lets the program begin before its init ends with it; omac's watcher ends that one as well.

    Here it is never bound.
    """
    _killed(world, world.changed(UNBOUND, *UP))


def test_bubblewrap_that_is_killed_before_the_sandbox_is_bound_to_it(world: Box) -> None:
    """The program ends with bubblewrap where that is killed, though its init is not bound to it, before omac ends."""
    with _begun(world, world.changed(UNBOUND, *UP)) as process:
        inside = "--info-fd", str(world.workdir)  # bubblewrap, and its init
        (bubblewrap,) = (folder for folder in _running(*inside) if _parent(folder) == process.pid)
        os.kill(int(bubblewrap.name), signal.SIGKILL)
        assert process.wait(10) == 128 + signal.SIGKILL
    assert not _running(UP[-1])


KILLED_EARLY = """\
import os, time
from omac.adapters.sandbox import without_namespaces
confine = without_namespaces._confine
def late(*words):
    omac = os.getppid()
    while os.getppid() == omac: time.sleep(0.01)
    confine(*words)
without_namespaces._confine = late
without_namespaces.WithoutNamespaces.ended = lambda run, settle: os.kill(os.getpid(), 9)
"""
ADOPTING = """\
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
subprocess.call(sys.argv[1:])
os.wait()
"""


def test_omac_that_is_killed_before_its_program_is_bound_to_it(world: Box) -> None:
    """A program of Landlock alone that was let go, but has not yet asked to end with omac, does not begin without it,
    also where a process other than the first adopts it (systemd of a user, say)."""
    line = world.changed(KILLED_EARLY, "echo", "up", options=("--backend", "landlock"))
    done = world.host("/usr/bin/python3", "-c", ADOPTING, *line)
    assert done.status == 0, done
    assert done.out == ""


def test_the_program_has_nothing_open_but_its_streams(world: Box) -> None:
    """No descriptor of omac's or bubblewrap's is open in the program."""
    done = world.run("sh", "-c", "exec ls /proc/self/fd")
    assert done.out.split() == ["0", "1", "2", "3"], done  # the last is of the folder that is listed


def _parent(folder: Path) -> int:
    return int((folder / "stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def _begun(world: Box, line: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a launch of `UP`, whose end is awaited."""
    user = world.uid or None
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=world.environment, user=user, group=user) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert _running(UP[-1])
        try:
            yield process
        finally:
            process.kill()


def _killed(world: Box, line: list[str]) -> None:
    """Start a launch of `UP`, kill its omac, and see that what it started ends."""
    with _begun(world, line):
        pass
    eventually(lambda: not _running(str(world.workdir)) and not _running(UP[-1]), 10, "what omac started is gone")
