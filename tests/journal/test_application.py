"""The journal of one process: decisions on a real store, made anew when others were first, and read in order."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from contract.journals import LOG, admitted, called, journal_at, texts
from contract.recorder import META, everything, group, log

from omac.domain.directory import SessionAdmitted
from omac.domain.ids import StreamId, TokenDigest
from omac.domain.recorded import Cause, Event
from omac.domain.refusal import Refusal
from omac.journal.application import DECISIONS_MAX, PAGE, Journal
from omac.journal.codec import Versioned

STREAM = StreamId("directory/host/w")
CAUSE = Cause("person", "conversation", 3)
Sessions = tuple[str, ...]


def admit(session: str) -> Event:
    """One more session."""
    return SessionAdmitted(session, TokenDigest("d"))


def evolve(state: Sessions, event: Event) -> Sessions:
    """The sessions admitted so far."""
    assert isinstance(event, SessionAdmitted)
    return (*state, event.session)


def load(journal: Journal) -> tuple[Sessions, int]:
    """The aggregate of these tests."""
    return journal.load(STREAM, (), evolve)


def execute(journal: Journal, decide: Callable[[Sessions], list[Event]]) -> list[int]:
    """A decision on the aggregate of these tests."""
    return journal.execute(STREAM, (), evolve, decide, CAUSE)


@pytest.fixture
def other(path: Path, journal: Journal) -> Iterator[Journal]:
    """The same journal, open in what might be another process."""
    opened = journal_at(path, "run-2")
    yield opened
    opened.close()


# ---- decisions ----


def test_nothing_happened_yet(journal: Journal) -> None:
    """An aggregate without events is in its initial state, at version 0."""
    assert load(journal) == ((), 0)


def test_a_decision_is_recorded(journal: Journal) -> None:
    """What was decided stands at the next versions, and the next decision sees it; who, when and why are recorded."""
    assert execute(journal, lambda state: [admit("a"), admit("b")]) == [1, 2]
    assert execute(journal, lambda state: [admit("c")] if state == ("a", "b") else []) == [3]
    assert load(journal) == (("a", "b", "c"), 3)
    rows = everything(journal.store)
    assert [(row.stream, row.version) for row in rows] == [(STREAM, 1), (STREAM, 2), (STREAM, 3)]
    assert {(row.run, row.actor, row.correlation, row.causation) for row in rows} == {
        ("run-1", "person", "conversation", 3)
    }
    assert [row.at for row in rows] == [1, 1, 2], "events of one decision happened at one time"


def test_a_decision_for_nothing(journal: Journal) -> None:
    """When nothing is to be done nothing is recorded."""
    assert execute(journal, lambda state: []) == []
    assert journal.store.head() == 0


def test_a_decision_refused(journal: Journal) -> None:
    """A refusal comes out as it was made, and nothing is recorded."""

    def refuse(_state: Sessions) -> list[Event]:
        raise Refusal("misuse", "not so")

    with pytest.raises(Refusal, match="not so"):
        execute(journal, refuse)
    assert journal.store.head() == 0


def test_streams_do_not_mix(journal: Journal) -> None:
    """Each aggregate has its own versions, also when one name begins like another."""
    for name in ("a", "a/b", "A", "a "):
        positions = journal.execute(StreamId(name), (), evolve, lambda state: [admit("x")], CAUSE)
        assert len(positions) == 1
        assert journal.load(StreamId(name), (), evolve) == (("x",), 1)


def test_a_long_stream(journal: Journal) -> None:
    """An aggregate is loaded whole, however many events it has."""
    execute(journal, lambda state: [admit(str(number)) for number in range(2 * PAGE + 1)])
    state, version = load(journal)
    assert version == len(state) == 2 * PAGE + 1
    assert state == tuple(str(number) for number in range(2 * PAGE + 1))


# ---- when others are first ----


def test_decided_anew_when_another_was_first(journal: Journal, other: Journal) -> None:
    """A decision whose state has passed is made again, on the state that took its place; never blindly repeated."""
    seen: list[Sessions] = []

    def decide(state: Sessions) -> list[Event]:
        seen.append(state)
        if len(seen) < DECISIONS_MAX:
            execute(other, lambda theirs: [admit(f"other-{len(seen)}")])
        return [admit(f"mine-after-{len(state)}")]

    assert execute(journal, decide) == [DECISIONS_MAX]
    assert [len(state) for state in seen] == [0, 1, 2, 3, 4]
    assert load(journal)[0] == ("other-1", "other-2", "other-3", "other-4", "mine-after-4")


def test_a_decision_may_change_its_mind(journal: Journal, other: Journal) -> None:
    """When the other one did what was wanted, nothing is left to do."""

    def decide(state: Sessions) -> list[Event]:
        if "wanted" in state:
            return []
        execute(other, lambda theirs: [admit("wanted")])
        return [admit("wanted")]

    assert execute(journal, decide) == []
    assert load(journal) == (("wanted",), 1)


def test_contention_is_given_up(journal: Journal, other: Journal) -> None:
    """When others are first every time, the caller is refused after five decisions and nothing of it is recorded."""
    decisions = 0

    def decide(state: Sessions) -> list[Event]:
        nonlocal decisions
        decisions += 1
        execute(other, lambda theirs: [admit("other")])
        return [admit("mine"), admit("mine too")]

    with pytest.raises(Refusal) as refused:
        execute(journal, decide)
    assert refused.value.reason == "contention"
    assert STREAM in refused.value.message
    assert decisions == DECISIONS_MAX == 5
    assert load(journal)[0] == ("other",) * 5


# ---- the environment ----


def test_the_environment_configures_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Variables that the library would follow lead nowhere: no other store, no other codec, no import."""
    for prefix in ("", "JOURNAL_"):
        for name, value in {
            "PERSISTENCE_MODULE": "eventsourcing.nowhere",
            "INFRASTRUCTURE_FACTORY": "os:system",
            "FACTORY_TOPIC": "os:system",
            "MAPPER_TOPIC": "os:system",
            "TRANSCODER_TOPIC": "os:system",
            "APPLICATION_RECORDER_TOPIC": "os:system",
            "COMPRESSOR_TOPIC": "os:system",
            "CIPHER_TOPIC": "os:system",
            "CIPHER_KEY": "no key",
            "IS_SNAPSHOTTING_ENABLED": "yes",
            "SNAPSHOTTING_INTERVALS": "1",
            "SQLITE_DBNAME": str(tmp_path / "stray.db"),
        }.items():
            monkeypatch.setenv(prefix + name, value)
    journal = journal_at(path)
    try:
        execute(journal, lambda state: [admit("a")])
        assert load(journal) == (("a",), 1)
        assert [row.body for row in everything(journal.store)] == [b"\x01" + msgspec.msgpack.encode(["a", "d"])]
    finally:
        journal.close()
    assert [file.name for file in tmp_path.iterdir()] == [path.parent.name]


