"""services/kernel/recovery.py: open states of dead runs are settled once, for any cause of death."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from contract.journals import PERSON, decide_now

from omac.domain.access import access
from omac.domain.access.access import AccessRequested
from omac.domain.directories import directory
from omac.domain.kernel import ids, run
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Cause
from omac.domain.kernel.ids import HostId, RunId, StreamId
from omac.domain.kernel.run import RunRecovered, RunStarted
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Birth, SidecarSpec
from omac.journal.opening import open_journal
from omac.projections.evidence.accesses import audit_rows
from omac.services.kernel.recovery import recover

Serving = Callable[..., AbstractAsyncContextManager[Any]]
Kinds = Callable[..., list[str]]

HOST = HostId("host0001")
BIRTH = Birth(4_711, 99, "boot", 40_000, False, "x.log")
NOBODY = frozenset[str]()


@pytest.fixture
def dead(path: str, clock: Callable[[], int]) -> Callable[..., None]:
    """Return a function that writes the events of a run that dies, with two open sidecars and two open accesses."""

    def leave(
        run_name: str = "dead",
        host: HostId = HOST,
        stopped: bool = False,
        project: str = "/w/shop",
        namespace: str = "",
    ) -> None:
        journal = open_journal(path, run_name, clock)
        workdir = ids.workdir_id(project)
        where = HostId(namespace or host)

        def does(aggregate: Aggregate[Any, Any], stream: StreamId, *commands: Any, cause: Cause = PERSON) -> None:
            for command in commands:
                decide_now(journal, aggregate, stream, command, cause)

        try:
            started = RunStarted("opencode", "1", 42, 7, "boot", ("/w",))
            own = ids.run_stream(host, RunId(run_name))
            does(run.AGGREGATE, own, run.Start(started))
            spec = SidecarSpec("echo", "echo", project, "/s", "/", "sha256:1", True, ("run",))
            request = directory.RequestActivation(project, "opencode", ids.token_digest(run_name))
            does(directory.AGGREGATE, ids.directory_stream(where, workdir), request, cause=Cause("person", "c1"))
            spawn = sidecar.RequestSpawn(spec, 1)
            echo, slow = (ids.sidecar_stream(where, workdir, name) for name in ("echo", "slow"))
            does(sidecar.AGGREGATE, echo, spawn, sidecar.ReportStarted(BIRTH), cause=Cause("omac"))
            does(sidecar.AGGREGATE, slow, spawn, cause=Cause("omac"))
            event = AccessRequested(project, "echo", "echo", None, "GET", "/")
            does(access.AGGREGATE, ids.access_stream(host), event, event, cause=Cause("agent"))
            if stopped:
                does(run.AGGREGATE, own, run.Stop("x"))
        finally:
            journal.close()

    return leave


async def settle(omac: Any, alive: frozenset[str] = NOBODY) -> list[RunId]:
    runs: list[RunId] = await recover(omac.engine, omac.host, lambda run, _: run in alive)
    return runs


async def test_a_dead_run_is_settled(serving: Serving, dead: Any, kinds: Kinds) -> None:
    """Directories go offline, sidecars end by their recorded identity, accesses abort, and the run is recovered."""
    dead()
    async with serving(reactors=False) as omac:
        assert await settle(omac) == ["dead"]
        assert omac.directory().status == "offline"
        assert omac.engine.system.tokens.streams == {}
        assert omac.host.orphans == [BIRTH], "one had no process yet"
        assert omac.host.unbuilt_ended == 1, "or one that nobody recorded"
        assert {omac.sidecar(name).status for name in ("echo", "slow")} == {"idle"}
        rows = [row for row in audit_rows(omac.journal.records()) if row.kind == "access"]
        assert [(row.outcome, row.reason, row.status, row.duration) for row in rows] == [
            ("aborted", "omac-killed", None, None)
        ] * 2
        (recovered,) = [r for r in omac.journal.records() if isinstance(r.event, RunRecovered)]
        assert recovered.event == RunRecovered("run1", 1, 2, 2)
        assert recovered.causation == 1
        assert omac.status().runs == ()
        assert kinds(omac.path, "directory")[-2:] == ["directory.deactivation-requested", "directory.deactivated"]


async def test_a_recovery_that_is_killed_ends_what_was_never_born_next_time(
    serving: Serving, dead: Any, kinds: Kinds
) -> None:
    """The sidecars of the dead run count as living until sidecars that were never born are ended."""
    dead()
    async with serving(reactors=False) as omac:
        durable: list[str] = []
        omac.host.before_unbuilt = lambda: durable.extend(kinds(omac.path, "sidecar.stop", "directory.deactivation"))
        await settle(omac)
        assert durable == ["directory.deactivation-requested"]


async def test_the_request_comes_before_the_kill(serving: Serving, dead: Any, kinds: Kinds) -> None:
    """The end of the directory's tokens and the stop of its sidecars are durable before the orphan is ended."""
    dead()
    async with serving(reactors=False) as omac:
        durable: list[str] = []

        async def note_kinds(_: Birth) -> None:
            durable.extend(kinds(omac.path, "sidecar.stop", "directory.deactivation"))

        omac.host.before_orphan = note_kinds
        await settle(omac)
        assert durable[0] == "directory.deactivation-requested"
        assert "sidecar.stop-requested" in durable
        assert "sidecar.stopped" not in durable[:2]


