"""A run: one omac process, from its start to its end or to the recovery that found it dead.

Rules

1. A run starts once and ends once. One that ends in order stops; one that did not is recovered by a later run of the
   same host. An ended run admits no further event: a stop that comes after a recovery records nothing.
2. Only a dead run is recovered. A run is alive while its process is: the one with its pid, start time and boot. The
   lock of its folder counts only where that process is not known or not visible. One process at a time recovers.
3. A host has one server for a journal, and any number of runs beside it, each for one directory.
4. What a run brings online is its own: directories, tokens, sidecars, and of what all projects share a copy too. So a
   directory may be online in several runs; none waits for another, none answers to the tokens of another, and the end
   of one, however it comes, takes nothing from the others.
5. What is registered, approved and given belongs to the host: every run sees a change and follows it.
"""

from typing import Literal

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event

Status = Literal["unknown", "started", "recovered", "stopped"]


class RunStarted(Event, frozen=True):
    """omac serves: as the host's server or, where `command` is "start", beside it.

    `start_ticks` and `boot_id` identify the process beyond the reuse of its pid; `policy` says how it treats skills
    (`omac.domain.directories.skill_plan.SkillPolicy`, by field), whether it has `bridge_compat`, which `agent` it
    launches, if it launches one by name, with which options of its `sandbox`, and its `audit`, if that is not strict.
    """

    harness: str
    version: str
    pid: int
    start_ticks: int
    boot_id: str
    roots: tuple[str, ...]
    policy: dict[str, str | bool] = {}  # noqa: RUF012  # msgspec copies it
    command: str = "serve"


class RunRecovered(Event, frozen=True):
    """The run was found dead by the run `by`, which settled what the dead run left open: counts of each kind."""

    by: str
    directories: int
    sidecars: int
    accesses: int


class RunStopped(Event, frozen=True):
    """The run ended in order; `why` is the reason in a few words."""

    why: str


class Run(msgspec.Struct, frozen=True):
    """A run as the journal knows it; `pid`, `start_ticks` and `boot_id` are its process ("" and 0: not known)."""

    status: Status = "unknown"
    harness: str = ""
    version: str = ""
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    roots: tuple[str, ...] = ()
    policy: dict[str, str | bool] = {}
    command: str = "serve"

    @property
    def ended(self) -> bool:
        """Return whether no event can follow."""
        return self.status in ("recovered", "stopped")


TABLE: dict[tuple[Status, type[Event]], Status] = {
    ("unknown", RunStarted): "started",
    ("started", RunRecovered): "recovered",
    ("started", RunStopped): "stopped",
}


class Start(msgspec.Struct, frozen=True):
    """Command: record that this process serves."""

    started: RunStarted


class Recover(msgspec.Struct, frozen=True):
    """Command: record that the run was found dead, and the counts of what that settled."""

    recovered: RunRecovered


class Stop(msgspec.Struct, frozen=True):
    """Command: record that the run ends in order; `why` in a few words."""

    why: str


Command = Start | Recover | Stop


def decide(command: Command, state: Run) -> list[Event]:
    """Return the events that `command` means in `state`; none for a run that has started, or ended, already."""
    match command:
        case Start(started):
            return [started] if state.status == "unknown" else []
        case Recover(recovered):
            return [recovered] if state.status == "started" else []
        case Stop(why):
            return [RunStopped(why)] if state.status == "started" else []


def evolve(state: Run, event: Event) -> Run:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    status = TABLE[state.status, type(event)]
    match event:
        case RunStarted(harness, version, pid, start_ticks, boot_id, roots, policy, command):
            return Run(status, harness, version, pid, start_ticks, boot_id, roots, policy, command)
        case _:
            return msgspec.structs.replace(state, status=status)


EVENTS: tuple[type[Event], ...] = tuple(event for _, event in TABLE)
AGGREGATE = Aggregate("run", Run(), decide, evolve, EVENTS, has_ended=lambda state: state.ended)
