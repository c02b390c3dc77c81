"""The index: whether each path in it is one that git would have put there (gitformat-index(5), versions 2 to 4).

Rules

1. Header, entries, extensions and checksum fill the file, and nothing is left over. The checksum itself is not
   compared: git does not compare it either, and whoever can write the file can compute it.
2. The name of an entry is as long as its flags say, and passes `paths_problem`. No entry lies below a symbolic link or
   a submodule that is an entry itself.
3. An empty name stands for an entry of the shared index (extension `link`), a name that ends in "/" for a folder that
   a sparse index leaves out (`sdir`): neither occurs without its extension.
4. Where git may read the entries in blocks (`EOIE`, `IEOT`), each block begins where an entry begins, with a whole
   name, so that both ways of reading find the same names.
5. An extension whose name begins with a small letter must be known, or git refuses the file.
6. Names have bounds, each and together: version 4 lets a short file stand for names of any length.

Of an index that is two files, this says what can be said of each alone; for the rest see `split_index.py`.
"""

from __future__ import annotations

from omac.domain.git.paths import is_modules_name, path_problem, paths_problem
from omac.domain.git.place import SHA1_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER_BYTES = 12
_STAT_BYTES = 40  # ctime, mtime, dev, ino, mode, uid, gid, size
_MODE_AT = 24
_NAME_MASK = 0x0FFF
_EXTENDED = 0x4000
_LINK, _GITLINK, _FOLDER = 0xA000, 0xE000, 0x4000
_FILE = 0x8000
_KNOWN = (b"link", b"sdir")
_OFFSET_BYTES = 4  # INDEX_BYTES_MAX is less
NAME_BYTES_MAX = 4096  # PATH_MAX of Linux
NAME_PARTS_MAX = 200
LINKS_MAX = 300_000
_TOGETHER = 256  # paths that are looked through at once
NAMES_BYTES_MAX = 160 << 20


class _BrokenIndex(Exception):
    """The file is not one that git writes; the text says why."""


def index_problem(content: bytes, oid_bytes: int = SHA1_BYTES) -> str:
    """Return why an index is not one that git writes, or an empty text; `oid_bytes`: of the repository's object ids."""
    try:
        parsed = _Entries(content, oid_bytes)
        extensions = _extensions(content, parsed.end, oid_bytes)
        _require_known(parsed, extensions, oid_bytes)
        _require_blocks(content, parsed, extensions, oid_bytes)
        _require_resolved(extensions.get(b"REUC", b""), oid_bytes)
        if b"TREE" in extensions and not is_split(extensions, oid_bytes):
            from omac.domain.git.cache_tree import tree_problem

            return tree_problem(extensions[b"TREE"], entries(content, oid_bytes), oid_bytes)
    except _BrokenIndex as broken:
        return str(broken)
    except IndexError:
        return "it ends in the middle of an entry"
    return ""


