"""The group-commit writer: many tasks append, one thread commits whatever is waiting, one wake-up answers them all.

A commit costs a disk flush, whether it holds one event or a thousand. So what all tasks append in one pass of the trio
loop goes to a queue when the loop has nothing left to run; the thread drains it into a single transaction, and hands
the batch, in order of positions, to the trio loop, where the projections are folded before any of the waiting tasks
continues. Every task sees its own events when it goes on. A thread that took events while the loop still runs would
contend with it for the interpreter, and commit what the pass began without what it ends with. For the same reason
events for which nobody waits stay with the loop until somebody waits for others, or for RIDE_S at most.

What is committed is never reported as refused: when the events of other processes in between cannot be read, the batch
is kept and delivered as soon as they can.
"""

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from enum import Enum, auto
from functools import partial

import msgspec
import outcome
import trio

from omac.domain.kernel.event import Cause, Draft, Recorded, Spooled
from omac.domain.kernel.refusal import COUNT_PROCESSES, Refusal
from omac.journal.application import CommitGroup, Journal
from omac.journal.feed import Feed
from omac.journal.judgement import Conflict
from omac.journal.problem_log import ProblemLog

BATCH_MAX = 4_096  # callers in one transaction
QUEUE_MAX = 16_384  # callers that may be under way; more are refused
POLL_S = 0.04  # how soon appends of other processes are noticed when nobody calls `poll`
WATCHED_POLL_S = 1.0  # the same where somebody does, and at the latest while commits follow one another
RIDE_S = 0.02  # that events for which nobody waits may wait for a commit that somebody waits for
POLL_DELAY_S = 0.02  # from a commit to the next poll for what others appended: another commit would show it, too
BUSY_POLL_S = 0.25  # between two polls while commits follow one another
RETRY_S = 0.5  # how soon outcomes that could not be written, and reads that failed, are tried again
STOP_S = 10.0  # for the thread to write what is queued when omac ends
CHECKPOINT_EVENTS = 10_000  # events since the last checkpoint that make an idle moment worth using
FATAL = ("journal-newer", "journal-damaged")  # this omac cannot read the journal: continuing would be guessing
QUIET_S = 1.0  # without events, after which even one is worth it

_log = logging.getLogger("omac.journal")

Late = Callable[[Sequence[Recorded]], None]
Answered = Callable[[Sequence[Recorded] | Exception], object]  # the records, or why there are none


class _Item(msgspec.Struct, eq=False):
    """One caller's events. `kept`: nobody waits, and they must not be lost. `waits` is the task that goes on with what
    became of them, or is called with it; None: nobody waits any more."""

    group: CommitGroup
    waits: "trio.lowlevel.Task | Answered | None"
    kept: bool = False
    late: Late | None = None
    since: float = 0.0  # when it was queued, by the monotonic clock


class _Poll(Enum):
    """A request in the queue: read what others appended."""

    NOW = auto()


_POLL = _Poll.NOW
_Answer = tuple[_Item, Sequence[Recorded] | Exception]


def _stay(_: object) -> trio.lowlevel.Abort:
    """Keep a task waiting until it is known what became of its events."""
    return trio.lowlevel.Abort.FAILED


