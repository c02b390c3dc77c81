"""projections/evidence/called_sidecar.py: the sidecar that a call was forwarded to."""

from collections.abc import Sequence

import pytest

from omac.domain.access.access import AccessBatchRequested, AccessRefused, AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId, RunId, StreamId
from omac.domain.sidecars.sidecar import Birth, SidecarSpec, SpawnRequested, Started
from omac.projections.evidence.called_sidecar import called_sidecar

HOST = HostId("h")
BESIDE = ids.namespace_beside(HOST, RunId("r"))
CALLS = ids.access_stream(HOST)
REQUEST = SpawnRequested(SidecarSpec("echo", "m", "/w", "/w/s", "/w", "b", True, ("x",)), 1)
START = Started(Birth(1, 1, "boot", 1, True, "log"))
CALL = AccessRequested("/w", "echo", "m", None, "GET", "/x")
TOGETHER = AccessBatchRequested("/w", "echo", "m", None, ("GET", "PUT"), ("/x", "/y"))
REFUSED = AccessRefused("/w", "echo", "m", None, "GET", "/x", 502, "skill-broken")


class Listed:
    """A journal of events by their streams, from position 1."""

    def __init__(self, *events: tuple[StreamId, Event]) -> None:
        self.records = [
            Recorded(position, stream, None, position, "r", "omac", None, None, event)
            for position, (stream, event) in enumerate(events, 1)
        ]

    def at(self, position: int) -> Recorded | None:
        return self.records[position - 1]

    def history(self, stream: StreamId) -> Sequence[Recorded]:
        return [record for record in self.records if record.stream == stream]


def start_of(position: int, *events: tuple[StreamId, Event]) -> int | None:
    """Return the start of the sidecar of the call at a position."""
    journal = Listed(*events)
    sidecar = called_sidecar(journal.records[position - 1], journal)
    return sidecar.position if sidecar else None


@pytest.mark.parametrize("namespace", [HOST, BESIDE])
def test_the_last_start_before_a_call(namespace: HostId) -> None:
    """A call goes to the sidecar that started last before it, in the server or in the run beside it."""
    stream = ids.sidecar_stream(namespace, ids.scope_of("/w"), "echo")
    other = ids.sidecar_stream(namespace, ids.scope_of("/w"), "other")
    events: tuple[tuple[StreamId, Event], ...] = (
        (stream, REQUEST), (stream, START), (stream, REQUEST), (stream, START), (other, REQUEST), (other, START),
        (stream, REQUEST), (CALLS, CALL), (stream, START),
    )  # fmt: skip
    assert start_of(8, *events) == 3
    assert start_of(8, *events[:7], (CALLS, TOGETHER)) == 3
    assert start_of(4, *events) is None


def test_a_call_without_a_sidecar() -> None:
    """A call that was refused went to none, and one of a journal that lacks the start is of an unknown one."""
    stream = ids.sidecar_stream(HOST, ids.scope_of("/w"), "echo")
    assert start_of(3, (stream, REQUEST), (stream, START), (CALLS, REFUSED)) is None
    assert start_of(2, (stream, REQUEST), (CALLS, CALL), (stream, START)) is None


def test_a_skill_that_all_share() -> None:
    """The sidecar of a shared skill has its stream with what all directories share."""
    stream = ids.sidecar_stream(HOST, ids.GLOBAL, "echo")
    call = AccessRequested("/w", "echo", "__global__/m", None, "GET", "/x")
    assert start_of(3, (stream, REQUEST), (stream, START), (CALLS, call)) == 1
