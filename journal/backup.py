"""Backups of a journal: a copy in one file, made while it is in use, and put back in its place.

Rules

1. A backup is made by SQLite, page by page in one snapshot, so it is a whole journal at one position, whatever is
   appended meanwhile, with a copy of each sealed segment that it lists. It replaces no file, and nobody else can read
   it.
   It is made under another name and gets its own when it is whole, and all that belongs to it has its place: what a
   backup leaves that is killed is not taken for one.
2. Only a whole journal is restored. It is copied beside the journal, gets there what it lacks, and takes its place in
   one step; what was there is kept beside it, under a name that is free. The next restore undoes one that was killed
   before that step.
3. The caller of a restore makes sure that no run has the journal open. A command may: what it appends until the
   journal is moved away ends the restore, and behind that it cannot append.
"""

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from omac.domain.kernel.refusal import Reason, Refusal, list_command, quoted
from omac.domain.kernel.unflushed import Unflushed
from omac.journal.file import BUSY_MS, connect_for_reading, reading, refusal_of
from omac.journal.folders import write_command
from omac.journal.log_connection import JournalConnection
from omac.journal.mark import RESTORING, Mark
from omac.journal.segment import (
    SUFFIX,
    Segment,
    SegmentError,
    SegmentPrunedMeanwhile,
    copy_segments,
    folder_of,
    sync_folder,
)

_WITH = ("", "-wal", "-shm")  # the files of a journal
_ALL = (SUFFIX, *_WITH)  # and the folder of its segments
_KEPT = "before-restore"


class Copy(NamedTuple):
    """A whole journal in one file, with its segments: its id, its last position, and its size with them."""

    path: str
    id: str
    position: int
    bytes: int


def inspect(path: str) -> Copy:
    """Return what the journal at `path` is. Raises Refusal: there is none, or it is damaged."""
    with reading(path) as connection:
        journal_id, position = connection.execute("SELECT journal.id, position FROM journal, head").fetchone()
        segments = connection.segments()
        for segment in segments:
            connection.verify(segment)
        if (sound := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"malformed: {sound}")
    return Copy(path, journal_id, position, os.path.getsize(path) + sum(segment.bytes for segment in segments))


def back_up(path: str, target: str) -> Copy:
    """Copy the journal at `path`, which may be in use, to the new file `target`. Raises Refusal."""
    require_free(path, target)
    try:
        return _backed_up(path, target)
    except Refusal as refusal:
        if refusal.reason == "journal-damaged":
            inspect(path)  # where the journal is damaged, the refusal names that, and not its copy, which is gone
        raise


def _backed_up(path: str, target: str) -> Copy:
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise _taken(target) from None
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        segments = _copy(path, target)
    except BaseException:
        _remove(target)
        raise
    try:
        copy_segments(path, segments, target)
    except FileExistsError:
        _remove(target)
        raise _taken(folder_of(target)) from None
    except (OSError, SegmentError) as error:
        _remove(target, with_segments=True)
        if gone := sorted(set(segments) - set(_listed(path))):
            raise refusal_of(SegmentPrunedMeanwhile(gone[0]), path) from error
        raise _unwritable(target, error) if isinstance(error, OSError) else refusal_of(error, path) from error
    try:
        return inspect(target)
    except BaseException:
        _remove(target, with_segments=bool(segments))
        raise


def require_free(path: str, target: str, *beside: str) -> None:
    """Raise Refusal (misuse) where a backup of the journal at `path` cannot have the name `target`, with what lies
    `beside` it: something is there."""
    if target in [path + suffix for suffix in (*_WITH, "-journal")]:
        raise Refusal("misuse", f"{target} is one of the journal's own files", fix=["omac journal backup PATH"])
    for name in (target, folder_of(target), *beside):
        if os.path.lexists(name):
            raise _taken(name)


def begin(path: str, target: str, *beside: str) -> str:
    """Return the name under which the backup `target` of the journal at `path` is made, with what lies `beside` it.
    Raises Refusal (misuse): something is there, or another one is being made there or was killed, also in its last
    moment, when what belongs to it has its names already."""
    draft = f"{target}.unfinished"
    names = [*(draft + suffix for suffix in (*_WITH, "-journal")), folder_of(draft)]
    if left := [name for name in names if os.path.lexists(name)]:
        message = f"{left[0]} is of another backup to {target}, which is being made or was interrupted"
        if not os.path.lexists(target):
            left += [name for name in (folder_of(target), *beside) if os.path.lexists(name)]
        fix = [f"rm -rf {' '.join(map(quoted, left))}  # unless a backup is being made"]
        raise Refusal("misuse", message, fix=fix)
    require_free(path, target, *beside)
    return draft


