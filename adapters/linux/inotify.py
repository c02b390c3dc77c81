"""The events of files and folders that the kernel watches (inotify(7))."""

from __future__ import annotations

import os

from omac.adapters.linux.syscall import call

_CALLS = {"x86_64": (294, 254), "aarch64": (26, 27)}  # inotify_init1, inotify_add_watch
_INIT, _ADD_WATCH = _CALLS.get(os.uname().machine, (-1, -1))
IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR, IN_DONT_FOLLOW, IN_ISDIR = 0x4000, 0x8000, 0x01000000, 0x02000000, 0x40000000
_HEAD_BYTES = 16  # of struct inotify_event before its name: wd, mask, cookie, len
_READ_BYTES = 1 << 16


def opened() -> int:
    """Return a descriptor for watches. Raises OSError."""
    return call(_INIT, os.O_NONBLOCK | os.O_CLOEXEC)


def watch(inotify: int, path: str, mask: int) -> int:
    """Watch a path, and return the number of its watch. Raises OSError."""
    return call(_ADD_WATCH, inotify, os.fsencode(path) + b"\0", mask)


def events(inotify: int) -> list[tuple[int, int, bytes]]:
    """Return watch, mask and name of some pending events. Raises BlockingIOError: there are none."""
    content = os.read(inotify, _READ_BYTES)
    numbers = memoryview(content).cast("i")
    parsed: list[tuple[int, int, bytes]] = []
    at = 0
    while at < len(content):
        number, begin = at // 4, at + _HEAD_BYTES
        at = begin + numbers[number + 3]
        parsed.append((numbers[number], numbers[number + 1], content[begin:at].rstrip(b"\0")))
    return parsed
