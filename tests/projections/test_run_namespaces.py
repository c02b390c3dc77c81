"""projections/run_namespaces.py: memory does not grow with the runs that ended."""

from typing import Any

import pytest

from omac.domain.directories import directory
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import HostId, RunId, TokenDigest
from omac.domain.kernel.run import RunRecovered, RunStarted, RunStopped
from omac.domain.sandbox.launch import Denied, LaunchExited, LaunchRequested
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.projections.aggregates import ENDED_KEPT
from omac.projections.system import System

SPEC = SidecarSpec("echo", "echo", "/w/shop", "/s/echo", "/s", "sha256:1", True, ("run",))


class Start:
    """The records of one `omac start`, step by step."""

    def __init__(self, history: Any, host: HostId, run: str) -> None:
        self._history = history
        self._stream = ids.run_stream(host, RunId(run))
        self.namespace = ids.namespace_beside(host, RunId(run))
        history.append(self._stream, RunStarted("opencode", "1", 1, 1, "boot", ("/w",), {}, "start"), run=run)
        self.directory(directory.RequestActivation("/w/shop", "opencode", TokenDigest(run)))
        self.sidecar(sidecar.RequestSpawn(SPEC, 1))

    def directory(self, *commands: directory.Command) -> None:
        self._history.directory(*commands, host=self.namespace)

    def sidecar(self, *commands: sidecar.Command) -> None:
        self._history.sidecar("echo", *commands, host=self.namespace)

    def rest(self) -> None:
        self.directory(directory.RequestDeactivation("x"))
        self.sidecar(sidecar.RequestStop("x"), sidecar.ReportStopped())
        self.directory(directory.FinishDeactivation())

    def end(self, event: Event) -> None:
        self._history.append(self._stream, event)


def sizes(system: System) -> list[int]:
    """Return the number of entries of runs, directories, sidecars and sandboxes."""
    return [len(kind.entries) for kind in (system.runs, system.directories, system.sidecars, system.sandboxes)]


@pytest.mark.parametrize("end", [RunStopped("x"), RunRecovered("later", 1, 1, 0)])
@pytest.mark.parametrize("in_order", [True, False])
def test_what_ended_leaves_memory(history: Any, host: HostId, end: Event, in_order: bool) -> None:
    """Only the latest of many runs stay known, whether they ended before or after their directories and sidecars."""
    living = Start(history, host, "living")
    for number in range(3 * ENDED_KEPT):
        start = Start(history, host, f"r{number}")
        if in_order:
            start.rest()
        start.end(end)
        if not in_order:
            start.rest()
    system = System().replay(history.records)
    assert sizes(system) == [ENDED_KEPT + 1, ENDED_KEPT + 1, ENDED_KEPT + 1, 0]
    latest = ids.directory_stream(start.namespace, ids.scope_of("/w/shop"))
    assert system.directories[latest].state.path == "/w/shop"
    assert (
        system.directories[ids.directory_stream(living.namespace, ids.scope_of("/w/shop"))].state.status == "activating"
    )


def test_what_an_ended_run_left_open_stays(history: Any, host: HostId) -> None:
    """A sidecar that an ended run left open stays until recovery settles it, however many runs ended since."""
    unfinished = Start(history, host, "left")
    unfinished.end(RunStopped("x"))
    for number in range(2 * ENDED_KEPT):
        start = Start(history, host, f"r{number}")
        start.rest()
        start.end(RunStopped("x"))
    system = System().replay(history.records)
    assert system.sidecars[ids.sidecar_stream(unfinished.namespace, ids.scope_of("/w/shop"), "echo")].state.live


def test_what_the_server_had_online_stays(history: Any, host: HostId) -> None:
    """The directories and sidecars of a server belong to the host: the next server brings them online again."""
    for number in range(2 * ENDED_KEPT):
        history.append(ids.run_stream(host, RunId(f"r{number}")), RunStarted("opencode", "1", 1, 1, "boot", ("/w",)))
        history.directory(directory.RequestActivation("/w/shop", "opencode", TokenDigest(f"t{number}")))
        history.directory(directory.RequestDeactivation("x"), directory.FinishDeactivation())
        history.append(ids.run_stream(host, RunId(f"r{number}")), RunStopped("x"))
    system = System().replay(history.records)
    assert sizes(system) == [ENDED_KEPT, 1, 0, 0]
    assert system.directories[ids.directory_stream(host, ids.scope_of("/w/shop"))].version == 6 * ENDED_KEPT


@pytest.mark.parametrize("end", [LaunchExited(0), Denied("/w", "", ("true",), "launch-refused", "no")])
def test_launches_that_ended_leave_memory(history: Any, host: HostId, end: Event) -> None:
    """Launches that run stay known, however many ended since."""
    requested = LaunchRequested("/w", "", "bwrap", "0" * 64, ("true",), "host", 1, 1, "boot")
    streams = [ids.sandbox_stream(host, ids.LaunchId(f"l{number}")) for number in range(3 * ENDED_KEPT)]
    history.append(streams[0], requested)
    for stream in streams[1:]:
        history.append(stream, requested, end)
    system = System().replay(history.records)
    assert sizes(system) == [0, 0, 0, ENDED_KEPT + 1]
    assert system.sandboxes[streams[0]].state.live
