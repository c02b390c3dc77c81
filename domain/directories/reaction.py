"""The effects that a directory calls for: from what was recorded of it, and from the states of its sidecars.

Rules

1. A directory that is activating and has no plan has its skills found; no other effect comes before.
2. While the directory is activating, each skill of its plan gets a sidecar with that very specification. A sidecar with
   another one, or one that this reload restarts, is stopped, and one that gave up in an earlier generation is started
   again.
3. While the directory can be reached, sidecars that the plan does not name are stopped. Its routes follow its sidecars
   once no sidecar has to be started or stopped: the state of one in an earlier generation says nothing about this one.
4. While the directory is deactivating, every sidecar is stopped, and then the end is reported.
"""

from collections.abc import Mapping

import msgspec

from omac.domain.directories.directory import Directory, settle
from omac.domain.sidecars.sidecar import RequestSpawn, RequestStop, Sidecar

OFFLINE = "its directory goes offline"


class FindSkills(msgspec.Struct, frozen=True):
    """Effect: find the skills of the directory, and plan what shall run."""


class CommandSidecar(msgspec.Struct, frozen=True):
    """Effect: have a sidecar of the directory spawned, or stopped."""

    skill: str
    command: RequestSpawn | RequestStop


class SettleRoutes(msgspec.Struct, frozen=True):
    """Effect: let the routes follow the sidecars."""


class FinishDeactivating(msgspec.Struct, frozen=True):
    """Effect: say that nothing of the directory runs any more."""


Effect = FindSkills | CommandSidecar | SettleRoutes | FinishDeactivating


def react(state: Directory, sidecars: Mapping[str, Sidecar]) -> list[Effect]:
    """The effects that a directory calls for; none: there is nothing to do until it, or a sidecar of it, gets an event.
    `sidecars` are those of its plan and all others of it that are live, by skill."""
    match state.status:
        case "activating" | "active" | "active_partial":
            if not state.has_plan:
                return [FindSkills()]
            unwanted = [skill for skill in _stoppable(sidecars) if skill not in state.specs]
            ends = [_stop(skill, "it is no longer wanted") for skill in unwanted]
            starts = _steer(state, sidecars) if state.status == "activating" else []
            return [*ends, *starts] or ([SettleRoutes()] if settle(sidecars, state) else [])
        case "deactivating":
            if any(sidecar.live for sidecar in sidecars.values()):
                return [_stop(skill, OFFLINE) for skill in _stoppable(sidecars)]
            return [FinishDeactivating()]
        case "offline":
            return []


def _steer(state: Directory, sidecars: Mapping[str, Sidecar]) -> list[Effect]:
    """Ask for the sidecars that the plan wants, in place of those with another specification."""
    effects: list[Effect] = []
    for skill, spec in state.specs.items():
        current = sidecars[skill]
        if current.live and state.replaces(current, spec) and current.status != "stopping":
            effects.append(_stop(skill, "it is replaced"))
        elif current.status == "idle" or (current.status == "gave_up" and current.generation != state.generation):
            effects.append(CommandSidecar(skill, RequestSpawn(spec, state.generation)))
    return effects


def _stoppable(sidecars: Mapping[str, Sidecar]) -> list[str]:
    """The skills whose sidecars can be stopped."""
    return [skill for skill, sidecar in sidecars.items() if sidecar.live and sidecar.status != "stopping"]


def _stop(skill: str, why: str) -> CommandSidecar:
    return CommandSidecar(skill, RequestStop(why))
