"""A segment: a read-only file with the oldest events of a journal, as they lay in it.

Rules

1. It is a SQLite file of its own, 0400, with the rows, the texts that they name, and whose they are. It is written
   under another name, flushed, and only then gets its own; nothing changes it afterwards.
2. The journal lists positions, size and SHA-256 of each segment. Reading compares what costs nothing: whose it is, its
   positions, its size. A verification reads it whole.
"""

import contextlib
import hashlib
import os
import sqlite3
import stat
from collections.abc import Container, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from omac.domain.kernel.refusal import quoted

SUFFIX = ".segments"  # of the folder, behind the name of the journal's file
DRAFT = ".draft"  # of a segment that is being written
READ_BYTES = 1 << 20
_COLUMNS = (
    "position", "stream", "version", "kind", "at", "run", "actor", "correlation", "causation", "body", "sealed", "leaf",
    "happened",
)  # fmt: skip
NAMES = ("stream", "kind", "run", "actor")  # columns with ids of names

SegmentProblem = Literal[
    "segment-missing", "segment-renamed", "segment-altered", "segment-truncated", "segment-swapped"
]


class Segment(NamedTuple):
    """A segment as the journal lists it: its positions, its file, and the file's size and SHA-256 (hexadecimal)."""

    first: int
    last: int
    file: str
    bytes: int
    sha256: str
    pruned: int = 0  # when contents were dropped (nanoseconds since 1970 UTC); 0: it is whole

    def has_plain_name(self) -> bool:
        """Return whether the file lies in the folder of segments, whatever the journal says."""
        return self.file == (pruned_file_of if self.pruned else file_of)(self.first, self.last)


class SegmentError(sqlite3.DatabaseError):
    """The reason why a segment cannot be read, or is not the one that was sealed; `fix` is a command that mends it."""

    is_readable = False  # its events can be read, though it is not what was sealed

    def __init__(self, segment: Segment, kind: SegmentProblem, problem: str, fix: str = "") -> None:
        super().__init__(f"its segment {segment.file} (positions {segment.first} to {segment.last}) {problem}")
        self.segment = segment
        self.kind = kind
        self.fix = fix


class SegmentPrunedMeanwhile(sqlite3.OperationalError):
    """The reason why a segment is not there any more: contents were dropped from it while a snapshot was read that
    lists it."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"its segment {segment.file} was pruned while this command read it")


def folder_of(journal: str) -> str:
    """Return the folder of a journal's segments."""
    return journal + SUFFIX


def file_of(first: int, last: int) -> str:
    """Return the name of the segment with these positions."""
    return f"{first:012}-{last:012}.db"


def pruned_file_of(first: int, last: int) -> str:
    """Return the name of the segment with these positions, once contents were dropped from it."""
    return f"{first:012}-{last:012}.pruned.db"


def open_segment(journal: str, journal_id: str, segment: Segment) -> sqlite3.Connection:
    """Return a connection to a segment, which cannot write. Raises SegmentError where it is not the one that the
    journal lists, as far as that can be seen without reading it whole."""
    path = os.path.join(folder_of(journal), segment.file)
    size = _size(path, segment)
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri = f"file:{escaped}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.OperationalError:
        _size(path, segment)  # raises where it has gone meanwhile
        raise
    try:
        connection.execute("PRAGMA query_only=ON")
        require_plain(connection)
        whose = connection.execute("SELECT journal, first, last FROM segment").fetchone()
        if whose != (journal_id, segment.first, segment.last):
            raise SegmentError(segment, "segment-swapped", f"is another one in its place: {_described(whose)}")
        if size != segment.bytes:
            raise _another_size(segment, size)
    except SegmentError:
        connection.close()
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what SQLite says of a damaged schema has its bytes in it
        connection.close()
        if size != segment.bytes:
            raise _another_size(segment, size) from error
        raise SegmentError(segment, "segment-altered", f"cannot be read: {error}") from error
    return connection


