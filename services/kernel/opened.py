"""An opened journal: the carrier of a command, which appends to the journal itself.

Commands that are executed side by side are committed together: whichever is first commits for all that wait by then.
"""

from collections.abc import Container, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

import outcome
import trio

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Cause, Draft, Latest, Recorded, Spooled
from omac.domain.kernel.ids import HostId, StreamId, TokenDigest
from omac.journal.application import CommitGroup, Journal
from omac.journal.group_commit import Late
from omac.journal.judgement import Conflict
from omac.projections.access.tokens import TokenIndex
from omac.services.kernel.execution import Execution

State = TypeVar("State")


class OpenedJournal(Execution):
    """For a process that appends to the journal itself; its methods block."""

    def __init__(self, journal: Journal, host: HostId) -> None:
        super().__init__(journal, host)
        self._waiting: list[_Slot] = []

    def entry(self, aggregate: Aggregate[State, Any], stream: StreamId) -> Latest[State]:
        """The state of one aggregate as the journal has it now."""
        if not aggregate.versioned:
            return Latest(aggregate.initial)
        return self._journal.load(stream, aggregate.initial, aggregate.evolve)

    async def _append(
        self, drafts: Sequence[Draft], cause: Cause, spooled: Spooled | None, late: Late | None
    ) -> Sequence[Recorded]:
        slot = _Slot(self._journal.group(drafts, self._journal.envelope(cause, spooled)))
        self._waiting.append(slot)
        with trio.CancelScope(shield=True):  # ends with the commit, which SQLite bounds
            await trio.lowlevel.checkpoint()  # those that run side by side come to wait here too
            if not slot.done.is_set():
                self._commit()
        return slot.result.unwrap()

    def _commit(self) -> None:
        slots, self._waiting = self._waiting, []
        results = outcome.capture(self._journal.commit, [slot.group for slot in slots])
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
        return _Living(self._journal)


class _Slot:
    """One caller's events on their way, and what became of them."""

    def __init__(self, group: CommitGroup) -> None:
        self.group = group
        self.done = trio.Event()
        self.result: outcome.Outcome[Sequence[Recorded]]


class _Living:
    """The living tokens by digest, read from the journal when something first looks like a token."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._index: TokenIndex | None = None

    def __contains__(self, digest: object) -> bool:
        if self._index is None:
            self._index = TokenIndex()
            for recorded in self._journal.records():
                if isinstance(recorded.event, TokenIndex.EVENTS):
                    self._index.apply(recorded)
        return digest in self._index.streams
