"""Watching folders by inotify(7): a task sleeps until a file in them changes, instead of looking again and again."""

import os
import threading
from collections.abc import Collection

import trio

from omac.adapters.linux import inotify

CHANGES = inotify.IN_MODIFY | inotify.IN_MOVED_FROM | inotify.IN_MOVED_TO | inotify.IN_CREATE | inotify.IN_DELETE


class FolderWatch:
    """Changes of the files `names` in a folder, or, without names, of any. Raises OSError where it cannot be watched.

    A folder that is removed is watched no more, and a file on a network's file system changes without notice: look
    again from time to time all the same.
    """

    def __init__(self, folder: str, names: Collection[str] = ()) -> None:
        self._names = {os.fsencode(name) for name in names}
        self._descriptor = inotify.opened()
        try:
            inotify.watch(self._descriptor, folder, CHANGES)
        except OSError as error:
            error.filename = folder
            self.close()
            raise

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
                events = inotify.events(self._descriptor)
            except BlockingIOError:
                return concerned
            for _, _, name in events:
                concerned = concerned or not self._names or not name or name in self._names
