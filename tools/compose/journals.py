"""Journals as commands open them: what short-lived programs left in the spool is taken in first.

A spool belongs to one journal (`adapters/files/journal_in_use.py: spool_of`): a command that names another one, an
old copy say, gets that as it is.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from omac.adapters.linux import process_identity
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.journal.codec import Codec
from omac.journal.commitments import Commitments
from omac.journal.file import JournalInCreation, segment_refusal
from omac.journal.inbox import Inbox
from omac.journal.mark import Mark
from omac.journal.pruned import day_of, pruned_refusal
from omac.journal.reader import Reader, ReadJournal
from omac.journal.snapshot_store import SnapshotStore
from omac.journal.spool import waiting_in
from omac.journal.subject_ciphers import KeysOf
from omac.projections.snapshot import FORM
from omac.projections.system import System
from omac.services.kernel.restoring import restored
from omac.tools.compose.clock import now_ns
from omac.tools.compose.state import StateDir, host_id, is_living_run
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.version import VERSION

if TYPE_CHECKING:  # what appends loads SQLAlchemy and eventsourcing; what reads does without
    from omac.journal.application import Journal
    from omac.journal.format import Present
    from omac.services.kernel.opened import OpenedJournal

TAKEN_OVER = "events have proofs"  # of those that an earlier omac recorded
_log = logging.getLogger("omac.journal")


def inbox_of(state: StateDir, host: HostId, journal: str) -> Inbox:
    """The spool of a journal in a state directory."""
    return Inbox(state.spool(journal), host)


@contextmanager
def carrying(environment: Mapping[str, str], flag: str | None) -> Iterator["OpenedJournal"]:
    """Yield what executes commands on the journal that a command means, for as long as that is open. Raises Refusal."""
    from omac.services.kernel.opened import OpenedJournal

    state = StateDir.of(environment)
    host, path = host_id(state), state.journal_in_use(environment, flag)
    with closing(_opened(state, path, secrets.token_hex(6))) as journal:
        report_missing(journal.store.reader)
        _take_in(inbox_of(state, host, path), journal, state)
        yield OpenedJournal(journal, host, snapshots_of(state, journal.store.reader))


def require_existing(environment: Mapping[str, str], flag: str | None) -> str:
    """Return the path of the journal that a command means. Raises Refusal where there is none: none is made."""
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, flag)
    ReadJournal(path, mark_of(state, path)).close()
    return path


def to_serve(state: StateDir, path: str, run: str) -> "Journal":
    """The journal of a run that stays, listed as present. Raises Refusal, also where the clock is wrong by now."""
    from omac.journal.format import Present

    now_ns()
    pid = os.getpid()
    present = Present(run, pid, process_identity.start_ticks(pid) or 0, process_identity.boot_id(), VERSION)
    with ExitStack() as opened:  # which a refusal closes
        # right by now: calls under way are not refused later
        journal = opened.enter_context(closing(_opened(state, path, run, time.time_ns, present)))
        report_missing(journal.store.reader)
        opened.pop_all()
    return journal


def _opened(
    state: StateDir, path: str, run: str, clock: Callable[[], int] = now_ns, present: "Present | None" = None
) -> "Journal":
    from omac.journal.opening import open_journal

    with Progress(TAKEN_OVER) as progress:
        return open_journal(
            path, run, clock,
            is_living=partial(is_living_run, state), present=present, mark=mark_of(state, path),
            keys=keys_of(state, path), progress=progress.show,
        )  # fmt: skip


@contextmanager
def to_read(environment: Mapping[str, str], flag: str | None) -> Iterator[ReadJournal]:
    """Yield the journal that a command means, to read only. Raises Refusal.

    Where it cannot be written, what is in the spool stays there, and that is said.
    """
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, flag)
    spool = state.spool(path)
    if waiting := waiting_in(spool):
        try:
            _take_in_at(state, path)
        except Refusal as refusal:
            _log.warning("what is in %s is not shown (%s): %s", spool, counted(len(waiting), "record"), refusal.message)
    with closing(ReadJournal(path, mark_of(state, path), keys_of(state, path))) as journal:
        yield journal


def take_in(environment: Mapping[str, str]) -> None:
    """Have the journal in use take in what waits in its spool. Raises Refusal."""
    state = StateDir.of(environment)
    _take_in_at(state, state.journal_in_use(environment, None))


@contextmanager
def read_if_any(state: StateDir, path: str) -> Iterator[ReadJournal | None]:
    """Yield the journal at `path`, to read only; None where there never was one. Raises Refusal."""
    mark, journal = mark_of(state, path), None
    if mark.find():
        with suppress(JournalInCreation):
            journal = ReadJournal(path, mark, keys_of(state, path))
    with nullcontext() if journal is None else closing(journal):
        yield journal


def path_in_use(state: StateDir, environment: Mapping[str, str], flag: str | None) -> str:
    """Return the path of the journal that a command means. Raises Refusal (journal-lost) where it is missing, and was
    there before."""
    path = state.journal_in_use(environment, flag)
    mark_of(state, path).find()
    return path


def mark_of(state: StateDir, path: str) -> Mark:
    """Return what a state directory knows of the journal at `path`."""
    return Mark.of(state.path, path)


def keys_of(state: StateDir, path: str) -> KeysOf:
    """Return what gives the keys of the personal fields in the journal at `path`."""
    return partial(state.subject_keys, path)


def codec_of(state: StateDir, reader: Reader) -> Codec:
    """Return what decodes the events of a journal, with the keys of its personal fields."""
    codec = Codec()
    codec.commitments = Commitments(keys_of(state, reader.path)(reader.journal_id()))
    return codec


def codec_of_damaged(state: StateDir, path: str) -> Codec:
    """Return the same of a journal that may be damaged: without keys where it does not say which it is."""
    try:
        with closing(Reader(path, lenient=True)) as reader:
            return codec_of(state, reader)
    except Refusal:
        return Codec()


def snapshots_of(state: StateDir, reader: Reader) -> SnapshotStore:
    """Return the snapshots that a state directory keeps of the journal that `reader` reads."""
    return SnapshotStore(reader, mark_of(state, reader.path).file + ".snapshots", f"{FORM}:{VERSION}")


def report_missing(reader: Reader) -> None:
    """Warn once of segments whose files cannot be read: what else is recorded goes on."""
    for error in reader.missing_segments():
        refusal = segment_refusal(error, reader.path)
        _log.warning("%s; try: %s", refusal.message, refusal.fix[0], extra={"once": True})


def system_of(journal: ReadJournal, state: StateDir) -> System:
    """Return the system at the end of a journal. Raises Refusal."""
    return restored(journal, snapshots_of(state, journal.store), journal.store.head())


def require_left(reader: Reader, position: int) -> None:
    """Raise Refusal (pruned) where the state at a position is no longer known: contents before it were dropped."""
    last, at = reader.pruned_to()
    if 0 < position < last:
        raise pruned_refusal(position, last, day_of(at), reader.path)


def _take_in_at(state: StateDir, path: str) -> None:
    inbox = inbox_of(state, host_id(state), path)
    with closing(_opened(state, path, "")) as journal:
        _take_in(inbox, journal, state)


def _take_in(inbox: Inbox, journal: "Journal", state: StateDir) -> None:
    if inbox.names():
        import trio

        from omac.services.kernel.ingestion import try_to_ingest
        from omac.services.kernel.intake import INGESTION_S
        from omac.services.kernel.opened import OpenedJournal

        execution = OpenedJournal(journal, inbox.host, snapshots_of(state, journal.store.reader))
        trio.run(try_to_ingest, inbox, execution, INGESTION_S)
