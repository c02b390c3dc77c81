"""The inspections that are still to be done: one file for each launch, from before its program begins until it is done.

Rules

1. A record is complete and durable before the program begins. The launch keeps its file locked (flock(2)). A
   record that nobody has locked, and whose sandbox has ended, is due: its omac was killed, or handed it on.
2. Nothing is inspected while a launch lives that overlaps. The last one to end inspects for all, by what was there
   before the first one.
3. A launch into folders that are being inspected waits. An inspection that is due there is done before the launch.
4. A launch that ends puts its record there again where that was deleted, with the state directory, while it ran.
"""

from __future__ import annotations

import errno
import os

from omac.adapters.files import atomic, lock
from omac.adapters.files.descriptor import Descriptor
from omac.adapters.git import refs
from omac.adapters.git.launch_record import Record, parsed
from omac.adapters.linux import process_identity
from omac.domain.kernel.refusal import Refusal
from omac.journal.folders import make_private, write_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from omac.adapters.git.inspection import Baseline

FOLDER = "inspections"  # in the state directory
_LOCK = "lock"  # in that folder: held while records are compared, not while anything is inspected
_BUSY = ".busy"  # the end of a file's name while somebody inspects for it


class DueInspection:
    """The inspection that is due for `records` that overlap: inspect within. When that fails they are due again, else
    they are removed; leaving it raises Refusal (state-unusable) where they cannot be. While another process inspects,
    `busy_place` is a folder that it inspects, and there are no records, only a `wait`."""

    __slots__ = ("_path", "busy_place", "records")

    def __init__(self, folder: str, records: list[Record], busy: Record | None = None) -> None:
        self.records = records
        self.busy_place = busy.places[0] if busy else ""
        self._path = f"{folder}/{busy.name}{_BUSY}" if busy else folder

    def __enter__(self) -> list[Record]:
        return self.records

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            for record in self.records if kind is None else ():
                for session in record.sessions if record.baseline is None else ():
                    refs.discard(session)  # its program has not begun
                self._remove(record.name)
        finally:
            for record in self.records:
                os.close(record.descriptor)
                record.descriptor = -1

    def _remove(self, name: str) -> None:
        path = f"{self._path}/{name}"
        try:
            os.unlink(path + _BUSY if os.path.lexists(path + _BUSY) else path)
        except OSError as problem:
            message = f"{path} cannot be removed, and will be inspected again: {problem.strerror}"
            raise Refusal("state-unusable", message, fix=[write_command(problem, self._path)]) from problem

    def wait(self) -> None:
        """Return when the other process does not inspect any more."""
        try:
            with Descriptor(os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
                lock.acquire(descriptor, shared=True)
        except FileNotFoundError:
            pass  # it has ended


class Pending:
    """The records of a state directory, in `folder`."""

    def __init__(self, state: str) -> None:
        self.folder = f"{state}/{FOLDER}"

    def begin(self, record: Record) -> DueInspection | None:
        """Put a record there and return None; else what overlaps it and is to be inspected first. Raises Refusal
        (state-unusable)."""
        with _Compared(self) as others:
            connected = _connected(record, others)
            busy = next((other for other in connected if other.is_busy), None)
            if busy is not None:
                return DueInspection(self.folder, [], busy)
            if connected and all(other.descriptor >= 0 for other in connected):
                return self._claimed(connected)
            self._put(record)
            return None

    def complete(self, record: Record, baseline: Baseline) -> None:
        """Add what was there. Raises Refusal (state-unusable)."""
        record.baseline = baseline
        self._write(record, record.noted())

    def flush(self, record: Record) -> None:
        """Make a record durable. Raises OSError."""
        os.fsync(record.descriptor)
        atomic.sync_folder(self.folder)

    def begun(self, record: Record, pid: int) -> None:
        """Add the process that the sandbox began with. Raises OSError."""
        record.init = (pid, process_identity.start_ticks(pid) or 0, process_identity.boot_id())
        atomic.write_all(record.descriptor, record.begun())

    def ended(self, record: Record) -> None:
        """Add what the program wrote into copies that end with the launch. Raises OSError."""
        if any(copy.after != copy.before for copy in record.copies):
            atomic.write_all(record.descriptor, record.ended())

    def end(self, record: Record) -> DueInspection | None:
        """Return what is due now that a launch has ended; None where that is left to one that lives. Raises Refusal
        (state-unusable)."""
        with _Compared(self, record) as others:
            if not os.path.lexists(f"{self.folder}/{record.name}"):
                self._put_again(record)
            connected = [record, *_connected(record, others)]
            if all(member.descriptor >= 0 for member in connected):
                return self._claimed(connected)
            os.close(record.descriptor)
            record.descriptor = -1
            return None

    def due(self) -> DueInspection | None:
        """Return something that is due; None without anything. Raises Refusal (state-unusable)."""
        if not os.path.isdir(self.folder):
            return None
        with _Compared(self) as others:
            groups = ([record, *_connected(record, others)] for record in others)
            group_due = next((group for group in groups if all(member.descriptor >= 0 for member in group)), None)
            return self._claimed(group_due) if group_due else None

    def living(self) -> frozenset[str]:
        """Return the names of the launches that live, whichever pid namespace they are in, or that somebody inspects.
        Raises Refusal (state-unusable)."""
        if not os.path.isdir(self.folder):
            return frozenset()
        with _Compared(self) as records:
            return frozenset(record.name.partition("-")[0] for record in records if record.descriptor < 0)

    def is_empty(self) -> bool:
        """Return whether there is nothing: no launch lives, and none is still to be inspected."""
        return not os.path.isdir(self.folder) or not set(os.listdir(self.folder)) - {_LOCK}

    def others(self, own: Record | None) -> list[Record]:
        """Return all records but one's own, those that are due with their locked descriptors."""
        names = [name for name in sorted(os.listdir(self.folder)) if name != _LOCK]
        records = (self._read(name) for name in names if own is None or name != own.name)
        return [record for record in records if record is not None]

    def _read(self, name: str) -> Record | None:
        """The record of a file, with its descriptor where it is due; None where it is gone, or is none."""
        path = f"{self.folder}/{name}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read()
            record = parsed(name.removesuffix(_BUSY), content)
        except (ValueError, SyntaxError, LookupError, TypeError):
            os.close(descriptor)
            if b"\n" not in content:  # its omac was killed before it was written: its program has not begun
                _tried(os.unlink, path)
            return None  # else a later omac wrote it
        if not lock.try_acquire(descriptor):
            os.close(descriptor)
            record.is_busy = name.endswith(_BUSY)
            return record
        if os.fstat(descriptor).st_nlink == 0:  # who inspected removed it, and let go of the lock, since it was opened
            os.close(descriptor)
            return None
        if record.init[0] and process_identity.is_living(*record.init):
            os.close(descriptor)
            return record
        if name.endswith(_BUSY):  # whoever was at it was killed
            _tried(os.rename, path, f"{self.folder}/{record.name}")
        record.descriptor = descriptor
        return record

    def _claimed(self, records: list[Record]) -> DueInspection:
        for record in records:
            path = f"{self.folder}/{record.name}"
            _tried(os.rename, path, path + _BUSY)  # else others take it for a launch that lives
            record.is_busy = True
        return DueInspection(self.folder, records)

    def _put(self, record: Record) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        record.descriptor = os.open(f"{self.folder}/{record.name}", flags, 0o600)
        lock.try_acquire(record.descriptor)
        try:
            self._write(record, record.head())
        except Refusal:
            os.unlink(f"{self.folder}/{record.name}")
            raise

    def _put_again(self, record: Record) -> None:
        deleted = record.descriptor
        self._put(record)
        os.close(deleted)
        if record.baseline is not None:
            self._write(record, record.noted() + record.begun() + record.ended())

    def _write(self, record: Record, line: bytes) -> None:
        try:
            atomic.write_all(record.descriptor, line)
        except OSError as problem:
            message = f"the list of files to inspect cannot be written to {self.folder}: {problem.strerror}"
            raise Refusal("state-unusable", message, fix=[write_command(problem, self.folder)]) from problem


class _Compared:
    """A context in which nobody else compares records; it yields all records but one's own. Those that are due are
    locked meanwhile, and longer if they were claimed. Raises Refusal (state-unusable)."""

    def __init__(self, pending: Pending, own: Record | None = None) -> None:
        self._pending = pending
        self._own = own
        self._others: list[Record] = []
        self._lock = -1

    def __enter__(self) -> list[Record]:
        folder = self._pending.folder
        try:
            make_private(folder)
            self._lock = self._opened(f"{folder}/{_LOCK}")
        except OSError as problem:
            message = f"the folder {folder} cannot be used: {problem.strerror}"
            raise Refusal("state-unusable", message, fix=[write_command(problem, folder)]) from problem
        try:
            lock.acquire(self._lock)
            self._others = self._pending.others(self._own)
        except BaseException:
            os.close(self._lock)
            raise
        return self._others

    def _opened(self, path: str) -> int:
        """Open the lock's file; for a launch that ends also on a disk that takes no change any more: what its program
        left is inspected all the same. Raises OSError."""
        try:
            return lock.open_file(path)
        except OSError as problem:
            if self._own is None or problem.errno != errno.EROFS:
                raise
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __exit__(self, *_: object) -> None:
        for other in self._others:
            if other.descriptor >= 0 and not other.is_busy:
                os.close(other.descriptor)
        os.close(self._lock)


def _tried(step: Callable[..., None], *paths: str) -> None:
    """Take a step that spares others work, if the disk takes changes still."""
    try:
        step(*paths)
    except OSError:
        pass


def _connected(record: Record, others: list[Record]) -> list[Record]:
    """Return the records that overlap a record, those that overlap these, and so on."""
    connected: list[Record] = []
    waiting, left = [record], [other for other in others if other is not record]
    while waiting:
        current = waiting.pop()
        near = [other for other in left if current.overlaps(other)]
        left = [other for other in left if other not in near]
        connected += near
        waiting += near
    return connected
