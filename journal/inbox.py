"""The inbox: the spool of short-lived programs as the process sees it that ingests it.

Rules

1. Only kinds that may be spooled are taken, decoded strictly; nothing a file says is imported or run.
2. A program writes its records in order. Records of a launch are given out in the order of their versions, up to the
   last one that was there when the pass began: what was written before that one is there, or lost.
3. A file that cannot be taken is moved to `rejected` in the spool, and reported; it never holds up the others. What
   cannot be read because the system has no descriptor or memory left, stays for the next pass.
4. A file that only a later omac can read waits for it, and all records of its launch wait with it.
5. One process at a time ingests a spool.
"""

import contextlib
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from omac.domain.guard import denial
from omac.domain.kernel import ids
from omac.domain.kernel.event import Actor, Event
from omac.domain.kernel.exhaustion import raise_exhaustion
from omac.domain.kernel.ids import HostId, LaunchId, StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.sandbox import inspection
from omac.domain.sandbox import launch as sandbox
from omac.journal.event_kinds import KIND_OF, KINDS
from omac.journal.folders import write_command
from omac.journal.spool import (
    DRAFT,
    FORM,
    ID_MAX,
    RECORD_MAX,
    REJECTED,
    file_name,
    id_in,
    is_id,
    open_folder,
    waiting_in,
)  # fmt: skip

DRAFT_NS = 3_600 * 10**9  # a draft as old as this is of a program that was killed
POLL_S = 0.01
AGGREGATE = frozenset(KIND_OF[event] for event in sandbox.EVENTS)
LOGS = {  # by kind: the name of the log, and its stream
    KIND_OF[denial.GuardDenied]: ("guard", ids.guard_stream),
    KIND_OF[inspection.Inspected]: ("inspection", ids.inspection_stream),
}

_log = logging.getLogger("omac.journal")
_ID = rf"\A[0-9A-Za-z]{{1,{ID_MAX}}}\Z"


class Inbox(NamedTuple):
    """A spool as the journal sees it: its folder, and the host whose records it holds."""

    folder: str
    host: HostId

    def names(self) -> frozenset[str]:
        """The files that lie there; none when there is no folder."""
        return waiting_in(self.folder)

    def stamp(self) -> int:
        """Return the time when a file last came or went, in nanoseconds since 1970, of a clock that ticks every few
        milliseconds. Return 0 if the folder cannot be read."""
        with contextlib.suppress(OSError):
            return os.stat(self.folder).st_mtime_ns
        return 0

    def rejected(self) -> int:
        """Return the number of files that were rejected."""
        with contextlib.suppress(OSError):
            return len(os.listdir(os.path.join(self.folder, REJECTED)))
        return 0


class SpooledRecord(NamedTuple):
    """A file that was understood: an event that happened `at`, for a stream of this host. `version` orders a launch."""

    name: str
    stream: StreamId
    version: int | None
    event: Event
    at: int
    run: str
    actor: Actor
    correlation: str | None


class Pass:
    """One pass over an inbox, which it has for itself. Methods block."""

    def __init__(self, inbox: Inbox, folder: int, clock: Callable[[], int]) -> None:
        self._path = inbox.folder
        self._host = inbox.host
        self._folder = folder
        self._clock = clock

    def close(self) -> None:
        """Let the next process in."""
        os.close(self._folder)

    def records(self) -> list[list[SpooledRecord]]:
        """Return the records that can be appended now: those of each launch in their order, any other alone. Raises
        Refusal."""
        present = self.present()
        later: set[str] = set()
        try:
            read = [record for record in self._read_all(later) if record.correlation not in later]
        except OSError as error:
            raise _unreadable(self._path, error) from error
        launches: dict[StreamId, list[SpooledRecord]] = {}
        alone = [[record] for record in read if record.version is None]
        for record in sorted(read, key=lambda spooled: spooled.version or 0):
            if record.version is not None:
                launches.setdefault(record.stream, []).append(record)
        settled = [_until_last_of(records, present) for records in launches.values()]
        return [records for records in (*alone, *settled) if records]

    def present(self) -> frozenset[str]:
        """Return the names of all files that lie there now. Raises Refusal."""
        try:
            return frozenset(os.listdir(self._folder))
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def remove(self, names: Sequence[str]) -> None:
        """Delete the files of what is recorded, durably: an id is not forgotten while its file could come back."""
        try:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._folder)
            if names:
                os.fsync(self._folder)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def set_aside(self, name: str, why: str) -> None:
        """Move a file to the rejected ones, under a name that is free there, and say why."""
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(REJECTED, 0o700, dir_fd=self._folder)
            target, number = name, 0
            while _exists(f"{REJECTED}/{target}", self._folder):
                number += 1
                target = f"{name}.{number}"
            os.rename(name, f"{REJECTED}/{target}", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            _log.warning(
                "%s in %s is not recorded (%s) and cannot be moved: %s", printable(name), self._path, why, error
            )
        else:
            _log.warning(
                "%s is not recorded and is now in %s: %s", printable(name), os.path.join(self._path, REJECTED), why
            )

    def _read_all(self, later: set[str]) -> Iterator[SpooledRecord]:
        """Yield the records that can be read; `later` gets the ids of those that a later omac can read."""
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
            except _Later:
                later.add(id_in(name))
            except _Unfit as unfit:
                self.set_aside(name, str(unfit))
            except OSError as error:
                raise_exhaustion(error)
                self.set_aside(name, str(error.strerror))

    def _read(self, name: str) -> SpooledRecord:
        content = _content(name, self._folder)
        try:
            file = _decode(content)
            event = _event(file)
        except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError) as error:
            raise _Unfit(f"it is no record: {error}") from None
        if name != file_name(file.at, file.id, file.version):
            raise _Unfit("its name is not that of the record in it")
        stream, launch = self._stream(file)
        return SpooledRecord(name, stream, file.version, event, file.at, file.run, file.actor, launch)

    def _stream(self, file: "_SpoolFile") -> tuple[StreamId, str | None]:
        name, stream_of = LOGS.get(file.kind, ("", ids.guard_stream))
        if file.stream == name and file.version is None:
            return stream_of(self._host), None
        aggregate, _, launch = file.stream.partition("/")
        if file.kind in AGGREGATE and file.version and aggregate == "sandbox" and is_id(launch):
            return ids.sandbox_stream(self._host, LaunchId(launch)), launch
        raise _Unfit(f"{file.kind} does not belong to {file.stream!r}, version {file.version}")

    def _remove_if_old(self, name: str) -> None:
        written = os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mtime_ns
        if self._clock() - written > DRAFT_NS:
            os.unlink(name, dir_fd=self._folder)


