"""Tests of the six rules of the loop (DESIGN section 1), each for every kind of event.

`contract/commands.py` has example commands for every aggregate; every kind is reached by driving `decide` with them.
"""

import hashlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

import msgspec
import pytest
import trio
from contract.commands import HOST, WORKDIR, shortest, stream_of, walk
from contract.journals import run_python

from omac.domain.aggregates import AGGREGATES
from omac.domain.credentials import credential
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Cause, Event, Recorded
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import token_digest
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.scrub import scrub
from omac.domain.settings import setting
from omac.domain.settings.settings import SETTINGS
from omac.journal.application import Journal
from omac.journal.codec import Codec
from omac.journal.event_kinds import KIND_OF, KINDS
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.projections.system import System
from omac.services.credentials.values import Credentials, Values
from omac.services.kernel.engine import Engine
from omac.services.kernel.execution import Execution
from omac.services.kernel.opened import OpenedJournal
from omac.services.settings.changes import change_setting

ROOT = Path(__file__).parents[3]
PERSON = Cause("person")
TOKEN = "0123456789abcdef" * 2

# Rule 2: each kind asks for an effect outside of the journal, or tells what came of one, or does neither: a decision
# that needs no effect, or something that happened elsewhere. Outcomes name the requests one of which is before them.
REQUESTS = frozenset(kind for kind in KINDS if kind.endswith("-requested") or kind == "access.requested")
OUTCOMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("directory.activated", "directory.activated-partially", "directory.activation-failed", "skill.appeared",
         "skill.planned", "skill.vanished", "route.mounted", "route.stubbed", "route.unmounted",
         "directory.session-admitted", "directory.session-ended"),
        ("directory.activation-requested",),
    ),
    "directory.deactivated": ("directory.deactivation-requested", "directory.activation-failed"),
    **dict.fromkeys(
        ("sidecar.started", "sidecar.healthy", "sidecar.unhealthy", "sidecar.exited", "sidecar.restart-scheduled",
         "sidecar.gave-up"),
        ("sidecar.spawn-requested",),
    ),
    "sidecar.stopped": ("sidecar.stop-requested",),
    "sandbox.launched": ("sandbox.launch-requested",),
    "sandbox.exited": ("sandbox.launch-requested",),
    "setting.changed": ("setting.change-requested",),
    "setting.change-failed": ("setting.change-requested",),
    "bridge.changed": ("bridge.change-requested",),
    "bridge.change-failed": ("bridge.change-requested",),
    "segment.sealed": ("segment.seal-requested",),
    "segment.seal-failed": ("segment.seal-requested",),
    "segment.pruned": ("segment.prune-requested",),
    "segment.prune-failed": ("segment.prune-requested",),
    "subject.erased": ("subject.erasure-requested",),
    "key.moved": ("key.move-requested",),
    "run.stopped": ("run.started",),
    "run.recovered": ("run.started",),
}  # fmt: skip
BY_USE_CASE = {  # outcomes that their stream takes at any time: the use case keeps the order
    "secret.written": "test_a_store_is_touched_between_a_request_and_its_outcome",
    "secret.erased": "test_a_store_is_touched_between_a_request_and_its_outcome",
    "default.mirrored": "test_a_store_is_touched_between_a_request_and_its_outcome",
    "access.completed": "omac.services.access.port.AccessRecorder: it names the position of its request",
    "access.batch-completed": "omac.services.access.port.AccessRecorder: it names the positions of its requests",
    "access.batch-aborted": "omac.services.access.port.AccessRecorder: it names the positions of its requests",
    "access.aborted": "omac.services.access.port.AccessRecorder: it names the position of its request",
}
FACTS = frozenset(
    {
        "run.started",  # the process is there already; what it does follows
        "skill.auto-registered", "skill.registered", "skill.approved", "skill.approval-revoked", "skill.drifted",
        "skill.deregistered",
        "config.written", "config.removed", "default.adopted", "default.purged",
        "secret.removed",  # counts at once; what a store still has is erased afterwards
        "control.called", "control.refused", "control.vault-locked",
        "key.rotated", "key.lost",  # the key that waits signs as soon as the journal says so, whatever is killed
        "checkpoint.delayed",  # nothing was signed
        "checkpoint.signed",  # its signature is made, and is worth nothing elsewhere
        "checkpoint.witnessed", "witness.failed",  # of a note that `checkpoint.signed` has
        "checkpoint.received", "checkpoint.contested",  # who delivered it is told afterwards
        "export.created",  # the files follow, and are worth nothing before they are whole
        "access.refused", "sandbox.denied", "sandbox.inspected", "guard.denied",
        "position.set-aside", "position.emptied",  # in the very transaction of a repair, which changes nothing else
        "position.pruned",  # is never appended: it stands for an event that was dropped
    }
)  # fmt: skip

