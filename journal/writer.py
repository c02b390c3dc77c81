"""The group-commit writer: many tasks append, one thread commits whatever is waiting, one wake-up tells them all.

A commit costs a disk flush, whether it holds one event or a thousand. So tasks put their events into a queue; the
thread drains it into a single transaction, and hands the batch, in order of positions, to the trio loop, where the
projections are folded before any of the waiting tasks continues. Whoever appended sees its own events.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

import msgspec
import outcome
import trio
from eventsourcing.persistence import IntegrityError, StoredEvent

from omac.domain.recorded import Cause, Draft, Recorded
from omac.domain.refusal import Refusal
from omac.journal.application import Journal
from omac.journal.codec import Versioned
from omac.journal.feed import Feed
from omac.journal.recorder import Meta

BATCH_MAX = 4_096  # callers in one transaction
QUEUE_MAX = 16_384  # callers that may wait before the next one is held back
POLL_S = 0.02  # how soon appends of other processes are noticed when nothing is written here
RETRY_S = 0.5  # how soon outcomes that could not be written are tried again
CHECKPOINT_EVENTS = 200  # events since the last checkpoint that make an idle moment worth using
QUIET_S = 1.0  # without events, after which even one is worth it

_log = logging.getLogger("omac.journal")


class Conflict(Exception):
    """Someone else appended this version first."""


class _Item(msgspec.Struct):
    """One caller's events. `task` None: nobody waits, and it must not be lost."""

    drafts: Sequence[Draft]
    stored: Sequence[StoredEvent]
    meta: Meta
    task: trio.lowlevel.Task | None


