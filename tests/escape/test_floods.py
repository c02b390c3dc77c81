"""Floods of processes, memory, descriptors and temporary files: each is bounded and has no effect on the host.

Every flood ends by itself: at most 500 processes, 1 GiB and an alarm, whatever the sandbox does.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from real_sandbox import SYSTEM_PYTHON, USERS, Box, Done, box

BACKENDS = ("bubblewrap", "landlock")
pytestmark = pytest.mark.full
FORKS = """\
import os, signal, sys, time
signal.alarm(30)
made = []
try:
    while len(made) < int(sys.argv[1]):
        pid = os.fork()
        if not pid:
            signal.alarm(30)
            signal.pause()
        made.append(pid)
except OSError:
    pass
print(len(made))
for pid in made:
    os.kill(pid, 9)
"""
MEMORY = """\
import signal, sys
signal.alarm(30)
held = []
try:
    for _ in range(int(sys.argv[1])):
        held.append(bytearray(b'x' * (1 << 20)))
except MemoryError:
    pass
print(len(held))
"""
DESCRIPTORS = """\
import os, sys
held = []
try:
    while len(held) < int(sys.argv[1]):
        held.append(os.open('/dev/null', os.O_RDONLY))
except OSError:
    pass
print(len(held))
"""


@pytest.fixture(scope="module", params=USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield a user's world."""
    with box(request.param) as made:
        yield made


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return the backend that enforces the limits."""
    return str(request.param)


def flood(world: Box, backend: str, limit: str, source: str, wanted: int) -> Done:
    """Take `wanted` of something in a sandbox with that limit."""
    options = ("--backend", backend, "--limit", limit)
    return world.run(SYSTEM_PYTHON, "-I", "-c", source, str(wanted), options=options)


def test_processes(world: Box, backend: str) -> None:
    """A fork bomb gets as many processes as its limit allows; a program with twenty processes is not hindered."""
    done = flood(world, backend, "pids=60", FORKS, 500)
    # Without a cgroup nothing counts those of root, nor, without a namespace, anybody's in the sandbox alone.
    if done.status == 7 and (backend == "landlock" or world.uid == 0):
        assert "needs a cgroup" in done.err
        return
    assert done.status == 0, done
    assert 20 <= int(done.out) <= 60
    assert flood(world, backend, "pids=60", FORKS, 20).out == "20\n"


def test_memory(world: Box, backend: str) -> None:
    """A program gets no more memory than its limit, by an error or by its end; a quarter of that is granted."""
    done = flood(world, backend, "memory=256M", MEMORY, 1024)
    assert done.status in (0, 128 + signal.SIGKILL), done
    assert done.status or 64 <= int(done.out) < 256, done
    assert flood(world, backend, "memory=256M", MEMORY, 64).out == "64\n"


def test_descriptors(world: Box, backend: str) -> None:
    """A program opens no more files than its limit; half of them can be opened."""
    done = flood(world, backend, "files=64", DESCRIPTORS, 500)
    assert 32 <= int(done.out) <= 64, done
    assert flood(world, backend, "files=64", DESCRIPTORS, 32).out == "32\n"


def test_temporary_files_are_of_the_sandbox(world: Box) -> None:
    """A sandbox has a /tmp of its own with a bounded size; files written there are nowhere on the host."""
    script = (
        "import os; s = os.statvfs('/tmp'); print(s.f_blocks * s.f_frsize); open('/tmp/only-inside', 'w').write('x')"
    )
    done = world.run(SYSTEM_PYTHON, "-c", script)
    assert done.status == 0, done
    assert int(done.out) <= 4 << 30
    assert not os.path.exists("/tmp/only-inside")


def test_without_namespaces_temporary_files_are_removed(world: Box) -> None:
    """With Landlock alone a launch has a temporary folder of its own, which is gone when it ends."""
    script = "import os, tempfile; f, p = tempfile.mkstemp(); os.write(f, b'x'); print(p)"
    done = world.run(SYSTEM_PYTHON, "-c", script, options=("--backend", "landlock"))
    assert done.status == 0, done
    assert not os.path.exists(os.path.dirname(done.out.strip()))


DEEP = """\
import os
os.chdir(os.environ["TMPDIR"])
print(os.getcwd())
os.makedirs("locked/folder"); os.chmod("locked", 0)
for level in range(2000): os.mkdir("d"); os.chdir("d")
"""


def test_without_namespaces_deep_temporary_folders_are_removed(world: Box) -> None:
    """A temporary folder is removed however deep it is, even if it cannot be listed; the status is passed on."""
    done = world.run(SYSTEM_PYTHON, "-c", f"{DEEP}raise SystemExit(3)", options=("--backend", "landlock"))
    assert done.status == 3, done
    assert not os.path.exists(done.out.strip())


def test_what_nothing_enforces_is_refused(world: Box, backend: str) -> None:
    """A limit is enforced, or the launch is refused with the reason and a command; no limit is ignored."""
    done = world.run("sh", "-c", "echo ran", options=("--backend", backend, "--limit", "cpu=1"))
    if done.status:
        assert done.status == 7, done
        assert "cpu" in done.err
        assert "try:" in done.err
        assert "ran" not in done.out
    else:
        explained = world.host(*world.omac("sandbox", "run", "--explain", "--limit", "cpu=1"))
        assert "cgroup" in explained.out
