"""The repair of a journal: after any damage the rest can be used again, and nothing is thrown away."""

import hashlib
from itertools import count
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at

from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionEmptied, PositionSetAside
from omac.journal.check import Damage, check
from omac.journal.event_kinds import SCHEMA
from omac.journal.reader import ReadJournal
from omac.journal.repair import Repair
from omac.projections.system import System

from .damage import BEYOND_REPAIR, DAMAGE, append, destroyed, encoded, history, journal_of, sql, stream


def repair_of(path: Path, living: bool = False) -> Repair:
    """Return the repair that the command makes."""
    clock = count(10**6).__next__
    return Repair(str(path), HostId("h"), "run-r", clock, lambda: System().apply, lambda *_: living)


def findings(path: Path) -> list[Damage]:
    """Return the findings of the check."""
    return check(str(path), System().apply)


def rows(path: Path) -> list[tuple[object, ...]]:
    """Return the whole journal, row by row."""
    return [*sql(path, "SELECT * FROM event ORDER BY position"), *sql(path, "SELECT * FROM head")]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_journal_is_never_the_end(path: Path, damage: str) -> None:
    """A plan lists the repairs without making them. A repair leaves a clean check, all that was sound, and a journal
    that takes events again."""
    journal_of(path)
    DAMAGE[damage][0](path)
    before = rows(path)
    repair = repair_of(path)
    planned = repair.plan()
    assert planned
    assert rows(path) == before
    assert repair.perform() == planned
    assert findings(path) == []
    journal = journal_at(path)
    draft = called("after")
    commit_now(journal, [draft])
    records = list(journal.records())
    journal.close()
    touched = {finding.position for finding in planned}
    events = {record.position: record.event for record in records}
    sound = {number: draft.event for number, draft in enumerate(history(), 1) if number not in touched}
    assert {position: events[position] for position in sound} == sound
    System().replay(records)


def test_the_bytes_are_kept(path: Path) -> None:
    """A repair keeps the whole row in the table beside; an event in the journal names it and its bytes' digest."""
    journal_of(path)
    sql(path, "UPDATE event SET body = x'c1c2' WHERE position = 6")
    repair_of(path).perform()
    assert sql(
        path, "SELECT record, position, stream, version, kind, run, actor, body FROM set_aside WHERE record > 0"
    ) == [(10, 6, stream("a"), 2, "run.stopped", "run-1", "person", b"\xc1\xc2")]
    copied = "position, version, at, correlation, causation, body, sealed, leaf, happened"
    copies = sql(path, f"SELECT {copied} FROM set_aside WHERE record = -10")
    assert copies == sql(path, f"SELECT {copied} FROM event WHERE position = 10")
    journal = ReadJournal(str(path))
    records = {record.position: record for record in journal.records()}
    journal.close()
    assert records[6].event == PositionEmptied()
    assert (records[6].stream, records[6].version) == (stream("a"), 2)
    report = records[10]
    assert isinstance(report.event, PositionSetAside)
    assert (report.stream, report.version, report.actor) == ("journal/h", None, "person")
    assert (report.event.position, report.event.kind, report.event.stream) == (6, "run.stopped", stream("a"))
    assert report.event.digest == "sha256:" + hashlib.sha256(b"\xc1\xc2").hexdigest()


def test_a_named_position_and_what_follows_from_it(path: Path) -> None:
    """A repair of a position sets aside its event and those that cannot follow without it; other damage stays."""
    journal_of(path)
    sql(path, "UPDATE event SET body = x'c1' WHERE position IN (1, 3)")
    done = repair_of(path).perform([1])
    assert [finding.position for finding in done] == [1, 6]  # a run that never started cannot stop
    assert [finding.position for finding in findings(path)] == [3]


def test_a_sound_position_is_not_set_aside(path: Path) -> None:
    """A repair of a sound position is refused: repairs cannot undo events."""
    journal_of(path)
    with pytest.raises(Refusal) as refused:
        repair_of(path).plan([3])
    assert refused.value.reason == "misuse"
    assert "position 3 is sound" in refused.value.message


def test_later_events_still_follow(path: Path) -> None:
    """An emptied position keeps its version, so a later event of its stream counts as before."""
    journal_of(path)
    version = append(path, stream("a"), 3, *encoded(history()[0].event))
    sql(path, "UPDATE event SET body = x'c1' WHERE position = 1")
    repair_of(path).perform()
    assert findings(path) == []
    assert sql(path, "SELECT version FROM event WHERE position = ?", version) == [(3,)]


def test_not_while_a_run_has_it_open(path: Path) -> None:
    """A repair is refused while a living run has the journal open; a dead run does not matter."""
    journal_of(path)
    sql(path, "UPDATE event SET body = x'c1' WHERE position = 3")
    sql(path, "INSERT INTO opened VALUES ('r1', 4711, 1, 'boot', '0.1', ?)", SCHEMA)
    with pytest.raises(Refusal) as refused:
        repair_of(path, living=True).plan()
    assert refused.value.reason == "journal-in-use"
    assert "pid 4711" in refused.value.message
    assert repair_of(path, living=False).perform()


def test_no_journal_is_made(path: Path) -> None:
    """A repair of a missing journal is refused, and makes none."""
    with pytest.raises(Refusal) as refused:
        repair_of(path).plan()
    assert refused.value.reason == "journal-unavailable"
    assert not path.exists()


@pytest.mark.parametrize("damage", BEYOND_REPAIR)
def test_a_damage_beyond_repair(path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage beyond repair is refused with a restore as the first way, without check or repair; no row changes."""
    monkeypatch.setattr("omac.journal.check.STRAYS_MAX", 7)
    journal_of(path)
    sql(path, BEYOND_REPAIR[damage])
    before = rows(path)
    with pytest.raises(Refusal) as refused:
        repair_of(path).perform()
    assert refused.value.reason == "journal-damaged"
    assert refused.value.fix[0].startswith(f"omac journal restore BACKUP --journal {path}")
    assert not any("journal check" in command or "journal repair" in command for command in refused.value.fix)
    assert rows(path) == before


def test_a_moved_row_is_set_aside_with_a_named_position(path: Path) -> None:
    """A row far away is set aside with every repair; the repair's own events follow the last event."""
    journal_of(path)
    sql(path, "UPDATE event SET position = 1000000000000 WHERE position = 6")
    done = repair_of(path).perform([6])
    assert [finding.position for finding in done] == [6, 10**12]
    assert sql(path, "SELECT record, position, stream, version FROM set_aside WHERE record > 0") == [
        (10, 10**12, stream("a"), 2)
    ]
    assert sql(path, "SELECT position FROM head") == [(11,)]
    assert findings(path) == []


def test_destroyed_pages(path: Path) -> None:
    """A journal with a destroyed page is repaired, or refused as damaged with the remaining ways and not changed."""
    journal_of(path)
    for _ in destroyed(path):
        content = path.read_bytes()
        try:
            repair_of(path).perform()
        except Refusal as refusal:
            assert refusal.reason == "journal-damaged"  # noqa: PT017
            assert refusal.fix  # noqa: PT017
            assert path.read_bytes() == content
        else:
            assert findings(path) == []
