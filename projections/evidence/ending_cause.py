"""The events for whose sake calls were refused or cut off: what their routes or their sidecars went through before.

A call does not record its own, so it is found in the streams of its directory, its sidecar and its skill's approval.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol

from omac.domain.access.access import (
    AccessAborted,
    AccessBatchAborted,
    AccessBatchRequested,
    AccessRefused,
    AccessRequested,
    position_of,
)
from omac.domain.directories.events import (
    DeactivationRequested,
    RouteStubbed,
    RouteUnmounted,
    SessionEnded,
)
from omac.domain.harness.table import BASES
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId, RunId, StreamId, WorkdirId
from omac.domain.sidecars.sidecar import SpawnRequested, StopRequested
from omac.domain.skills.registration import ApprovalRevoked
from omac.projections.access.routes import SHARED

LATE_NS = 1_000_000_000  # by which the record of what cut a call may follow the record of its end
OF_ROUTES = ("skill-broken", "pending-credentials", "revoked")
OF_SIDECARS = ("sidecar-down", "revoked")


class Histories(Protocol):
    """A journal, as records and streams are read."""

    def at(self, position: int) -> Recorded | None:
        """Return the record at a position, None where there is none. Raises Refusal."""
        ...

    def history(self, stream: StreamId) -> Sequence[Recorded]:
        """Return the records of an aggregate, in order. Raises Refusal."""
        ...


class ReadOnce:
    """A journal that reads each history once: calls that ended together share theirs."""

    def __init__(self, journal: Histories) -> None:
        self.at = journal.at
        self.history = cache(journal.history)


def ending_causes(ended: Recorded, journal: Histories, request: int | None = None) -> Sequence[Recorded]:
    """Return what led to the end of calls that were refused or cut off, in order; nothing for what is no such end, and
    where a call itself or its caller is the reason. Of calls that ended together only those count whose request is at
    the position `request`, and all without one. Raises Refusal."""
    causes = {cause.position: cause for cause in _causes(ended, journal, request) if cause is not None}
    return [causes[position] for position in sorted(causes)]


def _causes(ended: Recorded, journal: Histories, request: int | None) -> Iterator[Recorded | None]:
    match ended.event:
        case AccessRefused(reason=reason) as call if call.skill is not None:
            histories = _histories(ended, call, call.skill, reason, journal)
            before = (record for history in histories for record in reversed(history))
            yield next((record for record in before if record.position < ended.position), None)
        case AccessAborted() as end:
            yield _cut_by(ended, position_of(end.request), end.reason, journal)
        case AccessBatchAborted() as together:
            ends = dict.fromkeys(zip(together.request, together.reason, strict=True))
            yield from (
                _cut_by(ended, position, reason, journal) for position, reason in ends if request in (None, position)
            )
        case _:
            pass


def _cut_by(ended: Recorded, position: int, reason: str, journal: Histories) -> Recorded | None:
    """Return what led to the end of calls whose request is at a position, and which were cut off for one reason. Raises
    Refusal."""
    begun = journal.at(position)
    call = begun.event if begun is not None else None
    if not isinstance(call, AccessRequested | AccessBatchRequested):
        return None
    for history in _histories(ended, call, call.skill, reason, journal):
        during = [record for record in history if record.position > position and record.at <= ended.at + LATE_NS]
        before = [record for record in during if record.position < ended.position]
        if during:
            return before[-1] if before else during[0]
    return None


def _histories(
    ended: Recorded,
    call: AccessRefused | AccessRequested | AccessBatchRequested,
    skill: str,
    reason: str,
    journal: Histories,
) -> Iterator[Sequence[Recorded]]:
    """Yield the records that could be the reason, in order: the revocations of its approval, then those of the
    directory, then those of the sidecar, whose stop follows from the loss of its approval."""
    scope = call_scope(call)
    for namespace in namespaces(ended):
        routes = journal.history(ids.directory_stream(namespace, scope)) if reason in OF_ROUTES else ()
        stops = journal.history(ids.sidecar_stream(namespace, scope, skill)) if reason in OF_SIDECARS else ()
        if routes or stops:
            if reason == "revoked":
                yield _revocations(ended, scope, skill, stops, journal)
            yield [record for record in routes if _ends(record.event, skill, call.session, reason)]
            yield [record for record in stops if reason != "revoked" or isinstance(record.event, StopRequested)]
            return


def _revocations(
    ended: Recorded, scope: str, skill: str, sidecar: Sequence[Recorded], journal: Histories
) -> Sequence[Recorded]:
    """Return the revocations, in order, of the approval by which the sidecar of a call ran, if it ran by one."""
    before = [record for record in sidecar if record.position < ended.position]
    spawns = [(record.position, record.event.spec) for record in before if isinstance(record.event, SpawnRequested)]
    if not spawns or not spawns[-1][1].approved:
        return ()
    since, spec = spawns[-1]
    host, scope = HostId(ids.key_of(ended.stream).host), spec.repository or scope
    changes = (journal.history(ids.registration_stream(host, scope, base, skill)) for base in BASES)
    revocations = (record for records in changes for record in records if isinstance(record.event, ApprovalRevoked))
    return sorted((each for each in revocations if each.position > since), key=lambda record: record.position)


def call_scope(call: AccessRefused | AccessRequested | AccessBatchRequested) -> WorkdirId:
    """Return the scope of the sidecar that a call is for."""
    return ids.GLOBAL if call.mount.startswith(SHARED) else ids.scope_of(call.dir or "")


def namespaces(recorded: Recorded) -> tuple[HostId, HostId]:
    """Return where a call's directory and sidecar have their streams: in the run that recorded it, which has streams of
    its own beside the server, or in the server."""
    host = ids.key_of(recorded.stream).host
    return ids.namespace_beside(host, RunId(recorded.run)), HostId(host)


def _ends(event: Event, skill: str, session: str | None, reason: str) -> bool:
    """Return whether an event of a directory ends calls of a skill, or is a reason why there are none."""
    match event:
        case RouteStubbed(skill=name, why=why):
            return name == skill and reason in ("revoked", why)
        case RouteUnmounted(skill=name):
            return reason == "revoked" and name == skill
        case SessionEnded(session=ended):
            return reason == "revoked" and ended == session
        case DeactivationRequested():
            return reason == "revoked"
        case _:
            return False
