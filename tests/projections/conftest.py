"""Histories for the projections: the records that a journal would give them, without a journal."""

from collections.abc import Callable
from typing import Any

import pytest

from omac.domain.directories import directory
from omac.domain.directories.events import RouteStubbed, Skill
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId, RunId, StreamId
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Birth, SidecarSpec

HOST = HostId("host1")


class History:
    """Records in the order of positions; aggregates get versions, logs do not."""

    def __init__(self) -> None:
        self.records: list[Recorded] = []
        self._states: dict[StreamId, Any] = {}
        self._versions: dict[StreamId, int] = {}

    def log(self, stream: StreamId, event: Event, run: str = "run1") -> int:
        """Append to a log, and return the position."""
        self._append(stream, None, event, run)
        return len(self.records)

    def append(self, stream: StreamId, *events: Event, run: str = "run1") -> None:
        """Append to an aggregate."""
        for event in events:
            self._versions[stream] = self._versions.get(stream, 0) + 1
            self._append(stream, self._versions[stream], event, run)

    def decide(self, aggregate: Any, initial: Any, stream: StreamId, command: Any) -> None:
        """Append the events that a command means; `aggregate` is the module with `decide` and `evolve`."""
        events = aggregate.decide(command, self._states.get(stream, initial))
        for event in events:
            self._states[stream] = aggregate.evolve(self._states.get(stream, initial), event)
        self.append(stream, *events)

    def directory(
        self, *commands: directory.Command, path: str = "/w/shop", host: HostId = HOST
    ) -> directory.Directory:
        """Have a directory decide, and return its state."""
        stream = ids.directory_stream(host, ids.scope_of(path))
        for command in commands:
            self.decide(directory, directory.Directory(), stream, command)
        state: directory.Directory = self._states.get(stream, directory.Directory())
        return state

    def sidecar(
        self, name: str, *commands: sidecar.Command, path: str = "/w/shop", host: HostId = HOST
    ) -> sidecar.Sidecar:
        """Have a sidecar decide, and return its state."""
        stream = ids.sidecar_stream(host, ids.scope_of(path), name)
        for command in commands:
            self.decide(sidecar, sidecar.Sidecar(), stream, command)
        state: sidecar.Sidecar = self._states.get(stream, sidecar.Sidecar())
        return state

    def _append(self, stream: StreamId, version: int | None, event: Event, run: str) -> None:
        position = len(self.records) + 1
        self.records.append(
            Recorded(position, stream, version, position * 10**9, run, "omac", f"c{position}", None, event)
        )


@pytest.fixture
def history() -> History:
    """Return a history without records."""
    return History()


@pytest.fixture
def new_history() -> Callable[[], History]:
    """Return a function that makes histories without records."""
    return History


@pytest.fixture
def shop(history: History) -> History:
    """Return a history: /w/shop is partially active, token digests "t-launch" and, for session s1, "t-s1".

    Its skills: `ready` (port 40001), `fell` (starting again), `broken`, `pending`, and `rival` without a mount.
    """
    runs = ("ready", "fell")
    skills = {
        name: Skill(name, "agents", f"/s/{name}", "sha256:1", "" if name == "rival" else name)
        for name in ("rival", "ready", "pending", "fell", "broken")
    }
    specs = {name: SidecarSpec(name, name, "/w/shop", f"/s/{name}", "/s", "sha256:1", True, ("run",)) for name in runs}
    stubs = {
        "broken": RouteStubbed("broken", "broken", "skill-broken", "it fell", (), ("omac reload /w/shop",)),
        "pending": RouteStubbed(
            "pending", "pending", "pending-credentials", "KEY is missing", ("KEY",), ("export KEY=...",)
        ),
        "rival": RouteStubbed("rival", "", "skill-broken", "its mount is taken"),
    }
    plan = directory.ActivationPlan(skills, specs, dict.fromkeys(runs, 7), stubs)
    digest, session = ids.TokenDigest("t-launch"), ids.TokenDigest("t-s1")
    history.directory(
        directory.RequestActivation("/w/shop", "opencode", digest),
        directory.AdmitSession("s1", session),
        directory.AdoptPlan(plan),
    )
    for number, name in enumerate(runs, 1):
        birth = Birth(100 + number, 7, "boot", 40_000 + number, True, f"/log/{name}")
        started = (sidecar.RequestSpawn(specs[name], 1), sidecar.ReportStarted(birth), sidecar.ReportHealthy())
        history.sidecar(name, *started)
    sidecars = {name: history.sidecar(name) for name in skills}
    history.directory(directory.Settle(sidecars))
    history.sidecar("fell", sidecar.ReportExit(sidecar.Exit(1), 5, "it fell over"))
    return history


@pytest.fixture
def host() -> HostId:
    """Return the host of these histories."""
    return HOST


@pytest.fixture
def run() -> RunId:
    """Return the run that appends."""
    return RunId("run1")
