"""Who else has a terminal: an omac that launched a program there, which can read what is typed.

A program in a sandbox has the terminal that its omac was started at, in the foreground. While that omac is suspended
(^Z), or goes on in the background, a process of the program that has left the session goes on reading there, and job
control stops it not. So whoever asks a person for a secret has to know. No program changes the command line of the omac
that launched it, nor what that has open, nor outlives it (proc_pid_cmdline(5), proc_pid_fd(5)).
"""

import fcntl
import os

from omac.adapters.linux.process_identity import stat_fields

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
            and fields[0] not in b"ZX"
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
    """Whether a process has its terminal open by that name, as adapters/sandbox/terminal.py does; also where that is
    not known."""
    try:
        with os.scandir(f"/proc/{process}/fd") as entries:
            return any(os.readlink(entry.path) == "/dev/tty" for entry in entries)
    except OSError:
        return True
