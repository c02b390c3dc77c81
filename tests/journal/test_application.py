"""The journal of one process: many callers' events in one commit, loaded by stream, and read in order."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
from contract.journals import LOG, admitted, called, commit_now, journal_at, texts
from contract.recorder import everything, group, insert, log
from eventsourcing.persistence import StoredEvent

from omac.domain.directories.events import SessionAdmitted
from omac.domain.kernel.event import Cause, Draft, Event, Latest, Recorded, Spooled
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.journal.application import CommitGroup, Journal
from omac.journal.judgement import Conflict
from omac.journal.reader import PAGE

STREAM = StreamId("directory/host/w")
CAUSE = Cause("person", "conversation", 3)
Sessions = tuple[str, ...]


def evolve(state: Sessions, event: Event) -> Sessions:
    """Return the sessions admitted so far."""
    assert isinstance(event, SessionAdmitted)
    return (*state, event.session)


def load(journal: Journal, stream: StreamId = STREAM) -> Latest[Sessions]:
    """Load the aggregate of these tests."""
    return journal.load(stream, (), evolve)


def admit(journal: Journal, *sessions: str, stream: StreamId = STREAM) -> list[int]:
    """Append the next events of the aggregate of these tests; return their positions."""
    version = load(journal, stream).version
    drafts = [admitted(stream, version + n, session) for n, session in enumerate(sessions, 1)]
    return [recorded.position for recorded in commit_now(journal, drafts, CAUSE)]


def grouped(journal: Journal, *drafts: Draft, spooled: Spooled | None = None) -> CommitGroup:
    """Return the group of events that one caller appends."""
    return journal.group(drafts, journal.envelope(CAUSE, spooled))


@pytest.fixture
def other(path: Path, journal: Journal) -> Iterator[Journal]:
    """Yield the same journal, opened as another process might have it."""
    opened = journal_at(path, "run-2")
    yield opened
    opened.close()


# ---- aggregates ----


def test_nothing_happened_yet(journal: Journal) -> None:
    """An aggregate without events is in its initial state, at version 0."""
    assert load(journal) == Latest((), 0)


def test_an_aggregate_is_loaded_as_it_was_appended(journal: Journal) -> None:
    """Events have the versions they were given, and the next ones follow them; actor, time and cause are recorded."""
    assert admit(journal, "a", "b") == [1, 2]
    assert admit(journal, "c") == [3]
    assert load(journal) == Latest(("a", "b", "c"), 3)
    rows = everything(journal.store)
    assert [(row.originator_id, row.originator_version) for row in rows] == [(STREAM, 1), (STREAM, 2), (STREAM, 3)]
    assert {(row.run, row.actor, row.correlation, row.causation) for row in rows} == {
        ("run-1", "person", "conversation", 3)
    }
    assert [row.at for row in rows] == [1, 1, 2], "events of one commit happened at one time"


def test_streams_do_not_mix(journal: Journal) -> None:
    """Each aggregate has its own versions, also when one name begins like another."""
    for name in ("a", "a/b", "A", "a "):
        assert len(admit(journal, "x", stream=StreamId(name))) == 1
        assert load(journal, StreamId(name)) == Latest(("x",), 1)


def test_a_long_stream(journal: Journal) -> None:
    """An aggregate is loaded whole, however many events it has."""
    admit(journal, *(str(number) for number in range(2 * PAGE + 1)))
    loaded = load(journal)
    assert loaded.version == len(loaded.state) == 2 * PAGE + 1
    assert loaded.state == tuple(str(number) for number in range(2 * PAGE + 1))


# ---- commits ----


def test_nothing_to_commit(journal: Journal) -> None:
    """A commit without groups, or of groups without events, records nothing."""
    assert journal.commit([]) == []
    assert journal.commit([grouped(journal), grouped(journal)]) == [[], []]
    assert journal.store.head() == 0


def test_a_conflict_affects_its_caller_only(journal: Journal, other: Journal) -> None:
    """A commit of many callers gives those that were too late a conflict, and records all others without a gap."""
    admit(other, "theirs")
    results = journal.commit(
        [
            grouped(journal, called("one"), admitted(STREAM, 1, "late")),
            grouped(journal, called("two"), admitted(STREAM, 2, "ours")),
            grouped(journal, admitted(STREAM, 2, "late too")),
            grouped(journal, called("three")),
        ]
    )
    assert [type(result) is Conflict for result in results] == [True, False, True, False]
    assert load(journal).state == ("theirs", "ours")
    records = list(journal.records())
    assert [recorded.position for recorded in records] == [1, 2, 3, 4]
    assert [recorded for result in results if not isinstance(result, Conflict) for recorded in result] == records[1:]


def test_an_appender_gets_what_a_reader_reads(journal: Journal) -> None:
    """An appender gets what a reader reads: time, run, actor, correlation and causation, also of a spooled event."""
    file = Spooled("host", "f", "run-of-the-program", 77, frozenset({"f"}))
    (records,) = journal.commit([grouped(journal, called("x"), admitted(STREAM, 1), spooled=file)])
    assert not isinstance(records, Conflict)
    assert list(records) == list(journal.records())
    record = records[0]
    assert (record.at, record.happened, record.moment, record.run) == (1, 77, 77, "run-of-the-program")
    assert (record.actor, record.correlation, record.causation) == ("person", "conversation", 3)


def test_recorded_time_never_runs_back(path: Path) -> None:
    """A clock that was set back yields to the times recorded before; appender and reader get the same records."""
    ticks = iter([50, 20, 70, 60])
    journal = journal_at(path)
    journal.clock = lambda: next(ticks)
    try:
        records: list[Recorded] = [recorded for word in "abcd" for recorded in commit_now(journal, [called(word)])]
        assert [recorded.at for recorded in records] == [50, 50, 70, 70]
        assert records == list(journal.records())
    finally:
        journal.close()


def test_a_file_of_a_spool_is_committed_once(journal: Journal, other: Journal) -> None:
    """Two callers that bring one spool file, in one commit or in turn, record it once; the later one gets a
    conflict."""
    file = Spooled("host", "f", "run", 7, frozenset({"f"}))
    first, second = journal.commit(
        [grouped(journal, called("x"), spooled=file), grouped(journal, called("x"), spooled=file)]
    )
    (third,) = other.commit([grouped(other, called("x"), spooled=file)])
    assert not isinstance(first, Conflict)
    for result in (second, third):
        assert isinstance(result, Conflict)
        assert result.known
    assert texts(list(journal.records())) == ["x"]


@pytest.mark.parametrize("event", [CAUSE, "text", called("\udcff").event, called(cast(str, 7)).event])  # 7 is no text
def test_what_could_not_be_read_again_is_refused(journal: Journal, event: object) -> None:
    """An event that cannot be folded is refused before anything is appended, so it never becomes durable."""
    with pytest.raises(Refusal, match="cannot be recorded") as refused:
        grouped(journal, Draft(LOG, None, event))
    assert (refused.value.reason, bool(refused.value.fix)) == ("unfoldable", True)


# ---- the environment ----


def test_the_environment_configures_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Environment variables that the library would follow have no effect: no other store, no other codec, no import."""
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
        admit(journal, "a")
        assert load(journal) == Latest(("a",), 1)
        assert [row.state for row in everything(journal.store)] == [b"\x01" + msgspec.msgpack.encode(["a", "d" * 64])]
    finally:
        journal.close()
    assert [file.name for file in tmp_path.iterdir()] == [path.parent.name]


