"""A shortage of descriptors at each step of a sidecar's start (getrlimit(2), RLIMIT_NOFILE)."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from adapters.sidecars.fixtures import Spawn
from polling import until

from omac.adapters.linux import process
from omac.adapters.sidecars.process import LinuxSidecarProcess
from omac.services.ports import SpawnFailed

STEPS = 24  # more descriptors than a start takes at once


@contextmanager
def spare_descriptors(count: int) -> Iterator[None]:
    """Bound this process to `count` more descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for descriptor in lowest:
        os.close(descriptor)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest[-1], before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def begun(spawn: Spawn) -> tuple[LinuxSidecarProcess | None, str]:
    """Return a sidecar, or why it could not be started."""
    try:
        return await spawn("sleep", "60"), ""
    except SpawnFailed as failed:
        return None, str(failed)


async def test_a_start_without_descriptors_leaves_nothing(spawn: Spawn) -> None:
    """A sidecar starts, or SpawnFailed says why and nothing of it is left, whichever descriptor is missing."""
    held, reasons = len(os.listdir("/proc/self/fd")), []
    for count in range(STEPS):
        with spare_descriptors(count):
            sidecar, reason = await begun(spawn)
        reasons.append(reason)
        if sidecar:
            await sidecar.stop(0)
        await until(lambda: not process.descendants(os.getpid()))
        assert len(os.listdir("/proc/self/fd")) == held, count
    failed = [reason for reason in reasons if reason]
    assert 0 < len(failed) < STEPS
    assert all("Too many open files" in reason for reason in failed), failed


@pytest.mark.parametrize("descriptors", [0, 1])
async def test_one_that_cannot_be_watched_is_ended(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, descriptors: int
) -> None:
    """A sidecar that runs ends, where others took the descriptors by which it would be watched."""
    held, left, real = len(os.listdir("/proc/self/fd")), iter(range(descriptors)), os.pidfd_open

    def pidfd_open(pid: int) -> int:
        if next(left, None) is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(pid)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", pidfd_open)
        sidecar, reason = await begun(spawn)
    if sidecar:  # without a namespace, one is enough
        assert descriptors
        await sidecar.stop(0)
    else:
        assert "cannot watch" in reason
    await until(lambda: not process.descendants(os.getpid()))
    assert len(os.listdir("/proc/self/fd")) == held
