"""The children and the threads of a process, as the kernel lists them. Source: proc_pid_task(5)."""

from __future__ import annotations

import os


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process, since a child belongs to the thread that forked it; none where
    the kernel lists none (CONFIG_PROC_CHILDREN)."""
    children: list[int] = []
    for thread in threads_of(pid):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
        except OSError:
            pass  # it has ended, or may not be inspected
    return children


def threads_of(pid: int) -> list[int]:
    """Return the ids of the threads of a process; none when it has ended, or may not be inspected."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
