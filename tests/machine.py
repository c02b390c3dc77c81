"""This machine, as tests ask for it: a port that is free, and the processor time of a process."""

import os
import socket
from pathlib import Path


def free_port() -> int:
    """Return a TCP port of loopback on which no program listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used (proc(5): utime and stime, in ticks)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