# ---- reading in order ----


def fill(journal: Journal, count: int) -> None:
    """Append `count` events in one transaction, each with its number."""
    commit_now(journal, [called(str(number)) for number in range(1, count + 1)], CAUSE)


@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 500])
def test_records_come_page_by_page(journal: Journal, count: int) -> None:
    """The journal yields all records in order, each once, wherever its pages end."""
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
    """A reader takes no lock from writers, and goes on to the events that they append."""
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
    """Reading ends at the first record that cannot be understood, with its position; earlier and later records are
    read."""
    fill(journal, 2)
    insert(journal.store, [group(log(LOG, body, kind=kind))])
    fill(journal, 1)
    positions: list[int] = []
    with pytest.raises(Refusal) as refused:
        positions.extend(recorded.position for recorded in journal.records())
    assert positions == [1, 2]
    assert refused.value.reason == reason
    assert "position 3" in refused.value.message
    assert refused.value.fix
    assert [recorded.position for recorded in journal.records(3)] == [4]


def test_an_aggregate_that_cannot_be_read(journal: Journal) -> None:
    """An aggregate with an unreadable event is refused, so no decision rests on half of its history."""
    admit(journal, "a")
    unreadable = StoredEvent(str(STREAM), 2, "directory.session-admitted", b"\x01\x90")
    insert(journal.store, [group([unreadable])])
    with pytest.raises(Refusal) as refused:
        load(journal)
    assert refused.value.reason == "journal-damaged"
    assert journal.store.head() == 2


def test_a_journal_that_was_closed_is_not_closed_again(path: Path) -> None:
    """The library's destructor closes a journal again, even while the interpreter ends: nothing happens then."""
    program = (
        "import sys\nfrom omac.journal.opening import open_journal\n"
        "kept = open_journal(sys.argv[1], 'r', lambda: 2 * 10**18)\nkept.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