async def test_recovery_twice_changes_nothing(serving: Serving, dead: Any) -> None:
    """A second recovery changes nothing."""
    dead()
    async with serving(reactors=False) as omac:
        await settle(omac)
        head = omac.journal.store.head()
        assert await settle(omac) == []
        assert omac.journal.store.head() == head


async def test_a_run_that_lives_is_left_alone(serving: Serving, dead: Any) -> None:
    """A living run holds its lock, and still owns its directories and sidecars."""
    dead("living")
    dead("dead", project="/w/blog")
    async with serving(reactors=False) as omac:
        assert await settle(omac, frozenset({"living"})) == ["dead"]
        assert omac.directory("/w/shop").status == "activating"
        assert omac.sidecar("echo", "/w/shop").live
        assert omac.directory("/w/blog").status == "offline"
        assert omac.status().accesses == {"open": 2, "completed": 0, "aborted": 2, "refused": 0}


async def test_other_hosts_settle_their_own(serving: Serving, dead: Any) -> None:
    """A host does not know whether another host's runs live, so each settles its own in a shared journal."""
    dead("elsewhere", HostId("host0002"))
    async with serving(reactors=False) as omac:
        head = omac.journal.store.head()
        assert await settle(omac) == []
        assert omac.journal.store.head() == head


async def test_several_dead_runs_are_settled_each(serving: Serving, dead: Any) -> None:
    """Each dead run has its own counts; the newest owner of a directory settles it."""
    dead("dead1")
    dead("dead2", project="/w/blog")
    async with serving(reactors=False) as omac:
        assert await settle(omac) == ["dead1", "dead2"]
        recovered = [r.event for r in omac.journal.records() if isinstance(r.event, RunRecovered)]
        assert recovered == [RunRecovered("run1", 1, 2, 2)] * 2


@pytest.mark.parametrize("within", ["first kill", "second append"])
async def test_a_recovery_cut_short_is_finished_by_the_next(
    serving: Serving, dead: Any, within: str, replayed: Callable[[str], Any]
) -> None:
    """A recovery that dies leaves open states under its own name; the next recovery settles them all the same."""
    dead()
    async with serving(reactors=False, run="cut") as omac:
        with trio.CancelScope() as scope:
            if within == "first kill":

                async def die(_: Birth) -> None:
                    scope.cancel()
                    await trio.lowlevel.checkpoint()

                omac.host.before_orphan = die
            else:
                omac.engine.observe(lambda record: scope.cancel())
            await settle(omac)
        assert scope.cancelled_caught
        assert omac.directory().status == "deactivating"
    async with serving(reactors=False, run="next") as omac:
        assert await settle(omac) == ["dead"]
        assert omac.directory().status == "offline"
        assert {omac.sidecar(name).status for name in ("echo", "slow")} == {"idle"}
        assert omac.status().accesses["open"] == 0
        assert omac.host.orphans == [BIRTH]
        assert msgspec.json.encode(replayed(omac.path)) == msgspec.json.encode(omac.status())


