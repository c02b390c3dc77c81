"""Detection of another omac at a terminal: the program that it launched there can read what a person types.

A program in a sandbox has the terminal that its omac was started at, in the foreground. That omac may be suspended (^Z)
or go on in the background. Then a process of the program that has left the session goes on reading there, and job
control does not stop it. So a command that asks a person for a secret has to know. No program changes the command line
of the omac that launched it, or the files that this omac has open, and none outlives it (proc_pid_cmdline(5),
proc_pid_fd(5)).
"""

import fcntl
import os

from omac.adapters.linux.process_identity import has_ended, stat_fields

_TERMINAL = 4  # of the fields of /proc/PID/stat from the third on: tty_nr
_TIOCGDEV = 0x80045432  # the number of the terminal itself, also where it was opened as /dev/tty (ioctl_tty(2))
_LAUNCHES = b"\0sandbox\0run\0"


def launcher_at(terminal: int) -> int | None:
    """Return the pid of an omac that lives, and shares this open terminal with a program in a sandbox; None: there is
    none. Raises OSError where it is no terminal, or hung up."""
    number = int.from_bytes(fcntl.ioctl(terminal, _TIOCGDEV, bytes(4)), "little", signed=True)
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        fields = stat_fields(int(name))
        if (
            fields
            and not has_ended(fields)
            and int(fields[_TERMINAL]) == number
            and _LAUNCHES in _words(name)
            and _shares(name)
        ):
            return int(name)
    return None


def _words(process: str) -> bytes:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _shares(process: str) -> bool:
    """Return whether a process has its terminal open as /dev/tty, which adapters/sandbox/terminal.py opens; also true
    if its open files cannot be read."""
    try:
        with os.scandir(f"/proc/{process}/fd") as entries:
            return any(os.readlink(entry.path) == "/dev/tty" for entry in entries)
    except OSError:
        return True
