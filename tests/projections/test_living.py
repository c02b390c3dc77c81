"""projections/living.py: the recorded runs, directories, sidecars and sandboxes that still live."""

import msgspec

from omac.projections.living import NOTHING_GONE, living
from omac.projections.status import (
    DirectoryStatus,
    RunStatus,
    SandboxStatus,
    SidecarStatus,
    SkillStatus,
    Status,
    status_of,
)
from omac.projections.system import System

BOOT = "boot"
READY = SkillStatus("weather", "global", "weather", "ready", (), (), "")
PENDING = SkillStatus("mail", "global", "mail", "pending_credentials", ("KEY",), (), "")


def recorded() -> Status:
    """Return the status of two runs with a directory, a sidecar and a sandbox each, and of the shared skills."""
    return msgspec.structs.replace(
        status_of(System()),
        runs=tuple(
            RunStatus(run, "opencode", "1", pid, ("/w",), "serve", 7, BOOT) for run, pid in (("a", 1), ("b", 2))
        ),
        directories=tuple(DirectoryStatus(f"/{run}", "active", "opencode", (), (), run) for run in "ab"),
        shared=(READY, PENDING),
        sidecars=(
            SidecarStatus("/a", "echo", "healthy", 11, 1, "/log", 0, "", "a", 7, BOOT),
            SidecarStatus("/b", "echo", "healthy", 12, 1, "/log", 0, "", "b", 7, BOOT),
            SidecarStatus("/b", "late", "requested", None, None, None, 0, "", "b"),
            SidecarStatus("", "weather", "healthy", 13, 1, "/log", 0, "", "b", 7, BOOT),
        ),
        sandboxes=(
            SandboxStatus("x", "/a", "", "bubblewrap", "host", "launched", 21, ("true",), "a", 1, 7, BOOT),
            SandboxStatus("y", "/c", "", "bubblewrap", "host", "launched", 22, ("true",), "", 5, 7, BOOT),
        ),
    )


def of(status: Status, *pids: int) -> object:
    """Return the names that are shown while only these processes live."""
    alive, _ = living(
        status,
        lambda run: run.pid in pids,
        lambda pid, ticks, boot: pid in pids and ticks == 7,
        lambda launch, pid, ticks, boot: launch in "xy" and pid in pids and ticks == 7,
    )
    return (
        [entry.run for entry in alive.runs],
        [entry.dir for entry in alive.directories],
        [entry.name for entry in alive.shared],
        [(entry.dir, entry.skill) for entry in alive.sidecars],
        [entry.launch for entry in alive.sandboxes],
    )


def test_a_status_whose_processes_live_stays_whole() -> None:
    """A status stays whole while all of its processes live, and reports none as gone."""
    status = recorded()
    assert living(status, lambda _: True, lambda *_: True, lambda *_: True) == (status, NOTHING_GONE)


def test_a_run_that_is_gone_takes_its_own() -> None:
    """A run that is gone takes its directory, its sidecars and its sandbox along; the other run keeps its own."""
    assert of(recorded(), 1, 11, 5) == (["a"], ["/a"], ["mail"], [("/a", "echo")], ["x", "y"])
    assert of(recorded(), 2, 12, 13) == (
        ["b"], ["/b"], ["weather", "mail"], [("/b", "echo"), ("/b", "late"), ("", "weather")], [],
    )  # fmt: skip


def test_where_all_is_gone_nothing_is_shown() -> None:
    """A status whose processes are all gone shows nothing, and reports each of them as gone."""
    status = recorded()
    assert of(status) == ([], [], [], [], [])
    _, gone = living(status, lambda _: False, lambda *_: False, lambda *_: False)
    assert (gone.runs, gone.sidecars, gone.sandboxes) == (status.runs, status.sidecars, status.sandboxes)