async def test_what_a_run_could_not_end_in_order_is_settled(serving: Serving, dead: Any, kinds: Kinds) -> None:
    """A run that stopped before all its sidecars were down is not recovered; its open states are settled."""
    dead("ended", stopped=True)
    async with serving(reactors=False) as omac:
        assert await settle(omac) == []
        assert omac.directory().status == "offline"
        assert omac.host.orphans == [BIRTH]
        assert omac.status().accesses == {"open": 0, "completed": 0, "aborted": 2, "refused": 0}
        assert "run.recovered" not in kinds(omac.path)
        head = omac.journal.store.head()
        assert await settle(omac) == []
        assert omac.journal.store.head() == head


async def test_two_recoveries_at_once_settle_once(serving: Serving, dead: Any, kinds: Kinds) -> None:
    """Two processes start together: every access is aborted once, and the run is recovered once."""
    dead()
    async with serving(reactors=False, run="one") as first, serving(reactors=False, run="two") as second:
        alive = frozenset({"one", "two"})
        async with trio.open_nursery() as both:
            both.start_soon(settle, first, alive)
            both.start_soon(settle, second, alive)
        await first.caught_up()
        assert kinds(first.path, "run.recovered", "access.batch-aborted") == ["access.batch-aborted", "run.recovered"]
        assert first.status().accesses["aborted"] == 2


async def test_after_recovery_a_directory_can_be_activated(serving: Serving, dead: Any) -> None:
    """An activation after a recovery does not wait for a deactivation that will never end."""
    dead()
    async with serving() as omac:
        await settle(omac)
        assert (await omac.activate()).state == "active"


async def test_only_locks_that_matter_are_tried(serving: Serving, dead: Any) -> None:
    """Runs that ended in order with all states settled cost a start-up nothing."""
    dead()
    async with serving(reactors=False, run="first") as omac:
        await settle(omac)
    async with serving(reactors=False, run="second") as omac:
        tried: list[str] = []

        def alive(run: str, _: object) -> bool:
            tried.append(run)
            return False

        await recover(omac.engine, omac.host, alive)
        assert tried == []


async def test_one_process_recovers_at_a_time(serving: Serving, dead: Any, kinds: Kinds) -> None:
    """A second recovery reads the state only in its turn: directories that the first has settled, and brought online
    since, stay. Without turns, the second would have taken down the directory that the first had just brought up."""
    turn = trio.Lock()

    @asynccontextmanager
    async def in_turn() -> AsyncIterator[None]:
        async with turn:
            yield

    dead()
    async with serving(run="one") as omac, serving(run="two") as late:
        orphans = trio.Event()
        omac.host.before_orphan = lambda _: orphans.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recover, omac.engine, omac.host, lambda run, _: run in ("one", "two"), in_turn)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(recover, late.engine, late.host, lambda run, _: run in ("one", "two"), in_turn)
            await trio.testing.wait_all_tasks_blocked()
            orphans.set()
        assert (len(omac.host.orphans), late.host.orphans) == (1, [])
        assert kinds(omac.path, "run.") == ["run.started", "run.recovered"]
        await omac.activate()
        assert await recover(late.engine, late.host, lambda run, _: run in ("one", "two"), in_turn) == []
        assert omac.directory().status == "active"
        assert late.directory().status == "active"


async def test_what_a_run_beside_the_server_left(serving: Serving, dead: Any) -> None:
    """Directories and sidecars of a dead run beside the server are settled like a server's; those of a living run are
    not, though all three had the same directory online."""
    for name in ("gone", "lives"):
        dead(name, namespace=ids.namespace_beside(HOST, RunId(name)))
    dead("server")
    async with serving() as omac:
        assert set(await settle(omac, frozenset({"lives"}))) == {"gone", "server"}
        status = {
            stream.split("/")[1]: entry.state.status for stream, entry in omac.engine.system.directories.entries.items()
        }
        assert status == {"host0001": "offline", "host0001@gone": "offline", "host0001@lives": "activating"}
        live = [stream for stream, entry in omac.engine.system.sidecars.entries.items() if entry.state.live]
        assert {ids.key_of(stream).namespace for stream in live} == {"host0001@lives"}
