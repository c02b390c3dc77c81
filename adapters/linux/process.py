"""Processes as /proc and pidfds show them: their descendants, their listening sockets, and signals that reach no other
process.

Functions read at each call and keep nothing. A pid alone does not identify a process for long: together with the start
time and the boot (`process_identity.py`) it does. Sources: proc(5), proc_pid_stat(5), pidfd_open(2),
pidfd_send_signal(2).
"""

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

import trio

from omac.adapters.linux.children import children_of, threads_of
from omac.adapters.linux.listeners import answering
from omac.adapters.linux.process_identity import has_ended, start_ticks, stat_fields
from omac.domain.kernel.exhaustion import raise_exhaustion


class Stat(NamedTuple):
    """One line of /proc/PID/stat: `session` is the session id, `start_ticks` is in clock ticks after boot."""

    pid: int
    state: str
    parent: int
    session: int
    start_ticks: int
    alive: bool  # not a zombie, which has ended, and only waits to be reaped


def stat(pid: int) -> Stat | None:
    """Return the fields of /proc/PID/stat, or None when no such process exists. Zombies are processes."""
    fields = stat_fields(pid)
    if not fields:
        return None
    return Stat(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]), not has_ended(fields))


def living(pid: int, ticks: int) -> bool:
    """Return whether the process that had `pid` and began at `ticks` still runs (a zombie does not)."""
    process = stat(pid)
    return process is not None and process.start_ticks == ticks and process.alive


def descendants(pid: int) -> list[Stat]:
    """The living processes below `pid`, itself excluded. A snapshot: what forks meanwhile may be missing."""
    has_lists = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    children = children_of if has_lists else _children_by_scan()
    below: dict[int, Stat] = {}
    queue = [pid]
    while queue:
        for child in children(queue.pop()):
            entry = stat(child)
            if child not in below and entry:
                below[child] = entry
                queue.append(child)
    return [entry for entry in below.values() if entry.alive]


def session_members(sid: int) -> list[Stat]:
    """The living processes of a session, its leader included. A snapshot, like `descendants`."""
    return [entry for entry in everyone() if entry.session == sid and entry.alive]


def socket_inodes(pids: Collection[int]) -> set[int]:
    """The inodes of the sockets that these processes hold; a process that may not be inspected adds none."""
    inodes: set[int] = set()
    for pid in pids:
        if not (links := _descriptors(f"/proc/{pid}/fd")):  # a first thread that has ended has none
            links = [link for thread in threads_of(pid) for link in _descriptors(f"/proc/{pid}/task/{thread}/fd")]
        inodes.update(int(link[8:-1]) for link in links if link.startswith("socket:["))
    return inodes


def _descriptors(folder: str) -> list[str]:
    """Return the targets of the links in a folder of /proc; none where it is gone, or may not be inspected."""
    try:
        names = os.listdir(folder)
    except OSError as problem:
        raise_exhaustion(problem)
        return []
    links = []
    for name in names:
        with suppress(OSError):  # closed meanwhile
            links.append(os.readlink(f"{folder}/{name}"))
    return links


def owns_listener(pids: Collection[int], port: int) -> bool:
    """Return whether a connection to 127.0.0.1:`port` can reach these processes and no others.

    With SO_REUSEPORT several sockets share a port, and the kernel distributes connections among them: all must belong
    to these processes.
    """
    reachable = {listener.inode for listener in answering(port)}
    return bool(reachable) and reachable <= socket_inodes(pids)


def open_pidfd(pid: int, ticks: int) -> int | None:
    """A descriptor (close-on-exec, the caller closes it) of the process that began at `ticks`; None if it is gone.

    The start time is read after opening: if it fits, the descriptor cannot belong to a later user of the pid.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if start_ticks(pid) == ticks:
        return descriptor
    os.close(descriptor)
    return None


async def wait_exit(descriptor: int) -> None:
    """Return when the process behind a pidfd has ended (reaped or not). One task at a time per descriptor."""
    await trio.lowlevel.wait_readable(descriptor)


def kill(pid: int, ticks: int, number: signal.Signals) -> bool:
    """Send a signal to the process that began at `ticks`, and to no other that got its pid.

    False when it is gone, or when the kernel forbids it (another user's process).
    """
    descriptor = open_pidfd(pid, ticks)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def everyone() -> Iterator[Stat]:
    """Yield all processes but those that may not be inspected (proc(5), hidepid=1). A snapshot, like `descendants`."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if entry := stat(pid):
            yield entry


def _children_by_scan() -> Callable[[int], list[int]]:
    """Return a function that gives the children of a pid, found by every process's parent: for kernels without
    CONFIG_PROC_CHILDREN."""
    below: dict[int, list[int]] = {}
    for entry in everyone():
        below.setdefault(entry.parent, []).append(entry.pid)
    return lambda pid: below.get(pid, [])
