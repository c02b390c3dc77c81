"""The thread of a group-commit writer: it alone writes to the journal, and reads what other processes appended.

Rules

1. Whatever waits is one transaction. What became of it is handed to the trio loop by one wake-up.
2. What is committed is never reported as refused: when the events of other processes in between cannot be read, the
   batch is kept and delivered as soon as they can.
3. Events for which nobody waits, and which must not be lost, are tried again until they are written or omac ends.
4. When nothing comes, the log is moved to the journal file.
5. While a run lives that would misread call batches, none are recorded: whether it still lives is asked beside commits.
"""

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial

import msgspec
import trio

from omac.domain.access.access import outcomes_in
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import COUNT_PROCESSES, Refusal
from omac.domain.kernel.sizes import counted
from omac.journal.application import CommitGroup, Journal
from omac.journal.feed import Feed
from omac.journal.judgement import Conflict
from omac.journal.problem_log import ProblemLog

BATCH_MAX = 4_096  # callers in one transaction
POLL_S = 0.04  # how soon appends of other processes are noticed when nobody calls `poll`
WATCHED_POLL_S = 1.0  # the same where somebody does, and at the latest while commits follow one another
POLL_DELAY_S = 0.02  # from a commit to the next poll for what others appended: another commit would show it, too
BUSY_POLL_S = 0.25  # between two polls while commits follow one another
BATCHES_S = 10.0  # between two tries to have the journal take call batches
RETRY_S = 0.5  # how soon outcomes that could not be written, and reads that failed, are tried again
CHECKPOINT_EVENTS = 10_000  # events since the last checkpoint that make an idle moment worth using
QUIET_S = 1.0  # without events, after which even one is worth it
FATAL = ("journal-newer", "journal-damaged")  # this omac cannot read the journal: continuing would be guessing

_log = logging.getLogger("omac.journal")

Late = Callable[[Sequence[Recorded]], None]
CallSoon = Callable[[Callable[[], None]], object]  # has something happen in the loop; any thread may call it
Answered = Callable[[Sequence[Recorded] | Exception], object]  # the records, or why there are none


class Submission(msgspec.Struct, eq=False):
    """One caller's events. `kept`: nobody waits, and they must not be lost. `waits` is the task that goes on with what
    became of them, or is called with it; None: nobody waits any more."""

    group: CommitGroup
    waits: trio.lowlevel.Task | Answered | None
    kept: bool = False
    late: Late | None = None
    since: float = 0.0  # when it was submitted, by the monotonic clock


Answer = tuple[Submission, Sequence[Recorded] | Exception]


class _Poll:
    """A request in the queue: read what others appended."""


_POLL = _Poll()


