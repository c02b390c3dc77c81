"""Finding out whether a copy is still what its digest says, and remembering that it was."""

import contextlib
import errno
import os
import stat

import msgspec

from omac.adapters.files import atomic
from omac.adapters.files.descriptor import Descriptor
from omac.adapters.linux.process_identity import boot_id
from omac.adapters.skills.paths import FILE_FLAGS, open_below, open_folder
from omac.adapters.skills.relocation import Relocation, beginning, extent
from omac.adapters.skills.staging import FILE_MODE, FOLDER_MODE, PROGRAM_MODE, STAGING_PREFIX
from omac.adapters.skills.stat_fingerprint import file_system_now_ns, stamps_of
from omac.adapters.skills.tree import BundleReader, read_link, walk_open
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.bundle import (
    UNCOPIED_FOLDERS,
    TreeEntry,
    TreeFile,
    TreeFolder,
    TreeLink,
    TreeOrigin,
    tree_digest,
)
from omac.services.ports import CopyDamaged

# What a copy that someone changed can answer with; the rest is the system's trouble.
_OF_THE_COPY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EINVAL, errno.EFBIG)


class CopyManifest(msgspec.Struct, frozen=True):
    """The state of a copy when it was last read: its stamps in the boot `boot`, and a record of each entry.

    `trusted` says whether the stamps show every later change. `source` is the path that the copy was made of, if the
    copy mentions it.
    """

    boot: str
    trusted: bool
    source: str | None
    stamps: bytes
    records: bytes

    def covers(self, boot: str, source: str, stamps: bytes) -> bool:
        """Return whether a copy of `source` that has these stamps in this boot is unchanged."""
        return self.trusted and self.boot == boot and self.source in (None, source) and self.stamps == stamps


def check_copy(path: str, source: str) -> None:
    """Return if the copy at `path` (its name is its digest), made of `source`, is unchanged.

    Reads it only if stamps cannot tell. Raises CopyDamaged naming what is wrong with which file, OSError.
    """
    try:
        _check(path, source)
    except OSError as error:
        if error.errno not in _OF_THE_COPY:
            raise
        culprit = printable(str(error.filename or path))
        raise CopyDamaged(f"the approved copy {path} cannot be read: {culprit}: {error.strerror}") from error


def manifest_path(path: str) -> str:
    """Return the path of the manifest of the copy at `path`."""
    return f"{path}.stat"


def _check(path: str, source: str) -> None:
    now_ns = file_system_now_ns()
    manifest = _load(path)
    above, _, name = path.rpartition("/")
    with open_folder(above) as folder:
        top = open_below(folder, name, above)
    with Descriptor(top):
        _require_own(path, "", os.fstat(top), (FOLDER_MODE,))
        stamps = stamps_of(top, path, ())
        encoded = stamps.encoded()
        boot = _boot()
        if manifest is not None and manifest.covers(boot, source, encoded):
            return
        reading = _CopyReader(path, Relocation(os.fsencode(source), os.fsencode(path)))
        entries = reading.entries(top)
        records = {os.fsencode(entry.relpath): _record(entry) for entry in entries}
        if tree_digest(entries) != f"sha256:{name}":
            raise _damaged(path, *_culprit(manifest, records))
        if stamps_of(top, path, ()) != stamps:
            raise _damaged(path, "", "changes while it is read")
    trusted = boot != "" and stamps.settled_at(now_ns)
    mentioned = source if reading.relocated else None
    manifest = CopyManifest(boot, trusted, mentioned, encoded, msgspec.msgpack.encode(sorted(records.items())))
    with contextlib.suppress(OSError):  # a full disk costs only another reading
        atomic.replace(manifest_path(path), msgspec.msgpack.encode(manifest), prefix=STAGING_PREFIX)


