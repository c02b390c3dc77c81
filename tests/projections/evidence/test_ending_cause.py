"""projections/evidence/ending_cause.py: the event because of which a call was refused or cut off."""

from collections.abc import Collection, Iterator, Sequence

import pytest

from omac.domain.access.access import (
    AccessAborted,
    AccessBatchAborted,
    AccessBatchRequested,
    AccessRefused,
    AccessRequested,
)
from omac.domain.directories.events import DeactivationRequested, RouteMounted, RouteStubbed, SessionEnded
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId, RunId, StreamId, TokenDigest
from omac.domain.sidecars.sidecar import SidecarSpec, SpawnRequested, Stopped, StopRequested
from omac.domain.skills.registration import ApprovalRevoked
from omac.projections.evidence.ending_cause import LATE_NS, ending_causes
from omac.projections.evidence.explanation import explain

HOST = HostId("h")
BESIDE = ids.namespace_beside(HOST, RunId("r"))
CALLS = ids.access_stream(HOST)
OWN = ids.directory_stream(HOST, ids.scope_of("/w"))
STUB = RouteStubbed("echo", "m", "skill-broken", "broken")
OTHER = RouteStubbed("other", "o", "skill-broken", "broken")
REQUEST = AccessRequested("/w", "echo", "m", "s", "GET", "/x")


class Listed:
    """A journal of events by their streams, a second apart, from position 1."""

    def __init__(self, *events: tuple[StreamId, Event]) -> None:
        self.records = [
            Recorded(position, stream, None, position * LATE_NS, "r", "omac", None, None, event)
            for position, (stream, event) in enumerate(events, 1)
        ]

    def at(self, position: int) -> Recorded | None:
        return self.records[position - 1] if 0 < position <= len(self.records) else None

    def history(self, stream: StreamId) -> Sequence[Recorded]:
        return [record for record in self.records if record.stream == stream]

    def caused_by(self, positions: Collection[int]) -> Iterator[int]:
        return iter(())

    def of_type(self, event: type[Event], after: int) -> Iterator[Recorded]:
        return (record for record in self.records[after:] if type(record.event) is event)

    def of_correlation(self, correlation: str, limit: int) -> Sequence[int]:
        return ()


def cause_position(position: int, *events: tuple[StreamId, Event]) -> int | None:
    """Return the position of the one cause of the call that ended at a position."""
    journal = Listed(*events)
    ended = journal.at(position)
    assert ended is not None
    causes = ending_causes(ended, journal)
    assert len(causes) <= 1
    return causes[0].position if causes else None


def refused(reason: str, skill: str | None = "echo", mount: str = "m") -> AccessRefused:
    return AccessRefused("/w", skill, mount, None, "GET", "/x", 502, reason)


@pytest.mark.parametrize("namespace", [HOST, BESIDE])
def test_the_last_before_a_refusal(namespace: HostId) -> None:
    """The cause of a refusal is the skill's last stub with its reason, in the streams of the server or of the run
    beside it."""
    stream = ids.directory_stream(namespace, ids.scope_of("/w"))
    waits = RouteStubbed("echo", "m", "pending-credentials", "waits")
    events: tuple[tuple[StreamId, Event], ...] = (
        (stream, STUB), (stream, STUB), (stream, waits), (stream, OTHER), (CALLS, refused("skill-broken")),
        (stream, STUB),
    )  # fmt: skip
    assert cause_position(5, *events) == 2


def test_a_stopped_sidecar() -> None:
    """The last event of the stopped sidecar is the cause; for a skill that all directories share, the shared sidecar's
    last."""
    own, shared = (ids.sidecar_stream(HOST, scope, "echo") for scope in (ids.scope_of("/w"), ids.GLOBAL))
    stops: tuple[tuple[StreamId, Event], ...] = ((own, StopRequested("w")), (own, Stopped()), (shared, Stopped()))
    assert cause_position(4, *stops, (CALLS, refused("sidecar-down"))) == 2
    assert cause_position(4, *stops, (CALLS, refused("sidecar-down", mount=f"{ids.SHARED}/m"))) == 3


