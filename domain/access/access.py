"""Accesses: one request of an agent to one skill. A log without versions.

An access is known by the position of the record that has its request, and by its number there: requests that come on
one route at the same moment are one record. `access_id` makes one integer of both.

Rules

1. A request is durable before a byte of it leaves omac.
2. Exactly one end follows each request, completed or aborted; after a crash, the next start writes it.
3. A request that was not forwarded is `refused`, with the reason its caller got.
4. Paths are recorded below the mount, without query and without token.
5. Refusals of callers without a token are counted: the first for a reason is recorded at once, those that follow within
   an interval together. Those of callers with one are counted for skill, session and reason, beyond a number that is
   recorded one by one. Where too many of these differ, the rest are counted together, by no name.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import astuple

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event

Entry = TypeVar("Entry")

BATCH_MAX = 256  # requests, or ends, in one record
_NUMBER = 1 << 40  # more than there are positions; with it a number of the batch still fits a double of JSON


class AccessRequested(Event, frozen=True):
    """The request is about to be forwarded. `session` is None if the caller named none."""

    dir: str
    skill: str
    mount: str
    session: str | None
    method: str
    path: str


class AccessBatchRequested(Event, frozen=True):
    """Several requests of one route are about to be forwarded: each has a method and, in the same place, a path. Paths
    that are erased, or not shown, are one text."""

    dir: str
    skill: str
    mount: str
    session: str | None
    method: tuple[str, ...]
    path: tuple[str, ...]

    def each(self) -> Iterator[AccessRequested]:
        """Yield the requests, in the order of their numbers."""
        is_whole = len(self.path) == len(self.method)
        paths = self.path if is_whole else (" ".join(self.path),) * len(self.method)
        for method, path in zip(self.method, paths, strict=True):
            yield AccessRequested(self.dir, self.skill, self.mount, self.session, method, path)


class AccessCompleted(Event, frozen=True):
    """The skill's answer was relayed to its end. `request` is the position of the request; bodies in bytes, duration in
    microseconds."""

    request: int
    status: int
    bytes_in: int
    bytes_out: int
    duration_us: int


class AccessBatchCompleted(Event, frozen=True):
    """Several answers were relayed to their ends, in this order: what stands in one place of each field is of one
    access, whose request has `number` among those of its record."""

    request: tuple[int, ...]
    number: tuple[int, ...]
    status: tuple[int, ...]
    bytes_in: tuple[int, ...]
    bytes_out: tuple[int, ...]
    duration_us: tuple[int, ...]

    def each(self) -> "Iterator[tuple[int, AccessCompleted]]":
        """Yield the completions, in their order, each with the id of its access."""
        fields = (self.request, self.status, self.bytes_in, self.bytes_out, self.duration_us)
        for number, *values in zip(self.number, *fields, strict=True):
            yield access_id(values[0], number), AccessCompleted(*values)


class AccessAborted(Event, frozen=True):
    """The access ended early. `status` is None if no answer was sent, `duration_us` if omac died before it could
    measure it."""

    request: int
    reason: str
    status: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    duration_us: int | None = None


class AccessBatchAborted(Event, frozen=True):
    """Several accesses ended early; as AccessBatchCompleted."""

    request: tuple[int, ...]
    number: tuple[int, ...]
    reason: tuple[str, ...]
    status: tuple[int | None, ...]
    bytes_in: tuple[int, ...]
    bytes_out: tuple[int, ...]
    duration_us: tuple[int | None, ...]

    def each(self) -> "Iterator[tuple[int, AccessAborted]]":
        """Yield the aborts, in their order, each with the id of its access."""
        fields = (self.request, self.reason, self.status, self.bytes_in, self.bytes_out, self.duration_us)
        for number, *values in zip(self.number, *fields, strict=True):
            yield access_id(values[0], number), AccessAborted(*values)


class AccessRefused(Event, frozen=True):
    """A request was not forwarded, `count` times. `dir` and `skill` are None where the token or the mount led nowhere,
    and for the rest of too many that differ: of these, method, status and reason are those of the first."""

    dir: str | None
    skill: str | None
    mount: str
    session: str | None
    method: str
    path: str
    status: int
    reason: str
    count: int = 1


AccessEnd = AccessCompleted | AccessAborted
AccessEvent = AccessRequested | AccessEnd | AccessRefused
AGGREGATE = log(
    "access",
    (
        AccessRequested, AccessBatchRequested, AccessCompleted, AccessBatchCompleted, AccessAborted, AccessBatchAborted,
        AccessRefused,
    ),
)  # fmt: skip


def access_id(position: int, number: int) -> int:
    """Return the id of an access: the position of the record that has its request, if that has no other."""
    return position + number * _NUMBER


def access_ids(position: int, count: int) -> range:
    """Return the ids of the accesses whose requests one record has."""
    return range(position, access_id(position, count), _NUMBER)


def ids_of_ended(event: AccessBatchCompleted | AccessBatchAborted) -> list[int]:
    """Return the ids of the accesses that ended together, in their order."""
    return [position + number * _NUMBER for position, number in zip(event.request, event.number, strict=True)]


def position_of(access: int) -> int:
    """Return the position of the record that has the request of an access."""
    return access % _NUMBER


def number_of(access: int) -> int:
    """Return the number of the request of an access in its record, from 0."""
    return access // _NUMBER


def accesses_of(position: int, event: Event) -> Iterator[tuple[int, AccessEvent]]:
    """Yield what the record at `position` says of accesses, each with the id of its access; nothing where its event is
    of anything else."""
    match event:
        case AccessRequested() | AccessRefused():
            yield position, event
        case AccessCompleted() | AccessAborted():
            yield event.request, event
        case AccessBatchRequested():
            yield from zip(access_ids(position, len(event.method)), event.each(), strict=True)
        case AccessBatchCompleted() | AccessBatchAborted():
            yield from event.each()
        case _:
            pass


def outcomes_in(events: Iterable[Event]) -> int:
    """Return how many outcomes events record: those of calls that ended together are several."""
    together = AccessBatchCompleted, AccessBatchAborted
    return sum(len(event.request) if isinstance(event, together) else 1 for event in events)


def in_batches(entries: Sequence[Entry], most: int) -> Iterator[Sequence[Entry]]:
    """Yield the entries in parts of at most so many."""
    return (entries[start : start + most] for start in range(0, len(entries), most))


def ends_together(ended: Sequence[tuple[int, AccessEnd]], most: int) -> Iterator[Event]:
    """Yield the events that record these ends, given with the ids of their accesses: as few as there can be where one
    holds at most so many."""
    for alone, together in _BATCHES:
        of_kind = [entry for entry in ended if type(entry[1]) is alone]
        for part in in_batches(of_kind, most):
            accesses, ends = zip(*part, strict=True)
            if len(part) == 1 and not number_of(accesses[0]):
                yield ends[0]
            else:
                requests, *others = zip(*map(astuple, ends), strict=True)
                yield together(requests, tuple([access // _NUMBER for access in accesses]), *others)


_BATCHES: tuple[tuple[type[Event], Callable[..., Event]], ...] = (
    (AccessCompleted, AccessBatchCompleted),
    (AccessAborted, AccessBatchAborted),
)
