"""The format of a journal: an omac never meets an event that it would misread, and is refused before it does harm."""

from collections.abc import Callable
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at

from omac.domain.kernel.refusal import Refusal
from omac.journal import file
from omac.journal.application import Journal
from omac.journal.event_kinds import SCHEMA, SINCE
from omac.journal.format import BATCHES, IsLiving, Present
from omac.journal.opening import open_journal

from .damage import sql

NEXT = SCHEMA + 1


def opened(path: Path, run: str, is_living: IsLiving, schema_known: int = 2) -> Journal:
    """Open the journal as a run that stays."""
    present = Present(run, 4711, 1, "boot", "0.9", schema_known)
    return open_journal(str(path), run, lambda: 1, is_living=is_living, present=present)


def append(journal: Journal, word: str = "x") -> None:
    """Append one event."""
    draft = called(word)
    commit_now(journal, [draft])


def refused(act: Callable[[], object]) -> Refusal:
    """Return the refusal of an act."""
    with pytest.raises(Refusal) as caught:
        act()
    return caught.value


def living(_present: Present) -> bool:
    """Report every listed run as living."""
    return True


def dead(_present: Present) -> bool:
    """Report every listed run as dead."""
    return False


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that turns the installed omac into a later one: control calls are of the next format."""

    def install() -> None:
        monkeypatch.setattr(file, "SCHEMA", NEXT)
        monkeypatch.setitem(SINCE, "control.called", NEXT)

    return install


def test_a_new_journal_is_understood_by_all(path: Path) -> None:
    """A new journal has the first format, so that the first omac may open it as long as nothing newer is in it."""
    journal = journal_at(path)
    append(journal)
    journal.close()
    assert sql(path, "SELECT schema FROM journal") == [(1,)]


def test_a_run_is_listed_until_it_closes_the_journal(path: Path) -> None:
    """A journal lists the runs that have it open; the next opening drops the entry that a killed run left."""
    killed = opened(path, "killed", living)
    killed.store._present = None
    killed.close()
    first = opened(path, "first", dead)
    assert sql(path, "SELECT run, pid, version, schema FROM opened") == [("first", 4711, "0.9", 2)]
    second = opened(path, "second", living)
    assert sql(path, "SELECT run FROM opened ORDER BY run") == [("first",), ("second",)]
    second.close()
    first.close()
    assert sql(path, "SELECT run FROM opened") == []


def test_the_first_append_of_a_newer_kind_raises_the_format(path: Path, later: Callable[[], None]) -> None:
    """The first append of a newer kind raises the journal's format; opening the journal does not."""
    later()
    journal = opened(path, "new", living, NEXT)
    assert sql(path, "SELECT schema FROM journal") == [(1,)]
    append(journal)
    append(journal)
    assert sql(path, "SELECT schema FROM journal") == [(NEXT,)]
    journal.close()


def test_a_newer_kind_is_refused_while_an_older_run_lives(path: Path, later: Callable[[], None]) -> None:
    """The refusal names the run, its version, its process and the command that stops it; nothing is recorded."""
    old = opened(path, "old", living)
    later()
    new = opened(path, "new", living, NEXT)
    refusal = refused(lambda: append(new))
    assert refusal.reason == "journal-in-use"
    for word in ("run old", "omac 0.9", "pid 4711", "control.called"):
        assert word in refusal.message
    assert refusal.fix[0].startswith(f"omac stop 4711 --journal {path} ")
    assert sql(path, "SELECT schema, position FROM journal, head") == [(1, 0)]
    old.close()
    append(new)
    assert sql(path, "SELECT schema, position FROM journal, head") == [(NEXT, 1)]
    new.close()


def test_a_dead_run_of_an_older_omac_hinders_no_append(path: Path, later: Callable[[], None]) -> None:
    """A killed run of an older omac does not hinder an append of a newer kind."""
    old = opened(path, "old", living)
    later()
    new = opened(path, "new", dead, NEXT)
    append(new)
    assert sql(path, "SELECT schema FROM journal") == [(NEXT,)]
    new.close()
    old.close()


def test_call_batches_wait_for_an_older_run(path: Path) -> None:
    """The format is raised to that of call batches when no run lives that would misread them; no older one opens the
    journal from then on, and the format never falls."""
    needed = SINCE[BATCHES]
    old = opened(path, "old", living, needed - 1)
    new = opened(path, "new", living, needed)
    new.store.take_batches()
    assert (new.store.takes_batches, sql(path, "SELECT schema FROM journal")) == (False, [(1,)])
    append(old)
    old.close()
    for _ in range(2):
        new.store.take_batches()
        assert (new.store.takes_batches, sql(path, "SELECT schema FROM journal")) == (True, [(needed,)])
    sql(path, "UPDATE journal SET schema = ?", NEXT)
    assert refused(new.store.take_batches).reason == "journal-newer"
    new.close()


def test_an_older_run_is_refused_in_order(path: Path) -> None:
    """A run that finds the format raised above its own is refused with the reason, and appends nothing more."""
    old = opened(path, "old", living)
    append(old)
    sql(path, "UPDATE journal SET schema = ?", NEXT)
    refusal = refused(lambda: append(old))
    assert refusal.reason == "journal-newer"
    assert f"schema {NEXT}" in refusal.message
    assert sql(path, "SELECT position FROM head") == [(1,)]
    old.close()


@pytest.mark.parametrize("change", ["UPDATE head SET position = 5", "DELETE FROM event WHERE position = 2"])
def test_a_head_that_moved_is_noticed_by_the_next_append(path: Path, change: str) -> None:
    """The next append behind a gap is refused as damage, with the repair as a fix."""
    journal = journal_at(path)
    append(journal)
    append(journal)
    sql(path, change)
    refusal = refused(lambda: append(journal))
    assert refusal.reason == "journal-damaged"
    assert any("omac journal repair" in command for command in refusal.fix)
    journal.close()
