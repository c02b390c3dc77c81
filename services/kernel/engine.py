"""The engine: the live system, the journal behind it, and the wake-ups between them.

The carrier of a server: commands are decided on the projected state, appended by the group-commit writer, and continue
when their events are durable and folded. A task that waits for a change waits for a stream to move.

What revokes, stops or kills does not wait for a journal that is slow or away: its stream is marked as revoked, which
closes routes and ends processes, and the command is tried again until it is recorded.
"""

import logging
import weakref
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import trio

from omac.domain.access import access
from omac.domain.access.access import BATCH_MAX
from omac.domain.kernel.aggregate import Addressed, Aggregate
from omac.domain.kernel.event import Cause, Draft, Latest, Recorded, Spooled
from omac.domain.kernel.ids import HostId, StreamId, TokenDigest, key_of, namespace_beside, server_namespace
from omac.domain.kernel.refusal import Refusal
from omac.journal.application import Journal
from omac.journal.commit_thread import Answered, CallSoon, Late
from omac.journal.group_commit import Writer
from omac.journal.problem_log import ProblemLog
from omac.journal.snapshot_store import SnapshotStore
from omac.services.kernel.execution import Execution
from omac.services.kernel.restoring import KeptSnapshots, restored

State = TypeVar("State")
Command = TypeVar("Command")
Result = TypeVar("Result")
Observer = Callable[[Recorded], None]
RevocationObserver = Callable[[StreamId, Cause | None], None]

SETTLE_S = 0.02  # after a change of the journal's files, for those that follow at once
CATCH_UP_S = 0.5  # that a reader waits for what other processes have recorded
REVOCATION_S = 0.25  # for the record of what takes away, before it holds without
RETRY_S = 0.5  # between two tries to record what was revoked
JOURNAL_AWAY = ("journal-unavailable", "journal-read-only", "contention")  # reasons to try again

_log = logging.getLogger("omac.engine")


