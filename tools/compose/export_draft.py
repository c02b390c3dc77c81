"""The draft of an export: a folder beside its place, with the files as far as they were written.

Rules

1. `.progress.json` says what the first start exports. It is durable before any file of the bundle, and is no authority:
   whoever goes on compares it with the record of the export in the journal.
2. A continued export derives each file again from the journal, and keeps each file as far as it is the same. So a line
   that a killed export cut, and files that were changed meanwhile, are written again.
3. An agent may have been in the folder: no link is followed, and no file with another name elsewhere is written. What
   is removed is removed by the descriptor that is held, wherever its path leads meanwhile.
4. `omac erase` empties each draft that the journal knows of: the same command derives what may still be shown.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec

from omac.adapters.files.atomic import sync_folder
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.undecodable import UNDECODABLE
from omac.journal.bundle import MANIFEST, SIGNATURE, BundleFile
from omac.journal.folders import room_command, write_command

DRAFT = ".omac-export-"
PROGRESS = ".progress.json"
PROGRESS_BYTES_MAX = 1 << 20
SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Begun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scope of an export, as its first start fixed it: the events up to position `head` of a journal, of which it
    recorded `events`. Its tree had `size` leaves with this `root`; `at` is when it began."""

    at: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
    journal: str
    format: str
    filters: dict[str, str]
    redacted: tuple[str, ...]
    head: int
    events: int
    size: int
    root: bytes


class ExportDraft:
    """A draft that this process holds. `begun` None: nothing of it counts yet."""

    def __init__(self, path: str, held: int, begun: Begun | None) -> None:
        self.path = path
        self._held = held
        self.begun = begun
        self.written: dict[str, BundleFile] = {}

    def begin(self, begun: Begun) -> None:
        """State what this export takes, durably. Raises OSError."""
        _empty(self._held)
        progress_path = os.path.join(self.path, PROGRESS)
        with open(os.open(f"{progress_path}.new", _NEW, 0o600), "wb") as file:
            file.write(msgspec.json.encode(begun))
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{progress_path}.new", progress_path)
        sync_folder(self.path)
        self.begun = begun

    def finish(self, destination: str) -> None:
        """Move the whole bundle to its place. Raises OSError."""
        os.unlink(os.path.join(self.path, PROGRESS))
        _empty(self._held, {*self.written, MANIFEST, SIGNATURE})
        sync_folder(self.path)
        os.rename(self.path, destination)

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file. Raises OSError."""
        with self.open(name) as file:
            file.write(content)

    @contextmanager
    def open(self, name: str) -> "Iterator[KeptFile]":
        """Write a file from its beginning, over what stands of it. Raises OSError."""
        with Descriptor(_opened(os.path.join(self.path, name))) as descriptor:
            file = KeptFile(descriptor)
            yield file
            file.end()
        if name not in (MANIFEST, SIGNATURE):
            self.written[name] = BundleFile(file.bytes, file.digest.hexdigest())


class KeptFile:
    """A file that is derived again: its bytes are written from the first that differs, or is missing, on."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._standing = os.fstat(descriptor).st_size
        self._pieces: list[bytes] = []
        self._waiting = 0
        self.bytes = 0
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> None:
        """Append to what was derived so far. Raises OSError."""
        self.digest.update(content)
        self._pieces.append(content)
        self._waiting += len(content)
        if self._waiting >= _PIECE:
            self._flush()

    def end(self) -> None:
        """Cut what stands behind it, and make it durable. Raises OSError."""
        self._flush()
        os.ftruncate(self._descriptor, self.bytes)
        os.fsync(self._descriptor)

    def _flush(self) -> None:
        content = memoryview(b"".join(self._pieces))
        self._pieces, self._waiting = [], 0
        if self._standing >= self.bytes + len(content) and _read(self._descriptor, self.bytes, len(content)) == content:
            self.bytes += len(content)
            return
        if self._standing > self.bytes:
            os.ftruncate(self._descriptor, self.bytes)
        self._standing = 0
        while content:
            done = os.pwrite(self._descriptor, content, self.bytes)
            self.bytes += done
            content = content[done:]


def draft_path(folder: str) -> str:
    """Return where an export to a folder is written."""
    parent, name = os.path.split(folder)
    return os.path.join(parent, f"{DRAFT}{name}")


