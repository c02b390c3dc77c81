"""The files in a skill's folder, and in its approved copy, for people who read them before they approve the skill."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import NamedTuple

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.skills.links import Links, Uncopyable
from omac.adapters.skills.paths import FILE_FLAGS, open_below, open_folder
from omac.adapters.skills.reading import special
from omac.adapters.skills.relocation import Relocation
from omac.adapters.skills.tree import read_link, walk
from omac.adapters.skills.verifying import check_copy
from omac.domain.skills.bundle import UNCOPIED_FOLDERS


class FileEntry(NamedTuple):
    """A file or, with a `target`, a link; `size` in bytes. `executable` by its owner."""

    size: int
    executable: bool
    target: str | None = None


def entries_of(source: str) -> dict[str, FileEntry]:
    """Return each file and link of the canonical `source` by relpath, in order. Raises OSError."""
    entries: dict[str, FileEntry] = {}
    for folder, below, scan in walk(source, UNCOPIED_FOLDERS):
        for entry in scan:
            if entry.is_dir(follow_symlinks=False):
                continue
            relpath, status = below + entry.name, os.lstat(entry.name, dir_fd=folder)
            target = None
            if stat.S_ISLNK(status.st_mode):
                target = read_link(folder, entry.name, os.path.join(source, relpath))
            elif not stat.S_ISREG(status.st_mode):
                raise special(os.path.join(source, relpath), status.st_mode)
            entries[relpath] = FileEntry(status.st_size, bool(status.st_mode & stat.S_IXUSR), target)
    return dict(sorted(entries.items()))


def content_of(source: str, relpath: str, bytes_max: int) -> bytes | None:
    """Return a regular file of the canonical `source`; None if it is larger. No link is followed. Raises OSError."""
    content = start_of(source, relpath, bytes_max + 1)
    return content if len(content) <= bytes_max else None


def start_of(source: str, relpath: str, bytes_max: int) -> bytes:
    """Return at most so many bytes of a regular file of the canonical `source`. No link is followed. Raises OSError."""
    with _opened(source, relpath) as file:
        return file.read(bytes_max)


def sha256_of(source: str, relpath: str) -> bytes:
    """Return the SHA-256 of a regular file of the canonical `source`. No link is followed. Raises OSError."""
    with _opened(source, relpath) as file:
        return hashlib.file_digest(file, "sha256").digest()


@contextmanager
def _opened(source: str, relpath: str) -> Iterator[BufferedReader]:
    folder_path, _, name = relpath.rpartition("/")
    with (
        open_folder(source) as top,
        Descriptor(open_below(top, folder_path, source)) as folder,
        open(os.open(name, FILE_FLAGS, dir_fd=folder), "rb") as file,
    ):
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Uncopyable(os.path.join(source, relpath), "is no regular file")
        yield file


class LiveFiles:
    """The files of a skill as they are at `path`, its canonical folder, which an agent may change meanwhile."""

    def __init__(self, path: str) -> None:
        self.path = path

    def entries(self) -> dict[str, FileEntry]:
        """Return each file and link as a copy would have them. Raises OSError."""
        entries = entries_of(self.path)
        links = {relpath: entry.target for relpath, entry in entries.items() if entry.target is not None}
        try:
            settled = Links(self.path, [relpath for relpath in entries if relpath not in links], links).settle()
        except Uncopyable:  # one leads out: then there would be no copy, and they are shown as they are
            return entries
        return {
            relpath: entry._replace(target=settled.get(relpath, entry.target)) for relpath, entry in entries.items()
        }

    def content_of(self, relpath: str, bytes_max: int) -> bytes | None:
        """Return a file as it is; None if it is larger. Raises OSError."""
        return content_of(self.path, relpath, bytes_max)


class FrozenFiles(LiveFiles):
    """The read-only copy of a skill at `path`; `source` is the folder it was made of. Raises CopyDamaged, OSError."""

    def __init__(self, path: str, source: str) -> None:
        check_copy(path, source)
        super().__init__(path)
        self._relocation = Relocation(os.fsencode(source), os.fsencode(path))

    def entries(self) -> dict[str, FileEntry]:
        """Return each file and link of the copy. Raises OSError."""
        return entries_of(self.path)

    def content_of(self, relpath: str, bytes_max: int) -> bytes | None:
        """Return a file as it was when it was copied: a copy says its own path where that named the source."""
        content = super().content_of(relpath, bytes_max)
        if content is None:
            return None
        original = self._relocation.back(content)
        return content if original is None else original