class _Entries:
    """The entries: offsets of each, whether its name is whole, and the offset of their `end`."""

    def __init__(self, content: bytes, oid_bytes: int) -> None:
        if len(content) < _HEADER_BYTES + oid_bytes or content[:4] != b"DIRC":
            raise _BrokenIndex("it has no header of an index")
        version = int.from_bytes(content[4:8], "big")
        if version not in (2, 3, 4):
            raise _BrokenIndex(f"its version is {version}")
        self._starts = bytearray()  # one after the other: an index may have millions of entries
        self.whole = bytearray()
        self.empty = 0
        self.folders = 0
        self._unchecked: list[bytes] = []
        self._links: set[int] = set()  # hashes of names: the names themselves may be long
        self.end = self._read(content, int.from_bytes(content[8:12], "big"), oid_bytes, packed=version == 4)
        if self._links and (problem := below_links((name for name, _ in entries(content, oid_bytes)), self._links)):
            raise _BrokenIndex(problem)

    def start(self, number: int) -> int:
        """The offset of an entry."""
        at = number * _OFFSET_BYTES
        return int.from_bytes(self._starts[at : at + _OFFSET_BYTES], "big")

    def _read(self, content: bytes, count: int, oid_bytes: int, *, packed: bool) -> int:
        at = _HEADER_BYTES
        last = len(content) - oid_bytes
        name = b""
        room = NAMES_BYTES_MAX
        fixed = _STAT_BYTES + oid_bytes + 2
        for _ in range(count):
            if at + fixed > last:
                raise _BrokenIndex("it ends before its last entry")
            flags = content[at + fixed - 2] << 8 | content[at + fixed - 1]
            start = at + fixed + (2 if flags & _EXTENDED else 0)
            self._starts += at.to_bytes(_OFFSET_BYTES, "big")
            kept = 0
            if packed:
                stripped, start = _varint(content, start)
                kept = len(name) - stripped
                if kept < 0:
                    raise _BrokenIndex("a name strips more than there was")
            end = content.find(b"\0", start, last)
            if end < 0:
                raise _BrokenIndex("a name does not end")
            if kept + end - start > NAME_BYTES_MAX:
                raise _BrokenIndex(f"a name is longer than {NAME_BYTES_MAX} bytes")
            name = name[:kept] + content[start:end]
            room -= len(name)
            if room < 0:
                raise _BrokenIndex(f"its names are longer than {NAMES_BYTES_MAX} bytes together")
            if min(len(name), _NAME_MASK) != flags & _NAME_MASK:
                raise _BrokenIndex("the length of a name is not what its flags say")
            self.whole.append(kept == 0)
            self._judge(name, content[at + _MODE_AT : at + _MODE_AT + 4])
            at = end + 1 if packed else at + ((start - at + len(name) + 8) & ~7)
        if at > last:
            raise _BrokenIndex("it ends before its last entry")
        self._require_inside()
        return at

    def _judge(self, name: bytes, mode: bytes) -> None:
        kind = mode[2] << 8 & 0xF000
        if mode[:2] != b"\0\0" or kind not in (_FILE, _LINK, _GITLINK, _FOLDER):
            raise _BrokenIndex("an entry is neither a file, a link, a submodule nor a folder")
        if not name:
            self.empty += 1
            return
        if kind == _FOLDER:
            self.folders += 1
            if not name.endswith(b"/"):
                raise _BrokenIndex("the name of a folder does not end in '/'")
            name = name[:-1]
        elif kind != _FILE:
            self._links.add(hash(name))
            if len(self._links) > LINKS_MAX:
                raise _BrokenIndex("it has too many links and submodules")
            if kind == _LINK and is_modules_name(name.rpartition(b"/")[2]):
                raise _BrokenIndex("a link is named .gitmodules")
        if name.count(b"/") >= NAME_PARTS_MAX:
            raise _BrokenIndex(f"a name has more than {NAME_PARTS_MAX} parts")
        self._unchecked.append(name)
        if len(self._unchecked) >= _TOGETHER:
            self._require_inside()

    def _require_inside(self) -> None:
        """The paths since the last time can be checked out."""
        path, problem = paths_problem(self._unchecked)
        if problem:
            raise _BrokenIndex(f"the path {path[:200].decode(errors='replace')!r} {problem}")
        self._unchecked.clear()


def below_links(names: Iterable[bytes], links: set[int]) -> str:
    """Return which name lies below a link or a submodule, or an empty text; `links`: the hashes of their names."""
    last = b""
    for name in names:
        above = name.rpartition(b"/")[0]
        if above == last:
            continue
        last = above
        while above:
            if hash(above) in links:
                return f"the path {name[:200].decode(errors='replace')!r} lies below a link or a submodule"
            above = above.rpartition(b"/")[0]
    return ""


def entries(content: bytes, oid_bytes: int = SHA1_BYTES) -> Iterator[tuple[bytes, bytes]]:
    """Yield name, and mode, object id and stage, of each entry of an index in which `index_problem` finds no problem.
    An entry of a shared index that is only changed here has an empty name: `split_index.merged` says which. Of another
    file they mean nothing."""
    at, name, fixed = _HEADER_BYTES, b"", _STAT_BYTES + oid_bytes + 2
    packed = content[7:8] == b"\4"
    for _ in range(int.from_bytes(content[8:12], "big")):
        flags = at + fixed - 2
        if flags >= len(content):
            return
        start = flags + (4 if content[flags] & (_EXTENDED >> 8) else 2)
        kept = 0
        if packed:
            try:
                stripped, start = _varint(content, start)
            except (_BrokenIndex, IndexError):
                return
            kept = len(name) - stripped
        end = content.find(b"\0", start)
        if end < 0:
            return
        name = name[:kept] + content[start:end] if packed else content[start:end]
        stage = bytes((content[flags] >> 4 & 3,))
        yield name, content[at + _MODE_AT : at + _MODE_AT + 4] + content[at + _STAT_BYTES : flags] + stage
        at = end + 1 if packed else at + ((start - at + len(name) + 8) & ~7)


