"""The group-commit writer: many tasks append, one thread commits whatever is waiting, one wake-up answers them all.

A commit costs a disk flush, whether it holds one event or a thousand. So what all tasks append in one pass of the trio
loop goes to the thread when the loop has nothing left to run; the thread (`journal/commit_thread.py`) drains it into a
single transaction, and hands the batch, in order of positions, to the trio loop, where the projections are folded
before any of the waiting tasks continues. Every task sees its own events when it goes on. A thread that took events
while the loop still runs would contend with it for the interpreter, and commit what the pass began without what it ends
with. For the same reason events for which nobody waits stay with the loop until somebody waits for others, or for
RIDE_S at most.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import outcome
import trio

from omac.domain.access.access import outcomes_in
from omac.domain.kernel.event import Cause, Draft, Recorded, Spooled
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.journal.application import CommitGroup, Journal
from omac.journal.commit_thread import Answer, Answered, CallSoon, CommitThread, Late, Submission

QUEUE_MAX = 16_384  # callers that may be under way; more are refused
RIDE_S = 0.02  # that events for which nobody waits may wait for a commit that somebody waits for
STOP_S = 10.0  # for the thread to write what is queued when omac ends

_log = logging.getLogger("omac.journal")


def _stay(_: object) -> trio.lowlevel.Abort:
    """Keep a task waiting until it is known what became of its events."""
    return trio.lowlevel.Abort.FAILED


class Writer(trio.abc.Instrument):
    """Appends for all tasks of one trio loop. `deliver` folds each batch; it must not fail."""

    def __init__(self, journal: Journal, seen: int, deliver: Callable[[Sequence[Recorded]], None]) -> None:
        self._journal = journal
        self._deliver = deliver
        self._thread = CommitThread(journal, seen, self._settle, self._end)
        self._gathered: list[Submission] = []  # not with the thread yet
        self._is_awaited = False  # somebody waits for one of these
        self._gathering: list[Callable[[], None]] = []  # what submits more before these are handed on
        self._ride = trio.CancelScope()  # at its deadline, what is gathered is handed on
        self._under_way = 0
        self._unanswered: set[Submission] = set()
        self._ended = trio.Event()
        self._failure: BaseException | None = None
        self._closed = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then write what is queued and return. Raises what made it impossible to go on."""
        try:
            self._thread.start()
        except Refusal:
            self._closed = True
            raise
        trio.lowlevel.add_instrument(self)
        task_status.started()
        try:
            while not self._ended.is_set():
                with trio.CancelScope() as self._ride:
                    await self._ended.wait()
                self._hand_on()
        finally:
            with contextlib.suppress(KeyError):  # Trio removes one that failed
                trio.lowlevel.remove_instrument(self)
            self._hand_on()
            self._closed = True
            self._thread.finish()
            with trio.move_on_after(STOP_S, shield=True) as waiting:
                await self._ended.wait()
                self._thread.join()
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
        submission = self._expect(group, trio.lowlevel.current_task(), late)
        abort = _stay if late is None else partial(self._abandon, submission)
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
            outcomes = counted(outcomes_in(draft.event for draft in drafts), "outcome")
            _log.error("%s came too late to be recorded; the next start records them as aborted", outcomes)
        else:
            self._ride_soon()
            self._put(Submission(self._journal.group(drafts, self._journal.envelope(cause)), None, kept=True))

    @property
    def takes_batches(self) -> bool:
        """Return whether call batches may be recorded: no run lives that would misread them."""
        return self._journal.store.takes_batches

    def gather(self, flush: Callable[[], None], *, is_awaited: bool) -> None:
        """Have `flush` called once, before what was gathered is handed on: it submits all that one pass of the loop
        has brought until then, which nobody waits for unless `is_awaited`. It must not fail."""
        if self._closed:
            flush()
            return
        self._gathering.append(flush)
        if is_awaited:
            self._is_awaited = True
        else:
            self._ride_soon()

    def _ride_soon(self) -> None:
        if self._ride.deadline == math.inf:  # else it ends soon enough, and changing it for each call is slow
            self._ride.deadline = trio.current_time() + RIDE_S

    def before_io_wait(self, _timeout: float) -> None:
        """Hand on what was gathered, if somebody waits: no task is left to run. Otherwise prepare it, so that who waits
        next does not wait for that, too. See trio.abc.Instrument."""
        if self._is_awaited:
            self._hand_on()
        elif self._gathering:
            self._flush()

    def _hand_on(self) -> None:
        """Give the thread what was gathered."""
        self._flush()
        self._is_awaited = False
        if self._gathered:
            self._thread.commit_soon(self._gathered)
            self._gathered = []

    def _flush(self) -> None:
        gathering, self._gathering = self._gathering, []
        for flush in gathering:
            try:
                flush()
            except Exception as error:  # it must stop omac: Trio would call none of this any more
                self._end(error)

    def answer_by(self, call_soon: CallSoon | None) -> None:
        """Have `call_soon`, which any thread may call, bring what becomes of events into the loop; None: have Trio
        bring it, and what waits is brought now."""
        self._thread.answer_by(call_soon)

    def poll(self) -> None:
        """Something may have been appended by another process: have it read. A caller of this replaces the poll."""
        self._thread.poll()

    async def catch_up(self) -> None:
        """Return once everything committed before the call is folded, by whichever process. Raises Refusal."""
        group = CommitGroup((), self._journal.envelope(Cause("omac")), ())
        submission = self._expect(group, trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(partial(self._abandon, submission))

    def _abandon(self, submission: Submission, _: object) -> trio.lowlevel.Abort:
        self._unanswered.discard(submission)
        submission.waits = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _expect(self, group: CommitGroup, waits: trio.lowlevel.Task | Answered, late: Late | None = None) -> Submission:
        self.require_open()
        submission = Submission(group, waits, late=late)
        self._unanswered.add(submission)
        self._is_awaited = True
        self._put(submission)
        return submission

    def require_open(self) -> None:
        """Raise Refusal where omac is stopping, or too many wait for the journal."""
        if self._closed:
            raise Refusal("stopping", "omac is stopping; this run records nothing more")
        if self._under_way >= QUEUE_MAX:
            message = f"{QUEUE_MAX} records wait for the journal {self._journal.store.path} already"
            raise Refusal("journal-unavailable", message, fix=["omac journal path  # is its disk slow, or full?"])

    def refuse_waiting(self, seconds: float) -> None:
        """Refuse callers that have waited longer than this: omac ends, and the journal stalls. Their events may still
        become durable; the next start settles what follows from them. The reason is the one for which the journal took
        nothing the last time, if it took nothing."""
        now = time.monotonic()
        message = f"omac is stopping, and the journal {self._journal.store.path} takes no records"
        refusal = self._thread.refused or Refusal("stopping", message)
        for submission in tuple(self._unanswered):
            if now - submission.since > seconds:
                self._answer(submission, refusal)

    def _answer(self, submission: Submission, answer: Sequence[Recorded] | Exception) -> None:
        """Tell who waits, if somebody does; that is the last word on it."""
        if submission.waits is not None:
            self._unanswered.discard(submission)
            waits, submission.waits = submission.waits, None
            if not isinstance(waits, trio.lowlevel.Task):
                waits(answer)
            elif isinstance(answer, Exception):
                trio.lowlevel.reschedule(waits, outcome.Error(answer))
            else:
                trio.lowlevel.reschedule(waits, outcome.Value(answer))
        elif submission.late is not None and not isinstance(answer, Exception):
            submission.late(answer)

    def _put(self, submission: Submission) -> None:
        submission.since = time.monotonic()
        self._under_way += 1
        self._gathered.append(submission)

    # ---- for the thread, in the trio loop ----

    def _settle(self, records: Sequence[Recorded], answers: Sequence[Answer]) -> None:
        if self._ended.is_set():  # a fold failed: all are answered, and nothing is folded on top
            return
        try:
            if records:
                self._deliver(records)
            self._under_way -= len(answers)
            for submission, answer in answers:
                self._answer(submission, answer)
        except BaseException as error:  # a fold that fails must stop omac, not the loop's innards
            self._end(error)

    def _end(self, failure: BaseException | None = None) -> None:
        self._failure = self._failure or failure
        self._closed = True
        self._ended.set()
        self._flush()  # what is submitted now is refused
        while self._unanswered:
            message = "the journal's writer ended before it answered; the journal shows whether this was recorded"
            try:
                self._answer(self._unanswered.pop(), Refusal("journal-unavailable", message))
            except Exception as error:  # the others must get theirs: a task cannot be cancelled while it waits
                self._failure = self._failure or error
