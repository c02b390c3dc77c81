"""services/sidecars/supervision.py: each sidecar's process follows its recorded state, and every effect its record."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Exit, RestartPolicy, SidecarSpec, SpawnRequested
from omac.domain.skills.meta import FoundSkill
from omac.journal.reader import ReadJournal
from omac.services.sidecars import supervision

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]
Kinds = Callable[..., list[str]]
Records = Callable[[str], list[Any]]


@pytest.fixture
def spawned(skill: MakeSkill) -> Callable[..., Any]:
    """Return a function that requests the sidecar `echo` of /w/shop, as an activation does."""

    async def request(omac: Any, generation: int = 1, lies_there: str | None = "sha256:1") -> None:
        echo = skill("echo")
        if lies_there is not None:
            omac.folders.hashes[echo.source] = lies_there
        spec = SidecarSpec("echo", "echo", "/w/shop", echo.source, echo.skills_dir, echo.bundle_hash, True, ("run",))
        await command(omac, sidecar.RequestSpawn(spec, generation))

    return request


async def command(omac: Any, asked: sidecar.Command) -> None:
    stream = omac.sidecar_stream("echo")
    await omac.engine.execute(sidecar.AGGREGATE, stream, asked)


def events_of(omac: Any, kind: type) -> list[Any]:
    journal = ReadJournal(str(omac.path))
    try:
        return [record.event for record in journal.records() if isinstance(record.event, kind)]
    finally:
        journal.close()


async def reach(omac: Any, status: str) -> None:
    await omac.until(lambda: omac.sidecar("echo").status == status)


async def test_from_request_to_stop(serving: Serving, spawned: Any, kinds: Kinds) -> None:
    """A sidecar lives from request to stop, with each effect between its request and its outcome."""
    async with serving() as omac:
        await spawned(omac)
        await reach(omac, "healthy")
        assert omac.sidecar("echo").birth == omac.host.process("echo").birth
        await command(omac, sidecar.RequestStop("the test is over"))
        await reach(omac, "idle")
        assert omac.host.transcript == ["spawn echo", "stop echo", "stopped echo"]
        assert kinds(omac.path) == [
            "sidecar.spawn-requested",
            "sidecar.started",
            "sidecar.healthy",
            "sidecar.stop-requested",
            "sidecar.exited",
            "sidecar.stopped",
        ]


async def test_nothing_is_spawned_before_its_request_is_durable(
    serving: Serving, spawned: Any, records: Records
) -> None:
    """A second reader finds one request more than there were spawns whenever the host is called to spawn."""
    async with serving() as omac:
        requests: list[int] = []

        def count_requests(_label: str, _spec: SidecarSpec) -> None:
            requests.append(sum(isinstance(record.event, SpawnRequested) for record in records(omac.path)))

        omac.host.before_spawn = count_requests
        await spawned(omac)
        await reach(omac, "healthy")
        omac.host.process("echo").end(Exit(code=1))
        await omac.until(lambda: len(omac.host.processes) == 2)
        assert requests == [1, 2]


async def test_the_label_names_directory_and_skill(serving: Serving, spawned: Any) -> None:
    """Logs of one skill in two directories are two files."""
    async with serving() as omac:
        labels: list[str] = []
        omac.host.before_spawn = lambda label, _: labels.append(label)
        await spawned(omac)
        await reach(omac, "healthy")
        workdir = omac.sidecar_stream("echo").split("/")[2]
        assert labels == [f"{workdir[:12]}-echo"]


async def test_a_sidecar_that_ends_by_itself_is_started_again(serving: Serving, spawned: Any, records: Records) -> None:
    """A pause that doubles precedes each restart, until the failures in a row exceed the policy's limit."""
    async with serving(restarts=RestartPolicy(base_ms=1, max_ms=3, limit=3)) as omac:
        omac.host.failing.add("echo")
        await spawned(omac)
        await reach(omac, "gave_up")
        assert omac.host.transcript == ["spawn echo"] * 4
        scheduled = [r.event for r in records(omac.path) if isinstance(r.event, sidecar.RestartScheduled)]
        assert [(event.attempt, event.delay_ms) for event in scheduled] == [(2, 1), (3, 2), (4, 3)]
        assert omac.sidecar("echo").failures == 4
        assert omac.sidecar("echo").detail == "gave up after 4 failures in a row; the last: no such program"