def discard(draft: str) -> None:
    """Remove a backup that was begun."""
    _remove(draft, with_segments=True)


def finish(draft: str, target: str) -> None:
    """Give a backup its name, with its segments first. Raises Refusal."""
    try:
        if os.path.lexists(folder_of(draft)):
            os.rename(folder_of(draft), folder_of(target))
        os.rename(draft, target)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        sync_folder(os.path.dirname(target))
    except OSError as error:
        unflushed = Unflushed(error.errno, error.strerror)
        raise unflushed.refusal("state-unusable", target, os.path.dirname(target)) from error


def _taken(name: str) -> Refusal:
    message = f"{name} exists already; a backup never overwrites a file"
    return Refusal("misuse", message, fix=[list_command(name), "omac journal backup OTHER"])


def _listed(path: str) -> list[Segment]:
    """The segments of a journal as it is now."""
    with reading(path) as connection:
        return connection.segments()


def _remove(target: str, *, with_segments: bool = False) -> None:
    """Remove a copy that is not whole."""
    if with_segments:
        shutil.rmtree(folder_of(target), ignore_errors=True)
    for suffix in (*_WITH, "-journal"):
        with contextlib.suppress(OSError):
            os.unlink(target + suffix)


def restore(
    source: str,
    path: str,
    mark: Mark,
    complete: Callable[[str], None] = lambda draft: None,
    present: Copy | None = None,
) -> tuple[Copy, str]:
    """Put a copy of the journal `source` in the place of `path`, and mark it; return where the present one is kept.

    "" where there is no present one. `complete` appends to the copy at a path before it has its place. `present` is
    what the caller knows of the present journal, None where that cannot be read. Raises Refusal, also where it has gone
    on since (contention); then the present journal is where it was.
    """
    inspect(source)
    draft = _draft(path)
    if os.path.abspath(source) == os.path.abspath(draft):
        message = f"a restore makes and removes a folder named {source}"
        raise Refusal("misuse", message, fix=[f"mv {quoted(source)} {quoted(source + '.db')}"])
    _remove(draft, with_segments=True)  # of one that was killed
    copy = back_up(source, draft)
    try:
        complete(draft)
        _into_one_file(draft)
        copy = inspect(draft)
    except BaseException:
        _remove(draft, with_segments=True)
        raise
    kept = _put_in_place(draft, copy, path, mark, present)
    restored = inspect(path)
    if (restored.id, restored.position) != (copy.id, copy.position):
        message = f"{path} is not what was restored: it ends at position {restored.position}, not {copy.position}"
        raise Refusal("journal-damaged", message, fix=[f"ls -l {quoted(path)}*"])
    if mark.read() != (copy.id, copy.position):
        message = f"the journal {path} is restored, but its mark {mark.file} cannot be written"
        raise Refusal("state-unusable", message, fix=[f"rm {quoted(mark.file)}"])
    return copy._replace(path=path), kept


def _put_in_place(draft: str, copy: Copy, path: str, mark: Mark, present: Copy | None) -> str:
    """Move what is at `path` away, and the draft there, and mark it; return where the former is kept, "" for none.
    Raises Refusal; then all is as it was, without the draft."""
    kept, moved, known = "", list[tuple[str, str]](), mark.read()

    def move(name: str, to: str) -> None:
        os.rename(name, to)
        moved.append((name, to))

    try:
        _move_log(path)
        if os.path.lexists(path) or _holds_anything(path + "-wal") or os.path.lexists(folder_of(path)):
            kept = _free(path)
        for suffix in reversed(_ALL):  # the log first: beside a journal that is lost it would be applied to the copy
            with contextlib.suppress(FileNotFoundError):
                if kept:
                    move(path + suffix, kept + suffix)
                else:
                    os.unlink(path + suffix)
        if kept and present is not None:
            _require_as_known(kept, present)  # from here on nobody can append to it
        if os.path.lexists(folder_of(draft)):
            move(folder_of(draft), folder_of(path))
        mark.trust()
        mark.write(copy.id, copy.position)  # while the copy shows other commands that a restore is under way
        move(draft, path)
        sync_folder(os.path.dirname(path))
    except (OSError, Refusal) as error:
        _roll_back(moved, mark, known)
        _remove(draft, with_segments=True)
        if isinstance(error, Refusal):
            raise
        raise _unwritable(error.filename or path, error) from error
    return kept