def require_plain(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError where a file has more than tables, and an index, that hold what was written: views,
    triggers and other expressions, of which a small one may take all memory, or an endless time, to be read."""
    for kind, name in connection.execute(_COMPUTED):
        raise sqlite3.DatabaseError(f"malformed: its {kind} {quoted(name)} computes, as nothing of omac's does")


def missing_segments(journal: str, segments: Sequence[Segment]) -> Iterator[SegmentError]:
    """Yield why segments of a journal cannot be read, as far as their files' names and sizes show it."""
    for segment in segments:
        try:
            if (size := _size(os.path.join(folder_of(journal), segment.file), segment)) != segment.bytes:
                yield _another_size(segment, size)
        except SegmentError as error:
            yield error


def verify_segment(journal: str, journal_id: str, segment: Segment) -> None:
    """Read a segment whole. Raises SegmentError where it is not the one that was sealed."""
    try:
        open_segment(journal, journal_id, segment).close()
    except SegmentError as error:
        raise (error.kind == "segment-missing" and _renamed(journal, segment)) or error from None
    path = os.path.join(folder_of(journal), segment.file)
    try:
        digest = digest_of_file(path)
    except FileNotFoundError:  # pruned since it was opened
        raise _missing(segment, path) from None
    if digest != segment.sha256:
        altered = SegmentError(segment, "segment-altered", "is not what was sealed: its SHA-256 is another one")
        altered.is_readable = True
        raise altered


def write_segment(
    source: sqlite3.Connection, journal: str, journal_id: str, first: int, last: int, root: bytes, note: str
) -> Segment:
    """Write the segment of these positions, which lie in the file that `source` reads, as a draft; return it. Raises
    sqlite3.Error, OSError."""
    file = file_of(first, last)
    draft = os.path.join(folder_of(journal), file + DRAFT)
    with _drafted(draft) as target:
        target.execute("INSERT INTO segment VALUES (?, ?, ?, ?, ?)", (journal_id, first, last, root, note))
        _copy_rows(source, target, first, last, range(first, last + 1))
    return Segment(first, last, file, os.path.getsize(draft), digest_of_file(draft))


class PrunedContent(NamedTuple):
    """The content that pruning leaves of a segment: the positions that are `kept`. An event with the body `counts`
    replaces the one at `counted_at`; `at` is the time of the last event, `pruned` the present."""

    kept: Container[int]
    counted_at: int
    counts: bytes
    at: int
    pruned: int


def write_pruned(source: sqlite3.Connection, journal: str, segment: Segment, left: PrunedContent) -> Segment:
    """Write what is left of a segment, which `source` reads, as a draft; return it. Raises sqlite3.Error, OSError."""
    file = pruned_file_of(segment.first, segment.last)
    draft = os.path.join(folder_of(journal), file + DRAFT)
    with _drafted(draft) as target:
        target.executemany("INSERT INTO segment VALUES (?, ?, ?, ?, ?)", source.execute("SELECT * FROM segment"))
        _copy_rows(source, target, segment.first, segment.last, left.kept)
        target.execute("CREATE TABLE pruned (position INTEGER, body BLOB, at INTEGER)")
        target.execute("INSERT INTO pruned VALUES (?, ?, ?)", (left.counted_at, left.counts, left.at))
    return Segment(segment.first, segment.last, file, os.path.getsize(draft), digest_of_file(draft), left.pruned)


@contextlib.contextmanager
def _drafted(draft: str) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a new draft, in a transaction that has made its tables; then commit and flush it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    target = sqlite3.connect(draft, isolation_level=None)
    try:
        target.executescript(_TABLES)
        yield target
        target.execute(_INDEX)
        target.execute("COMMIT")
    finally:
        target.close()
    _flush(draft)


def _copy_rows(
    source: sqlite3.Connection, target: sqlite3.Connection, first: int, last: int, kept: Container[int]
) -> None:
    """Copy those rows from `first` to `last` that are `kept`, with the texts that they name."""
    names: set[Any] = set()
    rows = source.execute(_ROWS, (first, last))
    while page := rows.fetchmany(1_000):
        copied = [row for row in page if row[0] in kept]
        target.executemany(_INSERT, copied)
        names.update(row[index] for row in copied for index in _NAMED)
    texts = (row for row in source.execute("SELECT id, text FROM name ORDER BY id") if row[0] in names)
    target.executemany("INSERT INTO name VALUES (?, ?)", texts)


def same_events(source: sqlite3.Connection, journal: str, draft: Segment, kept: Container[int] | None = None) -> bool:
    """Return whether a draft has the rows (those that are `kept`) and texts of what `source` reads. Raises
    sqlite3.Error."""
    path = os.path.join(folder_of(journal), draft.file + DRAFT)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as written:
        written.execute("PRAGMA query_only=ON")
        if written.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            return False
        texts = dict(source.execute("SELECT id, text FROM name"))
        if any(texts.get(id_) != text for id_, text in written.execute("SELECT id, text FROM name")):
            return False
        bounds = (draft.first, draft.last)
        rows = (row for row in source.execute(_ROWS, bounds) if kept is None or row[0] in kept)
        count = 0
        for ours, theirs in zip_longest(rows, written.execute(_ROWS, bounds)):
            count += 1
            if ours != theirs:
                return False
        return kept is not None or count == draft.last - draft.first + 1


def publish(journal: str, segment: Segment) -> None:
    """Give a draft its name. Raises OSError."""
    folder = folder_of(journal)
    os.chmod(os.path.join(folder, segment.file + DRAFT), 0o400)
    os.rename(os.path.join(folder, segment.file + DRAFT), os.path.join(folder, segment.file))
    sync_folder(folder)
    sync_folder(os.path.dirname(folder))


def withdraw(journal: str, segments: list[Segment]) -> None:
    """Remove drafts, and files in the place of a segment that the journal does not list: what unfinished seals and
    prunes left, and what was pruned. Raises OSError."""
    listed = {segment.file for segment in segments}
    others = {name for segment in segments for name in (file_of(*segment[:2]), pruned_file_of(*segment[:2]))} - listed
    following = f"{(segments[-1].last if segments else 0) + 1:012}-"
    for name in os.listdir(folder_of(journal)):
        if name.endswith(DRAFT) or name in others or name.startswith(following):
            os.unlink(os.path.join(folder_of(journal), name))
    sync_folder(folder_of(journal))


def copy_segments(journal: str, segments: list[Segment], target: str) -> None:
    """Copy segments of a journal to the folder of the journal `target`, which has none yet. Raises SegmentError (one is
    not what was sealed), OSError."""
    if not segments:
        return
    os.mkdir(folder_of(target), 0o700)
    for segment in segments:
        copy = os.path.join(folder_of(target), segment.file)
        size = _size(os.path.join(folder_of(journal), segment.file), segment)
        if size != segment.bytes:
            raise _another_size(segment, size)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(copy, flags, 0o400), "wb") as file:
            for part in _content(os.path.join(folder_of(journal), segment.file)):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if digest_of_file(copy) != segment.sha256:
            raise SegmentError(segment, "segment-altered", "is not what was sealed: its SHA-256 is another one")
    sync_folder(folder_of(target))


