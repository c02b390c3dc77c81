"""Ingestion: what short-lived programs left in the spool becomes part of the journal, once.

Rules

1. Only kinds that may be spooled are taken, decoded strictly; nothing a file says is imported or run.
2. A record and the memory of its id are one transaction; its file is removed afterwards. Killed in between, the next
   ingestion finds the id and only removes the file.
3. Records of a stream are taken in the order of versions, and only where they can follow. A program writes them in
   order, so one that is missing is lost: the next takes its version, if it can follow without. One that cannot waits
   (its beginning may be in the journal that is opened next); after `WAIT_NS` it is set aside.
4. What cannot be taken is moved to `rejected` in the spool, and said; it never holds up the others.
5. One process ingests a spool at a time.
"""

import contextlib
import fcntl
import logging
import os
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from eventsourcing.persistence import IntegrityError

from omac.domain import guard_record, ids, sandbox
from omac.domain.ids import HostId, LaunchId, StreamId
from omac.domain.recorded import Cause, Event
from omac.domain.refusal import Refusal
from omac.domain.sandbox import Sandbox
from omac.journal.application import Journal
from omac.journal.codec import Versioned
from omac.journal.recorder import Group
from omac.journal.registry import KIND_OF, KINDS
from omac.journal.spool import DRAFT, FORM, ID_MAX, RECORD_MAX, REJECTED, file_name, is_id, open_folder, waiting_in

BATCH_MAX = 500  # records in one transaction
WAIT_NS = 24 * 3_600 * 10**9
DRAFT_NS = 3_600 * 10**9  # a draft as old as this is of a program that was killed
POLL_S = 0.01
AGGREGATE = frozenset(KIND_OF[event] for event in sandbox.EVENTS)
LOG = frozenset({KIND_OF[guard_record.GuardDenied]})

_log = logging.getLogger("omac.journal")
_ID = rf"\A[0-9A-Za-z]{{1,{ID_MAX}}}\Z"


class Inbox(NamedTuple):
    """A spool as the journal sees it: its folder, and the host whose records it holds."""

    folder: str
    host: HostId

    def names(self) -> frozenset[str]:
        """The files that lie there; none when there is no folder."""
        return waiting_in(self.folder)

    def rejected(self) -> int:
        """How many files were set aside."""
        with contextlib.suppress(OSError):
            return len(os.listdir(os.path.join(self.folder, REJECTED)))
        return 0


def ingest(inbox: Inbox, journal: Journal, wait_s: float = 0.0) -> int:
    """Take what is in the spool into a journal that is open for writing; returns how many records that were.

    When another process is at it, waits up to `wait_s` for its end, then leaves it to that. Raises Refusal:
    state-unusable (the folder is not this user's alone), or the journal cannot be written.
    """
    try:
        folder = open_folder(inbox.folder)
    except FileNotFoundError:
        return 0
    try:
        return _Ingestion(folder, inbox, journal).run() if _locked(folder, wait_s) else 0
    except OSError as error:
        message = f"records cannot be taken from {inbox.folder}: {error.strerror}"
        raise Refusal("state-unusable", message, fix=[f"ls -ld {shlex.quote(inbox.folder)}"]) from error
    finally:
        os.close(folder)


def try_to_ingest(inbox: Inbox, journal: Journal, wait_s: float = 0.0) -> None:
    """As `ingest`, where something else matters more: what goes wrong is said, and left for the next time."""
    try:
        ingest(inbox, journal, wait_s)
    except Refusal as refusal:
        _log.warning("what is in %s is not recorded yet: %s", inbox.folder, refusal.message)


