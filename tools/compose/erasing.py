"""An erasure: the record of it, the keys that it destroys, and what omac made of the fields that they encrypted."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import trio

from omac.adapters.files.bounded import open_no_link
from omac.adapters.files.subject_keys import is_subject
from omac.domain.access import erasure
from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.ids import LaunchId, WorkdirId
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.sandbox import launch
from omac.journal.audit_index import delete_index
from omac.journal.spool import DRAFT, REJECTED, waiting_in
from omac.journal.subject_ciphers import LEASE_S, ids_of
from omac.journal.subject_rows import SubjectRows, rows_of
from omac.services.kernel.opened import OpenedJournal
from omac.tools.compose.export_draft import empty_draft
from omac.tools.compose.journals import carrying, mark_of, require_existing
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import typed_with

WHY_LOST = "omac was killed"
RECORD_BYTES_MAX = 1 << 20  # of a file that the spool rejected


class PlannedErasure(NamedTuple):
    """The effect of an erasure: the events and the keys that it concerns. `is_begun`: an earlier one was killed;
    `erased` is how often one was done."""

    subject: WorkdirId
    rows: SubjectRows
    keys: tuple[str, ...]
    is_begun: bool
    erased: int

    @property
    def has_work(self) -> bool:
        """Return whether anything is left to erase."""
        return bool(self.keys or self.is_begun)


class Erasing:
    """A journal of which a directory is erased. Methods raise Refusal."""

    def __init__(self, carrier: OpenedJournal, state: StateDir) -> None:
        self.path = carrier.journal.store.path
        self._journal = carrier.journal
        self._carrier = carrier
        self._state = state
        self.keys = state.subject_keys(self.path, carrier.journal.store.journal_id())

    def plan(self, subject: WorkdirId, tell: Callable[[int, int], None]) -> PlannedErasure:
        """Return what would be erased; nothing is changed."""
        state = self._carrier.entry(erasure.AGGREGATE, ids.subject_stream(self._carrier.host, subject)).state
        rows = rows_of(self._journal.store.reader, subject, tell)
        keys = ids_of(self.keys.own(subject))
        return PlannedErasure(subject, rows, keys, state.requested is not None, state.erased)

    def end(self, launches: Sequence[str]) -> None:
        """Record the end of launches whose omac was killed: what lives is kept in the state."""
        for name in launches:
            stream = ids.sandbox_stream(self._carrier.host, LaunchId(name))
            trio.run(self._carrier.execute, launch.AGGREGATE, stream, launch.Lose(WHY_LOST), PERSON)

    def perform(self, planned: PlannedErasure) -> None:
        """Erase it. What was killed goes on from any step when it is asked for again."""
        subject = planned.subject
        self._require_taken_in(planned.rows.path)
        if planned.rows.unread:
            self._carrier.hold_system()
        keys = ids_of(self.keys.own(subject))
        self._execute(erasure.RequestErasure(subject, keys), subject)
        self.keys.destroy(subject)
        time.sleep(2 * LEASE_S)  # no process records anything with them from then on
        self._forget(subject, planned.rows)
        self._execute(erasure.ReportErased(), subject)
        self._carrier.leave_snapshot()
        self._journal.store.checkpoint()

    def _require_taken_in(self, directory: str) -> None:
        """Raise Refusal (contention) while records of a directory wait in the spool: they are in the clear."""
        spool = self._state.spool(self.path)
        for name in sorted(waiting_in(spool)):
            with suppress(FileNotFoundError):  # it was taken in meanwhile
                if directory and _names(os.path.join(spool, name), directory):
                    message = f"records of {directory} wait in {spool}: nothing was erased"
                    fix = [f"omac status --journal {quoted(self.path)}  # takes them in; then again"]
                    raise Refusal("contention", message, fix=fix)

    def _execute(self, command: erasure.Command, subject: WorkdirId) -> None:
        stream = ids.subject_stream(self._carrier.host, subject)
        trio.run(self._carrier.execute, erasure.AGGREGATE, stream, command, PERSON)

    def _forget(self, subject: WorkdirId, rows: SubjectRows) -> None:
        """Remove what omac made of the journal's events, what it rejected of this directory, what interrupted programs
        and exports wrote, and the logs of its sidecars."""
        directory = rows.path
        folder = os.path.dirname(mark_of(self._state, self.path).file)
        spool = self._state.spool(self.path)
        rejected = os.path.join(spool, REJECTED)
        unread = [os.path.join(rejected, name) for name in _listed(rejected)]
        unread += [os.path.join(spool, name) for name in _listed(spool) if name.startswith(DRAFT)]
        stale: list[str] = []
        try:
            for name in _listed(folder):
                if name.endswith(".snapshots"):
                    stale += [os.path.join(folder, name, snapshot) for snapshot in _listed(os.path.join(folder, name))]
                elif name.endswith(".audit"):
                    delete_index(os.path.join(folder, name))
            for path in unread:
                with suppress(FileNotFoundError):  # its writer, which lives, was done with it
                    if directory and _names(path, directory):
                        os.unlink(path)
            for export in rows.exports:
                empty_draft(export, self._journal.store.journal_id())
            for path in (*stale, *self._state.logs_of(subject)):
                with suppress(FileNotFoundError):  # another process was first
                    os.unlink(path)
        except BlockingIOError:
            message = f"an export to {export} is at work; the key is destroyed, and this erasure is not finished"
            raise Refusal("contention", message, fix=[typed_with("  # then again: it goes on")]) from None
        except OSError as error:
            message = f"{error.filename} cannot be removed: {error.strerror}; the key is destroyed"
            fix = [list_command(str(error.filename)), typed_with("  # then again: it goes on")]
            raise Refusal("state-unusable", message, fix=fix) from error


@contextmanager
def erasing(flag: str | None, environment: Mapping[str, str]) -> Iterator[Erasing]:
    """The journal that a command means, from which nobody else erases meanwhile; what was in the spool is in it. Raises
    Refusal."""
    require_existing(environment, flag)
    with carrying(environment, flag) as carrier:
        work = Erasing(carrier, StateDir.of(environment))
        with work.keys.turn():
            yield work


def subject_of(typed: str) -> WorkdirId:
    """Return the workdir id of what a person names: that id, or a folder's path, which need not exist any more."""
    return WorkdirId(typed) if is_subject(typed) else ids.workdir_id(os.path.realpath(typed))


def _listed(folder: str) -> list[str]:
    with suppress(FileNotFoundError):
        return os.listdir(folder)
    return []


def _names(path: str, directory: str) -> bool:
    """Return whether a file has a directory's path in it."""
    with open(path, "rb", opener=open_no_link) as file:
        return os.fsencode(directory) in file.read(RECORD_BYTES_MAX)