class Writer(trio.abc.Instrument):
    """Appends for all tasks of one trio loop. `deliver` folds each batch; it must not fail."""

    def __init__(self, journal: Journal, seen: int, deliver: Callable[[Sequence[Recorded]], None]) -> None:
        self._journal = journal
        self._feed = Feed(journal, seen)
        self._deliver = deliver
        self._gathered: list[_Item] = []  # the loop's: not in the queue yet
        self._is_awaited = False  # somebody waits for one of these
        self._ride = trio.CancelScope()  # at its deadline, what is gathered is handed on
        self._queue: queue.SimpleQueue[list[_Item] | _Poll | None] = queue.SimpleQueue()
        self._taken: list[_Item] = []  # the thread's: out of the queue, not committed yet
        self._poll_s, self._retry_at = POLL_S, 0.0
        self._owed: list[_Item] = []  # the thread's: outcomes that are not written yet
        self._committed: list[tuple[_Item, Sequence[Recorded]]] = []  # the thread's: durable, not delivered yet
        self._unwritten, self._unread, self._unmoved = (ProblemLog(_log) for _ in range(3))  # each comes and goes alone
        self._since_checkpoint, self._active_at = 0, 0.0
        self._is_poll_due = False  # the thread's: somebody asked for one, or nothing came for a while
        self._polled_at = 0.0
        self._behind = False  # the thread's: others have appended, and that is not read yet
        self._under_way = 0
        self._unanswered: set[_Item] = set()
        self._ended = trio.Event()
        self._failure: BaseException | None = None
        self._closed = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then write what is queued and return. Raises what made it impossible to go on."""
        token = trio.lowlevel.current_trio_token()
        work = partial(copy_context().run, self._work, token)  # the context has the place where warnings go
        thread = threading.Thread(target=work, name="omac-journal", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._closed = True
            message = f"the journal needs a thread, and the system starts no more for this user: {error}"
            raise Refusal("journal-unavailable", message, fix=[COUNT_PROCESSES]) from error
        trio.lowlevel.add_instrument(self)
        task_status.started()
        try:
            while not self._ended.is_set():
                with trio.CancelScope() as self._ride:
                    await self._ended.wait()
                self._hand_on()
        finally:
            self._closed = True
            with contextlib.suppress(KeyError):  # Trio removes one that failed
                trio.lowlevel.remove_instrument(self)
            self._hand_on()
            self._queue.put(None)
            with trio.move_on_after(STOP_S, shield=True) as waiting:
                await self._ended.wait()
                thread.join()  # it has said so as the last thing that it does
            if waiting.cancelled_caught:
                _log.error("the journal did not take the last records within %g s; the next start settles them", STOP_S)
                self._end()
        if self._failure is not None:
            raise self._failure

    async def submit(
        self, drafts: Sequence[Draft], cause: Cause, spooled: Spooled | None = None, late: Late | None = None
    ) -> Sequence[Recorded]:
        """Append all or nothing; return once durable and folded.

        The wait cannot be cancelled, so that the outcome is always known, unless the caller gives `late`: that is
        called with the events, should they become durable after the caller went away.

        Raises Conflict (others were first) or Refusal (the journal cannot be written, or omac is stopping).
        """
        group = self._journal.group(drafts, self._journal.envelope(cause, spooled))
        item = self._expect(group, trio.lowlevel.current_task(), late)
        abort = _stay if late is None else partial(self._abandon, item)
        recorded: Sequence[Recorded] = await trio.lowlevel.wait_task_rescheduled(abort)
        return recorded

    def submit_then(self, drafts: Sequence[Draft], cause: Cause, answered: Answered) -> None:
        """Append all or nothing to logs without versions; `answered` is called once, in the Trio loop, with the records
        when they are durable and folded, or with the Refusal. It must not fail. Raises Refusal as `submit` does, for
        what can be said at once."""
        self._expect(self._journal.group(drafts, self._journal.envelope(cause)), answered)

    def submit_soon(self, drafts: Sequence[Draft], cause: Cause) -> None:
        """Append to logs without versions, without waiting; kept until it is written, or until omac ends."""
        if self._closed:
            _log.error("%d outcomes came too late to be recorded; the next start records them as aborted", len(drafts))
        else:
            if self._ride.deadline == math.inf:  # else it ends soon enough, and changing it for each call is slow
                self._ride.deadline = trio.current_time() + RIDE_S
            self._put(_Item(self._journal.group(drafts, self._journal.envelope(cause)), None, kept=True))

    def before_io_wait(self, _timeout: float) -> None:
        """Hand on what was gathered, if somebody waits: no task is left to run. See trio.abc.Instrument."""
        if self._is_awaited:
            self._hand_on()

    def _hand_on(self) -> None:
        """Give the thread what was gathered."""
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered, self._is_awaited = [], False

    def poll(self) -> None:
        """Something may have been appended by another process: have it read. A caller of this replaces the poll."""
        self._poll_s = WATCHED_POLL_S
        self._queue.put(_POLL)

    async def catch_up(self) -> None:
        """Return once everything committed before the call is folded, by whichever process. Raises Refusal."""
        group = CommitGroup((), self._journal.envelope(Cause("omac")), ())
        item = self._expect(group, trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(partial(self._abandon, item))

    def _abandon(self, item: _Item, _: object) -> trio.lowlevel.Abort:
        self._unanswered.discard(item)
        item.waits = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _expect(self, group: CommitGroup, waits: trio.lowlevel.Task | Answered, late: Late | None = None) -> _Item:
        if self._closed:
            raise Refusal("stopping", "omac is stopping; this run records nothing more")
        if self._under_way >= QUEUE_MAX:
            message = f"{QUEUE_MAX} records wait for the journal {self._journal.store.path} already"
            raise Refusal("journal-unavailable", message, fix=["omac journal path  # is its disk slow, or full?"])
        item = _Item(group, waits, late=late)
        self._unanswered.add(item)
        self._is_awaited = True
        self._put(item)
        return item

    def refuse_waiting(self, seconds: float) -> None:
        """Refuse callers that have waited longer than this: omac ends, and the journal stalls. Their events may still
        become durable; the next start settles what follows from them."""
        now = time.monotonic()
        for item in tuple(self._unanswered):
            if now - item.since > seconds:
                message = f"omac is stopping, and the journal {self._journal.store.path} takes no records"
                self._answer(item, Refusal("stopping", message))

    def _answer(self, item: _Item, answer: Sequence[Recorded] | Exception) -> None:
        """Tell who waits, if somebody does; that is the last word on it."""
        if item.waits is not None:
            self._unanswered.discard(item)
            waits, item.waits = item.waits, None
            if not isinstance(waits, trio.lowlevel.Task):
                waits(answer)
            elif isinstance(answer, Exception):
                trio.lowlevel.reschedule(waits, outcome.Error(answer))
            else:
                trio.lowlevel.reschedule(waits, outcome.Value(answer))
        elif item.late is not None and not isinstance(answer, Exception):
            item.late(answer)

    def _put(self, item: _Item) -> None:
        item.since = time.monotonic()
        self._under_way += 1
        self._gathered.append(item)

    # ---- in the writer's thread ----

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            open_ = True
            while open_ or self._taken:
                batch, more = self._take()
                open_ = open_ and more
                self._commit(batch, token)
                if self._is_poll_due and not self._committed and time.monotonic() >= self._poll_at():
                    self._poll_others(token)
            if self._owed:  # a last try, however short ago the one before was
                self._retry_at = 0.0
                self._commit([], token)
            if self._committed:
                self._hand_over(token)
            if self._owed:
                _log.error("%d outcomes could not be recorded; the next start records them as aborted", len(self._owed))
        except BaseException as error:
            self._failure = error
        finally:
            with contextlib.suppress(trio.RunFinishedError):  # omac did not wait for a store that is stuck
                token.run_sync_soon(self._end)

    def _take(self) -> tuple[list[_Item], bool]:
        """Return the waiting items, after a pause at most, and whether the queue is still open."""
        open_, may_wait = True, not self._taken
        pause_s = max(0.0, self._poll_at() - time.monotonic()) if self._is_poll_due else self._poll_s
        try:
            while len(self._taken) < BATCH_MAX:
                news = self._queue.get(may_wait, pause_s)
                may_wait = False
                if news is None:
                    open_ = False
                    break
                if isinstance(news, _Poll):
                    self._is_poll_due = True
                else:
                    self._taken += news
        except queue.Empty:
            self._is_poll_due |= may_wait
        self._is_poll_due |= time.monotonic() - self._polled_at >= WATCHED_POLL_S  # whatever comes without a pause
        batch, self._taken = self._taken[:BATCH_MAX], self._taken[BATCH_MAX:]
        return batch, open_

    def _poll_at(self) -> float:
        """Return the time, by the monotonic clock, at which to check for records of other processes, if a check is
        due."""
        return min(self._active_at + POLL_DELAY_S, self._polled_at + BUSY_POLL_S)

    def _commit(self, batch: list[_Item], token: trio.lowlevel.TrioToken) -> None:
        items = [item for item in batch if item.group.drafts]
        if self._owed and (items or time.monotonic() >= self._retry_at):
            items = [*self._owed, *items]
        if items and (refused := self._append(items)):
            token.run_sync_soon(self._settle, [], refused)
        if self._committed:
            self._hand_over(token)
        if waiting := [item for item in batch if not item.group.drafts]:
            self._catch_up(waiting, token)

    def _append(self, items: list[_Item]) -> list[_Answer]:
        """Commit; what was refused is answered, what is durable waits in `_committed` for its delivery."""
        answers: list[_Answer] = []
        try:
            results = self._journal.commit([item.group for item in items])
        except Refusal as refusal:
            self._retry_at = time.monotonic() + RETRY_S
            self._unwritten.met(refusal.message)
            self._owed = [item for item in items if item.kept]
            return [(item, refusal) for item in items if not item.kept]
        self._owed = []
        self._unwritten.over()
        for item, result in zip(items, results, strict=True):
            if isinstance(result, Conflict):
                answers.append((item, result))
            else:
                self._committed.append((item, result))
        return answers

    def _hand_over(self, token: trio.lowlevel.TrioToken) -> None:
        """Deliver what is committed, with what others committed in between; later, when that cannot be read now."""
        own = [record for _, result in self._committed for record in result]
        try:
            records = self._feed.with_others(own)
        except Refusal as refusal:
            if refusal.reason in FATAL:
                raise
            self._unread.met(f"recorded, but what others recorded before it cannot be read yet: {refusal.message}")
            time.sleep(RETRY_S)
            return
        self._unread.over()
        self._active(len(own))
        answers, self._committed = self._committed, []
        token.run_sync_soon(self._settle, records, answers)

    def _catch_up(self, waiting: list[_Item], token: trio.lowlevel.TrioToken) -> None:
        refused: Refusal | None = None
        news: Sequence[Recorded] = ()
        try:
            if self._committed:
                raise Refusal("journal-unavailable", f"the journal {self._journal.store.path} cannot be read right now")
            news = self._feed.news()
        except Refusal as refusal:
            if refusal.reason in FATAL:
                raise
            refused = refusal
        answers = [(item, refused or ()) for item in waiting]
        token.run_sync_soon(self._settle, news, answers)

    def _poll_others(self, token: trio.lowlevel.TrioToken) -> None:
        """Deliver what others appended; else use the moment to move the log to the journal file."""
        self._is_poll_due, self._polled_at = False, time.monotonic()
        try:
            self._behind = self._journal.store.changed_by_others() or self._behind
            news = self._feed.news() if self._behind else []
            self._behind = False
        except Refusal as refusal:
            if refusal.reason in FATAL:
                raise
            self._unread.met(refusal.message)
            time.sleep(RETRY_S)
            return
        self._unread.over()
        if news:
            self._active(len(news))
            token.run_sync_soon(self._settle, news, [])
        elif self._since_checkpoint >= CHECKPOINT_EVENTS or (
            self._since_checkpoint and time.monotonic() - self._active_at >= QUIET_S
        ):
            self._since_checkpoint = 0
            try:
                self._journal.store.checkpoint()
                self._unmoved.over()
            except Refusal as refusal:  # nothing is lost: it stays in the log
                self._unmoved.met(refusal.message)

    def _active(self, events: int) -> None:
        self._since_checkpoint += events
        self._active_at = time.monotonic()

    # ---- back in the trio loop ----

    def _settle(self, records: Sequence[Recorded], answers: Sequence[_Answer]) -> None:
        if self._ended.is_set():  # a fold failed: all are answered, and nothing is folded on top
            return
        if records:
            try:
                self._deliver(records)
            except BaseException as error:  # a fold that fails must stop omac, not the loop's innards
                self._failure = error
                self._end()
                return
        self._under_way -= len(answers)
        for item, answer in answers:
            self._answer(item, answer)

    def _end(self) -> None:
        self._closed = True
        self._ended.set()
        while self._unanswered:
            message = "the journal's writer ended before it answered; the journal shows whether this was recorded"
            self._answer(self._unanswered.pop(), Refusal("journal-unavailable", message))