def begun_at(folder: str) -> int | None:
    """Return when an export to a folder began that was interrupted: words such as 7d count from then."""
    begun = _begun(draft_path(folder))
    return begun.at if begun else None


@contextmanager
def held_draft(folder: str) -> Iterator[ExportDraft]:
    """Hold the draft of an export to `folder`, made where there is none. It is removed unless it was moved, or the disk
    was full. Raises Refusal: state-unusable, contention (another export is at it)."""
    parent, path = os.path.dirname(folder), draft_path(folder)
    held, is_kept = -1, False
    try:
        held = _held(path)
        draft = ExportDraft(path, held, _begun(path))
        is_kept = draft.begun is not None  # what is refused before it goes on changes nothing
        yield draft
        is_kept = False
    except BlockingIOError:
        raise Refusal("contention", f"another export to {folder} is at work", fix=["--out NEW"]) from None
    except DraftRefused as refused:
        raise Refusal("misuse", refused.args[0], fix=[f"rm -r {quoted(path)}", "--out NEW"]) from None
    except OSError as problem:
        where = problem.filename or folder
        message = f"the export to {folder} failed: {where}: {problem.strerror}"
        fix = [write_command(problem, parent)]
        if not os.path.lexists(parent):
            message, fix = f"the export to {folder} failed: {parent} does not exist", [f"mkdir -p {quoted(parent)}"]
        is_kept = problem.errno in SPACE and _begun(path) is not None
        if is_kept:
            message += f"; the part that was written stays in {path}: make room, then type the same command again"
            fix = [room_command(parent), f"rm -r {quoted(path)}  # to give it up instead"]
        raise Refusal("state-unusable", message, fix=fix) from None
    except BaseException:
        is_kept = False
        raise
    finally:
        if held >= 0:
            if not is_kept:
                with contextlib.suppress(OSError):
                    shutil.rmtree(path)
            os.close(held)


def empty_draft(folder: str, journal: str) -> None:
    """Remove what an interrupted export of `journal` to `folder` has written; the same command derives it again. Raises
    OSError: BlockingIOError where an export to that folder is at work."""
    path = draft_path(folder)
    try:
        held = _taken(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # none, or another user's
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return  # a link, which no export goes on with
        raise
    with Descriptor(held):
        begun = _begun(path)
        if begun is None or begun.journal == journal:
            _empty(held, {PROGRESS})
            os.fsync(held)


class DraftRefused(Exception):
    """The reason why an export does not continue with its draft."""


def _held(path: str) -> int:
    """Make a folder, or take over what a killed export left, and keep others from it. Raises BlockingIOError where
    another process has it; OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        return _taken(path)
    except FileNotFoundError:
        raise BlockingIOError from None  # another one finished with it meanwhile


def _taken(path: str) -> int:
    """Hold a draft that exists, and keep others from it. Raises as `_held`."""
    held = os.open(path, FOLDER_FLAGS)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen = os.fstat(held)
        if seen.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", path)
        if not os.path.samestat(seen, os.stat(path, follow_symlinks=False)):
            raise BlockingIOError  # another one finished with it meanwhile
        os.fchmod(held, 0o700)
    except BaseException:
        os.close(held)
        raise
    return held


def _begun(path: str) -> Begun | None:
    """Return the scope that a draft states; None where it states none that can be read."""
    try:
        descriptor = os.open(os.path.join(path, PROGRESS), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return msgspec.json.decode(file.read(PROGRESS_BYTES_MAX), type=Begun)
    except (OSError, *UNDECODABLE):
        return None


def _opened(path: str) -> int:
    """A file of the draft to be read and written: its own, of one name, else a new one."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        seen = os.fstat(descriptor)
        if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 and seen.st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
            return descriptor
        os.close(descriptor)
    _remove(path)
    return os.open(path, _NEW, 0o600)


def _remove(path: str, folder: int | None = None) -> None:
    """Remove a file or a folder; `path` may be relative to the descriptor `folder`."""
    try:
        os.unlink(path, dir_fd=folder)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(path, dir_fd=folder)


def _empty(folder: int, kept: Collection[str] = ()) -> None:
    """Remove all but `kept` from a folder that is held."""
    for name in set(os.listdir(folder)) - set(kept):
        _remove(name, folder)


def _read(descriptor: int, at: int, size: int) -> bytes:
    content = b""
    while len(content) < size and (part := os.pread(descriptor, size - len(content), at + len(content))):
        content += part
    return content


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 18