def extensions_of(content: bytes, oid_bytes: int) -> dict[bytes, bytes]:
    """Return the extensions of an index in which `index_problem` finds no problem, by name; of another file, none."""
    at, fixed = _HEADER_BYTES, _STAT_BYTES + oid_bytes + 2
    packed = content[7:8] == b"\4"
    try:
        for _ in range(int.from_bytes(content[8:12], "big")):
            flags = at + fixed - 2
            length = (content[flags] << 8 | content[flags + 1]) & _NAME_MASK
            start = flags + (4 if content[flags] & (_EXTENDED >> 8) else 2)
            if packed:
                at = content.index(b"\0", _varint(content, start)[1]) + 1
            else:
                end = content.index(b"\0", start) if length == _NAME_MASK else start + length
                at += (end - at + 8) & ~7
        return _extensions(content, at, oid_bytes)
    except (_BrokenIndex, IndexError, ValueError):
        return {}


def is_split(extensions: dict[bytes, bytes], oid_bytes: int) -> bool:
    """Return whether the rest of an index is in another file: by the extension `link`, and git takes an object id of
    zeros there for none."""
    return extensions.get(b"link", b"")[:oid_bytes].strip(b"\0") != b""


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """An integer in the encoding of pack offsets (git's varint.c), and what follows."""
    byte = content[at]
    value = byte & 0x7F
    at += 1
    while byte & 0x80:
        byte = content[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
        at += 1
        if value > 1 << 32:
            raise _BrokenIndex("a name strips more than there was")
    return value, at


def _extensions(content: bytes, at: int, oid_bytes: int) -> dict[bytes, bytes]:
    """The extensions by name; they end where the checksum begins."""
    extensions: dict[bytes, bytes] = {}
    last = len(content) - oid_bytes
    while at + 8 <= last:
        name, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8], "big")
        if name in extensions:
            raise _BrokenIndex("it has an extension twice")
        extensions[name] = content[at + 8 : at + 8 + size]
        at += 8 + size
    if at != last:
        raise _BrokenIndex("its extensions do not end where its checksum begins")
    return extensions


def _require_known(entries: _Entries, extensions: dict[bytes, bytes], oid_bytes: int) -> None:
    """Rules 3 and 5."""
    for name in extensions:
        if not b"A" <= name[:1] <= b"Z" and name not in _KNOWN:
            raise _BrokenIndex(f"it needs the extension {name.decode(errors='replace')!r}, which is not known")
    if len(extensions.get(b"link", bytes(oid_bytes))) < oid_bytes:
        raise _BrokenIndex("its extension link names no shared index")
    if entries.empty and not is_split(extensions, oid_bytes):
        raise _BrokenIndex("an entry has no name")
    if entries.folders and b"sdir" not in extensions:
        raise _BrokenIndex("an entry is a folder")


def _require_blocks(content: bytes, entries: _Entries, extensions: dict[bytes, bytes], oid_bytes: int) -> None:
    """Require that the extensions EOIE and IEOT fit the entries (rule 4). git looks for `EOIE` at a fixed distance from
    the end, whatever may lie before it. Raises _BrokenIndex."""
    at = len(content) - oid_bytes - (8 + 4 + oid_bytes)
    is_there = content[at : at + 8] == b"EOIE" + (4 + oid_bytes).to_bytes(4, "big")
    if is_there and int.from_bytes(content[at + 8 : at + 12], "big") != entries.end:
        raise _BrokenIndex("its extension EOIE names another end of the entries")
    table = extensions.get(b"IEOT")
    if table is None:
        return
    if len(table) % 8 != 4 or table[:4] != b"\0\0\0\1":
        raise _BrokenIndex("its extension IEOT is not one that git writes")
    number = 0
    for begin in range(4, len(table), 8):
        offset, count = (
            int.from_bytes(table[begin : begin + 4], "big"),
            int.from_bytes(table[begin + 4 : begin + 8], "big"),
        )
        if number >= len(entries.whole) or entries.start(number) != offset or not entries.whole[number]:
            raise _BrokenIndex("its extension IEOT names a place where no entry begins")
        number += count
    if number != len(entries.whole):
        raise _BrokenIndex("its extension IEOT does not name all entries")


def _require_resolved(content: bytes, oid_bytes: int) -> None:
    """The paths of resolved conflicts, which `git checkout --merge` puts back (extension `REUC`)."""
    at = 0
    while at < len(content):
        end = content.find(b"\0", at)
        if end < 0 or (problem := path_problem(content[at:end])):
            raise _BrokenIndex(f"a resolved conflict's path {problem if end >= 0 else 'does not end'}")
        at = end + 1
        stages = 0
        for _ in range(3):
            end = content.find(b"\0", at)
            if end < 0 or content[at:end].strip(b"01234567"):
                raise _BrokenIndex("a resolved conflict has no mode")
            stages += content[at:end].strip(b"0") != b""
            at = end + 1
        at += stages * oid_bytes
