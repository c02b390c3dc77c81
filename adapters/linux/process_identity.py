"""A process's identity beyond its pid, which the kernel reuses: its start time and its boot. Source: proc(5)."""

from __future__ import annotations

import os


def boot_id() -> str:
    """The kernel's random id of this boot. Raises OSError without /proc."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return file.read().strip().decode()


def start_ticks(pid: int) -> int | None:
    """Return the start of the process, in clock ticks after boot; None when no such process exists. Zombies are
    processes."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def began_at(ticks: int) -> int:
    """The moment of so many clock ticks after boot, in nanoseconds since 1970 UTC, to a second. Raises OSError without
    /proc."""
    with open("/proc/stat", "rb") as file:
        (boot,) = (int(line.split()[1]) for line in file if line.startswith(b"btime "))
    return (boot + ticks // os.sysconf("SC_CLK_TCK")) * 10**9


def is_living(pid: int, ticks: int, boot: str) -> bool:
    """Return whether the process that had `pid` and began at `ticks` of boot `boot` still runs; a zombie does not.

    False also for a process that another pid namespace hides. Raises OSError without /proc.
    """
    if boot != boot_id():
        return False
    fields = stat_fields(pid)
    return not has_ended(fields) and int(fields[19]) == ticks if fields else is_hidden(pid)


def is_hidden(pid: int) -> bool:
    """Return whether /proc hides a living process of this user: one that keeps its memory to itself, as omac does, in a
    /proc mounted with hidepid (proc(5))."""
    if pid <= 0 or stat_fields(pid):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    return True


def is_suspended(pid: int) -> bool:
    """Return whether a process was stopped, as Ctrl-Z does."""
    return stat_fields(pid)[:1] == [b"T"]


def has_ended(fields: list[bytes]) -> bool:
    """Return whether a process of these fields is a zombie that only waits to be reaped. The kernel also calls one a
    zombie whose first thread alone has ended (pthread_exit(3))."""
    return fields[0] in b"ZX" and int(fields[17]) <= 1


def stat_fields(pid: int, thread: int | None = None) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on, the state (proc_pid_stat(5)); none when there is no process, or
    none that may be inspected (hidepid, proc(5)). `thread`: those of one of its threads alone."""
    try:
        with open(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
    # The second field is the program's name in parentheses; it may itself contain blanks and parentheses.
    return line[line.rindex(b")") + 2 :].split()