def _locked(folder: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        else:
            return True


class _Unfit(Exception):
    """A file that is set aside, and why."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file of the spool says."""

    form: int
    id: Annotated[str, msgspec.Meta(pattern=_ID)]
    kind: str
    stream: str
    version: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None
    at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    run: Annotated[str, msgspec.Meta(pattern=rf"{_ID}|\A\Z")]
    actor: Literal["person", "bridge", "agent", "omac"]
    fields: dict[str, Any]


class _Record(NamedTuple):
    """A file that was understood. `id` is unique among the records of its host."""

    name: str
    id: str
    stream: StreamId
    version: int | None
    event: Event
    file: _File


class _Ingestion:
    """One pass over a spool whose lock is held."""

    def __init__(self, folder: int, inbox: Inbox, journal: Journal) -> None:
        self._folder = folder
        self._path = inbox.folder
        self._host = inbox.host
        self._journal = journal
        self._heads: dict[StreamId, tuple[Sandbox, int]] = {}  # of aggregates, with what is about to be inserted
        self._there: set[str] = set()  # before the pass: what was written before these is there, or lost

    def run(self) -> int:
        self._there = set(os.listdir(self._folder))
        found = in_order(list(self._records()))
        if not found:
            return 0
        known = self._journal.store.spooled(self._host)
        present = {record.id for record in found}
        self._remove([record for record in found if record.id in known])
        fitting = [fit for record in found if record.id not in known and (fit := self._fit(record))]
        taken = 0
        for start in range(0, len(fitting), BATCH_MAX):
            batch = fitting[start : start + BATCH_MAX]
            groups = [self._group(record) for record in batch]
            results = self._journal.store.insert_spooled(self._host, [one.id for one in batch], groups, present)
            done = [record for record, result in zip(batch, results, strict=True) if not _failed(result)]
            self._remove(done)  # what failed had its version taken a moment ago: it is judged anew next time
            taken += len(done)
        return taken

    def _records(self) -> Iterator[_Record]:
        for name in sorted(os.listdir(self._folder)):
            if name == REJECTED:
                continue
            try:
                if name.startswith(DRAFT):
                    self._remove_if_old(name)
                else:
                    yield self._read(name)
            except FileNotFoundError:
                continue
            except _Unfit as unfit:
                self._set_aside(name, str(unfit))
            except OSError as error:
                self._set_aside(name, str(error.strerror))

    def _read(self, name: str) -> _Record:
        content = _content(name, self._folder)
        try:
            file = _decode(content)
            event = _event(file)
            self._journal.codec.encode(event)
        except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError) as error:
            raise _Unfit(f"it is no record: {error}") from None
        if name != file_name(file.at, file.id, file.version):
            raise _Unfit("its name is not that of the record in it")
        stream = self._stream(file)
        return _Record(name, f"{file.id}.{file.version or 0}", stream, file.version, event, file)

    def _stream(self, file: _File) -> StreamId:
        if file.kind in LOG and file.version is None and file.stream == "guard":
            return ids.guard_stream(self._host)
        aggregate, _, launch = file.stream.partition("/")
        if file.kind in AGGREGATE and file.version and aggregate == "sandbox" and is_id(launch):
            return ids.sandbox_stream(self._host, LaunchId(launch))
        raise _Unfit(f"{file.kind} does not belong to {file.stream!r}, version {file.version}")

    def _fit(self, record: _Record) -> _Record | None:
        """The record with the version it gets; None for one that cannot follow what is recorded."""
        if record.version is None:
            return record
        stream = record.stream
        if stream not in self._heads:
            self._heads[stream] = self._journal.load(stream, Sandbox(), sandbox.evolve)
        state, version = self._heads[stream]
        if record.version <= version:
            self._set_aside(record.name, f"version {record.version} of {stream} is recorded already, and is another")
            return None
        follows = (state.status, type(record.event)) in sandbox.TABLE
        missing = record.version > version + 1
        if missing and not (follows and record.name in self._there):
            if self._journal.clock() - record.file.at > WAIT_NS:
                self._set_aside(record.name, f"version {version + 1} of {stream}, which comes before it, never came")
            return None
        if not follows:
            self._set_aside(record.name, f"{record.file.kind} cannot follow in {stream}, which is {state.status}")
            return None
        self._heads[stream] = sandbox.evolve(state, record.event), version + 1
        return record._replace(version=version + 1)

    def _group(self, record: _Record) -> Group:
        launch = record.stream.split("/")[2] if record.version else None
        stored = self._journal.codec.to_stored_event(Versioned(record.stream, record.version, record.event))
        meta = self._journal.meta(Cause(record.file.actor, launch))
        return [stored], msgspec.structs.replace(meta, at=record.file.at, run=record.file.run)

    def _remove(self, records: list[_Record]) -> None:
        """Durably, so that an id is not forgotten while its file could come back."""
        for record in records:
            os.unlink(record.name, dir_fd=self._folder)
        if records:
            os.fsync(self._folder)

    def _remove_if_old(self, name: str) -> None:
        written = os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mtime_ns
        if self._journal.clock() - written > DRAFT_NS:
            os.unlink(name, dir_fd=self._folder)

    def _set_aside(self, name: str, why: str) -> None:
        """Under a name that is free there."""
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(REJECTED, 0o700, dir_fd=self._folder)
            target, number = name, 0
            while _exists(f"{REJECTED}/{target}", self._folder):
                number += 1
                target = f"{name}.{number}"
            os.rename(name, f"{REJECTED}/{target}", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            _log.warning("%s in %s is not recorded (%s) and cannot be moved: %s", name, self._path, why, error)
        else:
            _log.warning("%s is not recorded and is now in %s: %s", name, os.path.join(self._path, REJECTED), why)


def in_order(records: list[_Record]) -> list[_Record]:
    """Records as they came, those of one stream in the order of versions: a clock may have been set back."""
    turns: dict[StreamId, list[_Record]] = {}
    for record in records:
        if record.version is not None:
            turns.setdefault(record.stream, []).append(record)
    nexts = {stream: iter(sorted(turn, key=lambda one: one.version or 0)) for stream, turn in turns.items()}
    return [record if record.version is None else next(nexts[record.stream]) for record in records]


def _content(name: str, folder: int) -> bytes:
    """Raises _Unfit, OSError."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _Unfit("it is a symbolic link") from None
        raise _Unfit(f"it cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _Unfit("it is no regular file")
        if found.st_uid != os.geteuid():
            raise _Unfit(f"it belongs to user {found.st_uid}")
        if found.st_size > RECORD_MAX:
            raise _Unfit(f"it is longer than {RECORD_MAX} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(RECORD_MAX + 1)
    finally:
        os.close(descriptor)


def _decode(content: bytes) -> _File:
    file = _DECODE(content)
    if file.form != FORM:
        raise _Unfit(f"it has form {file.form}; this omac knows {FORM}")
    if file.kind not in AGGREGATE | LOG:
        raise _Unfit(f"{file.kind!r} is no kind that this omac takes from a spool")
    return file


_DECODE: Callable[[bytes], _File] = msgspec.json.Decoder(_File).decode


def _event(file: _File) -> Event:
    """The event whose fields a file names; those that are not there have their defaults."""
    cls = KINDS[file.kind][1]
    declared = {field.name: field for field in msgspec.structs.fields(cls)}
    if unknown := sorted(file.fields.keys() - declared.keys()):
        raise _Unfit(f"this omac knows no {unknown[0]!r} of {file.kind}")
    values = []
    for name, field in declared.items():
        if name not in file.fields and field.required:
            raise _Unfit(f"{file.kind} lacks its {name!r}")
        values.append(file.fields.get(name, field.default))
    return msgspec.convert(values, cls)


def _failed(result: object) -> bool:
    return isinstance(result, IntegrityError)


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
