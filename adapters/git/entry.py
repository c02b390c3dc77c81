"""An entry of a folder that was listed, or found by its name."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Entry: TypeAlias = "os.DirEntry[str] | FoundEntry"


_PROBE_CHARACTERS, _PROBED = len("tXXXXXX"), "testing"  # git's setup.c: create_default_files


class FoundEntry:
    """An entry with a known status, for callers that otherwise get an os.DirEntry."""

    def __init__(self, name: str, status: os.stat_result) -> None:
        self.name = name
        self._status = status

    def is_dir(self, *, follow_symlinks: bool) -> bool:  # as in os.DirEntry
        """Return whether it is a folder."""
        return stat.S_ISDIR(self._status.st_mode)

    def is_file(self, *, follow_symlinks: bool) -> bool:
        """Return whether it is a regular file."""
        return stat.S_ISREG(self._status.st_mode)

    def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        return stat.S_ISLNK(self._status.st_mode)

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        """Return its status."""
        return self._status


def is_link_probe(folder: int, entry: Entry) -> bool:
    """Return whether an entry is, or was just now, the link by which git at work tests whether links can be made."""
    name = entry.name
    is_named = len(name) == _PROBE_CHARACTERS and name[0] == "t" and name.isascii() and name.isalnum()
    if not is_named or not entry.is_symlink():
        return False
    try:
        return os.readlink(name, dir_fd=folder) == _PROBED
    except FileNotFoundError:
        return True