class Writer:
    """Appends for all tasks of one trio loop. `deliver` folds each batch; it must not fail."""

    def __init__(self, journal: Journal, seen: int, deliver: Callable[[Sequence[Recorded]], None]) -> None:
        self._journal = journal
        self._feed = Feed(journal, seen)
        self._deliver = deliver
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._owed: list[_Item] = []  # the thread's: outcomes that are not written yet
        self._retry_at = 0.0
        self._since_checkpoint = 0
        self._active_at = 0.0
        self._unanswered: set[trio.lowlevel.Task] = set()
        self._room = trio.lowlevel.ParkingLot()
        self._ended = trio.Event()
        self._failure: BaseException | None = None
        self._closed = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then write what is queued and return. Raises what made it impossible to go on."""
        thread = threading.Thread(target=self._work, args=(trio.lowlevel.current_trio_token(),), name="omac-journal")
        thread.start()
        task_status.started()
        try:
            await self._ended.wait()
        finally:
            self._closed = True
            self._queue.put(None)
            with trio.CancelScope(shield=True):
                await self._ended.wait()
                await trio.to_thread.run_sync(thread.join)  # after a failed fold it may still be writing
        if self._failure is not None:
            raise self._failure

    async def append(self, drafts: Sequence[Draft], cause: Cause) -> Sequence[Recorded]:
        """Append all or nothing; return once durable and folded. The outcome is always known: never cancelled.

        Raises Conflict (a version was taken) or Refusal (the journal cannot be written, or omac is stopping).
        """
        while len(self._unanswered) >= QUEUE_MAX:
            await self._room.park()
        return await self._wait_for(drafts, cause)

    def append_soon(self, drafts: Sequence[Draft], cause: Cause) -> None:
        """Append to logs without versions, without waiting; kept until it is written, or until omac ends."""
        if self._closed:
            _log.error("%d outcomes came too late to be recorded; the next start records them as aborted", len(drafts))
        else:
            self._queue.put(self._item(drafts, cause, None))

    async def catch_up(self) -> None:
        """Return once everything committed before the call is folded, by whichever process."""
        await self._wait_for((), Cause("omac"))

    async def _wait_for(self, drafts: Sequence[Draft], cause: Cause) -> Sequence[Recorded]:
        if self._closed:
            raise Refusal("stopping", "omac is stopping; nothing more is recorded by this run")
        item = self._item(drafts, cause, trio.lowlevel.current_task())
        self._unanswered.add(trio.lowlevel.current_task())
        self._queue.put(item)
        recorded: Sequence[Recorded] = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return recorded

    def _item(self, drafts: Sequence[Draft], cause: Cause, task: trio.lowlevel.Task | None) -> _Item:
        to_stored_event = self._journal.codec.to_stored_event
        stored = [to_stored_event(Versioned(draft.stream, draft.version, draft.event)) for draft in drafts]
        return _Item(drafts, stored, self._journal.meta(cause), task)

    # ---- in the writer's thread ----

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            open_ = True
            while open_:
                batch, open_ = self._take()
                self._commit(batch, token)
                if not batch:
                    self._idle(token)
            if self._owed:  # a last try, however short ago the one before was
                self._retry_at = 0.0
                self._commit([], token)
            if self._owed:
                _log.error("%d outcomes could not be recorded; the next start records them as aborted", len(self._owed))
        except BaseException as error:
            self._failure = error
        finally:
            token.run_sync_soon(self._end)

    def _take(self) -> tuple[list[_Item], bool]:
        """What is waiting now, after up to POLL_S; False once the queue is closed and drained."""
        batch: list[_Item] = []
        try:
            item = self._queue.get(timeout=POLL_S)
            while item is not None:
                batch.append(item)
                if len(batch) >= BATCH_MAX:
                    return batch, True
                item = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _commit(self, batch: list[_Item], token: trio.lowlevel.TrioToken) -> None:
        if not batch and (not self._owed or time.monotonic() < self._retry_at):
            return
        items = [item for item in (*self._owed, *batch) if item.drafts]
        asked = [item for item in batch if not item.drafts]
        records: list[Recorded] = []
        answers: list[tuple[trio.lowlevel.Task, outcome.Outcome[Sequence[Recorded]]]] = []
        try:
            results = self._journal.store.insert_groups([(item.stored, item.meta) for item in items]) if items else []
        except Refusal as refusal:
            self._retry_at = time.monotonic() + RETRY_S
            _log.error("%s", refusal.message)
            self._owed = [item for item in items if item.task is None]
            answers += [(item.task, outcome.Error(refusal)) for item in items if item.task]
        else:
            self._owed = []
            for item, result in zip(items, results, strict=True):
                if isinstance(result, IntegrityError):
                    answers += [(item.task, outcome.Error(Conflict(str(result))))] if item.task else []
                    continue
                own = self._records(item, result)
                records += own
                answers += [(item.task, outcome.Value(own))] if item.task else []
        if records:
            self._active(len(records))
            records = self._feed.with_others(records)
        if asked:
            records += self._feed.news()
            answers += [(item.task, outcome.Value(())) for item in asked if item.task]
        token.run_sync_soon(self._settle, records, answers)

    def _records(self, item: _Item, positions: Sequence[int]) -> list[Recorded]:
        meta = item.meta
        return [
            Recorded(
                position, draft.stream, draft.version, meta.at, meta.run, meta.actor, meta.correlation, meta.causation,
                draft.event,
            )
            for position, draft in zip(positions, item.drafts, strict=True)
        ]  # fmt: skip

    def _idle(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            news = self._feed.news()
        except Refusal as refusal:
            if refusal.reason in ("journal-newer", "journal-damaged"):
                raise  # what is there cannot be understood: going on would be guessing
            _log.error("%s", refusal.message)
            time.sleep(RETRY_S)
            return
        if news:
            self._active(len(news))
            token.run_sync_soon(self._settle, news, [])
        elif self._since_checkpoint >= CHECKPOINT_EVENTS or (
            self._since_checkpoint and time.monotonic() - self._active_at >= QUIET_S
        ):
            self._since_checkpoint = 0
            try:
                self._journal.store.checkpoint()
            except Refusal as refusal:  # nothing is lost: it stays in the log
                _log.error("%s", refusal.message)

    def _active(self, events: int) -> None:
        self._since_checkpoint += events
        self._active_at = time.monotonic()

    # ---- back in the trio loop ----

    def _settle(
        self,
        records: Sequence[Recorded],
        answers: Sequence[tuple[trio.lowlevel.Task, outcome.Outcome[Sequence[Recorded]]]],
    ) -> None:
        if self._ended.is_set():  # a fold failed: all have been told, and nothing is folded on top
            return
        if records:
            try:
                self._deliver(records)
            except BaseException as error:  # a fold that fails must stop omac, not the loop's innards
                self._failure = error
                self._end()
        for task, answer in answers:
            if task in self._unanswered:
                self._unanswered.remove(task)
                trio.lowlevel.reschedule(task, answer)
        if self._room:
            self._room.unpark_all()

    def _end(self) -> None:
        self._closed = True
        self._ended.set()
        while self._unanswered:
            refusal = Refusal("journal-unavailable", "the journal's writer has ended; nothing more can be recorded")
            trio.lowlevel.reschedule(self._unanswered.pop(), outcome.Error(refusal))
        self._room.unpark_all()
