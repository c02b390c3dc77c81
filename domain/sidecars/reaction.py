"""The one effect that a sidecar calls for: from what was recorded of it, and whether it has a process."""

import msgspec

from omac.domain.sidecars.sidecar import Sidecar, SidecarSpec
from omac.domain.skills.meta import Health


class Spawn(msgspec.Struct, frozen=True):
    """Effect: start the process."""

    spec: SidecarSpec


class AwaitHealth(msgspec.Struct, frozen=True):
    """Effect: probe the process until it is healthy, fails to become so, or ends."""

    health: Health


class AwaitEnd(msgspec.Struct, frozen=True):
    """Effect: wait until the process ends, or listens no more."""


class AwaitRestart(msgspec.Struct, frozen=True):
    """Effect: end what is left of the process, and wait before it is started again."""

    delay_ms: int


class End(msgspec.Struct, frozen=True):
    """Effect: end the process at once; that is recorded when the journal takes it."""


class StopGracefully(msgspec.Struct, frozen=True):
    """Effect: stop the process in its grace, and say so."""


class ReportLost(msgspec.Struct, frozen=True):
    """Effect: say that there is no process where there should be one."""


Effect = Spawn | AwaitHealth | AwaitEnd | AwaitRestart | End | StopGracefully | ReportLost


def react(state: Sidecar, *, has_process: bool, is_revoked: bool) -> Effect:
    """The one effect that a live sidecar calls for. `is_revoked`: it shall end, and that is not recorded yet."""
    if is_revoked and state.status != "stopping":
        return End()
    match state.status:
        case "requested" if state.spec is not None:
            return Spawn(state.spec)
        case "started" if has_process and state.spec is not None:
            return AwaitHealth(state.spec.health)
        case "healthy" if has_process:
            return AwaitEnd()
        case "backoff":
            return AwaitRestart(state.delay_ms)
        case "stopping":
            return StopGracefully()
        case _:
            return ReportLost()