# Rule 4: fields with a suspicious name, and why they hold no capability and no secret.
SUSPICIOUS = ("token", "secret", "password", "passphrase", "credential", "capability", "bearer", "value", "key")
HARMLESS = {
    ("subject.erasure-requested", "keys"): "the ids of keys, which say nothing about them",
    ("subject.erased", "keys"): "the ids of keys, which say nothing about them",
    ("setting.change-requested", "value"): "one of omac's own settings, none of which is secret",
    ("key.move-requested", "key"): "the name and the id of a public key",
    ("key.moved", "key"): "the name and the id of a public key",
    ("checkpoint.received", "key"): "a public key, which verifies",
    ("setting.changed", "value"): "one of omac's own settings, none of which is secret",
    ("config.written", "value"): "a setting of a skill; its secrets are fingerprints",
    ("default.mirrored", "value"): "None for a secret, which has a fingerprint instead",
    ("skill.planned", "secret"): "a flag of a variable; its value comes from a store",
    ("sidecar.spawn-requested", "secret"): "a flag of a variable; its value comes from a store",
}


def owner_of(kind: str) -> Aggregate[Any, Any]:
    """Return the aggregate that a kind belongs to."""
    (owner,) = [aggregate for aggregate in AGGREGATES if KINDS[kind][1] in aggregate.events]
    return owner


