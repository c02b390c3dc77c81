"""domain/kernel/run.py: a run starts once, and ends once."""

import itertools

import pytest
from tables import deviations

from omac.domain.kernel import run
from omac.domain.kernel.event import Event
from omac.domain.kernel.run import TABLE, Recover, Run, RunRecovered, RunStarted, RunStopped, Start, Status, Stop

EVENTS: tuple[Event, ...] = (
    RunStarted("opencode", "1.0", 42, 7, "boot", ("/w",)),
    RunRecovered("later", 1, 2, 3),
    RunStopped("asked by SIGTERM"),
)
STATUSES: tuple[Status, ...] = ("unknown", "started", "recovered", "stopped")
COMMANDS = (
    Start(RunStarted("opencode", "1.0", 42, 7, "boot", ("/w",))),
    Recover(RunRecovered("later", 1, 2, 3)),
    Stop("asked by SIGTERM"),
)


def test_the_table_is_the_whole_truth() -> None:
    """An event in the table leads to the status named there; any other raises KeyError."""
    assert deviations(run.evolve, TABLE, {status: Run(status) for status in STATUSES}, EVENTS) == []


def test_what_a_run_is_stays_known_after_its_end() -> None:
    """A run keeps its harness, version, process and roots after its end."""
    started = run.evolve(Run(), EVENTS[0])
    assert started == Run("started", "opencode", "1.0", 42, 7, "boot", ("/w",))
    assert run.evolve(started, EVENTS[2]) == Run("stopped", "opencode", "1.0", 42, 7, "boot", ("/w",))


@pytest.mark.parametrize(("status", "at"), list(itertools.product(STATUSES, range(len(COMMANDS)))))
def test_a_decision_is_what_the_table_allows(status: Status, at: int) -> None:
    """A command means its event where that can follow, and nothing elsewhere, such as for a stop after a recovery."""
    follows = (status, type(EVENTS[at])) in TABLE
    assert run.decide(COMMANDS[at], Run(status)) == ([EVENTS[at]] if follows else [])
