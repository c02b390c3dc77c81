"""The reader of commands: its needs, its tolerance and its refusals (its promises: test_recorder)."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at, run_python, sqlite_recorder, texts
from contract.recorder import group, insert, log, versions

from omac.domain.kernel.event import Cause, Draft, Event, Latest
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.journal import reader as reader_module
from omac.journal.reader import Reader, ReadJournal

from .damage import journal_of


@pytest.fixture
def filled(path: Path) -> Path:
    """Make a journal with one stream of three versions and a log, and close it."""
    with closing(sqlite_recorder(str(path))) as recorder:
        insert(recorder, [group(versions("a", 1, 2)), group(log("l", b"x"), versions("a", 3))])
    return path


@pytest.fixture
def reader(filled: Path) -> Iterator[Reader]:
    """Yield a reader of the filled journal."""
    with closing(Reader(str(filled))) as opened:
        yield opened


def change(path: Path, statement: str) -> None:
    """Change the file as no omac does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_the_versions_of_a_stream(reader: Reader) -> None:
    """An aggregate is read in the order of its versions; a log and an unknown stream have none."""
    assert [(row.originator_version, row.state) for row in reader.versions("a")] == [
        (1, b"a:1"),
        (2, b"a:2"),
        (3, b"a:3"),
    ]
    assert reader.versions("l") == reader.versions("nobody") == []


def test_a_state_is_loaded(path: Path) -> None:
    """A stream is folded to its state and version; one without events is loaded as its initial state."""
    draft = called("x")
    nothing: tuple[Event, ...] = ()

    def fold(state: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
        return (*state, event)

    with closing(journal_at(path)) as journal:
        for version in (1, 2):
            commit_now(journal, [Draft(StreamId("a"), version, draft.event)])
    with closing(ReadJournal(str(path))) as reading:
        assert reading.load(StreamId("a"), nothing, fold) == Latest((draft.event, draft.event), 2)
        assert reading.load(draft.stream, nothing, fold) == Latest(())
        assert texts(list(reading.records())) == ["x", "x"]


def test_causes_and_conversations(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consequences are found over pages, in order; a cause that comes later is none."""
    monkeypatch.setattr(reader_module, "CAUSES_PAGE", 2)
    pairs = [(None, None), (1, "c"), (2, "d"), (None, "c"), (1, None), (5, "d"), (9, "c"), (None, None), (6, "d")]
    with closing(journal_at(path)) as journal:
        for causation, correlation in pairs:
            envelope = journal.envelope(Cause("agent", correlation, causation))
            journal.commit([journal.group([called("x")], envelope)])
    with closing(ReadJournal(str(path))) as reading:
        following = {at: list(reading.caused_by([at])) for at in range(1, len(pairs) + 1)}
        assert following == {1: [2, 3, 5, 6, 9], 2: [3], 3: [], 4: [], 5: [6, 9], 6: [9], 7: [], 8: [], 9: []}
        assert list(reading.caused_by([2, 6])) == [3, 9]
        assert (reading.of_correlation("c", 9), reading.of_correlation("d", 2)) == ([2, 4, 7], [3, 6])


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("DELETE FROM head", Reader.head),
        ("DELETE FROM name WHERE text = 'a'", lambda reader: reader.select(1, 10)),
        ("DROP TABLE name", lambda reader: reader.select(1, 10)),
        ("DROP TABLE event", Reader.kinds),
    ],
)
def test_a_missing_part_is_damage(filled: Path, statement: str, read: object) -> None:
    """A journal that lacks a part is refused as damaged, with a next step, by the read that needs the part."""
    change(filled, statement)
    assert callable(read)
    with pytest.raises(Refusal) as refused, closing(Reader(str(filled))) as opened:
        read(opened)
    assert refused.value.reason == "journal-damaged"
    assert refused.value.fix


@pytest.mark.parametrize("value", ["x'ff00'", "'text'", "1.5"])
def test_a_name_that_is_no_number_is_damage(filled: Path, value: str) -> None:
    """A reference to a name that is no number is refused as damage, beside others that are numbers."""
    change(filled, f"UPDATE event SET run = {value} WHERE position = 2")
    with closing(Reader(str(filled))) as reader, pytest.raises(Refusal, match="something it refers to is missing"):
        reader.select(0, 10)


def test_a_journal_without_its_schema_is_damaged(filled: Path) -> None:
    """A journal without its schema is refused as damaged."""
    change(filled, "DELETE FROM journal")
    with pytest.raises(Refusal) as refused:
        Reader(str(filled))
    assert refused.value.reason == "journal-damaged"


WATCHED = """
    import os, sys
    from omac.journal.reader import ReadJournal
    opened = []
    sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" else None)
    journal = ReadJournal(sys.argv[1])
    print(len(list(journal.records())))
    journal.close()
    assert sys.argv[1] not in map(str, opened), opened
    heavy = {"sqlalchemy", "trio", "eventsourcing", "asyncio"} & set(sys.modules)
    assert not heavy, heavy
"""


APPENDED = """
    import sys
    from pathlib import Path
    from contract.journals import called, commit_now, journal_at
    journal = journal_at(Path(sys.argv[1]))
    commit_now(journal, [called("x")])
    journal.close()
    print("sqlalchemy" in sys.modules)
"""


@pytest.mark.full
def test_appending_needs_no_tables(path: Path) -> None:
    """An append loads the description of the tables only to make them; loading it takes a quarter of a start."""
    assert [run_python(APPENDED, str(path)).stdout for _ in range(2)] == ["True\n", "False\n"]


def test_reading_needs_little(path: Path) -> None:
    """A reader loads nothing heavy, and SQLite alone opens the file: closing it elsewhere would drop SQLite's locks."""
    with closing(journal_at(path)) as journal:
        commit_now(journal, [Draft(StreamId("a"), 1, called("x").event)])
    done = run_python(WATCHED, str(path))
    assert (done.returncode, done.stdout) == (0, "1\n"), done


def test_a_gap_is_not_passed_over(path: Path) -> None:
    """Reading in order notices a row that is missing, without folding anything."""
    journal_of(path)
    change(path, "DELETE FROM event WHERE position = 2")
    with closing(ReadJournal(str(path))) as journal, pytest.raises(Refusal, match="position 2 is missing") as refused:
        list(journal.records())
    assert refused.value.reason == "journal-damaged"
