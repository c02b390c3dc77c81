"""The file of a journal: opened by SQLite to be read, and everything that can be wrong with it, in omac's words.

Opens it with sqlite3 alone, so that a command that only reads starts quickly.
"""

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager

from omac.domain.kernel.exhaustion import is_exhaustion
from omac.domain.kernel.locks import NO_LOCKS, without_locks
from omac.domain.kernel.refusal import KERNEL_MESSAGES, Reason, Refusal, quoted
from omac.domain.kernel.sizes import shown_size
from omac.journal.event_kinds import SCHEMA
from omac.journal.folders import MORE_FILES, lacks_files, room_command, write_command
from omac.journal.log_connection import JournalConnection
from omac.journal.mark import Mark, being_restored
from omac.journal.segment import SUFFIX, Segment, SegmentError, SegmentPrunedMeanwhile, folder_of, require_plain

BUSY_MS = 5_000
LOG_SHARE = 8  # of a full disk: a write-ahead log of one part or more is worth leaving behind
INDEX_BYTES = 32_768  # of the index of a write-ahead log, at the least
ELSEWHERE = "export OMAC_JOURNAL=PATH  # somewhere you can write"
MEND_MODES = "omac doctor --fix  # mends modes in the state directory"
FILES_OF_A_JOURNAL = 3  # itself, its log and the index of that
VERSION_INDEX = "event_version"  # unique over streams and versions
_OF_THE_DISK = ("SQLITE_IOERR_READ", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC")


class JournalInCreation(Refusal):
    """A file without tables: another process is about to create them, or was killed then."""


def connect_for_reading(path: str, mark: Mark | None = None, *, lenient: bool = False) -> JournalConnection:
    """Return a connection that cannot write; works on read-only media too. What a kill left half written is undone.

    `mark` is what is known of the journal; `lenient`: missing events are left to the caller.
    Raises Refusal: journal-unavailable (no journal exists), journal-newer, journal-damaged, state-unusable.
    """
    known = mark.read() if mark is not None else None
    try:
        mode = os.stat(path).st_mode
    except OSError:
        raise none_yet(path, mark, known) from None
    require_regular(path, mode)
    try:
        try:
            return _connect(path, "mode=ro", mark, lenient)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            _roll_back(path)
            return _connect(path, "mode=ro", mark, lenient)
    except sqlite3.Error as error:
        if not os.path.exists(path):
            raise none_yet(path, mark, known) from error
        # A write-ahead log wants its index file; media that take none can only be read as they lie. A journal that is
        # read so is read as it was at that moment, whatever is appended: for no other reason.
        if not (_takes_no_files(error, path) or _is_for_room(error, path)) or _has_log(path):
            raise refusal_of(error, path) from error
    try:
        return _connect(path, "mode=ro&immutable=1", mark, lenient)
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error


@contextmanager
def reading(path: str, *, lenient: bool = False) -> Iterator[JournalConnection]:
    """A connection as of `connect_for_reading`, closed at the end. Raises Refusal, for errors of SQLite inside too."""
    try:
        with closing(connect_for_reading(path, lenient=lenient)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error


def require_regular(path: str, mode: int) -> None:
    """Raise Refusal (state-unusable) for a link, a folder, a pipe or a socket."""
    fix = [f"ls -l {quoted(path)}"]
    if stat.S_ISLNK(mode):
        raise Refusal("state-unusable", f"the journal {path} is a symbolic link; name the file itself", fix=fix)
    if not stat.S_ISREG(mode):
        raise Refusal("state-unusable", f"the journal {path} is not a regular file", fix=fix)


def require_known(path: str, schema: object) -> None:
    """Raise Refusal (journal-newer) for a schema of a later omac; journal-damaged for one that is no number."""
    if not isinstance(schema, int):
        raise damaged(path, "its schema is no number")
    if schema > SCHEMA:
        message = f"the journal {path} has schema {schema}; this omac knows {SCHEMA}"
        raise Refusal("journal-newer", message, fix=["omac version  # then install the newer omac"])


def refusal_of(error: BaseException, path: str) -> Refusal:
    """Return what an error of SQLite means for the person who runs omac."""
    if isinstance(error, SegmentError):
        return segment_refusal(error, path)
    if isinstance(error, SegmentPrunedMeanwhile):
        return Refusal("contention", f"the journal {path}: {error}", fix=["the same command again"])
    text = str(error)
    if "failed: leaf.position" in text:
        return unproven(path, "it has leaves that its tree does not count")
    if "no such table: leaf" in text:
        return unproven(path, "its leaves are missing")
    listing = f"ls -l {quoted(path)}"
    if "readonly" in text or "read-only" in text:
        fix = [listing, MEND_MODES, ELSEWHERE]
        return Refusal("journal-read-only", f"the journal {path} cannot be written: {text}", fix=fix)
    if "full" in text or _is_for_room(error, path):
        return disk_full(path)
    if "malformed" in text or "not a database" in text or "no such " in text or "decode to UTF-8" in text:
        return damaged(path, text)
    if "locked" in text or "busy" in text:
        if not _has_locks(folder := os.path.dirname(path) or "."):
            return without_locks(folder)
        message = f"the journal {path} is locked by another program"
        return Refusal("journal-unavailable", message, fix=[f"fuser {quoted(path)}"])
    if "disk I/O" in text:
        return _failed(path, text, getattr(error, "sqlite_errorname", ""))
    if "unable to open" in text and _lacks_descriptors():
        message = f"the journal {path} cannot be opened: this process may have no more files open"
        return Refusal("journal-unavailable", message, fix=[MORE_FILES])
    return Refusal("journal-unavailable", f"the journal {path} cannot be used: {text}", fix=[listing])


def _failed(path: str, text: str, code: str) -> Refusal:
    """Return the refusal of a journal that the system failed to read or write. SQLite's code says at which step, and
    not why."""
    if _is_read_only(path):
        return on_read_only(path, "journal-unavailable")
    fix = [f"fuser {quoted(path)} {quoted(path)}-shm  # stop these, then try again"]  # where the log of one was cut
    if code in _OF_THE_DISK:
        fix = [KERNEL_MESSAGES, *fix]
    if (limit := _size_limit()) is not None:  # or that: the file that reached it may be gone by now
        text, fix = f"{text}; no file of this process may exceed {limit} bytes", ["ulimit -f unlimited", *fix]
    return Refusal("journal-unavailable", f"the journal {path} cannot be used: {text}", fix=fix)


def on_read_only(path: str, reason: Reason = "journal-read-only") -> Refusal:
    """Return the refusal of a journal on a read-only file system, which it may have become while omac ran."""
    fix = [f"findmnt --target {quoted(path)}  # how it is mounted", ELSEWHERE]
    return Refusal(reason, f"the journal {path} cannot be written: its file system is read-only", fix=fix)


def _is_read_only(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _size_limit() -> int | None:
    """Return the bytes that a file of this process may have; None: as many as the disk takes. SQLite tells a write
    beyond that as any failure."""
    import resource  # errors alone need it

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if limit == resource.RLIM_INFINITY else limit


def _has_locks(folder: str) -> bool:
    """Return whether files of a folder can be locked; True where that cannot be tried. SQLite calls a file that cannot
    be locked a locked one. Another file is tried: closing a descriptor of the journal's would unlock that."""
    import tempfile  # errors alone need it

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in NO_LOCKS
    return True


def disk_full(path: str) -> Refusal:
    """Return the refusal of a journal whose disk is full. Where its write-ahead log takes much of that, a copy without
    one can take the journal's place."""
    named = quoted(path)
    message, fix = f"the disk of the journal {path} is full", [room_command(os.path.dirname(path))]
    try:
        log, disk = os.path.getsize(path + "-wal"), os.statvfs(path)
    except OSError:
        return Refusal("journal-unavailable", message, fix=fix)
    if log and log >= disk.f_blocks * disk.f_frsize // LOG_SHARE:
        message += f"; {shown_size(log)} of it are its write-ahead log, which a copy does not need"
        moved = f"mv {named} {named}[-.]* OTHER/"
        fix.append(f"omac journal backup OTHER/copy.db --journal {named}  # OTHER: a folder on a larger disk")
        fix.append(f"{moved} && omac journal restore OTHER/copy.db --journal {named}  # with no server")
    return Refusal("journal-unavailable", message, fix=fix)


def damaged(path: str, problem: str) -> Refusal:
    """Return the refusal of a file that is no journal, or no whole one."""
    return Refusal(
        "journal-damaged", f"{path} is not a journal of omac, or is damaged: {problem}", fix=restore_commands(path)
    )


def unproven(path: str, problem: str) -> Refusal:
    """Return the refusal of a journal that is not what its leaves, tree or checkpoints prove; no repair mends that."""
    named = f"--journal {quoted(path)}"
    restore = f"omac journal restore BACKUP {named}  # a copy made by omac journal backup"
    fix = [f"omac audit verify {named}  # names what was changed", restore]
    return Refusal("journal-damaged", f"the journal {path} is not what was recorded: {problem}", fix=fix)


def restore_commands(path: str) -> list[str]:
    """Return the commands that mend a damaged journal."""
    named = f"--journal {quoted(path)}"
    return [f"omac journal check {named}", f"omac journal repair {named}"]


def disk_refusal(error: OSError, path: str) -> Refusal:
    """Return the refusal of a file that cannot be written beside the journal at `path`."""
    message = f"{error.filename or path} cannot be written: {error.strerror}"
    return Refusal("journal-unavailable", message, fix=[write_command(error, os.path.dirname(path) or ".")])


def segment_refusal(error: SegmentError, path: str) -> Refusal:
    """Return the refusal of a segment that is missing, or is not the one that was sealed."""
    target = os.path.join(folder_of(path), error.segment.file)
    copy = f"install -m 400 BACKUP{SUFFIX}/{error.segment.file} {quoted(target)}  # a copy of omac journal backup"
    fix = [error.fix or copy, f"omac journal check --journal {quoted(path)}"]
    return Refusal("journal-damaged", f"the journal {path} is not whole: {error}", fix=fix)


def unreadable_segment(refusal: Refusal) -> Segment | None:
    """Return the segment that is missing, or is not the one that was sealed, where a refusal is for that."""
    return refusal.__cause__.segment if isinstance(refusal.__cause__, SegmentError) else None


def is_of_segment(refusal: Refusal) -> bool:
    """Return whether a refusal is that of a segment."""
    return unreadable_segment(refusal) is not None


def beyond_repair(refusal: Refusal, path: str) -> Refusal:
    """Return the refusal as the check and the repair give it: for a damage that they cannot mend, other ways back."""
    if refusal.reason != "journal-damaged" or is_of_segment(refusal):
        return refusal
    named = quoted(path)
    restore = f"omac journal restore BACKUP --journal {named}  # a copy made by omac journal backup"
    aside = f"mv {named} {quoted(path + '.damaged')}  # without a backup: approvals and records are lost"
    other = [f"head -c 99 {named} | cat -v  # was another one meant?"] if "not a database" in refusal.message else []
    return Refusal(refusal.reason, refusal.message, fix=[*other, restore, aside])


def none_yet(path: str, mark: Mark | None, known: tuple[str, int] | None) -> Refusal:
    """Return the refusal of a path at which no journal exists. Raises it (journal-lost) where there was one; `known` as
    of `Mark.require`."""
    if mark is not None:
        mark.require_unmarked(known)
    if refusal := being_restored(path):
        return refusal
    fix = [f"omac serve --no-inner --journal {quoted(path)}  # creates it"]
    return Refusal("journal-unavailable", f"no journal exists at {path} yet", fix=fix)


def _connect(path: str, options: str, mark: Mark | None, lenient: bool) -> JournalConnection:
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    known = mark.read() if mark is not None else None
    connection = sqlite3.connect(
        f"file:{escaped}?{options}", uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000,
        factory=JournalConnection,
    )  # fmt: skip
    try:
        require_plain(connection)
        if lacks_happened(connection):
            connection.execute(_FIRST_LAYOUT)
        connection.execute("PRAGMA query_only=ON")
        if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table'").fetchone() is None:
            refusal = none_yet(path, mark, known)
            raise JournalInCreation(refusal.reason, refusal.message, fix=refusal.fix)
        names = connection.execute("SELECT schema, id FROM journal").fetchall()
        if len(names) != 1:
            raise damaged(path, f"it has {len(names)} names instead of one")
        require_known(path, names[0][0])
        if not lenient:
            last = _require_ends(connection, path)
            if mark is not None:
                mark.require(known, names[0][1], last)
    except UnicodeDecodeError as error:  # what SQLite says of a damaged schema has its bytes in it
        connection.close()
        raise sqlite3.DatabaseError(f"malformed: its schema is no text ({error})") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _roll_back(path: str) -> None:
    """Undo what a killed process had begun to write before the write-ahead log was on: in a journal that is new, or
    was restored. Raises sqlite3.Error."""
    with closing(sqlite3.connect(path, timeout=BUSY_MS / 1000)) as connection:
        connection.execute("SELECT 1 FROM sqlite_master")


def lacks_happened(connection: sqlite3.Connection) -> bool:
    """Return whether a journal has the layout of the first omac, whose events have no column `happened`."""
    columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('event')")}
    return bool(columns) and "happened" not in columns


def _require_ends(connection: JournalConnection, path: str) -> int:
    """Return the last position. A head beside it, or a first event that is missing, is damage; cheap at any size."""
    with connection.snapshot():  # another process may be appending, or sealing
        heads, head, first, last = connection.execute(_ENDS).fetchone()
        sealed = connection.sealed_to() if first not in (None, 1) else 0
    if heads != 1 or head != (last or 0):
        raise damaged(path, f"its head is {head if heads == 1 else 'missing'}, its last event is at {last or 0}")
    if first is not None and not 1 <= first <= sealed + 1:
        raise damaged(path, f"its first event is at position {first}")
    return int(last or 0)


_FIRST_LAYOUT = "CREATE TEMP VIEW event AS SELECT *, NULL AS happened FROM main.event"  # it hides the table
_ENDS = """
    SELECT (SELECT count(*) FROM head), (SELECT max(position) FROM head),
           (SELECT min(position) FROM event), (SELECT max(position) FROM event)
"""


def _takes_no_files(error: BaseException, path: str) -> bool:
    """Return whether SQLite found no file of the journal's, and its folder takes none, as on a read-only medium."""
    if "unable to open" not in str(error):
        return False
    import tempfile  # errors alone need it

    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(path) or "."):
            return False
    except OSError as problem:
        return not is_exhaustion(problem)


def _lacks_descriptors() -> bool:
    """Return whether this process has too few descriptors left for a journal, which SQLite tells as any failure."""
    opened: list[int] = []
    try:
        opened.extend(os.open("/", os.O_PATH | os.O_CLOEXEC) for _ in range(FILES_OF_A_JOURNAL))
    except OSError:
        return True
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False


def _is_for_room(error: BaseException, path: str) -> bool:
    """Return whether SQLite found no room for the index of a write-ahead log, or no file for one, which it tells as any
    failure."""
    folder, is_io = os.path.dirname(path) or ".", "disk I/O" in str(error)
    if not is_io and "unable to open" not in str(error):
        return False
    if lacks_files(folder):
        return True
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return is_io and disk.f_bavail * disk.f_frsize < INDEX_BYTES


def _has_log(path: str) -> bool:
    """Return whether committed events lie in a write-ahead log that an immutable open would not see."""
    try:
        return os.path.getsize(path + "-wal") > 0
    except OSError:
        return False