@pytest.fixture
def few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound the sessions of a directory to a few, so that a few more are too many."""
    monkeypatch.setattr("omac.domain.directories.directory.SESSIONS_MAX", 1)


@pytest.fixture
def paths(few_sessions: None) -> dict[str, Sequence[Any]]:
    """Return for every kind the fewest example commands whose last one decides it."""
    by_kind: dict[str, Sequence[Any]] = {}
    for aggregate in AGGREGATES:
        by_kind |= {KIND_OF[event]: commands for event, commands in shortest(aggregate).items()}
    return by_kind


@pytest.fixture
def examples(paths: Mapping[str, Sequence[Any]]) -> dict[str, Event]:
    """Return an event of every kind."""
    events: dict[str, Event] = {}
    for kind, commands in paths.items():
        events[kind] = next(event for event in history(owner_of(kind), commands) if type(event) is KINDS[kind][1])
    return events


def history(aggregate: Aggregate[Any, Any], commands: Sequence[Any]) -> list[Event]:
    """Return the events that these commands decide, one command after the other."""
    state, events = aggregate.initial, []
    for command in commands:
        for event in aggregate.decided(command, state):
            state = aggregate.evolve(state, event)
            events.append(event)
    return events


# ---- the registry ----


def test_every_kind_belongs_to_one_aggregate_and_the_other_way_round() -> None:
    """Every event class has one aggregate and one kind, every kind has an event class, and no name occurs twice."""
    claimed = [event for aggregate in AGGREGATES for event in aggregate.events]
    assert sorted(KIND_OF[event] for event in claimed) == sorted(KINDS)
    assert len({cls for _, cls in KINDS.values()}) == len(KINDS)
    assert len({aggregate.name for aggregate in AGGREGATES}) == len(AGGREGATES)
    assert set(_subclasses(Event)) == {cls for _, cls in KINDS.values()}


def test_every_kind_is_decided_by_a_command_and_folds(few_sessions: None) -> None:
    """Decided events fold in every state that the example commands lead to; every kind is decided by some command."""
    decided = {type(event) for aggregate in AGGREGATES for step in walk(aggregate) for event in step.events}
    assert sorted(KIND_OF[event] for event in decided) == sorted(KINDS)


def test_every_kind_is_folded_by_the_system(examples: Mapping[str, Event]) -> None:
    """The live state folds every kind, and refuses an event that needs an earlier one and comes alone."""
    for kind, event in examples.items():
        aggregate = owner_of(kind)
        stream = stream_of(aggregate, "x")
        wrong = Recorded(1, stream, 7 if aggregate.versioned else None, 1, "run", "omac", None, None, event)
        if aggregate.versioned:
            with pytest.raises(Refusal, match="position 1"):
                System().apply(wrong)
        else:
            assert System().replay([wrong]).position == 1


def test_every_decision_encodes_and_decodes_to_itself(few_sessions: None) -> None:
    """A decoded event equals the decided one, and encodes to the same bytes again."""
    codec = Codec()
    for aggregate in AGGREGATES:
        for event in {event for step in walk(aggregate) for event in map(_Same, step.events)}:
            kind, body = codec.encode(event.event)
            assert codec.decode(kind, body) == event.event
            assert codec.encode(codec.decode(kind, body)) == (kind, body)


# ---- rule 1: if it is not recorded, it did not happen ----


@pytest.mark.parametrize("live", [True, False], ids=["engine", "opened"])
async def test_what_cannot_be_recorded_changes_nothing(
    live: bool, path: str, clock: Callable[[], int], paths: Mapping[str, Sequence[Any]]
) -> None:
    """The state of every kind stays while the store refuses; afterwards it equals a replay of the journal."""
    with closing(open_journal(path, "run1", clock)) as journal:
        async with trio.open_nursery() as nursery:
            execution: Execution = Engine(journal, HOST) if live else OpenedJournal(journal, HOST)
            if isinstance(execution, Engine):
                await nursery.start(execution.keep_writing)
            for kind, commands in paths.items():
                await _refused_then_recorded(execution, journal, kind, commands)
            nursery.cancel_scope.cancel()
    records = list(read_all(path))
    assert {KIND_OF[type(recorded.event)] for recorded in records} == set(KINDS)
    assert [recorded.position for recorded in records] == list(range(1, len(records) + 1))


async def _refused_then_recorded(execution: Execution, journal: Journal, kind: str, commands: Sequence[Any]) -> None:
    aggregate = owner_of(kind)
    stream = stream_of(aggregate, kind.replace(".", "-"))
    for command in commands[:-1]:
        await execution.execute(aggregate, stream, command, PERSON)
    before, head = execution.entry(aggregate, stream), journal.store.head()
    with _disk_full(journal), pytest.raises(Refusal) as refused:
        await execution.execute(aggregate, stream, commands[-1], PERSON)
    assert refused.value.reason == "journal-unavailable", kind
    assert execution.entry(aggregate, stream) == before
    assert journal.store.head() == head
    recorded = await execution.execute(aggregate, stream, commands[-1], PERSON)
    assert kind in [KIND_OF[type(record.event)] for record in recorded]
    assert list(journal.records(head)) == list(recorded)
    if aggregate.versioned:
        replayed = System().replay(journal.records()).of(aggregate)[stream]
        assert execution.entry(aggregate, stream).state == replayed.state
        assert execution.entry(aggregate, stream).version == replayed.version


@contextmanager
def _disk_full(journal: Journal) -> Iterator[None]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise Refusal("journal-unavailable", "the disk is full")

    with mock.patch.object(journal.store, "insert_events", refuse):
        yield


# ---- rule 2: requested before the effect, its outcome after ----


def test_every_kind_is_a_request_an_outcome_or_neither() -> None:
    """Every kind is declared as a request, an outcome or neither."""
    classes = [REQUESTS, frozenset(OUTCOMES), frozenset(BY_USE_CASE), FACTS]
    assert frozenset().union(*classes) == frozenset(KINDS)
    assert sum(map(len, classes)) == len(KINDS), "a kind is in two of them"


def test_no_outcome_is_decided_without_its_request(few_sessions: None) -> None:
    """No state that commands lead to allows an outcome without its request recorded before."""
    for aggregate in AGGREGATES:
        for step in walk(aggregate):
            kinds = [KIND_OF[type(event)] for event in (*history(aggregate, step.before), *step.events)]
            for number, kind in enumerate(kinds):
                requests = OUTCOMES.get(kind, ())
                assert not requests or set(requests) & set(kinds[:number]), (kind, kinds)


class WatchedStores:
    """Stores of secrets; `touched` has, for each call that changes one, the kinds that were durable by then."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._values: dict[str, dict[str, Hidden]] = {}
        self.touched: list[tuple[str, list[str]]] = []

    async def chosen(self) -> str:
        return "vault"

    async def read(self, store: str, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        stored = self._values.get(service, {})
        return {name: stored[name] for name in names if name in stored}

    async def write(self, store: str, service: str, values: Mapping[str, Hidden]) -> None:
        self._values.setdefault(service, {}).update(values)
        self._note("write")

    async def remove(self, store: str, service: str, names: Sequence[str]) -> None:
        self._note("remove")

    def _note(self, what: str) -> None:
        self.touched.append((what, [KIND_OF[type(recorded.event)] for recorded in read_all(self._path)]))


async def test_a_store_is_touched_between_a_request_and_its_outcome(path: str, clock: Callable[[], int]) -> None:
    """The request is durable when a store is called to give or remove a secret, and the outcome is not."""
    stores, scope = WatchedStores(path), ids.workdir_id(WORKDIR)
    with closing(open_journal(path, "run1", clock)) as journal:
        credentials = Credentials(OpenedJournal(journal, HOST), stores, bytes(32))
        await credentials.give(scope, "echo", "sha256:1", Values({"KEY": Hidden("x")}), PERSON)
        await credentials.take(scope, "echo", ["KEY"], PERSON)
    (own, kinds), (defaults, later), (removal, last) = stores.touched
    assert (own, kinds) == ("write", ["secret.write-requested"])
    assert (defaults, later) == ("write", ["secret.write-requested", "secret.written", "secret.write-requested"])
    assert (removal, last[3:]) == ("remove", ["default.mirrored", "secret.removed"])
    assert KIND_OF[type(list(read_all(path))[-1].event)] == "secret.erased"


async def test_a_settings_file_is_touched_between_a_request_and_its_outcome(
    path: str, clock: Callable[[], int]
) -> None:
    """The change is on record before the file is written, its outcome after."""
    durable: list[list[str]] = []

    class Change:
        origin = "/home/u/settings.toml"
        present: str | None = None

        def write(self) -> None:
            durable.append([KIND_OF[type(recorded.event)] for recorded in read_all(path)])

    @contextmanager
    def changing(*_: object) -> Iterator[Change]:
        yield Change()

    with closing(open_journal(path, "run1", clock)) as journal:
        assert await change_setting(OpenedJournal(journal, HOST), changing, SETTINGS["secrets.store"], "vault")
    assert durable == [["setting.change-requested"]]
    assert isinstance(list(read_all(path))[-1].event, setting.SettingChanged)


# ---- rule 3: replay runs folds only ----

FOLD = """
    import hashlib, os, random, secrets, time, uuid
    from unittest import mock
    import msgspec
    from contract.commands import walk
    from omac.domain.aggregates import AGGREGATES

    def unwanted(*_, **__):
        raise AssertionError("a fold asks the world")

    mock.patch("omac.domain.directories.directory.SESSIONS_MAX", 1).start()
    digest = hashlib.sha256()
    steps = [(aggregate, list(walk(aggregate))) for aggregate in AGGREGATES]
    for module, name in [(time, "time"), (time, "time_ns"), (time, "monotonic"), (random, "random"), (os, "urandom"),
                         (secrets, "token_hex"), (uuid, "uuid4")]:
        setattr(module, name, unwanted)
    for aggregate, decisions in steps:
        for step in decisions:
            state = step.state
            for event in step.events:
                state = aggregate.evolve(state, event)
            digest.update(msgspec.msgpack.encode(state))
    print(digest.hexdigest())
"""


def test_folds_are_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that order sets differently fold every decision of the walk to the same bytes."""
    digests = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        done = run_python(FOLD)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


# ---- rule 4: capabilities and secrets never enter the journal ----


def test_no_event_has_a_field_for_a_capability_or_a_secret() -> None:
    """No event has a field of a secret type, also nested, or with a suspicious name; each exception has its reason."""
    suspicious = set()
    for kind, (_, cls) in KINDS.items():
        for name, type_ in _fields(cls):
            assert type_ is not Hidden, (kind, name)
            if any(word in name.lower() for word in SUSPICIOUS):
                suspicious.add((kind, name))
    assert suspicious == set(HARMLESS)


def test_a_hidden_value_cannot_be_stored() -> None:
    """A hidden value cannot be stored even by a mistake in the place of a text."""
    with pytest.raises(TypeError):
        Codec().encode(credential.ConfigWritten("KEY", cast(str, Hidden("x"))))  # the mistake


def test_no_kind_carries_a_living_token(examples: Mapping[str, Event]) -> None:
    """The execution path removes a living token from every text of every kind."""
    living = {token_digest(TOKEN)}
    for kind, event in examples.items():
        spoiled = _spoiled(event)
        _, body = Codec().encode(scrub(spoiled, living))
        assert TOKEN.encode() not in body, kind
    assert TOKEN.encode() in Codec().encode(_spoiled(examples["guard.denied"]))[1]


# ---- rule 5: the domain is pure ----


def test_the_import_contract_of_purity_is_whole() -> None:
    """import-linter enforces the contract (`./test`); this test only checks that it was not softened."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (purity,) = [contract for contract in contracts if contract["name"] == "The domain and the projections are pure"]
    assert set(purity["source_modules"]) == {"omac.domain", "omac.projections"}
    needed = {"eventsourcing", "trio", "sqlalchemy", "os", "io", "pathlib", "socket", "subprocess", "threading", "time"}
    assert needed | {"random", "secrets", "uuid", "sqlite3"} <= set(purity["forbidden_modules"])
    assert not purity.get("ignore_imports")
    assert not purity.get("allow_indirect_imports")


# ---- rule 6: no reading is recorded ----


async def test_what_changes_nothing_appends_nothing(path: str, clock: Callable[[], int], few_sessions: None) -> None:
    """Commands that decide nothing, and all reads of the state, append nothing, for every aggregate."""
    quiet = 0
    with closing(open_journal(path, "run1", clock)) as journal:
        execution = OpenedJournal(journal, HOST)
        for aggregate in AGGREGATES:
            still: dict[str, Any] = {}
            for step in walk(aggregate):
                if not step.events:
                    still.setdefault(type(step.command).__name__, step)
            for number, step in enumerate(still.values()):
                stream = stream_of(aggregate, f"quiet{number}")
                for command in step.before:
                    await execution.execute(aggregate, stream, command, PERSON)
                head = journal.store.head()
                assert await execution.execute(aggregate, stream, step.command, PERSON) == ()
                assert execution.entry(aggregate, stream).state == step.state
                assert journal.store.head() == head
                quiet += 1
    assert quiet > len(AGGREGATES)


# ---- helpers ----


class _Same:
    """An event that is equal to another of the same type and stored form, so that a set holds it once."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self._form = type(event), msgspec.msgpack.encode(event)

    def __hash__(self) -> int:
        return int.from_bytes(hashlib.sha256(self._form[1]).digest()[:8])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._form == other._form


def read_all(path: str) -> Iterator[Recorded]:
    """Yield the durable records, as another process finds them."""
    with closing(ReadJournal(path)) as journal:
        yield from journal.records()


def _subclasses(cls: type[Event]) -> Iterator[type[Event]]:
    for below in cls.__subclasses__():
        if below.__module__.startswith("omac."):  # other tests have events of their own
            yield below
            yield from _subclasses(below)


def _fields(cls: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and types of all fields, of nested structs too."""
    for field in msgspec.structs.fields(cls):
        yield from ((field.name, type_) for type_ in _types(field.type))
        for type_ in _types(field.type):
            if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
                yield from _fields(type_)


def _types(type_: Any) -> Iterator[Any]:
    """Yield a type and all its parts."""
    yield type_
    for part in getattr(type_, "__args__", ()):
        yield from _types(part)


def _spoiled(value: Any) -> Any:
    """Return the value with a living token in every text."""
    match value:
        case str():
            return f"{value}/{TOKEN.upper() if len(value) % 2 else TOKEN}"
        case tuple():
            return tuple(map(_spoiled, value))
        case dict():
            return {_spoiled(key): _spoiled(item) for key, item in value.items()}
        case msgspec.Struct():
            changed = {name: _spoiled(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **changed)
        case _:
            return value
