"""The explanation of one record: what caused it, what it caused, and what else belongs to its conversation."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from omac.domain.access.access import (
    AccessBatchAborted,
    AccessBatchCompleted,
    AccessBatchRequested,
    AccessRequested,
)
from omac.domain.kernel.event import Event, Recorded
from omac.projections.evidence.called_sidecar import CalledSidecar, called_sidecar
from omac.projections.evidence.ending_cause import Histories, ReadOnce, ending_causes

RECORDS_MAX = 200


class RecordLinks(Histories, Protocol):
    """A journal, as its causes and conversations are read."""

    def caused_by(self, positions: Collection[int]) -> Iterator[int]:
        """Yield the positions of all that follows from these records, in order: a cause comes before its consequence.
        Raises Refusal."""
        ...

    def of_type(self, event: type[Event], after: int) -> Iterator[Recorded]:
        """Yield the records of one kind of event above a position, in order. Raises Refusal."""
        ...

    def of_correlation(self, correlation: str, limit: int) -> Sequence[int]:
        """Return the first positions of a conversation. Raises Refusal."""
        ...


class ExplainedRecord(NamedTuple):
    """A record below its cause: `depth` 0 where the cause is unknown or there is none. `because_of`: the positions of
    the events for whose sake its calls were refused or cut off, as far as they were found."""

    depth: int
    recorded: Recorded
    because_of: tuple[int, ...] = ()


class Explanation(NamedTuple):
    """The tree in the order in which it is read; `is_cut`: more than RECORDS_MAX records belong to it; `sidecars`:
    those that the calls were forwarded to, where it is that of calls; `ends`: the positions of the requests of the
    calls that end together with the record, one for each call."""

    records: tuple[ExplainedRecord, ...]
    is_cut: bool
    sidecars: tuple[CalledSidecar, ...] = ()
    ends: tuple[int, ...] = ()


def explain(position: int, links: RecordLinks, records_max: int = RECORDS_MAX) -> Explanation | None:
    """Return the tree around a record; None where there is none. Its causes come first into the bound, then its
    consequences, then why a call of these ended, then what its causes led to, then the rest of its conversation. Raises
    Refusal."""
    target = links.at(position)
    if target is None:
        return None
    chain = _chain(target, links, records_max)
    members = {record.position: record for record in chain}
    is_cut = _add(members, links.caused_by({position}), links, records_max)
    is_cut |= _add(members, _of_same_accesses(target, links), links, records_max)
    request = position if isinstance(target.event, AccessRequested | AccessBatchRequested) else None
    linked, because_of, read_once = set(members), dict[int, tuple[int, ...]](), ReadOnce(links)
    for ended in list(members.values()):
        causes = ending_causes(ended, read_once, request)
        because_of[ended.position] = tuple(cause.position for cause in causes)
        for cause in causes:
            room = records_max - len(members)
            members |= {record.position: record for record in _chain(cause, links, room)}
    if len(chain) > 1:
        is_cut |= _add(members, links.caused_by(linked), links, records_max)
    if target.correlation is not None:
        is_cut |= _add(members, links.of_correlation(target.correlation, records_max + 1), links, records_max)
    tree = (entry._replace(because_of=because_of.get(entry.recorded.position, ())) for entry in _tree(members))
    ends = target.event.request if isinstance(target.event, AccessBatchCompleted | AccessBatchAborted) else ()
    sidecars = _called_sidecars([*chain, *map(links.at, sorted(set(ends)))], read_once)
    return Explanation(tuple(tree), is_cut, sidecars, ends)


def _called_sidecars(records: Iterable[Recorded | None], journal: Histories) -> tuple[CalledSidecar, ...]:
    """Return the sidecars that the calls among these records were forwarded to, in the order of their starts."""
    started = [called_sidecar(record, journal) for record in records if record is not None]
    by_position = {start.position: start for start in started if start is not None}
    return tuple(by_position[position] for position in sorted(by_position))


def _chain(record: Recorded, links: RecordLinks, records_max: int) -> list[Recorded]:
    """Return a record and its causes, the last first."""
    chain = [record][:records_max]
    while 0 < len(chain) < records_max and (cause := chain[-1].causation) is not None and cause < chain[-1].position:
        above = links.at(cause)
        if above is None:
            break
        chain.append(above)
    return chain


def _add(members: dict[int, Recorded], positions: Iterable[int], links: RecordLinks, records_max: int) -> bool:
    """Add records, and return whether some found no place."""
    for position in positions:
        if position not in members:
            if len(members) >= records_max:
                return True
            if (record := links.at(position)) is not None:
                members[position] = record
    return False


def _of_same_accesses(record: Recorded, links: RecordLinks) -> Iterator[int]:
    """Yield the positions of records that end accesses of this one together with others, or that they began in: those
    have no one cause."""
    if isinstance(record.event, AccessBatchCompleted | AccessBatchAborted):
        yield from sorted(set(record.event.request))
    elif isinstance(record.event, AccessRequested | AccessBatchRequested):
        for kind in (AccessBatchCompleted, AccessBatchAborted):
            for ended in links.of_type(kind, record.position):
                if record.position in ended.event.request:
                    yield ended.position


def _tree(members: dict[int, Recorded]) -> Iterator[ExplainedRecord]:
    below: dict[int | None, list[int]] = {}
    for position in sorted(members, reverse=True):
        cause = members[position].causation
        below.setdefault(cause if cause in members and cause is not None and cause < position else None, []).append(
            position
        )
    stack = [(position, 0) for position in below.get(None, [])]
    while stack:
        position, depth = stack.pop()
        yield ExplainedRecord(depth, members[position])
        stack += [(child, depth + 1) for child in below.get(position, [])]