class _Unfit(Exception):
    """A file that is set aside, and why."""


class _Later(Exception):
    """A file that waits for an omac that knows what is in it."""


class _Form(msgspec.Struct, frozen=True):
    """The part of a file that each form has."""

    form: int


class _SpoolFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file of the spool."""

    form: int
    id: Annotated[str, msgspec.Meta(pattern=_ID)]
    kind: str
    stream: str
    version: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None
    at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    run: Annotated[str, msgspec.Meta(pattern=rf"{_ID}|\A\Z")]
    actor: Actor
    fields: dict[str, Any]


def open_pass(inbox: Inbox, clock: Callable[[], int], wait_s: float) -> Pass | None:
    """Begin a pass; None when there is no spool, or when another process is at it for longer than `wait_s`. Raises
    Refusal (state-unusable) when the folder is not this user's alone."""
    try:
        folder = open_folder(inbox.folder)
    except FileNotFoundError:
        return None
    try:
        if _locked(folder, wait_s):
            return Pass(inbox, folder, clock)
    except OSError as error:
        os.close(folder)
        raise _unreadable(inbox.folder, error) from error
    os.close(folder)
    return None


def _until_last_of(records: list[SpooledRecord], present: frozenset[str]) -> list[SpooledRecord]:
    last = max((number for number, record in enumerate(records) if record.name in present), default=-1)
    return records[: last + 1]


def _unreadable(folder: str, error: OSError) -> Refusal:
    message = f"records cannot be taken from {folder}: {error.strerror}"
    return Refusal("state-unusable", message, fix=[write_command(error, folder)])


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


def _content(name: str, folder: int) -> bytes:
    """Return the content of a spooled file. Raises _Unfit, OSError."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise_exhaustion(error)
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _Unfit("it is a symbolic link") from None
        raise _Unfit(f"it cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _Unfit("it is not a regular file")
        if status.st_uid != os.geteuid():
            raise _Unfit(f"it belongs to user {status.st_uid}")
        if status.st_size > RECORD_MAX:
            raise _Unfit(f"it is longer than {RECORD_MAX} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(RECORD_MAX + 1)
    finally:
        os.close(descriptor)


def _decode(content: bytes) -> _SpoolFile:
    if _DECODE_FORM(content).form > FORM:
        raise _Later
    file = _DECODE(content)
    if file.form != FORM:
        raise _Unfit(f"it has form {file.form}; this omac knows {FORM}")
    if file.kind not in KINDS:
        raise _Later
    if file.kind not in AGGREGATE | LOGS.keys():
        raise _Unfit(f"{file.kind!r} is no kind that this omac takes from a spool")
    return file


_DECODE_FORM: Callable[[bytes], _Form] = msgspec.json.Decoder(_Form).decode
_DECODE: Callable[[bytes], _SpoolFile] = msgspec.json.Decoder(_SpoolFile).decode


def _event(file: _SpoolFile) -> Event:
    """The event whose fields a file names; those that are not there have their defaults."""
    cls = KINDS[file.kind][1]
    declared = {field.name: field for field in msgspec.structs.fields(cls)}
    if file.fields.keys() - declared.keys():
        raise _Later
    values = []
    for name, field in declared.items():
        if name not in file.fields and field.required:
            raise _Unfit(f"{file.kind} lacks its {name!r}")
        values.append(file.fields.get(name, field.default))
    return msgspec.convert(values, cls)


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
