"""The sidecar that a call was forwarded to, which no call records: its start is found in its stream."""

from typing import NamedTuple

from omac.domain.access.access import AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.domain.sidecars.sidecar import SidecarSpec, SpawnRequested, Started
from omac.projections.evidence.ending_cause import Histories, call_scope, namespaces


class CalledSidecar(NamedTuple):
    """A sidecar by the position of its start, and what was started."""

    position: int
    spec: SidecarSpec


def called_sidecar(call: Recorded, journal: Histories) -> CalledSidecar | None:
    """Return the sidecar that a call was forwarded to; None for what is no such call. Raises Refusal."""
    if not isinstance(call.event, AccessRequested):
        return None
    for namespace in namespaces(call):
        started = None
        for record in reversed(
            journal.history(ids.sidecar_stream(namespace, call_scope(call.event), call.event.skill))
        ):
            match record.event:
                case Started() if started is None and record.position < call.position:
                    started = record.position
                case SpawnRequested(spec) if started is not None:
                    return CalledSidecar(started, spec)
                case _:
                    pass
    return None
