"""The engine: the live system, the journal behind it, and the wake-ups between them.

Whatever happens goes through `execute` or `record`: decide on the projected state, append, and continue when the
event is durable and folded. Whoever waits for a change waits for a stream to move.
"""

import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import trio

from omac.domain.ids import HostId, RunId, StreamId, seat_beside, seat_of_server
from omac.domain.recorded import Cause, Draft, Event, Recorded
from omac.domain.refusal import Refusal
from omac.journal.application import DECISIONS_MAX, Journal
from omac.journal.writer import Conflict, Writer
from omac.projections.aggregates import Aggregates
from omac.projections.system import System

State = TypeVar("State")
Result = TypeVar("Result")
Observer = Callable[[Recorded], None]


class Engine:
    """One per process that serves. Run `writer.run` in a nursery before anything is executed.

    `seat` is where its directories and sidecars are; it is the host's server, or, with `beside`, a run beside that.
    """

    def __init__(self, journal: Journal, host: HostId, *, beside: bool = False) -> None:
        self.host = host
        self.run = RunId(journal.run)
        self.seat = seat_beside(host, self.run) if beside else seat_of_server(host)
        self.system = System().replay(journal.records())
        self.writer = Writer(journal, self.system.position, self._fold)
        self._observers: list[Observer] = []
        self._moved: dict[StreamId, set[trio.Event]] = {}
        self._locks: weakref.WeakValueDictionary[StreamId, trio.Lock] = weakref.WeakValueDictionary()

    def observe(self, observer: Observer) -> None:
        """Have `observer` called with every record from now on, right after it is folded. It must not fail."""
        self._observers.append(observer)

    async def execute(
        self,
        aggregates: Aggregates[State],
        stream: StreamId,
        decide: Callable[[State], list[Event]],
        cause: Cause | None = None,
        beside: Sequence[Draft] = (),
    ) -> Sequence[Recorded]:
        """Decide on the state of one aggregate and append, with `beside`, what comes of it; nothing if nothing does.

        One decision at a time per aggregate here; when another process was first, catches up and decides again.
        `cause` None: it follows from the last record of the stream. Raises what `decide` raises, and Refusal
        (contention, or the journal cannot be written).
        """
        async with self._locks.setdefault(stream, trio.Lock()):
            for _ in range(DECISIONS_MAX):
                entry = aggregates[stream]
                events = decide(entry.state)
                if not events:
                    return ()
                drafts = [Draft(stream, entry.version + n, event) for n, event in enumerate(events, 1)]
                try:
                    return await self.writer.append([*beside, *drafts], cause or entry.cause())
                except Conflict:
                    await self.writer.catch_up()
        raise Refusal("contention", f"others keep changing {stream}; nothing was changed", fix=["try again"])

    async def record(self, draft: Draft, cause: Cause) -> Recorded:
        """Append one event to a log without versions; return once it is durable. Raises Refusal."""
        return (await self.writer.append((draft,), cause))[0]

    async def record_refusal(self, draft: Draft, cause: Cause) -> None:
        """Append that something was refused; while the journal is away it is owed, and the refusal stands anyway."""
        try:
            await self.record(draft, cause)
        except Refusal:
            self.writer.append_soon((draft,), cause)

    async def moved(self, streams: Iterable[StreamId], seen: int | None = None) -> None:
        """Return when one of these aggregates gets an event after position `seen`, at once if it has one already.

        Whoever may have been suspended between a look at the system and this call gives the position of that look,
        else an event in between is missed. `seen` None: nothing was awaited since.
        """
        streams = tuple(streams)
        if seen is not None and any(self._position(stream) > seen for stream in streams):
            await trio.lowlevel.checkpoint()
            return
        event = trio.Event()
        for stream in streams:
            self._moved.setdefault(stream, set()).add(event)
        try:
            await event.wait()
        finally:
            for stream in streams:
                waiting = self._moved.get(stream)
                if waiting is not None:
                    waiting.discard(event)
                    if not waiting:
                        del self._moved[stream]

    def _position(self, stream: StreamId) -> int:
        """Of the last event of an aggregate; 0 when it has none."""
        system = self.system
        kinds: tuple[Aggregates[Any], ...] = (
            system.directories,
            system.sidecars,
            system.registrations,
            system.credentials,
            system.runs,
        )
        return max(aggregates[stream].position for aggregates in kinds)

    def _fold(self, records: Sequence[Recorded]) -> None:
        for recorded in records:
            self.system.apply(recorded)
            for observer in self._observers:
                observer(recorded)
            if recorded.stream in self._moved:
                for event in self._moved[recorded.stream]:
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
