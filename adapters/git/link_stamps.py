"""Stamps of links in projects, which show whether a link, or anything that it leads to, is still what it was."""

from __future__ import annotations

import os
import stat
from itertools import islice

from omac.adapters.git.stamp import stamp_of
from omac.adapters.linux.resolve_symlinks import resolve_inside
from omac.domain.kernel.digest import sha256
from omac.domain.sandbox.autorun_files import OF_OTHERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from omac.adapters.git.stamp import Stamp

BELOW_MAX = 1_000  # files and folders below the target of one link
FILES_MAX = 50_000  # of all links


class LinkStamps:
    """The stamps of links; `roots` are the folders that a program can write: projects, and tool caches. `spend` is
    called for each file, and may raise what it likes."""

    def __init__(self, roots: Sequence[str], spend: Callable[[], None]) -> None:
        self._roots = roots
        self._spend = spend
        self._digests: dict[str, bytes] = {}  # by targets
        self._room = FILES_MAX

    def of(self, link: str, status: os.stat_result) -> Stamp:
        """Return a stamp of a link and, as far as that is in such a folder, of all that it leads to, by further links,
        too, but not of packages installed there. Where that is too much, no two stamps are the same. Raises OSError."""
        stamp = stamp_of(status)
        target = resolve_inside(link, self._roots)
        if not target:
            return stamp
        if target not in self._digests:
            self._digests[target] = self._digest(target)
        digest = sha256(repr(stamp).encode() + self._digests[target]).digest()
        return (*stamp[:-1], int.from_bytes(digest[:7], "big"))

    def _digest(self, target: str) -> bytes:
        parts: list[str] = []
        for part in self._below(target):
            self._spend()
            self._room -= 1
            if len(parts) >= BELOW_MAX or self._room < 0:
                return os.urandom(32)
            parts.append(repr(part))
        digest: bytes = sha256("\n".join(sorted(parts)).encode()).digest()
        return digest

    def _below(self, path: str) -> Iterator[tuple[str, Stamp]]:
        paths, seen = [path], set()
        while paths:
            path = paths.pop()
            if path in seen:
                continue
            seen.add(path)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            yield path, stamp_of(status)
            if stat.S_ISLNK(status.st_mode):
                paths += filter(None, (resolve_inside(path, self._roots),))
            elif stat.S_ISDIR(status.st_mode):
                with os.scandir(path) as scan:
                    paths += [entry.path for entry in islice(scan, BELOW_MAX) if entry.name not in OF_OTHERS]
