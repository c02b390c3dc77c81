"""The sidecar that a call was forwarded to, which no call records: its start is found in its stream."""

from typing import NamedTuple

from omac.domain.access.access import AccessBatchRequested, AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.domain.sidecars.sidecar import SidecarSpec, SpawnRequested, Started
from omac.projections.evidence.ending_cause import Histories, call_scope, namespaces


class CalledSidecar(NamedTuple):
    """A sidecar by the position that requested its start, and what was started."""

    position: int
    spec: SidecarSpec


def called_sidecar(call: Recorded, journal: Histories) -> CalledSidecar | None:
    """Return the sidecar that a call was forwarded to; None for what is no such call. Raises Refusal."""
    if not isinstance(call.event, AccessRequested | AccessBatchRequested):
        return None
    for namespace in namespaces(call):
        has_started = False
        for record in reversed(
            journal.history(ids.sidecar_stream(namespace, call_scope(call.event), call.event.skill))
        ):
            match record.event:
                case Started() if record.position < call.position:
                    has_started = True
                case SpawnRequested(spec) if has_started:
                    return CalledSidecar(record.position, spec)
                case _:
                    pass
    return None
