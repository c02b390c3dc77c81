"""Backups of a journal: a copy in one file, made while it is in use, and put back in its place.

Rules

1. A backup is made by SQLite, page by page in one snapshot, so it is a whole journal at one position, whatever is
   appended meanwhile. It replaces no file, and nobody else can read it.
2. Only a whole journal is restored. It is copied beside the journal and takes its place in one step; what was there is
   kept beside it, under a name that is free.
3. Whoever restores makes sure that no omac has the journal open.
"""

import contextlib
import errno
import os
import shlex
import sqlite3
from typing import NamedTuple

from omac.domain.kernel.refusal import Reason, Refusal
from omac.journal.file import connect_for_reading, refusal_of
from omac.journal.mark import Mark

_WITH = ("", "-wal", "-shm")  # the files of a journal


class Copy(NamedTuple):
    """A whole journal in one file: its id, its last position, and its size."""

    path: str
    id: str
    position: int
    bytes: int


def inspect(path: str) -> Copy:
    """Return what the journal at `path` is. Raises Refusal: there is none, or it is damaged."""
    connection = connect_for_reading(path)
    try:
        journal_id, position = connection.execute("SELECT journal.id, position FROM journal, head").fetchone()
        if (sound := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise refusal_of(sqlite3.DatabaseError(f"malformed: {sound}"), path)
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error
    finally:
        connection.close()
    return Copy(path, journal_id, position, os.path.getsize(path))


def back_up(path: str, target: str) -> Copy:
    """Copy the journal at `path`, which may be in use, to the new file `target`. Raises Refusal."""
    if target in [path + suffix for suffix in (*_WITH, "-journal")]:
        raise Refusal("misuse", f"{target} is one of the journal's own files", fix=["omac journal backup PATH"])
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        message = f"{target} exists already; a backup never overwrites a file"
        raise Refusal("misuse", message, fix=[f"ls -l {shlex.quote(target)}"]) from None
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        _copy(path, target)
        return inspect(target)
    except BaseException:
        for suffix in (*_WITH, "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(target + suffix)
        raise


def restore(source: str, path: str, mark: Mark) -> tuple[Copy, str]:
    """Put a copy of the journal `source` in the place of `path`, and mark it; return where the present one is kept.

    "" where there is no present one. Raises Refusal; then the present journal is where it was.
    """
    inspect(source)
    draft = _free(path, "restoring")
    copy = back_up(source, draft)
    kept = ""
    try:
        if os.path.lexists(path) or _holds_anything(path + "-wal"):
            kept = _free(path, "before-restore")
        for suffix in reversed(_WITH):  # the log first: beside a journal that is lost it would be applied to the copy
            with contextlib.suppress(FileNotFoundError):
                if kept:
                    os.rename(path + suffix, kept + suffix)
                else:
                    os.unlink(path + suffix)
        os.rename(draft, path)
        _sync(os.path.dirname(path))
    except OSError as error:
        raise _unwritable(path, error) from error
    restored = inspect(path)
    if (restored.id, restored.position) != (copy.id, copy.position):
        message = f"{path} is not what was restored: it ends at position {restored.position}, not {copy.position}"
        raise Refusal("journal-damaged", message, fix=[f"ls -l {shlex.quote(path)}*"])
    mark.write(copy.id, copy.position)
    if mark.read() != (copy.id, copy.position):
        message = f"the journal {path} is restored, but its mark {mark.file} cannot be written"
        raise Refusal("state-unusable", message, fix=[f"rm {shlex.quote(mark.file)}"])
    return copy._replace(path=path), kept


def _copy(path: str, target: str) -> None:
    source = connect_for_reading(path)
    try:
        copy = sqlite3.connect(target, isolation_level=None)
        try:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, that can be copied as it lies
            copy.execute("DELETE FROM opened")  # no process has the copy open
        finally:
            copy.close()
    except sqlite3.Error as error:
        raise refusal_of(error, target) from error
    finally:
        source.close()


def _holds_anything(path: str) -> bool:
    try:
        return os.lstat(path).st_size > 0
    except FileNotFoundError:
        return False


def _free(path: str, why: str) -> str:
    number = 1
    while any(os.path.lexists(f"{path}.{why}-{number}{suffix}") for suffix in _WITH):
        number += 1
    return f"{path}.{why}-{number}"


def _sync(folder: str) -> None:
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: str, error: OSError) -> Refusal:
    reason: Reason = (
        "journal-read-only" if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) else "journal-unavailable"
    )
    fix = [f"ls -ld {shlex.quote(os.path.dirname(path) or '.')}"]
    return Refusal(reason, f"{path} cannot be written: {error.strerror}", fix=fix)
