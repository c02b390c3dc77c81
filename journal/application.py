"""The journal of one process: opened, read in order, loaded by stream, and written by whoever may block.

An eventsourcing Application on our own recorder. A server writes through `writer.Writer` instead, which groups the
commits of many tasks; both end in the same recorder.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    IntegrityError,
    Mapper,
)
from eventsourcing.utils import Environment

from omac.domain.ids import StreamId
from omac.domain.recorded import Cause, Event, Recorded
from omac.domain.refusal import Refusal
from omac.domain.set_aside import PositionEmptied
from omac.journal.codec import Versioned
from omac.journal.mapper import EventMapper
from omac.journal.reader import PAGE, Row, recorded, records
from omac.journal.recorder import Meta, SqlRecorder

State = TypeVar("State")
Decide = Callable[[State], list[Event]]
Evolve = Callable[[State, Event], State]

DECISIONS_MAX = 5  # how often a decision is made anew when others keep appending to its stream


class Journal(Application[str]):
    """A journal that is open. `run` names the process that appends; `clock` gives nanoseconds since 1970 UTC."""

    log_section_size = PAGE

    def __init__(self, recorder: SqlRecorder, run: str, clock: Callable[[], int]) -> None:
        self.store = recorder
        self.codec = EventMapper()
        self.run = run
        self.clock = clock
        super().__init__()

    def construct_env(self, name: str, env: Any = None) -> Environment:
        """Nothing of the process environment configures a journal."""
        return Environment(name, {})

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        """See eventsourcing.application.Application."""
        return _Factory(env, self.store, self.codec)

    def construct_transcoder(self) -> Any:
        """The codec does its work."""
        return None

    def close(self) -> None:
        """Let go of the store."""
        super().close()
        self.store.close()

    def records(self, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        """All records above position `after`, up to `until`, in order. Raises Refusal for what cannot be read."""
        return records(self.store, self.codec, after, until)

    def recorded(self, row: Row) -> Recorded:
        """A stored row as the rest of omac sees it."""
        return recorded(self.store, self.codec, row)

    def load(self, stream: StreamId, initial: State, evolve: Evolve[State]) -> tuple[State, int]:
        """The state of an aggregate and its version; the initial state and 0 when it has no events."""

        def project(_: Any, events: Iterator[Versioned]) -> tuple[State, int] | None:
            loaded: tuple[State, int] | None = None
            for versioned in events:
                state = initial if loaded is None else loaded[0]
                emptied = type(versioned.data) is PositionEmptied  # it counts as a version, and changes nothing
                loaded = state if emptied else evolve(state, versioned.data), versioned.originator_version
            return loaded

        try:
            found: tuple[State, int] = self.repository.get(stream, projector_func=project)  # type: ignore[arg-type]  # our states are plain
        except AggregateNotFoundError:
            return initial, 0
        return found

    def execute(
        self, stream: StreamId, initial: State, evolve: Evolve[State], decide: Decide[State], cause: Cause
    ) -> list[int]:
        """Load, decide, append, in the calling thread; decide anew when someone else was first.

        Returns the positions appended. Raises Refusal (contention) when others are first `DECISIONS_MAX` times.
        """
        for _ in range(DECISIONS_MAX):
            state, version = self.load(stream, initial, evolve)
            events = [Versioned(stream, version + n, event) for n, event in enumerate(decide(state), 1)]
            if not events:
                return []
            try:
                return [recording.notification.id for recording in self.save(*events, meta=self.meta(cause))]
            except IntegrityError:
                continue
        raise Refusal("contention", f"others keep changing {stream}; nothing was changed", fix=["try again"])

    def meta(self, cause: Cause) -> Meta:
        """What is recorded beside an event that is appended now."""
        return Meta(self.clock(), self.run, cause.actor, cause.correlation, cause.causation)


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

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        raise NotImplementedError(purpose)

    def tracking_recorder(self, tracking_recorder_class: Any = None) -> Any:
        raise NotImplementedError

    def process_recorder(self) -> Any:
        raise NotImplementedError
