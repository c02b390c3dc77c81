"""An export: which events are taken, the record of it, and the bundle's files.

They are written in a folder beside their place, which is moved there as a whole: what was killed leaves no bundle.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import IO, NamedTuple

import msgspec
import trio

from omac.domain.access import export
from omac.domain.access.export import ExportCreated
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause
from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.bundle import (
    CHECKPOINT,
    EVIDENCE,
    FORMAT,
    GAPS,
    MANIFEST,
    SIGNATURE,
    BundleFile,
    BundleManifest,
    EventContent,
    digest_of,
    taken,
)
from omac.journal.checkpoint import Checkpoint, sign, sign_note, standing
from omac.journal.reader import ReadJournal
from omac.projections.evidence.accesses import ended_rows
from omac.projections.evidence.audit_query import AuditQuery
from omac.services.kernel.opened import OpenedJournal
from omac.tools.compose.journals import to_read, to_write
from omac.tools.compose.signing import signing_key
from omac.tools.compose.state import StateDir, host_id
from omac.tools.terminal.export_formats import FILES, Format, lines_of
from omac.tools.terminal.version import VERSION

DRAFT = ".omac-export-"  # a bundle that is being written, beside its place

Tell = Callable[[int, int], None]


class ExportRequest(NamedTuple):
    """What is exported. `folder` is absolute; `filters` are the options as typed; `redacted` the kinds left out."""

    format: Format
    folder: str
    query: AuditQuery
    filters: Mapping[str, str]
    redacted: tuple[str, ...]
    journal: str | None


class Exported(NamedTuple):
    """What was written."""

    folder: str
    manifest: BundleManifest


def export_evidence(
    request: ExportRequest, environment: Mapping[str, str], clock: Callable[[], int], reading: Tell, writing: Tell
) -> Exported:
    """Record the export, then write its bundle. `reading` and `writing` are told of how many events were done, of how
    many. Raises Refusal: its place is taken or cannot be written, or the journal is not what was recorded."""
    if os.path.lexists(request.folder):
        raise Refusal("misuse", f"{request.folder} exists already: an export makes its folder", fix=["--out NEW"])
    state = StateDir.of(environment)
    host = host_id(state)
    with closing(to_read(environment, request.journal)) as journal:
        path, journal_id = journal.store.path, journal.store.journal_id()
        found = _positions(journal, request.query, reading)
        head = journal.store.head()
    with _draft_of(request.folder) as draft:
        count = len(found) if found is not None else head
        fact = ExportCreated(request.format, request.folder, dict(request.filters), request.redacted, count)
        with closing(to_write(state, host, environment, request.journal, clock)) as opened:
            record = Addressed(export.AGGREGATE, ids.export_stream(host), fact)
            trio.run(OpenedJournal(opened, host).record, [record], Cause("person"))
        checkpoint = standing(path, clock())
        name, seed = signing_key(state)
        files = _Files(draft)
        files.write(CHECKPOINT, sign(checkpoint, name, seed).encode())
        positions = found if found is not None else range(1, head + 1)
        counts = _write_events(files, request, path, journal_id, checkpoint, positions, writing, count)
        manifest = BundleManifest(
            FORMAT, request.format, VERSION, journal_id, checkpoint.at, checkpoint.size, checkpoint.root.hex(),
            checkpoint.late, dict(request.filters), request.redacted, *counts, files.written,
        )  # fmt: skip
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        files.write(MANIFEST, text)
        files.write(SIGNATURE, sign_note(digest_of(text), name, seed).encode())
        _sync(draft)
        os.rename(draft, request.folder)
    _sync(os.path.dirname(request.folder))
    return Exported(request.folder, manifest)


def derived(manifest: BundleManifest, events: Iterator[EventContent]) -> bytes | None:
    """Return the SHA-256 of a bundle's data as this omac derives it; None where another version derived it."""
    if manifest.omac != VERSION or manifest.data not in FILES:
        for _ in events:
            pass
        return None
    digest = hashlib.sha256()
    for line in lines_of(manifest.data, manifest.journal, events):
        digest.update(line)
    return digest.digest()


def _positions(journal: ReadJournal, query: AuditQuery, tell: Tell) -> "array[int] | None":
    """The positions of the events that begin and end the rows that are wanted, in order; None: all events."""
    if not query.is_selective:
        return None
    head, found = journal.store.head(), array("q")
    for ended, row in ended_rows(journal.records(0, head)):
        tell(ended, head)
        if query.matches(row):
            found.append(row.position)
            if ended != row.position:
                found.append(ended)
    return array("q", sorted(found))


def _write_events(
    files: "_Files",
    request: ExportRequest,
    path: str,
    journal_id: str,
    checkpoint: Checkpoint,
    positions: Iterable[int],
    tell: Tell,
    whole: int,
) -> tuple[int, int]:
    """Write evidence, gaps and data in one pass; how many events there are, and how many without content."""
    counts = [0, 0]
    with files.open(EVIDENCE) as evidence, files.open(GAPS) as gaps, files.open(FILES[request.format]) as data:

        def events() -> Iterator[EventContent]:
            for line, event in taken(path, positions, checkpoint.size, checkpoint.root, request.redacted):
                (gaps if event is None else evidence).write(msgspec.json.encode(line) + b"\n")
                if event is not None:
                    counts[0] += 1
                    counts[1] += event.content is None
                    tell(counts[0], whole)
                    yield event

        for text in lines_of(request.format, journal_id, events()):
            data.write(text)
    return counts[0], counts[1]


class _Files:
    """The files of a bundle as they are written, 0600, each with its size and digest."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.written: dict[str, BundleFile] = {}

    def write(self, name: str, content: bytes) -> None:
        with self.open(name) as file:
            file.write(content)

    @contextmanager
    def open(self, name: str) -> "Iterator[_Digested]":
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(os.path.join(self._folder, name), flags, 0o600), "wb") as file:
            digested = _Digested(file)
            yield digested
            file.flush()
            os.fsync(file.fileno())
        if name not in (MANIFEST, SIGNATURE):
            self.written[name] = BundleFile(digested.bytes, digested.digest.hexdigest())


class _Digested:
    """A file that is written, with the digest of what was."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes = 0
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> None:
        self.bytes += len(content)
        self.digest.update(content)
        self._file.write(content)


@contextmanager
def _draft_of(folder: str) -> Iterator[str]:
    """A new folder beside `folder`, which is removed unless it was moved there; what a killed export left goes first.
    Raises Refusal: state-unusable, contention (another export is at it)."""
    parent, name = os.path.split(folder)
    draft = os.path.join(parent, f"{DRAFT}{name}")
    held = -1
    try:
        held = _held(draft)
        yield draft
    except BlockingIOError:
        raise Refusal("contention", f"another export to {folder} is at work", fix=["--out NEW"]) from None
    except OSError as problem:
        where = problem.filename or folder
        message = f"the export to {folder} failed: {where}: {problem.strerror}"
        raise Refusal("state-unusable", message, fix=[f"df -h {quoted(parent)}", f"ls -ld {quoted(parent)}"]) from None
    finally:
        if held >= 0:
            with contextlib.suppress(OSError):
                shutil.rmtree(draft)
            os.close(held)


def _held(draft: str) -> int:
    """Make a folder anew and keep others from it. Raises BlockingIOError where another process has it; OSError."""
    if os.path.lexists(draft):
        left = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(draft)
        finally:
            os.close(left)
    os.mkdir(draft, 0o700)
    held = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return held


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