class _CopyReader:
    """One reading of a copy; `relocated` says whether it mentions its own path."""

    def __init__(self, path: str, relocation: Relocation) -> None:
        self._path = path
        self._relocation = relocation
        self._reader = BundleReader()
        self.relocated = False

    def entries(self, top: int) -> list[TreeEntry]:
        """All entries, with the files as they were at the source. Raises CopyDamaged, OSError."""
        tree_entries: list[TreeEntry] = []
        for folder, below, entries in walk_open(top, self._path, ()):
            for entry in entries:
                tree_entries.append(self._entry(folder, below + entry.name, entry))
        if self.relocated:
            tree_entries.append(TreeOrigin(os.fsdecode(self._relocation.old)))
        return tree_entries

    def _entry(self, folder: int, relpath: str, entry: os.DirEntry[str]) -> TreeEntry:
        status = entry.stat(follow_symlinks=False)
        match stat.S_IFMT(status.st_mode):
            case stat.S_IFLNK:
                _require_own(self._path, relpath, status, None)
                return TreeLink(relpath, read_link(folder, entry.name, os.path.join(self._path, relpath)))
            case stat.S_IFDIR:
                _require_own(self._path, relpath, status, (FOLDER_MODE,))
                if entry.name in UNCOPIED_FOLDERS:
                    raise _damaged(self._path, relpath, "was added")
                return TreeFolder(relpath)
            case stat.S_IFREG:
                _require_own(self._path, relpath, status, (FILE_MODE, PROGRAM_MODE))
                return self._file(folder, relpath, entry.name)
            case _:
                raise _damaged(self._path, relpath, "was added, and is not a regular file")

    def _file(self, folder: int, relpath: str, name: str) -> TreeFile:
        def each(chunk: memoryview, first: bool) -> bytes | memoryview:
            end = extent(relpath, beginning(relpath, chunk)) if first else 0
            if not end:
                return chunk
            start = bytes(chunk[:end])
            original = self._relocation.back(start)
            if original is None:
                raise _damaged(self._path, relpath, "mentions the folder that it was copied from")
            self.relocated |= original != start
            return original + chunk[end:]

        content, status = self._reader.read(folder, name, os.path.join(self._path, relpath), each)
        return TreeFile(relpath, content, bool(status.st_mode & stat.S_IXUSR))


def _require_own(path: str, relpath: str, status: os.stat_result, modes: tuple[int, ...] | None) -> None:
    if status.st_uid != os.geteuid():
        raise _damaged(path, relpath, f"belongs to user {status.st_uid}")
    if modes is not None and stat.S_IMODE(status.st_mode) not in modes:
        raise _damaged(path, relpath, f"has the mode {stat.S_IMODE(status.st_mode):04o}, which no copy has")


def _record(entry: TreeEntry) -> bytes:
    match entry:
        case TreeFile(_, content, executable):
            return b"f" + content + bytes([executable])
        case TreeLink(_, target):
            return b"l" + os.fsencode(target)
        case TreeFolder():
            return b"d"
        case TreeOrigin(source):
            return b"o" + os.fsencode(source)


def _culprit(manifest: CopyManifest | None, records: dict[bytes, bytes]) -> tuple[str, str]:
    """The first entry that is not as it was, and what became of it, as well as can be told."""
    if manifest is not None:
        before = dict(msgspec.msgpack.decode(manifest.records, type=list[tuple[bytes, bytes]]))
        for relpath in sorted(before.keys() | records.keys()):
            if before.get(relpath) != records.get(relpath):
                change = "was added" if relpath not in before else "changed" if relpath in records else "is gone"
                return os.fsdecode(relpath), change
    return "", "holds something other than what was approved"


def _damaged(path: str, relpath: str, problem: str) -> CopyDamaged:
    return CopyDamaged(
        f"the approved copy {path} is damaged: {printable(os.path.join(path, relpath).rstrip('/'))} {problem}"
    )


def _boot() -> str:
    try:
        return boot_id()
    except OSError:
        return ""  # then nothing is remembered


def _load(path: str) -> CopyManifest | None:
    """Return the stored manifest of the copy; None if none exists, or it cannot be used."""
    try:
        file = os.open(manifest_path(path), FILE_FLAGS)
        with open(file, "rb") as opened:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            return msgspec.msgpack.decode(opened.read(), type=CopyManifest)
    except (OSError, ValueError):
        return None