async def test_giving_up_is_not_for_ever(serving: Serving, spawned: Any) -> None:
    """A new request, as a reload makes it, starts the count of failures again."""
    async with serving() as omac:
        omac.host.failing.add("echo")
        await spawned(omac)
        await reach(omac, "gave_up")
        omac.host.failing.clear()
        await spawned(omac, generation=2)
        await reach(omac, "healthy")
        assert (omac.sidecar("echo").failures, omac.sidecar("echo").generation) == (0, 2)


async def test_a_stable_process_resets_the_failures(serving: Serving, spawned: Any) -> None:
    """Failures count in a row: a process that was stable before ends the row."""
    async with serving(restarts=RestartPolicy(base_ms=1, limit=1, stable_ms=0)) as omac:
        await spawned(omac)
        for life in range(1, 5):
            await omac.until(lambda life=life: len(omac.host.processes) == life)
            await reach(omac, "healthy")
            omac.host.process("echo").end(Exit(code=1))
        await omac.until(lambda: len(omac.host.processes) == 5)
        await reach(omac, "healthy")


async def test_an_unhealthy_sidecar_is_ended_and_started_again(serving: Serving, spawned: Any, kinds: Kinds) -> None:
    """The unhealthy state is recorded before the sidecar is ended."""
    async with serving(restarts=RestartPolicy(limit=0)) as omac:
        omac.host.unhealthy.add("echo")
        await spawned(omac)
        await reach(omac, "gave_up")
        assert omac.host.transcript == ["spawn echo", "stop echo", "stopped echo"]
        assert kinds(omac.path)[-3:] == ["sidecar.unhealthy", "sidecar.exited", "sidecar.gave-up"]
        assert "it answered 500; its output is in 100.log" in omac.sidecar("echo").detail


