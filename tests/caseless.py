"""A file system that shows a folder, takes upper for lower case in names, and does not tell the kernel: as shared
folders of other systems do. It speaks FUSE (Linux's <linux/fuse.h>, 7.31), and needs root.

    python caseless.py FOLDER PLACE     # prints a line when it is mounted, and ends when it is unmounted
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable

PLAIN = struct.pack("<Q2I", 0, 0, 0)  # a file handle, or how long attributes are valid: not at all
HEAD = struct.Struct("<2I2Q2I")  # length, operation, number, node, user, group; more follows up to 40 bytes
UNANSWERED = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET


class Caseless:
    """The files below `source`, by their inodes; each method takes a node and what else was sent with the request."""

    def __init__(self, source: str) -> None:
        self._paths = {1: source}
        self.caller = (0, 0)  # user and group, to whom belongs what is made
        self.operations: dict[int, Callable[[int, bytes], bytes]] = {
            1: lambda node, sent: self._entry(self._path(node, _names(sent)[0])),
            3: lambda node, _: PLAIN + self._attributes(self._paths[node])[1],
            4: self._change,
            6: lambda node, sent: self._link(node, _names(sent)),
            8: lambda node, sent: self._make(node, sent, 16),
            9: lambda node, sent: self._make(node, sent, 8),
            10: lambda node, sent: self._remove(os.unlink, node, sent),
            11: lambda node, sent: self._remove(os.rmdir, node, sent),
            12: lambda node, sent: self._rename(node, sent, 8),
            15: self._read,
            16: self._write,
            17: lambda *_: struct.pack("<5Q10I", *[1 << 20] * 5, 4096, 255, 4096, *[0] * 7),
            26: lambda *_: struct.pack("<4I2H2I2H8I", 7, 31, 65536, 0, 12, 10, 65536, 1, 16, 0, *[0] * 8),
            28: self._list,
            45: lambda node, sent: self._rename(node, sent, 16),
            5: lambda node, _: os.fsencode(os.readlink(self._paths[node])),
            **dict.fromkeys((14, 27), lambda *_: PLAIN),
            **dict.fromkeys((18, 20, 25, 29, 30, 34), lambda *_: b""),
        }

    def _path(self, folder: int, name: str) -> str:
        there = self._paths[folder]
        return f"{there}/{next((known for known in os.listdir(there) if _folded(known) == _folded(name)), name)}"

    def _attributes(self, path: str) -> tuple[int, bytes]:
        status = os.lstat(path)
        node = 1 if path == self._paths[1] else status.st_ino
        self._paths[node] = path
        times = [divmod(ns, 10**9) for ns in (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)]
        seconds, parts = zip(*times, strict=True)
        whose = (status.st_mode, status.st_nlink, status.st_uid, status.st_gid)
        return node, struct.pack("<6Q10I", node, status.st_size, 1, *seconds, *parts, *whose, 0, 4096, 0)

    def _entry(self, path: str) -> bytes:
        node, attributes = self._attributes(path)
        return struct.pack("<4Q2I", node, *[0] * 5) + attributes

    def _change(self, node: int, sent: bytes) -> bytes:
        path = self._paths[node]
        valid, _, _, size, *_, mode, _, uid, gid, _ = struct.unpack_from("<2I6Q8I", sent)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.lchown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(path, size)
        return PLAIN + self._attributes(path)[1]

    def _link(self, node: int, names: list[str]) -> bytes:
        path = self._path(node, names[0])
        os.symlink(names[1], path)
        os.lchown(path, *self.caller)
        return self._entry(path)

    def _make(self, node: int, sent: bytes, begins: int) -> bytes:
        """Make a folder, or, where more was sent before its name, a file."""
        path, mode = self._path(node, _names(sent[begins:])[0]), struct.unpack_from("<I", sent)[0]
        if begins == 8:
            os.mkdir(path)
        else:
            os.mknod(path, mode)
        os.chown(path, *self.caller)
        os.chmod(path, stat.S_IMODE(mode))
        return self._entry(path)

    def _remove(self, remove: Callable[[str], None], node: int, sent: bytes) -> bytes:
        remove(self._path(node, _names(sent)[0]))
        return b""

    def _rename(self, node: int, sent: bytes, begins: int) -> bytes:
        old, new = _names(sent[begins:])
        path = f"{self._paths[struct.unpack_from('<Q', sent)[0]]}/{new}"
        os.rename(self._path(node, old), path)
        self._attributes(path)
        return b""

    def _read(self, node: int, sent: bytes) -> bytes:
        _, at, size = struct.unpack_from("<2QI", sent)
        with open(self._paths[node], "rb") as file:
            return os.pread(file.fileno(), size, at)

    def _write(self, node: int, sent: bytes) -> bytes:
        _, at, size = struct.unpack_from("<2QI", sent)
        with open(self._paths[node], "r+b") as file:
            return struct.pack("<2I", os.pwrite(file.fileno(), sent[40 : 40 + size], at), 0)

    def _list(self, node: int, sent: bytes) -> bytes:
        _, at, size = struct.unpack_from("<2QI", sent)
        listing = b""
        for number, name in enumerate(sorted(os.listdir(self._paths[node]))[at:], at + 1):
            raw = os.fsencode(name)
            entry = struct.pack("<2Q2I", 1, number, len(raw), os.lstat(f"{self._paths[node]}/{name}").st_mode >> 12)
            entry += raw + bytes(-len(raw) % 8)
            if len(listing) + len(entry) > size:
                break
            listing += entry
        return listing


def _folded(name: str) -> str:
    """Return a name as ext4 compares it in a folder that takes upper for lower case."""
    return name.replace("\u200c", "").casefold()


def _names(sent: bytes) -> list[str]:
    return [os.fsdecode(name) for name in sent.split(b"\0")[:-1]]


def main(source: str, place: str) -> None:
    """Mount, and answer the kernel until nobody needs it any more."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if ctypes.CDLL(None, use_errno=True).mount(b"caseless", os.fsencode(place), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)
    print("mounted", flush=True)
    shown = Caseless(source)
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            continue
        _, operation, number, node, uid, gid = HEAD.unpack_from(request)
        shown.caller = uid, gid
        if operation in UNANSWERED:
            continue
        try:
            answer, problem = shown.operations[operation](node, request[40:]), 0
        except (KeyError, OSError) as error:
            answer, problem = b"", getattr(error, "errno", None) or errno.ENOSYS
        os.write(device, struct.pack("<IiQ", 16 + len(answer), -problem, number) + answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
