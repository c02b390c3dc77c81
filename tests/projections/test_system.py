"""projections/system.py: the same records give the same system, in whatever parts they come."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.domain.access.access import (
    BATCH_MAX,
    AccessAborted,
    AccessBatchRequested,
    AccessCompleted,
    AccessEnd,
    AccessRefused,
    AccessRequested,
    access_id,
    ends_together,
    position_of,
)
from omac.domain.access.control import ControlCalled, ControlRefused
from omac.domain.directories import directory
from omac.domain.directories.events import ActivationRequested, Deactivated, RouteStubbed, Skill
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId, LaunchId, RunId, StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.run import RunStarted, RunStopped
from omac.domain.kernel.set_aside import PositionEmptied, PositionSetAside
from omac.domain.sandbox.launch import Denied, Launched, LaunchExited, LaunchRequested
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Birth, Exit, RestartPolicy, SidecarSpec
from omac.domain.skills import registration
from omac.domain.skills.registration import Code, Registration
from omac.journal.event_kinds import KINDS
from omac.projections.status import status_of
from omac.projections.system import System

HOST = HostId("host1")


def status_bytes(system: System) -> bytes:
    return msgspec.json.encode(status_of(system))


def inside(system: System) -> Any:
    """Return the state of every read model, of which the status shows only a part."""
    return (
        system.position,
        {stream: entry for kind in (system.runs, system.directories) for stream, entry in kind.entries.items()},
        {stream: entry for kind in (system.registrations, system.sidecars) for stream, entry in kind.entries.items()},
        system.sandboxes.entries,
        system.tokens.streams,
        system.accesses.open,
        (system.controls.called, system.controls.refused, system.guarded.denied),
    )


def call_together(history: Any, chance: random.Random, called: list[int], path: str, name: str) -> None:
    """Append three requests in one record, and the ends of some of all that were `called` so, in any order."""
    stream, paths = ids.access_stream(HOST), ("/", "/a", "/b")
    position = history.log(stream, AccessBatchRequested(path, name, name, None, ("GET",) * 3, paths))
    called.extend(access_id(position, number) for number in range(3))
    chance.shuffle(called)
    ended = tuple(called[:4])
    del called[:4]
    cut = chance.randrange(2)
    ends: list[tuple[int, AccessEnd]] = [(id_, AccessAborted(position_of(id_), "client-gone")) for id_ in ended[:cut]]
    ends += [(id_, AccessCompleted(position_of(id_), 200, 1, 1, 1)) for id_ in ended[cut:]]
    for event in ends_together(ends, BATCH_MAX):
        history.log(stream, event)


def grow(history: Any, seed: int, steps: int) -> list[Recorded]:
    """Return a random history that could have happened: commands are decided, and their events are appended."""
    chance = random.Random(seed)
    policy = RestartPolicy(limit=2)
    called: list[int] = []
    for number in range(steps):
        path = f"/w/{chance.choice('abc')}"
        name = chance.choice(["echo", "mail"])
        stream = ids.registration_stream(HOST, ids.workdir_id(path), "agents", name)
        code = Code(f"/s/{name}", f"sha256:{chance.randrange(2)}")
        spec = SidecarSpec(name, name, path, code.source, "/s", code.bundle_hash, True, ("run",))
        skill = Skill(name, "agents", code.source, code.bundle_hash, name)
        stub = RouteStubbed(name, name, "skill-broken", "its code is not approved")
        plan = chance.choice(
            [
                directory.ActivationPlan({name: skill}, {name: spec}, {name: 5}, {}),
                directory.ActivationPlan({name: skill}, {}, {}, {name: stub}),
            ]
        )
        digest = TokenDigest(f"token{number}")
        commands: list[directory.Command] = [
            directory.RequestActivation(path, "opencode", digest),
            directory.AdmitSession(f"s{chance.randrange(3)}", digest),
            directory.RequestReload(),
            directory.FailActivation("gone"),
            directory.RequestDeactivation("x"),
            directory.FinishDeactivation(),
        ]
        reports: list[sidecar.Command] = [
            sidecar.RequestSpawn(spec, 1),
            sidecar.ReportStarted(Birth(number, 1, "boot", 1, True, "/log")),
            sidecar.ReportHealthy(),
            sidecar.ReportUnhealthy("500"),
            sidecar.ReportExit(Exit(1), chance.choice([0, 100_000]), "it fell", policy),
            sidecar.Restart(),
            sidecar.RequestStop("x"),
            sidecar.ReportStopped(),
        ]
        match chance.randrange(10):
            case 0:
                register = chance.choice([registration.Register, registration.Approve])
                history.decide(registration, Registration(), stream, register(code, path))
            case 1 | 2:
                history.sidecar(name, chance.choice(reports), path=path)
            case 3:
                position = history.log(ids.access_stream(HOST), AccessRequested(path, name, name, None, "GET", "/"))
                if chance.random() < 0.8:
                    outcome: Event = chance.choice(
                        [AccessCompleted(position, 200, 1, 2, 3), AccessAborted(position, "client-gone")]
                    )
                    history.log(ids.access_stream(HOST), outcome)
            case 8:
                call_together(history, chance, called, path, name)
            case 4:
                refused = AccessRefused(None, None, "", None, "GET", "", 404, "unknown-mount")
                history.log(ids.access_stream(HOST), refused)
                history.log(ids.control_stream(HOST), ControlCalled("reload", path, "socket"))
            case 5:
                history.log(ids.control_stream(HOST), ControlRefused("reload", path, "tcp", "directory-offline"))
                run = ids.run_stream(HOST, RunId(f"run{number}"))
                history.append(run, RunStarted("opencode", "1", number, 1, "boot", ("/w",)), RunStopped("x"))
            case 6:
                if history.directory(path=path).status == "activating":
                    history.directory(directory.AdoptPlan(plan), path=path)
                    current = {skill_name: history.sidecar(skill_name, path=path) for skill_name in ("echo", "mail")}
                    history.directory(directory.Settle(current), path=path)
            case 7:
                launch = ids.sandbox_stream(HOST, LaunchId(f"launch{number}"))
                requested = LaunchRequested(path, "claude", "bubblewrap", "ab", ("x",), "host", number, 1, "boot")
                ends = (
                    (LaunchExited(0, ("a hook",)),),
                    (LaunchExited(None, (), "killed"),),
                    (Denied(path, "", (), "no", ""),),
                    (),
                )
                history.append(launch, requested, Launched(number), *chance.choice(ends))
                history.log(ids.guard_stream(HOST), GuardDenied("claude", "Write", "/x", path, count=2))
            case _:
                with contextlib.suppress(Refusal):
                    history.directory(chance.choice(commands), path=path)
    records: list[Recorded] = history.records
    return records


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), data=st.data())
def test_batches_do_not_matter(new_history: Callable[[], Any], seed: int, data: st.DataObject) -> None:
    """Any valid history gives the same system, byte for byte, folded at once, cut anywhere, or record by record."""
    records = grow(new_history(), seed, 150)
    whole = System().replay(records)
    cut = data.draw(st.integers(0, len(records)))
    halves = System().replay(records[:cut])
    before = status_bytes(halves)
    assert status_bytes(System().replay(records[:cut])) == before, "what comes later does not reach back"
    halves.replay(records[cut:])
    single_steps = System()
    for record in records:
        single_steps.replay([record])
    for system in (halves, single_steps):
        assert status_bytes(system) == status_bytes(whole)
        assert inside(system) == inside(whole)


def test_folding_changes_no_record(shop: Any) -> None:
    """A fold changes no record, so that a second fold of the same records gives the same system."""
    before = msgspec.msgpack.encode([msgspec.to_builtins(record) for record in shop.records])
    first, second = System().replay(shop.records), System().replay(shop.records)
    assert status_bytes(first) == status_bytes(second)
    assert msgspec.msgpack.encode([msgspec.to_builtins(record) for record in shop.records]) == before


def test_every_kind_of_event_is_folded() -> None:
    """Every kind of event that can be recorded is folded by a read model."""
    assert {cls for _, cls in KINDS.values()} == System()._folds.keys()


def test_the_position_is_that_of_the_last_record(shop: Any) -> None:
    """The position of a system is that of its last record, and 0 before the first."""
    system = System()
    assert system.position == 0
    for record in shop.records:
        system.apply(record)
        assert system.position == record.position
    assert system.position == len(shop.records)


@pytest.mark.parametrize(
    "event",
    [Deactivated(), ActivationRequested("/w", "opencode", TokenDigest("t")), RunStopped("x")],
)
def test_an_event_that_cannot_follow_is_damage(shop: Any, host: HostId, event: Event) -> None:
    """A deleted, doubled or invented event is refused with its position, and the fold stops there."""
    stream = ids.directory_stream(host, ids.workdir_id("/w/shop"))
    system = System().replay(shop.records)
    version = system.directories[stream].version + 1
    damage = Recorded(system.position + 1, stream, version, 0, "r", "omac", None, None, event)
    with pytest.raises(Refusal) as caught:
        system.apply(damage)
    assert caught.value.reason == "journal-damaged"
    assert f"at position {len(shop.records) + 1} ({type(event).__name__} in {stream})" in caught.value.message
    assert caught.value.fix == ("omac journal check", "omac journal repair")
    assert system.position == len(shop.records)


def test_a_stream_of_nothing_is_damage(shop: Any) -> None:
    """An event in a stream of no known aggregate is refused with its position, as one that cannot follow."""
    started = next(record for record in shop.records if record.version == 1 and record.stream.startswith("directory/"))
    for stream in ("", "journal/", "directory/"):
        with pytest.raises(Refusal, match="at position 1 ") as caught:
            System().replay([msgspec.structs.replace(started, position=1, stream=StreamId(stream))])
        assert caught.value.reason == "journal-damaged"


def test_a_missing_position_is_damage(shop: Any) -> None:
    """Positions have no gap and no repetition: the record after a missing or doubled one is refused."""
    for index in range(len(shop.records) - 1):
        for records in (
            [*shop.records[:index], *shop.records[index + 1 :]],
            [*shop.records[: index + 1], *shop.records[index:]],
        ):
            with pytest.raises(Refusal, match="follows position") as caught:
                System().replay(records)
            assert caught.value.reason == "journal-damaged"


def test_a_missing_event_is_damage(shop: Any) -> None:
    """Versions have no gap: the next event of an aggregate is refused when one before it is missing."""
    for index, record in enumerate(shop.records):
        later = [entry for entry in shop.records[index + 1 :] if entry.stream == record.stream]
        if later:
            rest = [*shop.records[:index], *shop.records[index + 1 :]]
            renumbered = [msgspec.structs.replace(entry, position=number) for number, entry in enumerate(rest, 1)]
            with pytest.raises(Refusal, match=f"position {later[0].position - 1} "):
                System().replay(renumbered)


def test_an_emptied_position_changes_nothing_but_the_version(shop: Any) -> None:
    """The last event of each stream can be emptied: the state is that before it, and its version counts."""
    for index, record in enumerate(shop.records):
        if any(later.stream == record.stream for later in shop.records[index + 1 :]):
            continue
        emptied = msgspec.structs.replace(record, event=PositionEmptied())
        before = System().replay(shop.records[:index])
        expected = msgspec.json.decode(status_bytes(before))
        before.apply(emptied)
        assert msgspec.json.decode(status_bytes(before)) == expected | {"position": record.position}
        if record.stream.startswith("directory/"):
            assert before.directories[record.stream].version == record.version


def test_a_set_aside_position_is_passed_over() -> None:
    """The record of a position that was set aside changes no read model."""
    event = PositionSetAside(1, "", "", "it is missing", "")
    system = System().replay([Recorded(1, ids.journal_stream(HOST), None, 0, "r", "person", None, None, event)])
    assert system.position == 1


def test_an_unknown_event_is_damage() -> None:
    """An event that no read model knows is refused, and not skipped in silence."""

    class Unheard(Event, frozen=True):
        """An event that no read model knows."""

    with pytest.raises(Refusal, match="position 1 "):
        System().apply(Recorded(1, ids.access_stream(HOST), None, 0, "r", "omac", None, None, Unheard()))