async def test_a_sidecar_that_stops_listening_is_ended_and_started_again(
    serving: Serving, spawned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper that outlives its server keeps no route: another program may have its port by now."""
    monkeypatch.setattr(supervision, "WATCH_S", 0.01)
    monkeypatch.setattr(supervision, "DOUBT_S", 0.01)
    async with serving() as omac:
        await spawned(omac)
        await reach(omac, "healthy")
        first = omac.host.process("echo")
        omac.host.deaf.add("echo")
        await omac.until(lambda: not first.runs)
        omac.host.deaf.discard("echo")
        await omac.until(lambda: omac.sidecar("echo").status == "healthy" and omac.host.process("echo") is not first)
        assert "it no longer listens on its port" in [
            event.detail.partition(";")[0] for event in events_of(omac, sidecar.Exited)
        ]


async def test_a_sidecar_that_ends_while_starting(serving: Serving, spawned: Any) -> None:
    """omac does not wait for the answer of a process that is gone."""
    async with serving(restarts=RestartPolicy(limit=0)) as omac:
        omac.host.silent.add("echo")
        await spawned(omac)
        await reach(omac, "started")
        omac.host.process("echo").end(Exit(code=127))
        await reach(omac, "gave_up")
        assert "exited with status 127" in omac.sidecar("echo").detail


async def test_a_sidecar_that_goes_into_the_background(serving: Serving, spawned: Any) -> None:
    """The end of a sidecar that reports success names the usual cause: its server went on in the background."""
    async with serving(restarts=RestartPolicy(limit=0)) as omac:
        omac.host.silent.add("echo")
        await spawned(omac)
        await reach(omac, "started")
        omac.host.process("echo").end(Exit(code=0))
        await reach(omac, "gave_up")
        assert "exited with status 0" in omac.sidecar("echo").detail
        assert "; a sidecar has to stay in the foreground" in omac.sidecar("echo").detail


async def test_a_signal_is_named(serving: Serving, spawned: Any) -> None:
    """A sidecar that was killed is reported with its signal, not with an exit status."""
    async with serving(restarts=RestartPolicy(limit=0)) as omac:
        await spawned(omac)
        await reach(omac, "healthy")
        omac.host.process("echo").end(Exit(signal=9))
        await reach(omac, "gave_up")
        assert "killed by signal 9" in omac.sidecar("echo").detail


@pytest.mark.parametrize("moment", ["spawning", "starting", "pausing", "healthy", "unhealthy"])
async def test_a_stop_wins(serving: Serving, spawned: Any, moment: str) -> None:
    """A stop at any moment is final: a sidecar that is being spawned is stopped, and none starts again."""
    async with serving(restarts=RestartPolicy(base_ms=60_000, max_ms=60_000)) as omac:
        if moment == "spawning":
            omac.host.held.add("echo")
            await spawned(omac)
            await omac.until(lambda: omac.host.transcript == ["spawn echo"])
        elif moment == "starting":
            omac.host.silent.add("echo")
            await spawned(omac)
            await reach(omac, "started")
        elif moment == "pausing":
            omac.host.failing.add("echo")
            await spawned(omac)
            await reach(omac, "backoff")
        elif moment == "unhealthy":
            omac.host.unhealthy.add("echo")
            omac.host.stubborn.add("echo")
            await spawned(omac)
            await omac.until(lambda: "stop echo" in omac.host.transcript)
        else:
            await spawned(omac)
            await reach(omac, "healthy")
        await command(omac, sidecar.RequestStop("the test says so"))
        for skills in (omac.host.held, omac.host.stubborn):
            omac.host.let(skills, "echo")
        await reach(omac, "idle")
        assert omac.host.running() == []
        assert omac.host.transcript.count("spawn echo") == 1


async def test_a_stop_at_the_moment_of_healthy(serving: Serving, spawned: Any) -> None:
    """A stop recorded at the same moment as `healthy` takes effect, however the tasks are scheduled."""
    async with serving() as omac:
        for generation in range(1, 40):
            omac.host.silent.add("echo")
            await spawned(omac, generation=generation)
            await reach(omac, "started")
            omac.host.let(omac.host.silent, "echo")
            async with trio.open_nursery() as both:
                for _ in range(generation % 4):
                    both.start_soon(trio.lowlevel.checkpoint)
                both.start_soon(command, omac, sidecar.RequestStop("at once"))
            await reach(omac, "idle")
        assert omac.host.running() == []


@pytest.mark.parametrize(
    ("lies_there", "why"), [("sha256:2", "changed after omac read them"), (None, "its files cannot be read")]
)
async def test_code_that_changed_is_not_started(
    serving: Serving, spawned: Any, lies_there: str | None, why: str
) -> None:
    """The approval is for other code: the sidecar gives up at once, for another try would not help."""
    async with serving() as omac:
        await spawned(omac, lies_there=lies_there)
        await reach(omac, "gave_up")
        assert omac.host.transcript == []
        assert omac.sidecar("echo").failures == 1
        assert why in omac.sidecar("echo").detail


async def test_cancellation_stops_processes(serving: Serving, spawned: Any) -> None:
    """The end of the reactors ends every process that they started."""
    async with serving() as omac:
        await spawned(omac)
        await reach(omac, "healthy")
        await omac.end_reactors()
        assert omac.host.running() == []


async def test_cancellation_stops_what_could_not_be_reported(serving: Serving, spawned: Any) -> None:
    """A process whose `started` cannot be recorded yet, because the journal is away, is ended too."""
    async with serving() as omac:
        omac.journal_fails(1_000_000, "sidecar.started")
        await spawned(omac)
        await omac.until(omac.host.running)
        await omac.end_reactors()
        assert omac.host.running() == []


async def test_outcomes_are_recorded_when_the_journal_returns(serving: Serving, spawned: Any) -> None:
    """A fact cannot be refused: it is reported again until it is recorded."""
    async with serving() as omac:
        omac.journal_fails(5, "sidecar.started", "sidecar.healthy")
        await spawned(omac)
        await reach(omac, "healthy")
        assert omac.host.transcript == ["spawn echo"]


async def test_sidecars_of_other_runs_are_left_alone(serving: Serving, spawned: Any, kinds: Kinds) -> None:
    """Two omac processes share a journal: each starts only the sidecars that it requested itself."""
    async with serving(run="run1") as first, serving(run="run2") as second:
        await spawned(first)
        await reach(first, "healthy")
        await second.caught_up()
        assert second.sidecar("echo").status == "healthy"
        assert second.host.transcript == []
