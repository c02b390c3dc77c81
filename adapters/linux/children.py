"""The children of a process, as the kernel lists them. Source: proc_pid_task(5)."""

from __future__ import annotations

import os


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process, since a child belongs to the thread that forked it; none where
    the kernel lists none (CONFIG_PROC_CHILDREN)."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:
        pass  # it has ended, or may not be inspected
    return children
