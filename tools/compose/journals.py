"""Journals as commands open them: what short-lived programs left in the spool is taken in first.

A spool belongs to one journal (`adapters/files/journal_in_use.py: spool_of`): a command that names another one, an
old copy say, gets that as it is.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from omac.adapters.linux import process_identity
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.journal.inbox import Inbox
from omac.journal.mark import Mark
from omac.journal.reader import Reader, ReadJournal
from omac.journal.snapshot_store import SnapshotStore
from omac.journal.spool import waiting_in
from omac.projections.snapshot import FORM
from omac.projections.system import System
from omac.services.kernel.restoring import restored
from omac.tools.compose.state import StateDir, host_id, is_living
from omac.tools.terminal.version import VERSION

if TYPE_CHECKING:  # what appends loads SQLAlchemy and eventsourcing; what reads does without
    from omac.journal.application import Journal

_log = logging.getLogger("omac.journal")


def inbox_of(state: StateDir, host: HostId, journal: str) -> Inbox:
    """The spool of a journal in a state directory."""
    return Inbox(state.spool(journal), host)


def to_write(
    state: StateDir, host: HostId, environment: Mapping[str, str], flag: str | None, clock: Callable[[], int]
) -> "Journal":
    """The journal that a command means, to append to and to read. Raises Refusal."""
    from omac.journal.opening import open_journal

    path = state.journal_in_use(environment, flag)
    mark = mark_of(state, path)
    journal = open_journal(path, secrets.token_hex(6), clock, is_living=is_living, mark=mark)
    _take_in(inbox_of(state, host, path), journal)
    return journal


def to_serve(state: StateDir, path: str, run: str) -> "Journal":
    """The journal of a run that stays, listed as present. Raises Refusal."""
    from omac.journal.format import Present
    from omac.journal.opening import open_journal

    pid = os.getpid()
    present = Present(run, pid, process_identity.start_ticks(pid) or 0, process_identity.boot_id(), VERSION)
    mark = mark_of(state, path)
    return open_journal(path, run, time.time_ns, is_living=is_living, present=present, mark=mark)


def to_read(environment: Mapping[str, str], flag: str | None) -> ReadJournal:
    """The journal that a command means, to read only. Raises Refusal.

    Where it cannot be written, what is in the spool stays there, and that is said.
    """
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, flag)
    spool = state.spool(path)
    if waiting := waiting_in(spool):
        from omac.journal.opening import open_journal

        try:
            inbox = inbox_of(state, host_id(state), path)
            mark = mark_of(state, path)
            with closing(open_journal(path, "", time.time_ns, is_living=is_living, mark=mark)) as journal:
                _take_in(inbox, journal)
        except Refusal as refusal:
            _log.warning("what is in %s is not shown (%d records): %s", spool, len(waiting), refusal.message)
    return ReadJournal(path, mark_of(state, path))


def read_if_any(state: StateDir, path: str) -> ReadJournal | None:
    """Return the journal at `path`, to read only; None where there never was one. Raises Refusal."""
    mark = mark_of(state, path)
    if not os.path.lexists(path):
        mark.require_unmarked()
        return None
    return ReadJournal(path, mark)


def mark_of(state: StateDir, path: str) -> Mark:
    """Return what a state directory knows of the journal at `path`."""
    return Mark.of(state.path, path)


def snapshots_of(state: StateDir, reader: Reader) -> SnapshotStore:
    """Return the snapshots that a state directory keeps of the journal that `reader` reads."""
    return SnapshotStore(reader, mark_of(state, reader.path).file + ".snapshots", f"{FORM}:{VERSION}")


def system_of(journal: ReadJournal, state: StateDir) -> System:
    """Return the system at the end of a journal. Raises Refusal."""
    return restored(journal, snapshots_of(state, journal.store), journal.store.head())


def _take_in(inbox: Inbox, journal: "Journal") -> None:
    if inbox.names():
        import trio

        from omac.services.kernel.ingestion import try_to_ingest
        from omac.services.kernel.intake import INGESTION_S
        from omac.services.kernel.opened import OpenedJournal

        trio.run(try_to_ingest, inbox, OpenedJournal(journal, inbox.host), INGESTION_S)
