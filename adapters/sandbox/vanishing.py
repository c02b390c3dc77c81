"""The files that a program wrote into its private home, which are gone with its sandbox.

The folder is opened before the program begins, and listed after all of its processes have ended. The folder exists for
as long as it is open, and no process changes it any more. The names are the program's choice; their number and length
are bounded.
"""

from __future__ import annotations

import os

from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omac.domain.sandbox.confinement import Entry

ENTRIES_MAX = 4_096  # that are looked at
DEPTH_MAX = 32
NAME_CHARACTERS_MAX = 200
UNTOLD = (  # nobody misses them
    ".cache", ".config/chromium", ".ipython", ".lesshst", ".local/share/jupyter", ".local/share/uv/tools/.gitignore",
    ".local/share/uv/tools/.lock", ".npm", ".pki", ".viminfo", ".wget-hsts",
)  # fmt: skip
UNTOLD_END = "_history"


class VanishingFolder:
    """The folder `path` of the sandbox whose first process is `init`; `entries` are those of the policy, whose places
    are there from the beginning. Nobody misses the files and folders that are `restored`, relative to it. Raises
    OSError."""

    def __init__(self, init: int, path: str, entries: Iterable[Entry], restored: Iterable[str]) -> None:
        self._path = path
        self._made = {path}
        self._untold = {f"{path}/{name}" for name in (*UNTOLD, *restored)}
        for entry_path in (*(entry.path for entry in entries), *map(os.path.dirname, self._untold)):
            while entry_path.startswith(f"{path}/") and entry_path not in self._made:
                self._made.add(entry_path)
                entry_path = os.path.dirname(entry_path)
        self._left = ENTRIES_MAX
        self._descriptor = os.open(f"/proc/{init}/root{path}", FOLDER_FLAGS)

    def names(self) -> list[str]:
        """Return the files in it, and the folders that hold some (these end in "/"), which the program made; of those
        that lie in one another, the outermost. They are as paths; letters that are none are escaped."""
        try:
            return sorted(self._new(self._descriptor, self._path, 0))
        except OSError:
            return []

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _new(self, folder: int, path: str, depth: int) -> list[str]:
        names: list[str] = []
        for name, is_folder in self._listed(folder):
            entry_path = f"{path}/{name}"
            if entry_path in self._untold or (depth == 0 and name.startswith(".") and name.endswith(UNTOLD_END)):
                continue
            if entry_path in self._made:
                if is_folder and depth < DEPTH_MAX:
                    names += self._below(folder, name, entry_path, depth)
            elif not is_folder:
                names.append(_shown(entry_path))
            elif self._holds_file(folder, name, depth):
                names.append(f"{_shown(entry_path)}/")
        return names

    def _below(self, folder: int, name: str, path: str, depth: int) -> list[str]:
        try:
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except OSError:
            return []
        with Descriptor(inner):
            return self._new(inner, path, depth + 1)

    def _holds_file(self, folder: int, name: str, depth: int) -> bool:
        if depth >= DEPTH_MAX:
            return True
        try:
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except OSError:
            return True  # it may
        with Descriptor(inner):
            return any(
                not is_folder or self._holds_file(inner, below, depth + 1) for below, is_folder in self._listed(inner)
            )

    def _listed(self, folder: int) -> list[tuple[str, bool]]:
        """The names in a folder, and whether each is a folder, as long as there are not too many in all."""
        listed: list[tuple[str, bool]] = []
        with os.scandir(folder) as scan:
            for entry in scan:
                if self._left <= 0:
                    break
                self._left -= 1
                listed.append((entry.name, entry.is_dir(follow_symlinks=False)))
        return listed


def _shown(path: str) -> str:
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    return shown if len(shown) <= NAME_CHARACTERS_MAX else f"{shown[:NAME_CHARACTERS_MAX]}..."
