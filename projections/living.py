"""The part of a status that still runs: the same status without processes that are gone.

The status itself is the fold of the journal, and a fold has no clock: a run that was killed stays in it until a later
run records the end. People see only what lives; the caller finds out which processes do.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from omac.domain.kernel.ids import HostId
from omac.projections.status import RunStatus, SandboxStatus, SidecarStatus, Status

IsLivingRun = Callable[[RunStatus], bool]
IsLivingProcess = Callable[[int, int, str], bool]  # pid, start ticks, boot id
IsLivingLaunch = Callable[[str, int, int, str], bool]  # its name, and these of its omac


class Gone(NamedTuple):
    """The runs, sidecars and sandboxes of one host that ended without a record."""

    runs: tuple[RunStatus, ...]
    sidecars: tuple[SidecarStatus, ...]
    sandboxes: tuple[SandboxStatus, ...]


NOTHING_GONE = Gone((), (), ())


def living(
    status: Status,
    is_living_run: IsLivingRun,
    is_living: IsLivingProcess,
    is_living_launch: IsLivingLaunch,
    host: HostId | None = None,
) -> tuple[Status, Gone]:
    """Return the status of what lives, and what is gone, of `host` alone: None for all. No other host's processes can
    be asked for here, so it alone records their ends.

    A directory lives as long as its run does; a skill that all projects share is ready while its sidecar lives. Of a
    run that lives in another pid namespace no process can be seen: its sidecars live as long as it does.
    """
    runs = tuple(run for run in status.runs if is_living_run(run))
    alive = {run.run for run in runs}
    hidden = {run.run for run in runs if not is_living(run.pid, run.start_ticks, run.boot_id)}

    def lives(sidecar: SidecarStatus) -> bool:
        if sidecar.pid is None or not sidecar.boot_id or sidecar.run in hidden:
            return sidecar.run in alive
        return is_living(sidecar.pid, sidecar.start_ticks, sidecar.boot_id)

    def is_own(entry: RunStatus | SidecarStatus | SandboxStatus) -> bool:
        return host in (None, entry.host)

    sidecars = tuple(sidecar for sidecar in status.sidecars if lives(sidecar))
    sandboxes = tuple(
        sandbox
        for sandbox in status.sandboxes
        if is_living_launch(sandbox.launch, sandbox.launcher_pid, sandbox.start_ticks, sandbox.boot_id)
    )
    answering = {sidecar.skill for sidecar in sidecars if not sidecar.dir}
    shared = tuple(skill for skill in status.shared if alive and (skill.state != "ready" or skill.name in answering))
    gone = Gone(
        tuple(run for run in status.runs if is_own(run) and run not in runs),
        tuple(sidecar for sidecar in status.sidecars if is_own(sidecar) and sidecar not in sidecars),
        tuple(sandbox for sandbox in status.sandboxes if is_own(sandbox) and sandbox not in sandboxes),
    )
    directories = tuple(directory for directory in status.directories if directory.run in alive)
    shown = msgspec.structs.replace(
        status, runs=runs, directories=directories, shared=shared, sidecars=sidecars, sandboxes=sandboxes
    )
    return shown, gone
