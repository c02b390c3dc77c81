"""Locks between real processes: a lock is held while its holder lives, and free as soon as the holder has ended."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from omac.adapters.files import lock
from omac.adapters.files.turns import OneAtATime
from omac.domain.kernel.refusal import Refusal

HOLD = """\
import signal, sys
from omac.adapters.files import lock
lock.hold(sys.argv[1])
print("held", flush=True)
signal.pause()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start another process that holds the lock, and kill it in the end."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"held\n"
            yield child
        finally:
            child.kill()


def test_a_lock_is_held_while_its_holder_lives(tmp_path: Path) -> None:
    """A held lock is refused to another process with the holder's pid; kill -9 of the holder frees it."""
    path = tmp_path / "lock"
    with holder(path) as child:
        assert lock.is_held(str(path))
        with pytest.raises(lock.Locked) as caught:
            lock.hold(str(path))
        assert caught.value.pid == child.pid
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert not lock.is_held(str(path))
        descriptor = lock.hold(str(path))
    assert path.read_text() == str(os.getpid())
    os.close(descriptor)


def test_a_lock_is_private_and_names_one_pid(tmp_path: Path) -> None:
    """A lock has mode 0600 with any umask; a longer pid of an earlier holder leaves no digits behind."""
    path = tmp_path / "lock"
    path.write_text("9" * 30)
    os.close(lock.hold(str(path)))
    assert path.read_text() == str(os.getpid())
    path.unlink()
    before = os.umask(0)
    try:
        os.close(lock.hold(str(path)))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_asking_takes_nothing(tmp_path: Path) -> None:
    """`is_held` neither makes the file nor keeps the lock, and leaves the file's content."""
    path = tmp_path / "lock"
    assert not lock.is_held(str(path))
    assert not path.exists()
    path.write_text("123")
    assert not lock.is_held(str(path))
    assert path.read_text() == "123"
    os.close(lock.hold(str(path)))


def test_a_refused_lock_keeps_no_descriptor(tmp_path: Path) -> None:
    """Neither `is_held` nor a refused `hold` leaks a descriptor."""
    path = tmp_path / "lock"
    with holder(path):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            assert lock.is_held(str(path))
            with pytest.raises(lock.Locked):
                lock.hold(str(path))
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("content", ["", "x", "-1", "1 2"])
def test_a_holder_that_does_not_say_who_it_is(tmp_path: Path, content: str) -> None:
    """A lock file without a valid pid yields no pid."""
    path = tmp_path / "lock"
    with holder(path):
        path.write_text(content)
        with pytest.raises(lock.Locked) as caught:
            lock.hold(str(path))
        assert caught.value.pid is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link in place of a lock is an error, for it could lead to any file."""
    (tmp_path / "target").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        lock.hold(str(tmp_path / "lock"))
    assert (tmp_path / "target").read_text() == "precious"


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A program that the holder started does not keep the lock when the holder releases it."""
    path = tmp_path / "lock"
    descriptor = lock.hold(str(path))
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        try:
            os.close(descriptor)
            assert not lock.is_held(str(path))
        finally:
            child.kill()


async def test_one_at_a_time(tmp_path: Path) -> None:
    """Tasks of one process hold a lock in turn, even with two lock objects; a cancelled task frees it."""
    path = str(tmp_path / "lock")
    inside, most = 0, 0
    locks = [OneAtATime(path), OneAtATime(path)]

    async def enter(turn: OneAtATime) -> None:
        nonlocal inside, most
        async with turn():
            inside += 1
            most = max(most, inside)
            await trio.testing.wait_all_tasks_blocked()
            inside -= 1

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(enter, locks[number % 2])
    assert (most, inside) == (1, 0)
    with trio.move_on_after(0.01):
        async with locks[0]():
            await trio.sleep_forever()
    assert not lock.is_held(path)


async def test_whoever_has_to_wait_too_long_is_refused(tmp_path: Path, autojump_clock: object) -> None:
    """A wait that is too long ends in a refusal, with the holder's pid if known, and no descriptor leaks."""
    path = tmp_path / "lock"
    turn = OneAtATime(str(path))
    with holder(path) as child:
        before = len(os.listdir("/proc/self/fd"))
        for content, message in (("", f"pid {child.pid} has held"), ("x", "another process has held")):
            path.write_text(content or str(child.pid))
            with pytest.raises(Refusal, match=message) as caught:
                async with turn():
                    pass
            assert (caught.value.reason, caught.value.exit_code) == ("contention", 5)
        assert len(os.listdir("/proc/self/fd")) == before
    async with turn():
        assert lock.is_held(str(path))
    assert not lock.is_held(str(path))


async def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    """A lock that cannot be made is a refusal, and not an OSError."""
    with pytest.raises(Refusal, match="cannot be locked") as caught:
        async with OneAtATime(str(tmp_path / "none" / "lock"))():
            pass
    assert caught.value.reason == "state-unusable"


def test_a_folder_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in use is waited for up to a bound; once its descriptor is closed, another one can hold it."""
    monkeypatch.setattr(lock, "OPENED_WAIT_S", 0.05)
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert lock.hold_opened(first)
    assert not lock.hold_opened(second)
    os.close(first)
    assert lock.hold_opened(second)
    os.close(second)


def test_a_lock_that_its_holder_removed(tmp_path: Path) -> None:
    """A process that opened the file of a lock before its holder removed it takes the file that is there instead."""
    path = str(tmp_path / "lock")
    held = lock.hold(path)
    opened = lock.open_file(path)
    lock.remove(path, held)
    assert not os.path.exists(path)
    again = lock.hold(path)
    assert lock.try_acquire(opened), "this one is nobody's"
    os.close(opened)
    with pytest.raises(lock.Locked):
        lock.hold(path)
    os.close(again)