# ---- reading in order ----


def fill(journal: Journal, count: int) -> None:
    """Append `count` events in one transaction, each with its number."""
    drafts = [called(str(number)) for number in range(1, count + 1)]
    journal.save(*(Versioned(draft.stream, None, draft.event) for draft in drafts), meta=journal.meta(CAUSE))


@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 500])
def test_records_come_page_by_page(journal: Journal, count: int) -> None:
    """All records are given, in order, each once, wherever the pages end."""
    if count:
        fill(journal, count)
    records = list(journal.records())
    assert [recorded.position for recorded in records] == list(range(1, count + 1))
    assert texts(records) == [str(number) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("after", "until"), [(0, 5), (PAGE - 1, PAGE + 2), (PAGE, None), (10, 10), (20, 10), (2 * PAGE, 9 * PAGE)]
)
def test_records_between_two_positions(journal: Journal, after: int, until: int | None) -> None:
    """Records begin after one position and end at another."""
    fill(journal, 2 * PAGE + 5)
    last = 2 * PAGE + 5 if until is None else min(until, 2 * PAGE + 5)
    assert [recorded.position for recorded in journal.records(after, until)] == list(range(after + 1, last + 1))


def test_records_appended_while_reading(journal: Journal, other: Journal) -> None:
    """Reading takes no lock from writers, and goes on to what they append."""
    fill(journal, PAGE)
    reading = journal.records()
    first = next(reading)
    fill(other, 3)
    assert [first.position, *(recorded.position for recorded in reading)] == list(range(1, PAGE + 4))


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("thing.invented", b"\x01\x90", "journal-newer"),
        ("directory.session-admitted", b"\x02\x90", "journal-newer"),
        ("directory.session-admitted", b"\x01\x90", "journal-damaged"),
    ],
)
def test_what_cannot_be_read_is_named(journal: Journal, kind: str, body: bytes, reason: str) -> None:
    """Reading ends at the first record that cannot be understood, with its position; what is before it was given."""
    fill(journal, 2)
    journal.store.insert_groups([group(log(LOG, body, kind=kind))])
    fill(journal, 1)
    given: list[int] = []
    with pytest.raises(Refusal) as refused:
        given.extend(recorded.position for recorded in journal.records())
    assert refused.value.reason == reason
    assert "position 3" in refused.value.message
    assert refused.value.fix
    assert [recorded.position for recorded in journal.records(3)] == [4]


def test_an_aggregate_that_cannot_be_read(journal: Journal) -> None:
    """No decision is made on half of an aggregate's history."""
    execute(journal, lambda state: [admit("a")])
    stored = journal.codec.to_stored_event(Versioned(STREAM, 2, admitted(STREAM, 2).event))
    stored = type(stored)(STREAM, 2, stored.topic, b"\x01\x90")
    journal.store.insert_events([stored], meta=META)
    with pytest.raises(Refusal) as refused:
        execute(journal, lambda state: [admit("b")])
    assert refused.value.reason == "journal-damaged"
    assert journal.store.head() == 2
