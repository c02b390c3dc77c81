"""A run: one omac process, from its start to its end or to the recovery that found it dead.

Rules

1. A run that ends in order stops; one that did not is recovered, once, by a later run of the same host.
2. Only a run whose lock is free is recovered: whoever holds the lock is alive. One process at a time recovers.
3. A host has one server for a journal, and any number of runs beside it, each for one directory.
4. What a run brings online is its own: directories, tokens, sidecars, and of what all projects share a copy too. So a
   directory may be online in several runs; none waits for another, none answers to the tokens of another, and the end
   of one, however it comes, takes nothing from the others.
5. What is registered, approved and given belongs to the host: every run sees a change and follows it.
"""

import msgspec

from omac.domain.recorded import Event


class RunStarted(Event, frozen=True):
    """omac serves: as the host's server or, where `command` is "start", beside it.

    `start_ticks` and `boot_id` identify the process beyond the reuse of its pid; `policy` says how it treats skills
    (`omac.domain.planning.Policy`, by field).
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
    """It was found dead by the run `by`, which settled what it left open: counts of each kind."""

    by: str
    directories: int
    sidecars: int
    accesses: int


class RunStopped(Event, frozen=True):
    """It ended in order; `why` in a few words."""

    why: str


class Run(msgspec.Struct, frozen=True):
    """A run as the journal knows it."""

    status: str = "unknown"
    harness: str = ""
    version: str = ""
    pid: int = 0
    roots: tuple[str, ...] = ()
    policy: dict[str, str | bool] = {}
    command: str = "serve"


TABLE: dict[tuple[str, type[Event]], str] = {
    ("unknown", RunStarted): "started",
    ("started", RunRecovered): "recovered",
    ("started", RunStopped): "stopped",
}


def evolve(state: Run, event: Event) -> Run:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    status = TABLE[state.status, type(event)]
    match event:
        case RunStarted(harness, version, pid, _, _, roots, policy, command):
            return Run(status, harness, version, pid, roots, policy, command)
        case _:
            return msgspec.structs.replace(state, status=status)