class CommitThread:
    """The thread, from `start` to `finish`. In the trio loop it has `settle` called, with records to be folded and the
    answers to those who wait, and `ended` as the last thing that it does, with the fault that ended it, if one did."""

    def __init__(
        self,
        journal: Journal,
        seen: int,
        settle: Callable[[Sequence[Recorded], Sequence[Answer]], None],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._journal = journal
        self._feed = Feed(journal, seen)
        self._settle = settle
        self._ended = ended
        self._call_soon: CallSoon | None = None
        self._settled: deque[tuple[Sequence[Recorded], Sequence[Answer]]] = deque()  # on their way into the loop
        self._queue: queue.SimpleQueue[list[Submission] | _Poll | None] = queue.SimpleQueue()
        self._taken: list[Submission] = []  # out of the queue, not committed yet
        self._owed: list[Submission] = []  # outcomes that are not written yet
        self._retry_at = 0.0
        self.refused: Refusal | None = None  # why the last commit failed, if it did
        self._committed: list[tuple[Submission, Sequence[Recorded]]] = []  # durable, not delivered yet
        self._unwritten, self._unread, self._unmoved = (ProblemLog(_log) for _ in range(3))  # each comes and goes alone
        self._since_checkpoint, self._active_at = 0, 0.0
        self._poll_s, self._polled_at = POLL_S, 0.0
        self._is_poll_due = False  # somebody asked for one, or nothing came for a while
        self._batches_at = 0.0  # when the next such try is due
        self._behind = False  # others have appended, and that is not read yet

    # ---- for the trio loop ----

    def start(self) -> None:
        """Start the thread. Raises Refusal: the system starts no more."""
        self._trio = trio.lowlevel.current_trio_token()
        work = partial(copy_context().run, self._work)  # the context has the place where warnings go
        self._thread = threading.Thread(target=work, name="omac-journal", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            message = f"the journal needs a thread, and the system starts no more for this user: {error}"
            raise Refusal("journal-unavailable", message, fix=[COUNT_PROCESSES]) from error

    def commit_soon(self, submissions: list[Submission]) -> None:
        """Have events committed. Who gives none waits for what was committed before."""
        self._queue.put(submissions)

    def poll(self) -> None:
        """Have that read which other processes may have appended. Who calls this replaces the thread's own polls."""
        self._queue.put(_POLL)

    def answer_by(self, call_soon: CallSoon | None) -> None:
        """Have `call_soon` bring what is settled into the loop, instead of Trio; None: have Trio bring it again."""
        self._call_soon = call_soon
        self._settle_all()  # what the one before has not brought yet, and may not any more

    def finish(self) -> None:
        """Have what is queued written, and the thread end."""
        self._queue.put(None)

    def join(self) -> None:
        """Wait until the thread is gone; it has called `ended` before."""
        self._thread.join()

    def _settle_all(self) -> None:
        while self._settled:
            self._settle(*self._settled.popleft())

    def _end(self, failure: BaseException | None) -> None:
        self._settle_all()
        self._ended(failure)

    # ---- in the thread ----

    def _work(self) -> None:
        failure: BaseException | None = None
        try:
            open_ = True
            while open_ or self._taken:
                self._try_batches()
                batch, more = self._take()
                open_ = open_ and more
                self._commit(batch)
                if self._is_poll_due and not self._committed and time.monotonic() >= self._poll_at():
                    self._poll_others()
            if self._owed:  # a last try, however short ago the one before was
                self._retry_at = 0.0
                self._commit([])
            if self._committed:
                self._hand_over()
            if self._owed:
                owed = outcomes_in(draft.event for submission in self._owed for draft in submission.group.drafts)
                outcomes = counted(owed, "outcome")
                _log.error("%s could not be recorded; the next start records them as aborted", outcomes)
        except BaseException as error:
            failure = error
        finally:
            with contextlib.suppress(trio.RunFinishedError):  # omac did not wait for a store that is stuck
                self._trio.run_sync_soon(self._end, failure)

    def _try_batches(self) -> None:
        """Have the journal take call batches, if it does not yet and can. A store that fails is reported by what is
        recorded next."""
        if not self._journal.store.takes_batches and time.monotonic() >= self._batches_at:
            self._batches_at = time.monotonic() + BATCHES_S
            with contextlib.suppress(Refusal):
                self._journal.store.take_batches()

    def _take(self) -> tuple[list[Submission], bool]:
        """Return what waits, after a pause at most, and whether the queue is still open."""
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
                    self._is_poll_due, self._poll_s = True, WATCHED_POLL_S
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

    def _commit(self, batch: list[Submission]) -> None:
        submissions = [submission for submission in batch if submission.group.drafts]
        if self._owed and (submissions or time.monotonic() >= self._retry_at):
            submissions = [*self._owed, *submissions]
        if submissions and (refused := self._append(submissions)):
            self._bring([], refused)
        if self._committed:
            self._hand_over()
        if waiting := [submission for submission in batch if not submission.group.drafts]:
            self._catch_up(waiting)

    def _append(self, submissions: list[Submission]) -> list[Answer]:
        """Commit; return the answers to what was refused. What is durable waits in `_committed` for its delivery."""
        answers: list[Answer] = []
        try:
            results = self._journal.commit([submission.group for submission in submissions])
        except Refusal as refusal:
            self._retry_at = time.monotonic() + RETRY_S
            self.refused = refusal
            self._unwritten.met(refusal.message)
            self._owed = [submission for submission in submissions if submission.kept]
            return [(submission, refusal) for submission in submissions if not submission.kept]
        self._owed, self.refused = [], None
        self._unwritten.over()
        for submission, result in zip(submissions, results, strict=True):
            if isinstance(result, Conflict):
                answers.append((submission, result))
            else:
                self._committed.append((submission, result))
        return answers

    def _hand_over(self) -> None:
        """Deliver what is committed, with what others committed in between; later, when that cannot be read now."""
        own = [record for _, result in self._committed for record in result]
        try:
            records = self._feed.with_others(own)
        except Refusal as refusal:
            self._pause(refusal, "recorded, but what others recorded before it cannot be read yet: ")
            return
        self._unread.over()
        self._active(len(own))
        answers, self._committed = self._committed, []
        self._bring(records, answers)

    def _catch_up(self, waiting: list[Submission]) -> None:
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
        answers = [(submission, refused or ()) for submission in waiting]
        self._bring(news, answers)

    def _poll_others(self) -> None:
        """Deliver what others appended; else use the moment to move the log to the journal file."""
        self._is_poll_due, self._polled_at = False, time.monotonic()
        try:
            self._behind = self._journal.store.changed_by_others() or self._behind
            news = self._feed.news() if self._behind else []
            self._behind = False
        except Refusal as refusal:
            self._pause(refusal)
            return
        self._unread.over()
        if news:
            self._active(len(news))
            self._bring(news, [])
        elif self._since_checkpoint >= CHECKPOINT_EVENTS or (
            self._since_checkpoint and time.monotonic() - self._active_at >= QUIET_S
        ):
            self._checkpoint()

    def _bring(self, records: Sequence[Recorded], answers: Sequence[Answer]) -> None:
        """Have the loop fold records, and answer."""
        self._settled.append((records, answers))  # first: see `answer_by`
        (self._call_soon or self._trio.run_sync_soon)(self._settle_all)

    def _pause(self, refusal: Refusal, what: str = "") -> None:
        """Log that the journal cannot be read, and wait before the next try. Raises the Refusal if it is fatal."""
        if refusal.reason in FATAL:
            raise refusal
        self._unread.met(what + refusal.message)
        time.sleep(RETRY_S)

    def _checkpoint(self) -> None:
        self._since_checkpoint = 0
        try:
            self._journal.store.checkpoint()
            self._unmoved.over()
        except Refusal as refusal:  # nothing is lost: it stays in the log
            self._unmoved.met(refusal.message)

    def _active(self, events: int) -> None:
        self._since_checkpoint += events
        self._active_at = time.monotonic()
