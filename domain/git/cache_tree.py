"""The trees that an index says its entries make (gitformat-index(5), extension `TREE`): `git commit` and `git stash`
take them without looking at the entries, so a tree of other content would be committed, and be seen by nobody before.

What the extension claims of each folder is kept in a few bytes, and compared while the entries, which are in order, go
by: a folder's tree is made when the last entry in it has been seen.
"""

from __future__ import annotations

from omac.domain.git.place import SHA1_BYTES
from omac.domain.kernel.digest import sha256

try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # not in typeshed; hashlib loads OpenSSL, which takes 4 ms
except ImportError:
    from hashlib import sha1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CLAIMS_MAX = 250_000  # folders of which an extension says something
PATH_BYTES_MAX = 4096  # PATH_MAX of Linux
LINES_BYTES_MAX = 48 << 20  # of trees that are being made
_OTHERS = "its extension TREE names trees of other entries"
_BROKEN = "its extension TREE is not one that git writes"
_TOO_MANY = "its extension TREE names more trees than can be inspected"


class _BrokenCacheTree(Exception):
    """The extension is not one that git writes, or not of these entries; the text says which."""


def tree_problem(extension: bytes, entries: Iterable[tuple[bytes, bytes]], oid_bytes: int) -> str:
    """Return why the trees of an index are not those of all its entries, or an empty text."""
    try:
        claims = _claims(extension, oid_bytes)
        if not claims:
            return ""
        for folder, tree in _trees(entries, oid_bytes):
            if claims.pop(hash(folder), tree) != tree:
                return _OTHERS
    except (ValueError, IndexError):
        return _BROKEN
    except _BrokenCacheTree as broken:
        return str(broken)
    return _OTHERS if claims else ""


def _claims(extension: bytes, oid_bytes: int) -> dict[int, bytes]:
    """Return the claims of an extension about folders: how many entries lie in each, and the tree that they make. The
    key is the hash of the folder's path, which is empty or ends in "/". Folders that git changed since are left out."""
    claims: dict[int, bytes] = {}
    above: list[tuple[bytes, int]] = []  # the folders around, and how many are still to come in each
    at = seen = 0
    while at == 0 or above:
        end = extension.index(b"\0", at)
        line = extension.index(b"\n", end)
        count, below = map(int, extension[end + 1 : line].split(b" "))
        name = extension[at:end]
        at = line + 1
        folder = _entered(above, name)
        if count >= 0:
            if hash(folder) in claims:
                raise _BrokenCacheTree(_BROKEN)
            claims[hash(folder)] = b"%d " % count + extension[at : at + oid_bytes]
            at += oid_bytes
        above.append((folder, below))
        while above and above[-1][1] <= 0:
            above.pop()
        seen += 1
        if seen > CLAIMS_MAX:
            raise _BrokenCacheTree(_TOO_MANY)
    if at != len(extension):
        raise _BrokenCacheTree(_BROKEN)
    return claims


def _entered(above: list[tuple[bytes, int]], name: bytes) -> bytes:
    """The path of the folder that comes next, which is counted in the one around it."""
    if not above:
        if name:
            raise _BrokenCacheTree(_BROKEN)
        return b""
    around, left = above.pop()
    folder = around + name + b"/"
    if not name or b"/" in name or len(folder) > PATH_BYTES_MAX:
        raise _BrokenCacheTree(_BROKEN)
    above.append((around, left - 1))
    return folder


class _Folder:
    """A folder whose entries go by: how many, and the lines of its tree; of one that a sparse index leaves out, the
    tree itself."""

    __slots__ = ("count", "lines", "oid", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.count = 0
        self.lines = bytearray()
        self.oid = b""


def _trees(entries: Iterable[tuple[bytes, bytes]], oid_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield each folder with what a claim of it says where it is true, those in it first. Raises _BrokenCacheTree where
    the entries are not in the order in which git keeps them."""
    making = _Making(oid_bytes)
    last = b""
    for name, fields in entries:
        if fields[-1] != 0:  # of a conflict
            continue
        if name <= last:
            raise _BrokenCacheTree(_OTHERS)
        last = name
        while not name.startswith(making.folder.path):
            yield making.leave()
        making.add(name, fields)
    while making.above:
        yield making.leave()
    yield making.leave()


def _mode_of(fields: bytes) -> bytes:
    """The mode of an entry as it stands in a tree."""
    return b"%o " % int.from_bytes(fields[:4], "big")


class _Making:
    """The tree of an open `folder`, and of those `above` it."""

    def __init__(self, oid_bytes: int) -> None:
        self._hashed = sha1 if oid_bytes == SHA1_BYTES else sha256  # git's own, which name objects
        self._modes: dict[bytes, bytes] = {}
        self._room = LINES_BYTES_MAX
        self.above: list[_Folder] = []
        self.folder = _Folder(b"")

    def add(self, name: bytes, fields: bytes) -> None:
        """Add an entry below the open folder, in folders that are opened for it."""
        slash = name.find(b"/", len(self.folder.path))
        while slash >= 0:
            self.above.append(self.folder)
            self.folder = _Folder(name[: slash + 1])
            slash = name.find(b"/", slash + 1)
        if self.folder.oid:
            raise _BrokenCacheTree(_OTHERS)
        self.folder.count += 1
        if name == self.folder.path:
            self.folder.oid = fields[4:-1]
        else:
            mode = self._modes.get(fields[:4]) or self._modes.setdefault(fields[:4], _mode_of(fields))
            self._put(mode + name[len(self.folder.path) :] + b"\0" + fields[4:-1])

    def leave(self) -> tuple[bytes, bytes]:
        """Close the open folder; its path, and what a claim of it says."""
        left = self.folder
        oid = left.oid
        if not oid:
            tree = self._hashed(b"tree %d\0" % len(left.lines), usedforsecurity=False)
            tree.update(left.lines)
            oid = tree.digest()
        self._room += len(left.lines)
        if self.above:
            self.folder = self.above.pop()
            self.folder.count += left.count
            self._put(b"40000 " + left.path[len(self.folder.path) : -1] + b"\0" + oid)
        return left.path, b"%d " % left.count + oid

    def _put(self, line: bytes) -> None:
        self._room -= len(line)
        if self._room < 0:
            raise _BrokenCacheTree(_TOO_MANY)
        self.folder.lines += line
