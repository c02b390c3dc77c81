"""An opened journal: the carrier of a command, which appends to the journal itself.

Commands that are executed side by side are committed together: whichever is first commits for all that wait by then.

Where the file of a sealed segment is lost, what it recorded cannot be read, and what omac folded of it before still
counts: states come from a snapshot then. Without one, what needs them is refused.
"""

import contextlib
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

import outcome
import trio

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Cause, Draft, Latest, Recorded, Spooled
from omac.domain.kernel.ids import HostId, StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.journal.application import CommitGroup, Journal
from omac.journal.commit_thread import Late
from omac.journal.file import is_of_segment
from omac.journal.judgement import Conflict
from omac.journal.snapshot_store import SnapshotStore
from omac.projections.access.tokens import TokenIndex
from omac.projections.snapshot import encoded
from omac.projections.system import System
from omac.services.kernel.execution import Execution
from omac.services.kernel.restoring import nearest, restored

State = TypeVar("State")


class OpenedJournal(Execution):
    """The execution of a process that appends to the journal itself; its methods block. `snapshots` are of the whole
    system."""

    def __init__(self, journal: Journal, host: HostId, snapshots: SnapshotStore | None = None) -> None:
        super().__init__(journal, host)
        self._snapshots = snapshots
        self._folded: System | None = None
        self._tokens: TokenIndex | None = None
        self._tokens_at = 0  # the position that these are of
        self._waiting: list[_Slot] = []

    def entry(self, aggregate: Aggregate[State, Any], stream: StreamId) -> Latest[State]:
        """The state of one aggregate as the journal has it now."""
        if not aggregate.versioned:
            return Latest(aggregate.initial)
        try:
            return self.journal.load(stream, aggregate.initial, aggregate.evolve)
        except Refusal as refusal:
            entry: Latest[State] = self._system(refusal).of(aggregate)[stream]
            return entry

    def _system(self, refusal: Refusal) -> System:
        """The system by a snapshot, where a segment cannot be read; raises the refusal where that is not why."""
        if self._snapshots is None or not is_of_segment(refusal):
            raise refusal
        return self._up_to_now()

    def hold_system(self) -> None:
        """Have the present system in memory before snapshots go: where segments cannot be read, nothing else has it.
        Raises Refusal."""
        self._up_to_now()

    def leave_snapshot(self) -> None:
        """Keep one of the present where segments are sealed: the next command needs none of them for a state, and their
        files may be lost by then. What was done is done, whatever keeps it from that."""
        with contextlib.suppress(Refusal):
            if self._snapshots is not None and self._snapshots.sealed_to():
                system = self._up_to_now()
                self._snapshots.write(system.position, encoded(system))

    def _up_to_now(self) -> System:
        head = self.journal.store.head()
        if self._folded is None:
            self._folded = restored(self.journal, self._snapshots, head)
        for recorded in self.journal.folded(self._folded.position, head):
            self._folded.apply(recorded)
        return self._folded

    async def _append(
        self, drafts: Sequence[Draft], cause: Cause, spooled: Spooled | None, late: Late | None
    ) -> Sequence[Recorded]:
        slot = _Slot(self.journal.group(drafts, self.journal.envelope(cause, spooled)))
        self._waiting.append(slot)
        with trio.CancelScope(shield=True):  # ends with the commit, which SQLite bounds
            await trio.lowlevel.checkpoint()  # those that run side by side come to wait here too
            if not slot.done.is_set():
                self._commit()
        return slot.result.unwrap()

    def _commit(self) -> None:
        slots, self._waiting = self._waiting, []
        results = outcome.capture(self.journal.commit, [slot.group for slot in slots])
        for number, slot in enumerate(slots):
            match results:
                case outcome.Value(value):
                    result = value[number]
                    slot.result = outcome.Error(result) if isinstance(result, Conflict) else outcome.Value(result)
                case outcome.Error(error):
                    slot.result = outcome.Error(error)
            slot.done.set()

    async def catch_up(self) -> None:
        await trio.lowlevel.checkpoint()  # every look reads the journal

    def _turn(self, aggregate: Aggregate[Any, Any], stream: StreamId) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def _living(self) -> Container[TokenDigest]:
        return _Living(self._tokens_now)

    def _tokens_now(self) -> TokenIndex:
        """The living tokens as the journal has them now: each event is read once, those before a snapshot never."""
        try:
            if self._tokens is None:
                begun = nearest(self._snapshots, self.journal.store.head())
                self._tokens, self._tokens_at = begun.tokens, begun.position
            for recorded in self.journal.records(self._tokens_at):
                if isinstance(recorded.event, TokenIndex.EVENTS):
                    self._tokens.apply(recorded)
                self._tokens_at = recorded.position
            return self._tokens
        except Refusal as refusal:
            return self._system(refusal).tokens


class _Slot:
    """The events of one caller while they are appended, and their outcome."""

    def __init__(self, group: CommitGroup) -> None:
        self.group = group
        self.done = trio.Event()
        self.result: outcome.Outcome[Sequence[Recorded]]


class _Living:
    """The living tokens by digest, read from the journal when something first looks like a token."""

    def __init__(self, tokens_now: Callable[[], TokenIndex]) -> None:
        self._tokens_now = tokens_now
        self._index: TokenIndex | None = None

    def __contains__(self, digest: object) -> bool:
        if self._index is None:
            self._index = self._tokens_now()
        return digest in self._index.streams
