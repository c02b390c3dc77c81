"""The execution path: the one way in for every change of state, from every caller.

    command -> decide -> fold on the decided state -> append, judged in the transaction -> fold

Rules

1. What is decided is folded on the state it was decided on before it is appended: nothing durable that does not fold.
2. Whether it may follow is judged again inside the transaction. When others were first it is decided again, on what
   they made of the state, at most `DECISIONS_MAX` times; then it is refused.
3. No text is recorded that holds a living routing token.

It has three carriers: the live engine of a server (`Engine`), a journal that a command opened (`OpenedJournal`), and
the spool of a hot path, whose records are decided when one of the other two ingests them. A use case is written once,
against `Execution`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from omac.domain.kernel.aggregate import Addressed, Aggregate
from omac.domain.kernel.event import Cause, Draft, Event, Latest, Recorded, Spooled
from omac.domain.kernel.ids import HostId, RunId, StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.scrub import SPELLING_CHARS_MAX, cut, scrub, scrub_text
from omac.journal.application import Journal
from omac.journal.commit_thread import Late
from omac.journal.judgement import Conflict

State = TypeVar("State")
Command = TypeVar("Command")

DECISIONS_MAX = 5  # how often a decision is made again when others keep appending to its stream


class AlreadyRecorded(Exception):
    """The file of a spool that this comes from is in the journal already."""


class Execution(ABC):
    """A `journal` with the means to change its state, for use cases. `clock` gives nanoseconds since 1970 UTC."""

    def __init__(self, journal: Journal, host: HostId) -> None:
        self.host = host
        self.run = RunId(journal.run)
        self.clock: Callable[[], int] = journal.clock
        self.journal = journal

    async def execute(
        self,
        aggregate: Aggregate[State, Command],
        stream: StreamId,
        command: Command,
        cause: Cause | None = None,
        *,
        beside: Sequence[Addressed[Any, Any]] = (),
        spooled: Spooled | None = None,
    ) -> Sequence[Recorded]:
        """Decide on the state of one aggregate and append, with `beside`, what comes of it; nothing if nothing does.

        `beside` are commands for logs. `cause` None: it follows from the last record of the stream.

        Raises what `decide` raises, Refusal (contention, or the journal cannot be written), AlreadyRecorded.
        """
        return await self.execute_latest(aggregate, stream, lambda: command, cause, beside=beside, spooled=spooled)

    async def execute_latest(
        self,
        aggregate: Aggregate[State, Command],
        stream: StreamId,
        command_now: Callable[[], Command],
        cause: Cause | None = None,
        *,
        beside: Sequence[Addressed[Any, Any]] = (),
        spooled: Spooled | None = None,
    ) -> Sequence[Recorded]:
        """Execute a command as `execute` does, but make the command with `command_now` when its turn to be decided
        comes."""
        async with self._turn(aggregate, stream):
            for _ in range(DECISIONS_MAX):
                entry = self.entry(aggregate, stream)
                drafts = self._decided(aggregate, stream, command_now(), entry)
                if not drafts:
                    return ()
                try:
                    return await self._append([*self._facts(beside), *drafts], cause or entry.cause(), spooled, None)
                except Conflict as conflict:
                    if conflict.known:
                        raise AlreadyRecorded(str(conflict)) from conflict
                await self.catch_up()
        raise Refusal("contention", f"other processes keep changing {stream}; nothing was changed", fix=["try again"])

    async def record(
        self, facts: Sequence[Addressed[Any, Any]], cause: Cause, late: Late | None = None
    ) -> Sequence[Recorded]:
        """Append facts to logs, all or nothing; return once they are durable. With `late` the wait may be cancelled;
        see `omac.journal.group_commit.Writer.submit`. Raises Refusal when the journal cannot be written."""
        return await self._append(self._facts(facts), cause, None, late)

    def scrubbed(self, text: str, chars_max: int) -> str:
        """A text without living tokens, cut to so many characters. One that is much longer costs no more."""
        return scrub_text(cut(text, chars_max + SPELLING_CHARS_MAX), self._living())[:chars_max]

    @abstractmethod
    def entry(self, aggregate: Aggregate[State, Any], stream: StreamId) -> Latest[State]:
        """The state of one aggregate now."""

    def recorded_files(self, host: HostId) -> frozenset[str]:
        """Return the names of files in the spool of `host` that are remembered as recorded. Blocks; raises Refusal."""
        return self.journal.store.spooled(host)

    def _decided(
        self, aggregate: Aggregate[State, Command], stream: StreamId, command: Command, entry: Latest[State]
    ) -> list[Draft]:
        events = aggregate.decided(command, entry.state, self._scrubbed)
        if not aggregate.versioned:
            return [Draft(stream, None, event) for event in events]
        return [Draft(stream, entry.version + n, event) for n, event in enumerate(events, 1)]

    def _facts(self, addressed: Iterable[Addressed[Any, Any]]) -> list[Draft]:
        return [self._fact(fact) for fact in addressed]

    def _fact(self, addressed: Addressed[Any, Any]) -> Draft:
        event = addressed.aggregate.fact(addressed.command)
        return Draft(addressed.stream, None, scrub(event, self._living()))

    def _scrubbed(self, event: Event) -> Event:
        return scrub(event, self._living())

    @abstractmethod
    async def _append(
        self, drafts: Sequence[Draft], cause: Cause, spooled: Spooled | None, late: Late | None
    ) -> Sequence[Recorded]:
        """Append all or nothing; return once durable and, where there is a live state, folded. Raises Conflict when
        others were first, Refusal when the journal cannot be written."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Return when `entry` shows what others appended before the call, whichever process. Raises Refusal."""

    @abstractmethod
    def _turn(self, aggregate: Aggregate[Any, Any], stream: StreamId) -> AbstractAsyncContextManager[object]:
        """Return a context that admits one decision at a time for an aggregate in this process; logs have nothing to
        decide on."""

    @abstractmethod
    def _living(self) -> Container[TokenDigest]:
        """The digests of the routing tokens that live."""
