"""Watching folders by inotify(7): a task sleeps until a file in them changes, instead of looking again and again."""

import ctypes
import os
import sys
import threading
from collections.abc import Collection

import trio

IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
CHANGES = IN_MODIFY | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
_HEAD = 16  # bytes of struct inotify_event before its name: wd, mask, cookie, len
_READ = 65_536


class FolderWatch:
    """Changes of the files `names` in a folder, or, without names, of any. Raises OSError where it cannot be watched.

    A folder that is removed is watched no more, and a file on a network's file system changes without notice: look
    again from time to time all the same.
    """

    def __init__(self, folder: str, names: Collection[str] = ()) -> None:
        self._names = {os.fsencode(name) for name in names}
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error(folder)
        if libc.inotify_add_watch(self._descriptor, os.fsencode(folder), CHANGES) < 0:
            error = _last_error(folder)
            self.close()
            raise error

    def close(self) -> None:
        """Close the watch, in a thread of its own: the kernel takes 15 ms for that."""
        try:
            threading.Thread(target=os.close, args=(self._descriptor,), daemon=True).start()
        except RuntimeError:  # no more threads can be started
            os.close(self._descriptor)

    async def changed(self) -> None:
        """Return when one of the files has changed since the last call."""
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            if self._drained():
                return

    def _drained(self) -> bool:
        """Read the pending events; return whether one concerns a watched file."""
        concerned = False
        while True:
            try:
                events = os.read(self._descriptor, _READ)
            except BlockingIOError:
                return concerned
            at = 0
            while at < len(events):
                length = int.from_bytes(events[at + 12 : at + _HEAD], sys.byteorder)
                name = events[at + _HEAD : at + _HEAD + length].rstrip(b"\0")
                concerned = concerned or not self._names or not name or name in self._names
                at += _HEAD + length


def _last_error(folder: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), folder)
