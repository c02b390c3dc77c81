"""Folders of the sandbox's own live in the machine's memory: none of them grows without bound."""

import os

import pytest
from real_sandbox import Box

SIZES = """\
import os, sys
for line in open('/proc/self/mountinfo'):
    words = line.split()
    if words[words.index('-') + 1] == 'tmpfs':
        seen = os.statvfs(words[4])
        print(words[4], seen.f_blocks * seen.f_frsize if os.access(words[4], os.W_OK) else 0)
"""
FILL = """\
import os, sys
try:
    with open(sys.argv[1] + '/x', 'wb', 0) as file:
        while file.write(bytes(1 << 18)) == 1 << 18:
            assert file.tell() < 1 << 24
except OSError as problem:
    print(problem.strerror)
print(os.path.getsize(sys.argv[1] + '/x') >> 20)
"""
WRITABLE = {"/tmp", "/var/tmp", "/run", "/dev/shm"}


def test_all_of_them_have_a_size(world: Box) -> None:
    """Every writable folder in memory holds at most 4 GiB, and at most a quarter of the machine's memory."""
    done = world.run("/usr/bin/python3", "-c", SIZES)
    sizes = {line.split()[0]: int(line.split()[1]) for line in done.out.splitlines()}
    most = min(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
    granted = {path for path in sizes if path.startswith(f"{world.home}/")}  # the host's, on whatever disk
    assert {path for path, size in sizes.items() if size} - granted == {*WRITABLE, str(world.home)}
    assert all(size <= most for path, size in sizes.items() if path not in granted)
    assert world.run("sh", "-c", "echo > /dev/x; mkdir /dev/y").status != 0


@pytest.mark.parametrize("folder", sorted(WRITABLE))
def test_a_limit_is_kept(world: Box, folder: str) -> None:
    """A write beyond the limit fails as on a full disk; all that fits is written. A profile may set the limit, too."""
    assert world.run("/usr/bin/python3", "-c", FILL, folder, options=("--limit", "tmp=2M")).out == (
        "No space left on device\n2\n"
    )
    world.give(world.home / ".config/omac/sandbox-profiles/small.toml", '[limits]\ntmp = "3M"\n')
    assert world.run("/usr/bin/python3", "-c", FILL, folder, options=("--profile", "small")).out.endswith("\n3\n")


def test_shared_memory_and_devices_work(world: Box) -> None:
    """The twin: POSIX shared memory, and every device that a program expects, work."""
    script = (
        "from multiprocessing import shared_memory as m; one = m.SharedMemory(create=True, size=1 << 20); "
        "one.buf[0] = 7; one.close(); one.unlink(); import os, pty; pty.openpty(); "
        "open('/dev/null', 'w').write('x'); print(len(os.urandom(4)), len(open('/dev/zero', 'rb').read(5)))"
    )
    done = world.run("/usr/bin/python3", "-c", script)
    assert (done.out, done.err) == ("4 5\n", "")


def test_landlock_alone_has_none(world: Box) -> None:
    """Landlock alone refuses a limit of temporary files instead of ignoring it."""
    done = world.run("true", options=("--backend", "landlock", "--limit", "tmp=2M"))
    assert done.status == 7
    assert "limit tmp" in done.err
    assert world.run("true", options=("--backend", "landlock")).status == 0
