"""Files that are written as a whole: a new file where none is, or a draft that takes its place in one step.

A draft lies in the folder of its file, is flushed to the disk, and is removed when the step fails; so is the folder's
entry flushed (rename(2), fsync(2)). Readers meet the old content or the new one, also after a power cut. Where the
file system can do so (open(2), O_TMPFILE), a draft has no name before it is on the disk: one that takes the place of
another file has a name until its step, and a new file never has another than its own, whenever omac is killed.
"""

from __future__ import annotations

import errno
import os

from omac.adapters.files.descriptor import Descriptor
from omac.domain.kernel.unflushed import Unflushed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DRAFT_DIGITS = 12  # behind its prefix

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_folder(path: str) -> int:
    """Open a folder. Raises OSError."""
    return os.open(path, _FOLDER)


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write all of the content to an open file. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def create(path: str, content: bytes, mode: int = 0o600, *, dir_fd: int | None = None) -> os.stat_result:
    """Create a file where none is, and return its status. Where the file system can do so (open(2), O_TMPFILE) it gets
    its name once it is whole. Raises FileExistsError, OSError."""
    name = os.path.basename(path)
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    with Descriptor(os.open(os.path.dirname(path) or ".", flags, dir_fd=dir_fd)) as folder:
        descriptor, has_name = _unnamed(folder, name, mode)
        with Descriptor(descriptor):
            write_all(descriptor, content)
            if not has_name:
                _name(descriptor, name, folder)
            return os.fstat(descriptor)


def _name(descriptor: int, name: str, folder: int) -> None:
    try:
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=folder)  # follows, with a folder's descriptor
    except OSError as error:
        error.filename = name  # a person is to look there
        raise


def _unnamed(folder: int, name: str, mode: int) -> tuple[int, bool]:
    """Open a new file without a name, or with this one where the file system has none without; and say which."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=folder), False
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    return os.open(name, _NEW, mode, dir_fd=folder), True


def publish(path: str, content: bytes, *, prefix: str = ".") -> None:
    """Create a file, whole or not at all, and flush it. Where its draft needs a name, that begins with `prefix`. Raises
    FileExistsError, Unflushed, OSError."""
    name, draft = os.path.basename(path), _draft_name(prefix)
    with Descriptor(open_folder(os.path.dirname(path))) as folder:
        descriptor, has_name = _written(folder, draft, content, 0o600)
        try:
            if has_name:
                os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                _name(descriptor, name, folder)
        finally:
            os.close(descriptor)
            if has_name:
                _remove(folder, draft)
        flush(folder)


def replace(path: str, content: bytes, *, prefix: str = ".") -> None:
    """Put a file in the place of another, or of none, and flush it. Raises Unflushed, OSError."""
    with Descriptor(open_folder(os.path.dirname(path))) as folder:
        replace_in(folder, os.path.basename(path), content, prefix=prefix)


def replace_in(
    folder: int,
    name: str,
    content: bytes,
    *,
    prefix: str = ".",
    mode: int = 0o600,
    confirm: Callable[[], None] | None = None,
) -> None:
    """Put a file in the place of another in an open folder. `confirm` runs just before that step, and may raise to
    prevent it. Raises Unflushed, OSError."""
    draft = _draft_name(prefix)
    descriptor, has_name = _written(folder, draft, content, mode)
    try:
        if not has_name:
            _name(descriptor, draft, folder)
        if confirm:
            confirm()
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(folder, draft)
        raise
    finally:
        os.close(descriptor)
    flush(folder)


def flush(folder: int) -> None:
    """Flush the entries of an open folder behind a change that is made. Raises Unflushed."""
    try:
        os.fsync(folder)
    except OSError as error:
        raise Unflushed(error.errno, error.strerror) from error


def sweep(folder: int, prefix: str) -> None:
    """Remove the drafts that killed writers left in an open folder; the caller keeps others from writing meanwhile."""
    for name in os.listdir(folder):
        draft = name.removeprefix(prefix)
        if draft != name and len(draft) == DRAFT_DIGITS and set(draft) <= set("0123456789abcdef"):
            try:
                os.unlink(name, dir_fd=folder)
            except OSError:
                continue  # it does no harm there


def sync_folder(path: str) -> None:
    """Flush the entries of a folder behind a change that is made. Raises Unflushed, OSError."""
    with Descriptor(open_folder(path)) as folder:
        flush(folder)


def _draft_name(prefix: str) -> str:
    return f"{prefix}{os.urandom(DRAFT_DIGITS // 2).hex()}"


def _written(folder: int, draft: str, content: bytes, mode: int) -> tuple[int, bool]:
    """Open a draft that is on the disk: without a name, or with this one; and say which."""
    descriptor, has_name = _unnamed(folder, draft, 0o600)
    try:
        write_all(descriptor, content)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        if has_name:
            _remove(folder, draft)
        raise
    return descriptor, has_name


def _remove(folder: int, draft: str) -> None:
    try:
        os.unlink(draft, dir_fd=folder)
    except FileNotFoundError:
        pass  # a person was first
