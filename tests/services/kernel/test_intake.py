"""services/kernel/intake.py: reports of short-lived programs reach a running server; a lost launch is settled."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import trio
from contract.launches import AT, WHOLE, Program
from polling import until

from omac.adapters.linux import process_identity
from omac.domain.kernel import ids
from omac.domain.kernel.ids import HostId, LaunchId
from omac.domain.sandbox.launch import LaunchExited
from omac.journal.inbox import Inbox
from omac.journal.opening import open_journal
from omac.projections.status import Status
from omac.services.kernel.ingestion import ingest
from omac.services.kernel.intake import POLL_S, Intake, settle_lost
from omac.services.kernel.opened import OpenedJournal

Serving = Callable[..., AbstractAsyncContextManager[Any]]
HOST = HostId("host0001")
SOON_S = 0.5
HERE = {"boot_id": process_identity.boot_id()}


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(str(tmp_path / "spool"), HOST)


@pytest.fixture
def program(inbox: Inbox) -> Program:
    return Program(Path(inbox.folder))


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Intake]:
    """Return a list that has an item for each ingestion that an intake has begun."""
    tries, take_in = list[Intake](), Intake.take_in

    async def counted(taking: Intake) -> None:
        tries.append(taking)
        await take_in(taking)

    monkeypatch.setattr(Intake, "take_in", counted)
    return tries


@asynccontextmanager
async def intake(omac: Any, inbox: Inbox) -> AsyncIterator[Intake]:
    """Yield an intake that runs."""
    taking = Intake(inbox, omac.engine)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.run)
        yield taking
        nursery.cancel_scope.cancel()


def sandboxes(omac: Any) -> dict[str, str]:
    entries = omac.engine.system.sandboxes.entries
    return {stream.split("/")[2]: entry.state.status for stream, entry in entries.items()}


async def test_a_server_that_runs_takes_in_what_comes(
    serving: Serving, path: str, inbox: Inbox, program: Program, replayed: Callable[[str], Status]
) -> None:
    """A server folds spooled records within half a second, also from a folder that appears after the server."""
    os.rmdir(inbox.folder)
    async with serving(reactors=False) as omac, intake(omac, inbox):
        later = Program(Path(inbox.folder))
        took: list[float] = []
        for number in range(3):
            later.launch(f"a{number}", "launch-requested", "launched")
            took.append(await until(lambda: list(sandboxes(omac).values()) == ["launched"] * (len(took) + 1)))
        assert min(took) < SOON_S
        assert [entry.launch for entry in omac.status().sandboxes] == ["a0", "a1", "a2"]
        assert omac.status() == replayed(path)
        await until(lambda: inbox.names() == frozenset())  # a moment after the record


async def test_what_waits_is_tried_again_when_something_changes(
    serving: Serving, path: str, inbox: Inbox, program: Program, tries: list[Intake]
) -> None:
    """A launch whose beginning is not in the spool yet is ingested when the beginning appears, and not tried again
    before the spool changes."""
    launch = program.launch("aa", *WHOLE)
    os.rename(launch[0], Path(inbox.folder).parent / "begin")
    async with serving(reactors=False) as omac, intake(omac, inbox):
        await until(lambda: len(tries) == 1)
        await trio.sleep(3 * POLL_S)
        assert (len(tries), len(inbox.names()), omac.engine.system.position) == (1, 2, 0)
        program.deny("bb")
        await until(lambda: omac.engine.system.guarded.denied == 1)
        os.rename(Path(inbox.folder).parent / "begin", launch[0])
        await until(lambda: sandboxes(omac) == {"aa": "exited"})


async def test_a_spool_that_cannot_be_used_stops_nothing(
    serving: Serving, path: str, inbox: Inbox, program: Program, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, tries: list[Intake],
) -> None:  # fmt: skip
    """A bad spool is reported once, and tried again and again."""
    monkeypatch.setattr("omac.services.kernel.intake.RETRY_S", 0.01)
    os.chmod(inbox.folder, 0o777)
    program.deny("a")
    async with serving(reactors=False) as omac, intake(omac, inbox):
        await until(lambda: "writable by other users" in caplog.text)
        tries.clear()
        await until(lambda: len(tries) >= 10)
        assert caplog.text.count("writable by other users") == 1
        os.chmod(inbox.folder, 0o700)
        await until(lambda: omac.engine.system.guarded.denied == 1)


# ---- lost launches ----


async def spooled(path: str, inbox: Inbox) -> None:
    """Ingest the spool into the journal, as a command does."""
    with closing(open_journal(path, "", lambda: AT)) as journal:
        await ingest(inbox, OpenedJournal(journal, inbox.host))


async def settle(omac: Any, inbox: Inbox) -> list[str]:
    own = Intake(inbox, omac.engine)
    streams = await settle_lost(
        omac.engine, lambda _, *omac: process_identity.is_living(*omac), own.take_in, own.waiting
    )
    return [stream.split("/")[2] for stream in streams]


def own() -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "start_ticks": process_identity.start_ticks(pid), **HERE}


async def test_an_end_that_a_later_omac_will_read(serving: Serving, path: str, inbox: Inbox, program: Program) -> None:
    """A launch is not lost while its end waits in the spool for an omac that can read it."""
    program.launch("aa", "launch-requested", "launched", **own() | {"start_ticks": 1})
    program.put("sandbox.exited", {"status": 0, "more": 1}, "aa", 3)
    await spooled(path, inbox)
    async with serving(reactors=False) as omac:
        assert await settle(omac, inbox) == []
        assert sandboxes(omac) == {"aa": "launched"}


@pytest.mark.parametrize("steps", [("launch-requested",), ("launch-requested", "launched")])
async def test_a_launch_whose_omac_is_gone_is_lost(
    serving: Serving, path: str, inbox: Inbox, program: Program, steps: tuple[str, ...]
) -> None:
    """The end of a launch whose omac is gone is recorded once, without a status; one whose omac lives stays open."""
    program.launch("gone", *steps, **own() | {"start_ticks": 1})
    program.launch("reboot", *steps, **own() | {"boot_id": "another"})
    program.launch("lives", *steps, **own())
    program.launch("ended", *WHOLE, **own() | {"start_ticks": 1})
    await spooled(path, inbox)
    async with serving(reactors=False) as omac:
        assert sorted(await settle(omac, inbox)) == ["gone", "reboot"]
        assert sandboxes(omac) == {"gone": "exited", "reboot": "exited", "lives": steps[-1].removeprefix("launch-"),
                                   "ended": "exited"}  # fmt: skip
        ends = [record for record in omac.journal.records() if isinstance(record.event, LaunchExited)]
        assert [record.event.status for record in ends] == [0, None, None]
        assert ends[1].event.lost == "the omac that launched it was killed"
        assert ends[1].actor == "omac"
        assert await settle(omac, inbox) == []


async def test_an_end_that_is_in_the_spool_counts(serving: Serving, path: str, inbox: Inbox, program: Program) -> None:
    """An end that was reported before its omac ended counts, though it was not ingested yet."""
    program.launch("aa", "launch-requested", "launched", **own() | {"start_ticks": 1})
    await spooled(path, inbox)
    async with serving(reactors=False) as omac:
        program.put("sandbox.exited", {"status": 5}, "aa", 3)
        assert await settle(omac, inbox) == []
        (end,) = [record.event for record in omac.journal.records() if isinstance(record.event, LaunchExited)]
        assert end == LaunchExited(5, workdir="/w/shop")


async def test_launches_of_other_hosts_are_theirs(serving: Serving, path: str, inbox: Inbox, program: Program) -> None:
    """The processes of another host are unknown here, so its launches stay open."""
    program.launch("aa", "launch-requested", **own() | {"start_ticks": 1})
    await spooled(path, inbox._replace(host=HostId("host0002")))
    async with serving(reactors=False) as omac:
        assert await settle(omac, inbox) == []
        stream = ids.sandbox_stream(HostId("host0002"), LaunchId("aa"))
        assert omac.engine.system.sandboxes[stream].state.live
