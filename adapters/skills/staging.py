"""A copy in the making: private until it is whole, on the disk and read-only."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from omac.adapters.files import atomic
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.emptying import unlock
from omac.adapters.skills.links import Uncopyable
from omac.adapters.skills.paths import FILE_FLAGS, open_below, open_folder
from omac.adapters.skills.reading import SinkFailed, Tree
from omac.adapters.skills.relocation import SHEBANG_BYTES_MAX, Relocation, beginning, extent, is_whole
from omac.adapters.skills.tree import CHUNK_BYTES, walk, walk_open
from omac.adapters.skills.worker_pool import to_the_end

STAGING_PREFIX = ".staging."
SYNCED_ONE_BY_ONE_MAX = 256  # files and folders; beyond, one sync of everything takes less time
STEP_FILES = 100
FILE_MODE, PROGRAM_MODE, FOLDER_MODE = 0o400, 0o500, 0o500

_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Staging:
    """A folder beside the copies that takes what `read_tree` reads; `drop` it in the end, whatever it has become.
    `step` gets the number of files begun since it was called before, which are many."""

    def __init__(self, folder: str, step: Callable[[int], None]) -> None:
        self._step = step
        self._begun = 0
        self.path = tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=folder)
        self._top = os.open(self.path, FOLDER_FLAGS)
        self._folder = os.dup(self._top)
        self._file: int | None = None

    def enter(self, below: str) -> None:
        with _sinking():
            self._end_file()
            entered = open_below(self._top, below, self.path)
            os.close(self._folder)
            self._folder = entered

    def folder(self, name: str) -> None:
        with _sinking():
            os.mkdir(name, 0o700, dir_fd=self._folder)

    def write(self, name: str, chunk: memoryview, first: bool) -> None:
        with _sinking():
            if first or self._file is None:
                self._end_file()
                self._file = os.open(name, _NEW_FLAGS, 0o600, dir_fd=self._folder)
                self._begun += 1
                if self._begun % STEP_FILES == 0:
                    self._step(STEP_FILES)
            atomic.write_all(self._file, chunk)

    def complete(self, tree: Tree, relocation: Relocation) -> None:
        """Make it the copy of `tree` at the path `relocation.new`. Raises Uncopyable, OSError."""
        self._end_file()
        for relpath, target in tree.settled.items():
            with self._parent(relpath) as (folder, name):
                os.symlink(target, name, dir_fd=folder)
        for relpath in tree.carriers:
            self._relocate(os.path.join(tree.source, relpath), relpath, relocation)
        one_by_one = len(tree.files) + len(tree.folders) <= SYNCED_ONE_BY_ONE_MAX
        for folder, below, entries in walk_open(self._top, self.path, ()):
            for entry in entries:
                if copied := tree.files.get(below + entry.name):
                    _seal(folder, entry.name, PROGRAM_MODE if copied.executable else FILE_MODE, one_by_one)
            os.fchmod(folder, FOLDER_MODE)
            if one_by_one:
                os.fsync(folder)
        if not one_by_one:
            os.sync()

    def drop(self) -> None:
        """Close it and remove what is still at its path."""
        self._end_file()
        os.close(self._folder)
        os.close(self._top)
        remove_tree(self.path)

    def _end_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    @contextmanager
    def _parent(self, relpath: str) -> Iterator[tuple[int, str]]:
        above, _, name = relpath.rpartition("/")
        with Descriptor(open_below(self._top, above, self.path)) as folder:
            yield folder, name

    def _relocate(self, shown: str, relpath: str, relocation: Relocation) -> None:
        part = f"{self.path}.part"
        with self._parent(relpath) as (folder, name):
            old = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            with open(old, "rb", buffering=0) as file, open(os.open(part, _NEW_FLAGS, 0o600), "wb") as written:
                try:
                    start = file.read(CHUNK_BYTES)
                    end = extent(relpath, beginning(relpath, memoryview(start)))
                    written.write(_relocated(shown, relpath, start, end, relocation))
                    written.write(start[end:])
                    shutil.copyfileobj(file, written, CHUNK_BYTES)
                    written.flush()
                    os.replace(part, name, dst_dir_fd=folder)
                except BaseException:
                    os.unlink(part)
                    raise


def _relocated(shown: str, relpath: str, start: bytes, end: int, relocation: Relocation) -> bytes:
    """Return the first `end` bytes of a file as a copy has them. A check of the copy can compute the original from
    them. Raises Uncopyable."""
    there = relocation.there(start[:end])
    line = there.partition(b"\n")[0]
    unfit = len(line) > SHEBANG_BYTES_MAX or relocation.new.split() != [relocation.new]
    if unfit and not is_whole(relpath) and line != start[:end].partition(b"\n")[0]:
        text = f"cannot name {os.fsdecode(relocation.new)} in its first line: that is too long, or has a blank in it"
        raise Uncopyable(shown, text, "export OMAC_STATE_DIR=PATH  # a short one")
    again = memoryview(there + start[end:])
    if len(there) > CHUNK_BYTES or extent(relpath, beginning(relpath, again)) != len(there):
        raise Uncopyable(shown, "holds too many paths to be copied; remove it")
    if relocation.back(there) != start[:end]:
        raise Uncopyable(shown, "mentions its own copy; remove it")
    return there


def _seal(folder: int, name: str, mode: int, sync: bool) -> None:
    """Make a file read-only, and with `sync` have it on the disk."""
    with Descriptor(os.open(name, FILE_FLAGS, dir_fd=folder)) as file:
        os.fchmod(file, mode)
        if sync:
            os.fsync(file)


def remove_tree(path: str) -> None:
    """Remove a copy, or what there is of one, as far as possible; follows no link and says nothing."""
    above, name = os.path.split(path)
    with to_the_end(), suppress(OSError), open_folder(above) as folder:
        unlock(folder, name)
        for inner, _, entries in walk(path, ()):
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    unlock(inner, entry.name)
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _sinking() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SinkFailed(error) from error