class Engine(Execution):
    """The engine of a process that serves; a process has only one. Run `keep_writing` in a nursery before anything is
    executed.

    `namespace` is that of its directories and sidecars: of the host's server, or, with `beside`, of a run beside that.
    `snapshots` are those of the journal, to begin with and to add to. `revoked` holds the streams and the tokens of
    revocations that are not recorded yet, and how many commands revoked each.
    """

    def __init__(
        self, journal: Journal, host: HostId, *, beside: bool = False, snapshots: SnapshotStore | None = None
    ) -> None:
        super().__init__(journal, host)
        self.namespace = namespace_beside(host, self.run) if beside else server_namespace(host)
        self.system = restored(journal, snapshots, journal.store.head())
        self._kept = KeptSnapshots(snapshots, self.system.position)
        self._writer = Writer(journal, self.system.position, self._fold)
        self._observers: list[Observer] = []
        self._access_observers: list[Observer] = []
        self._moved: dict[StreamId, set[trio.Event]] = {}
        self.revoked: dict[StreamId | TokenDigest, int] = {}
        self._revoking: dict[tuple[StreamId | TokenDigest, type], trio.Event] = {}
        self._revocation_observers: list[RevocationObserver] = []
        self._tasks: trio.Nursery | None = None
        self._locks: weakref.WeakValueDictionary[StreamId, trio.Lock] = weakref.WeakValueDictionary()

    async def keep_writing(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Append what is executed until cancelled; see `Writer.run`."""
        try:
            async with trio.open_nursery() as self._tasks:
                await self._tasks.start(self._writer.run)
                task_status.started()
        finally:
            self._tasks = None

    def refuse_waiting(self, seconds: float) -> None:
        """Refuse callers that have waited longer than this for the journal; see `Writer.refuse_waiting`."""
        self._writer.refuse_waiting(seconds)

    def observe(self, *observers: Observer) -> None:
        """Have `observers` called with every record but those of accesses from now on, right after it is folded. They
        must not fail."""
        self._observers += observers

    def observe_accesses(self, *observers: Observer) -> None:
        """Have `observers` called with every record of an access, by far the most frequent ones, right after it is
        folded. They must not fail."""
        self._access_observers += observers

    async def watch(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Read what other processes append as soon as `changed` returns, until cancelled."""
        while True:
            self._writer.poll()
            await changed()
            await trio.sleep(SETTLE_S)

    def observe_revocations(self, observer: RevocationObserver) -> None:
        """Have `observer` called with each stream that is revoked before that is recorded. It must not fail."""
        self._revocation_observers.append(observer)

    def revoke(
        self,
        aggregate: Aggregate[State, Command],
        stream: StreamId,
        command: Command,
        cause: Cause | None = None,
        *,
        token: TokenDigest | None = None,
        beside: Sequence[Addressed[Any, Any]] = (),
    ) -> trio.Event:
        """Execute a command that takes away. It holds within `REVOCATION_S`, whether or not it is recorded by then.

        The event is set when it is recorded, when it turned out to change nothing, or when omac ends. While one waits
        for the journal, others of its kind for the same stream are the same one. `token` is the only one that it ends;
        None: it ends all of the stream.
        """
        kind = (token or stream, type(command))
        if kind in self._revoking:
            return self._revoking[kind]
        ended = trio.Event()
        if self._tasks is None:  # omac has ended, and the next start settles it
            ended.set()
        else:
            self._revoking[kind] = ended
            work = partial(self.execute, aggregate, stream, command, cause, beside=beside)
            self._tasks.start_soon(self._revoke, kind, stream, work, cause)
        return ended

    def is_revoking(self, stream: StreamId) -> bool:
        """Return whether a command that takes all of a stream away is not recorded yet."""
        return any(target == stream for target, _ in self._revoking)

    async def _revoke(
        self,
        kind: tuple[StreamId | TokenDigest, type],
        stream: StreamId,
        work: Callable[[], Awaitable[object]],
        cause: Cause | None,
    ) -> None:
        """Try until it is recorded; what is not within a moment is marked as revoked meanwhile."""
        target, marked = kind[0], False

        async def mark() -> None:
            nonlocal marked
            await trio.sleep(REVOCATION_S)
            marked = True
            self.revoked[target] = self.revoked.get(target, 0) + 1
            self._wake(stream)
            for observer in self._revocation_observers:
                observer(stream, cause)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mark)
                await self._record_revocation(stream, work)
                nursery.cancel_scope.cancel()
        finally:
            self._revoking.pop(kind).set()
            if marked:
                self.revoked[target] -= 1
                if not self.revoked[target]:
                    del self.revoked[target]
                self._wake(stream)

    async def _record_revocation(self, stream: StreamId, work: Callable[[], Awaitable[object]]) -> None:
        problems = ProblemLog(_log)
        while True:
            try:
                await work()
                return
            except Refusal as refusal:
                if not refusal.reason.startswith(("journal", "contention")):
                    return  # there is nothing to take away, or omac ends
                problems.met(f"{stream}: what was revoked is not recorded yet: {refusal.message}")
                await trio.sleep(RETRY_S)

    async def catch_up(self) -> None:
        await self._writer.catch_up()

    async def catch_up_for_reading(self) -> None:
        """Catch up, for CATCH_UP_S at most: a journal that stalls or cannot be read holds up no reader."""
        with trio.move_on_after(CATCH_UP_S), suppress(Refusal):
            await self.catch_up()

    def answer_by(self, call_soon: CallSoon | None) -> None:
        """Have `call_soon` bring the journal's answers into the loop; see `Writer.answer_by`."""
        self._writer.answer_by(call_soon)

    def require_recording(self) -> None:
        """Raise Refusal where nothing more is recorded now; see `Writer.require_open`."""
        self._writer.require_open()

    @property
    def batch_max(self) -> int:
        """Return how many calls one record may hold now."""
        return BATCH_MAX if self._writer.takes_batches else 1

    def gather(self, flush: Callable[[], None], *, is_awaited: bool) -> None:
        """Have `flush` called before the next commit; see `Writer.gather`."""
        self._writer.gather(flush, is_awaited=is_awaited)

    def record_then(self, fact: Addressed[Any, Any], cause: Cause, answered: Answered) -> None:
        """Append a fact to a log without waiting; see `Writer.submit_then`. Raises Refusal."""
        self._writer.submit_then((self._fact(fact),), cause, answered)

    def record_soon(self, facts: Sequence[Addressed[Any, Any]], cause: Cause) -> None:
        """Append facts to logs without waiting; kept until they are written, or until omac ends."""
        self._writer.submit_soon(self._facts(facts), cause)

    def entry(self, aggregate: Aggregate[State, Any], stream: StreamId) -> Latest[State]:
        """The projected state of one aggregate."""
        return self.system.of(aggregate)[stream] if aggregate.versioned else Latest(aggregate.initial)

    async def _append(
        self, drafts: Sequence[Draft], cause: Cause, spooled: Spooled | None, late: Late | None
    ) -> Sequence[Recorded]:
        return await self._writer.submit(drafts, cause, spooled, late)

    def _turn(self, aggregate: Aggregate[Any, Any], stream: StreamId) -> AbstractAsyncContextManager[object]:
        return self._locks.setdefault(stream, trio.Lock()) if aggregate.versioned else nullcontext()

    def _living(self) -> Container[TokenDigest]:
        return self.system.tokens.streams

    async def moved(self, streams: Iterable[StreamId], seen: int) -> None:
        """Return when one of these aggregates gets an event after position `seen`, at once if it has one already.
        `seen` is the position of the system that the caller looked at: no event since then is missed."""
        streams = tuple(streams)
        await self.until(streams, lambda: any(self._position(stream) > seen for stream in streams))

    async def until(self, streams: Iterable[StreamId], holds: Callable[[], bool]) -> None:
        """Return when `holds` is true: asked at once, and after each batch of events of these aggregates."""
        streams = tuple(streams)
        await trio.lowlevel.checkpoint()
        while not holds():
            event = trio.Event()
            for stream in streams:
                self._moved.setdefault(stream, set()).add(event)
            try:
                await event.wait()
            finally:
                for stream in streams:
                    waiting = self._moved.get(stream, set())
                    waiting.discard(event)
                    if not waiting:
                        self._moved.pop(stream, None)

    def _position(self, stream: StreamId) -> int:
        """Return the position of the last event of an aggregate; 0 when it has none."""
        return self.system.aggregates[key_of(stream).aggregate][stream].position

    def _fold(self, records: Sequence[Recorded]) -> None:
        apply, accesses, moved = self.system.apply, access.AGGREGATE.events, self._moved
        for recorded in records:
            apply(recorded)
            for observer in self._access_observers if type(recorded.event) in accesses else self._observers:
                observer(recorded)
            if recorded.stream in moved:
                self._wake(recorded.stream)
        self._kept.notice(self.system)

    def _wake(self, stream: StreamId) -> None:
        for event in self._moved.get(stream, ()):
            event.set()


async def together(calls: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Make all calls at once and wait for all. Raises the first Refusal among them, as itself."""
    refusals: list[Refusal] = []

    async def make(call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except Refusal as refusal:
            refusals.append(refusal)

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(make, call)
    if refusals:
        raise refusals[0]


async def first(*waits: Callable[[], Awaitable[Result]]) -> Result:
    """The result of whichever wait ends first (the earliest named, if several do); the others are cancelled."""
    ended: dict[int, Result] = {}
    async with trio.open_nursery() as nursery:

        async def wait(number: int) -> None:
            ended[number] = await waits[number]()
            nursery.cancel_scope.cancel()

        for number in range(len(waits)):
            nursery.start_soon(wait, number)
    return ended[min(ended)]
