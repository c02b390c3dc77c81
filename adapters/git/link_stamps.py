"""Stamps of links in a project, which show whether a link, or anything that it leads to, is still what it was."""

from __future__ import annotations

import hashlib
import os
import stat

from omac.adapters.git.stamp import stamp_of
from omac.adapters.linux.resolve_symlinks import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omac.adapters.git.stamp import Stamp

BELOW_MAX = 1_000  # files and folders below the target of one link
FILES_MAX = 50_000  # of all links of a project


class LinkStamps:
    """The stamps of links in the project at `root`. `spend` is called for each file, and may raise what it likes."""

    def __init__(self, root: str, spend: Callable[[], None]) -> None:
        self._root = root
        self._spend = spend
        self._digests: dict[str, bytes] = {}  # by targets
        self._room = FILES_MAX

    def of(self, link: str, status: os.stat_result) -> Stamp:
        """Return a stamp of a link and, if that is in the project, of all that it leads to. Where that is too much, no
        two stamps are the same. Raises OSError."""
        stamp = stamp_of(status)
        target = inside(link, self._root)
        if not target:
            return stamp
        if target not in self._digests:
            self._digests[target] = self._digest(target)
        digest = hashlib.sha256(repr(stamp).encode() + self._digests[target]).digest()
        return (*stamp[:-1], int.from_bytes(digest[:7], "big"))

    def _digest(self, target: str) -> bytes:
        parts: list[str] = []
        for part in _below(target):
            self._spend()
            self._room -= 1
            if len(parts) >= BELOW_MAX or self._room < 0:
                return os.urandom(32)
            parts.append(repr(part))
        return hashlib.sha256("\n".join(sorted(parts)).encode()).digest()


def _below(path: str) -> Iterator[tuple[str, Stamp]]:
    """Yield a path, and all that is below it, with their stamps; nothing where nothing is there. Raises OSError."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    yield path, stamp_of(status)
    folders = [path] if stat.S_ISDIR(status.st_mode) else []
    while folders:
        with os.scandir(folders.pop()) as scan:
            for entry in scan:
                status = entry.stat(follow_symlinks=False)
                yield entry.path, stamp_of(status)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)
