"""Being quicker than omac: paths that are swapped while a sandbox is built, and processes that try to stay behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import eventually
from real_sandbox import FEWER_USERS, Box, box
from tiers import everything

BACKENDS = ("bubblewrap", "landlock")
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


@pytest.fixture(params=FEWER_USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """A user's world."""
    with box(request.param) as made:
        yield made


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """By what it is enforced."""
    return str(request.param)


@pytest.mark.parametrize("swapped", ["workdir", "allowed"])
def test_a_folder_swapped_for_a_link_at_launch(world: Box, backend: str, swapped: str) -> None:
    """Somebody swaps a folder for a link to a precious one, again and again: the precious one is never touched.

    What is swapped is `granted` in a project that others may change: as a folder of its own grant, or as what holds the
    working directory. A launch works, or is refused with a word on why; when nobody swaps, it works.
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
    """What has left its session and closed all its streams ends when the program does."""
    done = world.run("/usr/bin/python3", "-c", DAEMON, "4713", options=("--backend", backend))
    assert done.out == "up\n", done
    assert not _running("4713")


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
    """With Landlock alone such processes are killed when the program ends, long before they would end by themselves."""
    source = world.give(world.top / "chain.c", CHAIN)
    program = world.workdir / "chain"
    subprocess.run(("cc", "-O", "-o", str(program), str(source)), check=True)
    program.chmod(0o755)
    line = world.omac("sandbox", "run", "--backend", "landlock", "--", str(program), "50", SECONDS)
    user = world.uid or None
    start = time.monotonic()
    with (world.top / "out").open("w") as out:  # a process of omac's carries what is printed to a file
        done = subprocess.run(
            line, cwd=world.workdir, env=world.environment, user=user, group=user, stdout=out, stderr=-1, text=True
        )
    assert done.returncode == 3, done.stderr
    assert time.monotonic() - start < int(SECONDS) / 2
    assert not _running(SECONDS, str(program))


def test_a_daemon_ends_with_omac(world: Box) -> None:
    """And when omac is killed, which it cannot do anything about any more; with Landlock alone it may stay."""
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), "--")
    user = world.uid or None
    process = subprocess.Popen(
        [*line, "/usr/bin/python3", "-c", DAEMON, "4714", "stay"], stdout=subprocess.PIPE, env=world.environment,
        user=user, group=user, cwd=world.workdir,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert _running("4714")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    eventually(lambda: not _running("4714"), 10, "the daemon is gone")


def test_omac_inside_reaches_nothing(world: Box) -> None:
    """omac can be started inside; it finds neither the journal nor the spool of the one outside."""
    world.run("true")
    before = sorted(path.name for path in (world.state / "spool").iterdir())
    script = f"{sys.executable} -c 'from omac.tools.entry import main; main()' sandbox run -- true; find / -name spool"
    done = world.run("sh", "-c", script)
    assert str(world.state) not in done.out
    after = [path.name for path in (world.state / "spool").iterdir() if path.name not in before]
    assert len(after) == 3  # of the outer launch


def _running(*words: str) -> list[Path]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if {word.encode() for word in words} <= set((folder / "cmdline").read_bytes().split(b"\0")):
                found.append(folder)
        except OSError:
            continue
    return found


@pytest.mark.full
def test_two_launches_in_one_repository(world: Box) -> None:
    """What one launch has made to be pinned stays until the other ends too, and is gone when both have."""
    assert world.host("git", "init", "-q", ".").status == 0
    before = sorted(str(path) for path in (world.workdir / ".git").rglob("*"))
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), "--", "sh", "-c", "echo up; sleep 1.5")
    user = world.uid or None
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=world.environment, user=user, group=user) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"up\n"
        script = "sleep 2.5; for f in commondir config.worktree info/attributes; do echo evil > .git/$f; done"
        second = world.run("sh", "-c", script)
    assert second.err.count("Read-only file system") == 2, second
    assert "config.worktree: config: the copy of the settings in the sandbox cannot be read" in second.err
    assert sorted(str(path) for path in (world.workdir / ".git").rglob("*")) == before


def test_what_a_killed_launch_has_made_is_removed_by_the_next(world: Box) -> None:
    """Placeholders of a launch that was killed are gone after the next one, in whatever project that is."""
    assert world.host("git", "init", "-q", ".").status == 0
    line = world.omac("sandbox", "run", "--workdir", str(world.workdir), "--", "sh", "-c", "echo up; sleep 60")
    user = world.uid or None
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=world.environment, user=user, group=user) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"up\n"
        first.kill()
    assert (world.workdir / ".git" / "commondir").exists()
    other = world.give(world.home / "other" / "file").parent
    assert world.run("true", workdir=other).status == 0
    assert not (world.workdir / ".git" / "commondir").exists()
