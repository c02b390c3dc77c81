"""The journal of one process: opened, read in order, loaded by stream, and appended to.

An eventsourcing Application on our own recorder. `commit` is the one way in, for the writer of a server as for a
command that opened the journal itself; only the execution path (`omac.services.kernel`) and that writer call it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from eventsourcing.application import Application
from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, Mapper
from eventsourcing.utils import Environment

from omac.domain.kernel.event import Cause, Draft, Event, Recorded, Spooled
from omac.domain.kernel.refusal import Refusal
from omac.journal.codec import EncodedEvent
from omac.journal.judgement import Conflict, Conflicts, Envelope
from omac.journal.mapper import EventMapper
from omac.journal.reader import Records
from omac.journal.sql_recorder import SqlRecorder


class CommitGroup(msgspec.Struct, frozen=True, gc=False):
    """The events that one caller appends, all or nothing: with the versions that it expects, as they are and as they
    are stored, and with the envelope that is recorded beside them.

    The journal raises the time in the envelope if it must, so that recorded time never runs back.
    """

    drafts: Sequence[Draft]
    envelope: Envelope
    stored: Sequence[EncodedEvent]


class Journal(Records, Application[str]):
    """A journal that is open. `run` names the process that appends; `clock` gives nanoseconds since 1970 UTC."""

    def __init__(self, recorder: SqlRecorder, run: str, clock: Callable[[], int]) -> None:
        self.store = recorder
        self._reader = recorder.reader
        self.codec = self._mapper = EventMapper()
        self.run = run
        self.clock = clock
        super().__init__()

    def construct_env(self, name: str, env: Any = None) -> Environment:
        """Return an empty environment: the process environment does not configure a journal."""
        return Environment(name, {})

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        return _Factory(env, self.store, self._mapper)

    def construct_transcoder(self) -> Any:
        """The codec does its work."""
        return None

    def close(self) -> None:
        """Close it; once only, for the library's destructor closes it again, maybe while the interpreter ends."""
        if not self.closing.is_set():
            super().close()
            self.store.close()

    def envelope(self, cause: Cause, spooled: Spooled | None = None) -> Envelope:
        """Return the envelope for events that are appended now; `spooled` is the file that they come from."""
        run, happened = (self.run, None) if spooled is None else (spooled.run, spooled.happened)
        return Envelope(self.clock(), run, cause.actor, cause.correlation, cause.causation, happened, spooled)

    def group(self, drafts: Sequence[Draft], envelope: Envelope) -> CommitGroup:
        """A group whose events are proven to be decodable. Raises Refusal (unfoldable) for one that is not."""
        stored = []
        for draft in drafts:
            try:
                stored.append(self.codec.stored(draft.stream, draft.version, draft.event))
            except (TypeError, ValueError, OverflowError) as problem:
                raise _unreadable(draft.event, str(problem)) from problem
            except Refusal as refusal:
                if not refusal.reason.startswith("journal-"):
                    raise  # the key of its personal fields cannot be kept
                raise _unreadable(draft.event, str(refusal)) from refusal
        return CommitGroup(drafts, envelope, stored)

    def commit(self, groups: Sequence[CommitGroup]) -> "list[Sequence[Recorded] | Conflict]":
        """Append many callers' events in one durable transaction; a group in conflict gets that, and changes nothing.

        Whether a group may follow is judged inside the transaction. Raises Refusal when nothing was appended. The rows
        go to the recorder as they are: `save` of the library makes four objects of each.
        """
        conflicts: dict[int, Conflict] = {}
        positions: Iterator[int] = iter(())
        while waiting := [number for number in range(len(groups)) if number not in conflicts]:
            stored = [event for number in waiting for event in groups[number].stored]
            sizes = [(len(groups[number].drafts), groups[number].envelope) for number in waiting]
            try:
                positions = iter(self.store.insert_events(stored, groups=sizes))
                break
            except Conflicts as found:
                conflicts |= {waiting[at]: conflict for at, conflict in found.of_groups.items()}
        return [
            conflicts[number] if number in conflicts else _records(positions, group)
            for number, group in enumerate(groups)
        ]


def _records(positions: Iterator[int], group: CommitGroup) -> list[Recorded]:
    meta, records = group.envelope, []
    for draft in group.drafts:  # one, as a rule
        record = Recorded(
            next(positions), draft.stream, draft.version, meta.at, meta.run, meta.actor, meta.correlation,
            meta.causation, draft.event, meta.happened,
        )  # fmt: skip
        records.append(record)
    return records


def _unreadable(event: Event, why: str) -> Refusal:
    message = f"{type(event).__name__} cannot be recorded: {why}"
    return Refusal("unfoldable", message, fix=["omac version  # and report it"])


class _Factory(InfrastructureFactory[Any]):
    """Hands out the one recorder and the one mapper; nothing is looked up by name."""

    def __init__(self, env: Environment, recorder: SqlRecorder, mapper: EventMapper) -> None:
        super().__init__(env)
        self._recorder = recorder
        self._mapper = mapper

    def mapper(self, transcoder: Any = None, mapper_class: Any = None) -> Mapper[Any]:
        return self._mapper

    def application_recorder(self) -> ApplicationRecorder:
        return self._recorder

    def aggregate_recorder(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("one recorder is all there is")

    tracking_recorder = process_recorder = aggregate_recorder
