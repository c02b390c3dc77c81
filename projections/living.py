"""The part of a status that still runs: the same status without processes that are gone.

The status itself is the fold of the journal, and a fold has no clock: a run that was killed stays in it until a later
run records the end. People see only what lives; the caller finds out which processes do.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from omac.projections.status import RunStatus, SandboxStatus, SidecarStatus, Status

IsLivingRun = Callable[[RunStatus], bool]
IsLivingProcess = Callable[[int, int, str], bool]  # pid, start ticks, boot id


class Gone(NamedTuple):
    """The runs, sidecars and sandboxes that ended without a record."""

    runs: tuple[RunStatus, ...]
    sidecars: tuple[SidecarStatus, ...]
    sandboxes: tuple[SandboxStatus, ...]


NOTHING_GONE = Gone((), (), ())


def living(status: Status, is_living_run: IsLivingRun, is_living: IsLivingProcess) -> tuple[Status, Gone]:
    """Return the status of what lives, and what is gone.

    A directory lives as long as its run does; a skill that all projects share is ready while its sidecar lives.
    """
    runs = tuple(run for run in status.runs if is_living_run(run))
    alive = {run.run for run in runs}

    def lives(sidecar: SidecarStatus) -> bool:
        if sidecar.pid is None or not sidecar.boot_id:
            return sidecar.run in alive
        return is_living(sidecar.pid, sidecar.start_ticks, sidecar.boot_id)

    sidecars = tuple(one for one in status.sidecars if lives(one))
    sandboxes = tuple(one for one in status.sandboxes if is_living(one.launcher_pid, one.start_ticks, one.boot_id))
    answering = {one.skill for one in sidecars if not one.dir}
    shared = tuple(one for one in status.shared if alive and (one.state != "ready" or one.name in answering))
    gone = Gone(
        tuple(one for one in status.runs if one not in runs),
        tuple(one for one in status.sidecars if one not in sidecars),
        tuple(one for one in status.sandboxes if one not in sandboxes),
    )
    directories = tuple(one for one in status.directories if one.run in alive)
    shown = msgspec.structs.replace(
        status, runs=runs, directories=directories, shared=shared, sidecars=sidecars, sandboxes=sandboxes
    )
    return shown, gone