def test_what_cut_a_call() -> None:
    """The cause of a cut came while the call was under way, or is recorded a moment after the call's end."""
    cut = AccessAborted(2, "revoked")
    before = (OWN, STUB)
    together = AccessBatchRequested("/w", "echo", "m", "s", ("GET", "PUT"), ("/x", "/y"))
    second = AccessBatchAborted((2,), (1,), ("revoked",), (None,), (0,), (0,), (None,))
    assert cause_position(4, before, (CALLS, together), (OWN, STUB), (CALLS, second)) == 3
    assert cause_position(4, before, (CALLS, REQUEST), (OWN, STUB), (CALLS, cut)) == 3
    assert cause_position(3, before, (CALLS, REQUEST), (CALLS, cut), (OWN, DeactivationRequested("asked for"))) == 4
    ended = SessionEnded("s", TokenDigest("d"))
    assert cause_position(3, before, (CALLS, REQUEST), (CALLS, cut), (OWN, ended)) == 4
    other_session = (OWN, SessionEnded("t", TokenDigest("d")))
    assert cause_position(3, before, (CALLS, REQUEST), (CALLS, cut), other_session, (OWN, STUB)) is None  # too late
    assert cause_position(2, (OWN, STUB), (CALLS, AccessAborted(1, "revoked"))) is None  # its request is none
    sidecar = ids.sidecar_stream(HOST, ids.scope_of("/w"), "echo")
    stops: tuple[tuple[StreamId, Event], ...] = (sidecar, StopRequested("its code is no longer approved")), (OWN, STUB)
    assert cause_position(3, before, (CALLS, REQUEST), (CALLS, cut), *stops) == 4  # before its directory has looked
    assert cause_position(3, before, (CALLS, REQUEST), (CALLS, cut), (sidecar, Stopped())) is None


@pytest.mark.parametrize("repository", ["", "repo-1"])
def test_the_revocation_of_an_approval(repository: str) -> None:
    """The cause of a call that was refused or cut off with an approval is its revocation: that of the directory or of
    the repository, by which the sidecar ran; not what its directory and its sidecar went through before or behind
    it."""
    scope = ids.scope_of("/w")
    sidecar = ids.sidecar_stream(HOST, scope, "echo")
    own, shared = (ids.registration_stream(HOST, part, "agents", "echo") for part in (scope, "repo-1"))
    spec = SidecarSpec("echo", "m", "/w", "/w/s/echo", "/w/s", "h", True, ("x",), repository=repository)
    earlier: tuple[tuple[StreamId, Event], ...] = (
        (OWN, STUB), (sidecar, StopRequested("a reload")), (sidecar, SpawnRequested(spec, 1)), (CALLS, REQUEST),
        (own, ApprovalRevoked("w")), (shared, ApprovalRevoked("w")),
    )  # fmt: skip
    revocation = 6 if repository else 5
    approved_again = (own, ApprovalRevoked("w")), (shared, ApprovalRevoked("w")), (sidecar, SpawnRequested(spec, 1))
    assert cause_position(4, *approved_again, (CALLS, refused("revoked"))) is None
    later = (sidecar, StopRequested("its code is no longer approved"))
    assert cause_position(7, *earlier, (CALLS, refused("revoked")), later) == revocation
    assert cause_position(7, *earlier, (CALLS, AccessAborted(4, "revoked")), later, (OWN, STUB)) == revocation
    assert cause_position(8, *earlier, later, (CALLS, AccessAborted(4, "revoked"))) == revocation


def test_calls_that_ended_together_have_causes_of_their_own() -> None:
    """The explanation of a request has the cause for which its own call was cut off, and none where only others were,
    though their ends are one record. That of the record has the causes of all."""
    other = AccessRequested("/w", "other", "o", "s", "GET", "/x")
    left = AccessRequested("/w", "echo", "m", "s", "GET", "/y")
    reasons = "revoked", "revoked", "client-gone"
    together = AccessBatchAborted((1, 2, 3), (0,) * 3, reasons, (None,) * 3, (0,) * 3, (0,) * 3, (None,) * 3)
    journal = Listed((CALLS, REQUEST), (CALLS, other), (CALLS, left), (OWN, STUB), (OWN, OTHER), (CALLS, together))
    ended = journal.records[5]
    causes = [ending_causes(ended, journal, request) for request in (1, 2, 3, None)]
    assert [[cause.position for cause in of_one] for of_one in causes] == [[4], [5], [], [4, 5]]
    explained = [explain(request, journal) for request in (1, 2, 3, 6)]
    assert [tree and tree.records[-1].because_of for tree in explained] == [(4,), (5,), (), (4, 5)]


def test_the_call_itself_is_the_reason() -> None:
    """A call that no event ended has no cause."""
    mounted = (OWN, RouteMounted("echo", "m"))
    assert cause_position(2, mounted, (CALLS, refused("body-too-large"))) is None
    assert cause_position(2, mounted, (CALLS, refused("unknown-mount", skill=None))) is None
    assert cause_position(2, mounted, (CALLS, refused("skill-broken"))) is None
    assert cause_position(1, mounted) is None