def digest_of_file(path: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    for part in _content(path):
        digest.update(part)
    return digest.hexdigest()


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _content(path: str) -> Iterator[bytes]:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        while part := file.read(READ_BYTES):
            yield part


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: str, segment: Segment) -> int:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        raise _missing(segment, path) from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; it should be at {path}"
        raise SegmentError(segment, "segment-missing", problem) from None
    if not stat.S_ISREG(status.st_mode):
        raise SegmentError(segment, "segment-missing", f"is missing: {path} is no regular file")
    if not os.access(path, os.R_OK):
        raise SegmentError(segment, "segment-missing", f"cannot be read: {path} is not readable for you")
    return status.st_size


def _missing(segment: Segment, path: str) -> SegmentError:
    return SegmentError(segment, "segment-missing", f"is missing; it should be at {path}")


def _renamed(journal: str, segment: Segment) -> SegmentError | None:
    """The error of a segment that lies beside its place, under another name."""
    folder = folder_of(journal)
    for folder_, _, names in [*os.walk(folder), (os.path.dirname(journal), [], os.listdir(os.path.dirname(journal)))]:
        for name in names:
            path = os.path.join(folder_, name)
            with contextlib.suppress(OSError):
                if os.lstat(path).st_size == segment.bytes and digest_of_file(path) == segment.sha256:
                    target = os.path.join(folder, segment.file)
                    return SegmentError(
                        segment, "segment-renamed", f"has another name: it is {path}", _move(path, target)
                    )
    return None


def _move(path: str, target: str) -> str:
    return f"mv {quoted(path)} {quoted(target)}"


def _another_size(segment: Segment, size: int) -> SegmentError:
    kind: SegmentProblem = "segment-truncated" if size < segment.bytes else "segment-altered"
    return SegmentError(segment, kind, f"is not what was sealed: it has {size} bytes, not {segment.bytes}")


def _described(whose: Any) -> str:
    return f"positions {whose[1]} to {whose[2]} of journal {whose[0]}" if whose else "no segment"


_NAMED = tuple(_COLUMNS.index(name) for name in NAMES)
_ROWS = f"SELECT {', '.join(_COLUMNS)} FROM event WHERE position BETWEEN ? AND ? ORDER BY position"  # noqa: S608  # ours
_INSERT = f"INSERT INTO event VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608  # marks
_TABLES = """
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
BEGIN;
CREATE TABLE segment (journal TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, root BLOB, note TEXT);
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE event (
    position INTEGER PRIMARY KEY, stream INTEGER NOT NULL, version INTEGER, kind INTEGER NOT NULL, at BIGINT NOT NULL,
    run INTEGER NOT NULL, actor INTEGER NOT NULL, correlation TEXT, causation BIGINT, body BLOB NOT NULL, sealed BLOB,
    leaf BLOB, happened BIGINT
);
"""
_INDEX = "CREATE UNIQUE INDEX event_version ON event (stream, version) WHERE version IS NOT NULL"
_COMPUTED = f"""
SELECT type, name FROM sqlite_master AS made WHERE coalesce(rootpage, 0) = 0  -- views, triggers and virtual tables
    OR EXISTS (SELECT 1 FROM pragma_table_xinfo(made.name) WHERE hidden)  -- generated columns
    OR (type = 'table' AND sql LIKE '%check%') OR (type = 'index' AND sql <> '{_INDEX}')
"""  # noqa: S608  # our index
