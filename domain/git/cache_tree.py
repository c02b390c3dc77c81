"""The trees that an index says its entries make (gitformat-index(5), extension `TREE`): `git commit` and `git stash`
take them without looking at the entries, so a tree of other content would be committed, and be seen by nobody before.
"""

from __future__ import annotations

from hashlib import sha1, sha256

from omac.domain.git.grammar import SHA1_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

DEPTH_MAX = 400
LOOKS_MIN, LOOKS_PER_ENTRY_MAX = 1_000_000, 50  # at entries: once for each folder that one lies in
_OTHERS = "its extension TREE names trees of other entries"
_BROKEN = "its extension TREE is not one that git writes"


class _Broken(Exception):
    """The extension is not one that git writes, or not of these entries."""


def tree_problem(extension: bytes, entries: Iterable[tuple[bytes, bytes]], oid_bytes: int) -> str:
    """Return why the trees of an index are not those of all its entries, or an empty text."""
    found = [(name, what) for name, what in entries if what[-1] == 0]
    if extension[:1] != b"\0":
        return _BROKEN
    try:
        trees = _Trees(extension, found, oid_bytes)
        trees.read(b"", 0, 0)
    except (ValueError, IndexError, _Broken):
        return _BROKEN
    return _OTHERS if trees.differ else ""


class _Trees:
    """Reads the extension, a tree after the other, beside the entries."""

    def __init__(self, extension: bytes, found: list[tuple[bytes, bytes]], oid_bytes: int) -> None:
        self._extension = extension
        self._at = 0
        self._found = found
        self._oid_bytes = oid_bytes
        self._left = LOOKS_MIN + len(found) * LOOKS_PER_ENTRY_MAX
        self.differ = False

    def read(self, folder: bytes, first: int, depth: int) -> tuple[int, bytes]:
        """Read the tree of a folder (empty, or with its "/"), whose entries begin with number `first`; how many they
        are, or -1 where nobody says, and its object id."""
        if depth > DEPTH_MAX:
            raise _Broken
        end = self._extension.index(b"\0", self._at)
        line = self._extension.index(b"\n", end)
        count, subtrees = map(int, self._extension[end + 1 : line].split(b" "))
        self._at = line + 1
        oid = b""
        if count >= 0:
            oid = self._extension[self._at : self._at + self._oid_bytes]
            self._at += self._oid_bytes
        below: dict[bytes, tuple[int, bytes]] = {}
        begins = self._beginnings(folder, first) if subtrees else {}
        for _ in range(subtrees):
            name = self._extension[self._at : self._extension.index(b"\0", self._at)]
            begin = begins.get(name, len(self._found))  # of a folder without entries git keeps that it knows nothing
            below[name] = self.read(folder + name + b"/", begin, depth + 1)
        if count >= 0 and oid != self._oid_of(folder, first, count, below):
            self.differ = True
        return count, oid

    def _oid_of(self, folder: bytes, first: int, count: int, below: dict[bytes, tuple[int, bytes]]) -> bytes:
        """The object id of the tree that these entries make; empty where they make none."""
        if count == 1 and self._found[first][0] == folder:  # which a sparse index leaves out
            return self._found[first][1][4:-1]
        lines = []
        at = first
        while at < first + count:
            name, what = self._found[at]
            if not name.startswith(folder):
                return b""
            rest = name[len(folder) :]
            part, slash, deeper = rest.partition(b"/")
            if slash and deeper:
                size, oid = below.get(part, (-1, b""))
                if size <= 0:
                    return b""
                lines.append((part + b"/", b"40000 " + part + b"\0" + oid))
                at += size
            else:
                mode = b"40000" if slash else b"%o" % int.from_bytes(what[:4], "big")
                lines.append((part + slash, mode + b" " + part + b"\0" + what[4:-1]))
                at += 1
        if at != first + count or (at < len(self._found) and self._found[at][0].startswith(folder)):
            return b""
        data = b"".join(line for _name, line in sorted(lines))
        hashed = sha1 if self._oid_bytes == SHA1_BYTES else sha256  # git's own, which name objects
        return hashed(b"tree %d\0" % len(data) + data, usedforsecurity=False).digest()

    def _beginnings(self, folder: bytes, first: int) -> dict[bytes, int]:
        """The number of the first entry in each folder of a folder."""
        begins: dict[bytes, int] = {}
        for at in range(first, len(self._found)):
            name = self._found[at][0]
            if not name.startswith(folder):
                break
            part, slash, _ = name[len(folder) :].partition(b"/")
            if slash:
                begins.setdefault(part, at)
            self._left -= 1
        if self._left < 0:
            raise _Broken
        return begins
