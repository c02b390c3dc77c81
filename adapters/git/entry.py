"""An entry of a folder that was found by its name, and not by listing the folder."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Entry: TypeAlias = "os.DirEntry[str] | FoundEntry"


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
