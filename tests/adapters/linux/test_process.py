"""adapters/linux/process.py against real processes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import pytest
import trio

from omac.adapters.linux import process, process_identity
from omac.adapters.linux.listeners import listeners


@contextmanager
def running(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child in its own session, wait for its first line, and kill the session in the end."""
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout
    try:
        child.stdout.readline()
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def test_start_ticks_survive_a_hostile_name(tmp_path: Path) -> None:
    """A program named ") S 1 1 1" does not shift the fields, which are counted after the last parenthesis."""
    program = tmp_path / ") S 1 1 1 (x"
    program.symlink_to("/bin/sh")
    with running(str(program), "-c", "echo ready; sleep 60; true") as child:
        entry = process.stat(child.pid)
        own = process.stat(os.getpid())
        assert entry
        assert own
        assert (entry.parent, entry.session) == (os.getpid(), child.pid)
        assert entry.start_ticks >= own.start_ticks > 0
        assert process_identity.start_ticks(child.pid) == entry.start_ticks


def test_nobody_has_no_descendants() -> None:
    """A pid without a process, as of a reaped child, has no entry and no descendants, and is no error."""
    child = subprocess.Popen(["true"])
    child.wait()
    assert process.stat(child.pid) is None
    assert process.descendants(child.pid) == []


def test_a_zombie_is_not_alive() -> None:
    """A zombie has an entry, and is neither living, nor a descendant, nor a member of its session."""
    child = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    entry = process.stat(child.pid)
    assert entry
    assert not entry.alive
    assert not process.living(child.pid, entry.start_ticks)
    assert child.pid not in [each.pid for each in process.descendants(os.getpid())]
    assert process.session_members(child.pid) == []
    child.wait()


@pytest.mark.parametrize("kernel_lists_children", [True, False])
def test_descendants_and_session(monkeypatch: pytest.MonkeyPatch, kernel_lists_children: bool) -> None:
    """Grandchildren are found, with and without the kernel's list of children; setsid leaves the session only."""
    if not kernel_lists_children:
        monkeypatch.setattr(os.path, "exists", lambda _path: False)
    with running("sh", "-c", "sh -c 'setsid sh -c \"echo ready; exec sleep 60\" & wait' & wait") as child:
        below = {entry.pid: entry for entry in process.descendants(child.pid)}
        session = {entry.pid for entry in process.session_members(child.pid)}
        assert len(below) == 2
        assert session == {child.pid} | {entry.pid for entry in below.values() if entry.session == child.pid}
        (stray,) = (entry for entry in below.values() if entry.session != child.pid)
        assert process.session_members(stray.session) == [stray._replace(state=mock.ANY)]
        process.kill(stray.pid, stray.start_ticks, signal.SIGKILL)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_a_listener_has_an_owner(address: str) -> None:
    """The process with the socket that 127.0.0.1 reaches owns the port, under every spelling of the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert process.owns_listener([os.getpid()], port)
        assert not process.owns_listener([os.getppid()], port)
        assert not process.owns_listener([], port)
    assert not process.owns_listener([os.getpid()], port)


def test_another_address_does_not_count() -> None:
    """A listener that 127.0.0.1 does not reach does not make its process the port's owner."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert not process.owns_listener([os.getpid()], port)
        assert f"127.0.0.2:{port}" in [str(listener) for listener in listeners()]


def test_a_shared_port_is_not_owned() -> None:
    """A process does not own a port that it shares by SO_REUSEPORT, for the other socket may get the connection."""
    program = (
        "import signal,socket,sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=True);"
        "print(flush=True); signal.pause()"
    )
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        port = server.getsockname()[1]
        with running(sys.executable, "-c", program, str(port)) as child:
            assert not process.owns_listener([os.getpid()], port)
            assert process.owns_listener([os.getpid(), child.pid], port)


def test_a_signal_never_hits_a_stranger() -> None:
    """A pid with another start time belongs to another process, and gets no signal."""
    with running("sh", "-c", "echo ready; sleep 60; true") as child:
        ticks = process_identity.start_ticks(child.pid)
        assert ticks is not None
        assert not process.kill(child.pid, ticks - 1, signal.SIGKILL)
        assert process.open_pidfd(child.pid, ticks - 1) is None
        assert process.living(child.pid, ticks)
        assert process.kill(child.pid, ticks, signal.SIGKILL)
        child.wait()
        assert not process.kill(child.pid, ticks, signal.SIGKILL)


async def test_a_pidfd_tells_the_end() -> None:
    """A `wait_exit` returns when the process ends, before it is reaped, and can be cancelled."""
    with running("sh", "-c", "echo ready; sleep 60; true") as child:
        ticks = process_identity.start_ticks(child.pid) or 0
        descriptor = process.open_pidfd(child.pid, ticks)
        assert descriptor is not None
        with trio.move_on_after(0.01) as waiting:
            await process.wait_exit(descriptor)
        assert waiting.cancelled_caught
        process.kill(child.pid, ticks, signal.SIGTERM)
        with trio.fail_after(5):
            await process.wait_exit(descriptor)
        os.close(descriptor)
        assert child.wait() == -signal.SIGTERM


HIDING = """\
mount -t proc -o hidepid=1 proc /proc
exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace --regid=1 --clear-groups "$@"
"""
UNSEEN = """
import ctypes, os, time
from omac.adapters.linux import process
reader, writer = os.pipe()
child = os.fork()
if not child:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    os.write(writer, b"x")
    time.sleep(60)
os.read(reader, 1)
everyone = [entry.pid for entry in process.everyone()]
print(process.descendants(child), process.descendants(os.getpid()), everyone == [os.getpid()])
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can mount a /proc that hides")
def test_processes_that_may_not_be_inspected_are_left_out() -> None:
    """Processes whose files in /proc are refused, as with hidepid=1, are left out of each list."""
    line = ["unshare", "-mpf", "sh", "-c", HIDING, "sh", sys.executable, "-c", UNSEEN]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[] [] True\n", done