def _require_as_known(kept: str, present: Copy) -> None:
    """Raise Refusal (contention) where the journal that was moved to `kept` has gone on, once what others had begun to
    append is in it: a revocation, an erasure or a new key among that would be left out of the restored one."""
    try:
        with contextlib.closing(sqlite3.connect(kept, isolation_level=None, timeout=BUSY_MS / 1000)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            (position,) = connection.execute("SELECT position FROM head").fetchone()
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
            return  # nobody can append to it
        raise refusal_of(error, present.path) from error
    if position != present.position:
        message = f"the journal {present.path} went on while it was being restored, from position {present.position}"
        fix = [f"omac audit --from {present.position + 1} --journal {quoted(present.path)}  # what came"]
        fix += ["the same command again"]
        raise Refusal("contention", f"{message} to {position}; nothing was changed", fix=fix)


def _roll_back(moved: list[tuple[str, str]], mark: Mark, known: tuple[str, int] | None) -> None:
    """Give what a restore has moved the names that it had, and the journal the mark."""
    if known is not None:
        mark.write(*known)
    for name, to in reversed(moved):
        with contextlib.suppress(OSError):
            os.rename(to, name)


def kept_journals(path: str, since_ns: int = 0) -> list[str]:
    """Return the journals that restores moved away from `path`, since a time: to rename a file changes its ctime."""
    folder, start = os.path.dirname(path), f"{path}.{_KEPT}-"
    names = [os.path.join(folder, name) for name in (os.listdir(folder or ".") if os.path.isdir(folder or ".") else ())]
    kept = [name for name in names if name.startswith(start) and name.removeprefix(start).isdigit()]
    return [name for name in kept if os.lstat(name).st_ctime_ns >= since_ns]


def put_back(path: str) -> bool:
    """Put the journal back that a restore was moving away when it was killed; return whether one was."""
    draft = _draft(path)
    if os.path.lexists(path) or not os.path.lexists(draft):
        return False
    with contextlib.suppress(Refusal, sqlite3.Error, OSError):  # what cannot be read stays where it is
        for kept in kept_journals(path, os.lstat(draft).st_mtime_ns):
            _listed(kept)  # it can be read
            if _listed(draft) and not os.path.lexists(folder_of(draft)):  # those of the copy had taken their place
                os.rename(folder_of(path), folder_of(draft))
            if os.path.lexists(folder_of(kept)):
                os.rename(folder_of(kept), folder_of(path))
            for suffix in reversed(_WITH):  # the journal last: without it the next restore goes on here
                with contextlib.suppress(FileNotFoundError):
                    os.rename(kept + suffix, path + suffix)
            return True
    return False


def _draft(path: str) -> str:
    """Return the path at which the copy that replaces a journal is made."""
    return f"{path}{RESTORING}"


def _into_one_file(draft: str) -> None:
    """Move the log of a journal that is in nobody's use into it, so that it can be renamed. Raises Refusal."""
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.Error as error:
        raise refusal_of(error, draft) from error


def _move_log(path: str) -> None:
    """Move a log into its journal, as far as that can be read: apart they are worth nothing, and a restore that is
    killed between their names leaves them apart."""
    if os.path.isfile(path) and not os.path.islink(path):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()  # the last to close it takes it away


def _copy(path: str, target: str) -> list[Segment]:
    """Copy the journal's own file, and return the segments that the copy lists."""
    try:
        with (
            contextlib.closing(connect_for_reading(path)) as source,
            contextlib.closing(sqlite3.connect(target, isolation_level=None, factory=JournalConnection)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, that can be copied as it lies
            if copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'opened'").fetchone():  # the first omac had none
                copy.execute("DELETE FROM opened")  # no process has the copy open
            return copy.segments()
    except sqlite3.Error as error:
        raise refusal_of(error, target) from error


def _holds_anything(path: str) -> bool:
    try:
        return os.lstat(path).st_size > 0
    except FileNotFoundError:
        return False


def _free(path: str) -> str:
    number = 1
    while any(os.path.lexists(f"{path}.{_KEPT}-{number}{suffix}") for suffix in _ALL):
        number += 1
    return f"{path}.{_KEPT}-{number}"


def _unwritable(path: str, error: OSError) -> Refusal:
    reason: Reason = (
        "journal-read-only" if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) else "journal-unavailable"
    )
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.lexists(folder):
        return Refusal(reason, f"{path} cannot be written: {folder} does not exist", fix=[f"mkdir -p {quoted(folder)}"])
    return Refusal(reason, f"{path} cannot be written: {error.strerror}", fix=[write_command(error, folder)])
