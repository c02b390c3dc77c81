"""Ingestion: what short-lived programs left in the spool is decided and becomes part of the journal, once.

Rules

1. A record is a report: the command that says what happened. It is decided on the state of its stream like any other.
2. The event and the memory of its file are one transaction; the file is removed afterwards. Killed in between, the next
   ingestion finds the memory and only removes the file.
3. A report that cannot follow is set aside. One whose beginning has not come waits (that may be in the journal which is
   opened next); after `WAIT_NS` it is set aside too.
"""

import logging

import trio

from omac.domain.guard import denial
from omac.domain.kernel.event import Cause, Spooled
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox import inspection, launch
from omac.journal.inbox import Inbox, Pass, SpooledRecord, open_pass
from omac.services.kernel.execution import AlreadyRecorded, Execution
from omac.services.kernel.threads import run_in_thread

WAIT_NS = 24 * 3_600 * 10**9
REMOVAL_S = 5.0  # for the files of what is recorded, also when omac is stopping
AT_ONCE = 100  # streams whose records are decided side by side, and so committed together

_log = logging.getLogger("omac.journal")


async def ingest(inbox: Inbox, execution: Execution, wait_s: float = 0.0) -> int:
    """Record what is in the spool now; returns how many records that were.

    When another process is at it, waits up to `wait_s` for its end, then leaves it to that. Raises Refusal:
    state-unusable (the folder is not this user's alone), or the journal cannot be written.
    """
    begun = await run_in_thread(open_pass, inbox, execution.clock, wait_s)
    if begun is None:
        return 0
    try:
        return await _Ingestion(begun, inbox, execution).run()
    finally:
        begun.close()


async def try_to_ingest(inbox: Inbox, execution: Execution, wait_s: float = 0.0) -> None:
    """Ingest as `ingest` does, but log a Refusal and leave the records for the next time: the caller has more important
    work."""
    try:
        await ingest(inbox, execution, wait_s)
    except Refusal as refusal:
        _log.warning("what is in %s is not recorded yet: %s", inbox.folder, refusal.message)


class _Ingestion:
    """A pass of ingestion; the files of recorded events are removed at its end, even when it fails."""

    def __init__(self, begun: Pass, inbox: Inbox, execution: Execution) -> None:
        self._pass = begun
        self._host = inbox.host
        self._execution = execution
        self._present: frozenset[str] = frozenset()
        self._recorded: frozenset[str] = frozenset()
        self._done: list[str] = []
        self._taken = 0
        self._problem: Refusal | None = None

    async def run(self) -> int:
        turns = await run_in_thread(self._pass.records)
        self._present = self._pass.present()
        if turns:
            self._recorded = await run_in_thread(self._execution.recorded_files, self._host)
        try:
            for start in range(0, len(turns), AT_ONCE):
                async with trio.open_nursery() as nursery:
                    for turn in turns[start : start + AT_ONCE]:
                        nursery.start_soon(self._take, turn)
                if self._problem is not None:
                    raise self._problem
                await self._remove()
        finally:
            with trio.move_on_after(REMOVAL_S, shield=True):
                await self._remove()
        return self._taken

    async def _remove(self) -> None:
        done, self._done = self._done, []
        await run_in_thread(self._pass.remove, done)

    async def _take(self, turn: list[SpooledRecord]) -> None:
        for record in turn:
            try:
                if not await self._settle(record):
                    return  # it waits, and so do those that follow it
            except Refusal as refusal:
                self._problem = refusal
                return

    async def _settle(self, record: SpooledRecord) -> bool:
        """Record it, or set it aside; False when it waits. Raises Refusal when the journal cannot be used."""
        if record.name in self._recorded:  # omac was killed before it removed the file
            self._done.append(record.name)
            return True
        try:
            await self._report(record)
        except AlreadyRecorded:
            self._done.append(record.name)
        except Refusal as refusal:
            if refusal.reason not in ("out-of-order", "unfoldable"):
                raise
            if not self._is_hopeless(record):
                return False
            self._pass.set_aside(record.name, refusal.message)
        else:
            self._done.append(record.name)
            self._taken += 1
        return True

    async def _report(self, record: SpooledRecord) -> None:
        spooled = Spooled(self._host, record.name, record.run, record.at, self._present)
        cause = Cause(record.actor, record.correlation)
        match record.event:
            case denial.GuardDenied() as denied:
                await self._execution.execute(denial.AGGREGATE, record.stream, denied, cause, spooled=spooled)
            case inspection.Inspected() as done:
                await self._execution.execute(inspection.AGGREGATE, record.stream, done, cause, spooled=spooled)
            case launch.LaunchRequested() | launch.Launched() | launch.LaunchExited() | launch.Denied() as happened:
                report = launch.Report(happened)
                await self._execution.execute(launch.AGGREGATE, record.stream, report, cause, spooled=spooled)
            case other:
                raise AssertionError(f"the inbox gives out no {type(other).__name__}")

    def _is_hopeless(self, record: SpooledRecord) -> bool:
        """Return whether the record that this one follows will not come any more."""
        if record.version in (None, 1):
            return True
        begun = self._execution.entry(launch.AGGREGATE, record.stream).version > 0
        return begun or self._execution.clock() - record.at > WAIT_NS
