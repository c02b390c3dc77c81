"""The verification of a journal: whoever changes what is recorded is found where that is possible, and told where."""

import contextlib
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at, run_python

from omac.domain.evidence.merkle_tree import MerkleTree
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.journal import leaves, verification
from omac.journal.leaves import leaf_of
from omac.journal.opening import open_journal
from omac.journal.repair import Repair
from omac.journal.verification import Known, verify
from omac.projections.system import System

from .damage import HOST, append_calls, history, journal_of, sql

EVENTS = len(history())
WITHOUT = ("UPDATE event SET leaf = NULL", "DROP TABLE tree")  # a journal from before there were leaves


@pytest.fixture
def whole(path: Path) -> Path:
    """A journal of nine events."""
    journal_of(path)
    return path


def found(path: Path, *known: Known) -> tuple[int, str] | None:
    """The position and the problem of what a verification finds."""
    finding = verify(str(path), known).finding
    return finding and (finding.position, finding.problem)


def rehash(path: Path, *, leaves_too: bool = True) -> None:
    """What somebody does who knows how it works: make leaves, tree and head fit what the journal now says."""
    tree = MerkleTree()
    reader = verify_rows(path)
    for values, leaf in reader:
        made = leaf_of(values) if leaves_too else leaf
        sql(path, "UPDATE event SET leaf = ? WHERE position = ?", made, values[0])
        tree.append(made)
    sql(path, "UPDATE tree SET size = ?, peaks = ?", tree.size, tree.peaks)
    sql(path, "UPDATE head SET position = ?", tree.size)


def verify_rows(path: Path) -> list[tuple[tuple[object, ...], bytes]]:
    """What is stored, with the leaves."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
        return list(leaves.rows_with_leaves(connection, 0, 1 << 62))


def checkpoint(path: Path) -> Known:
    """What somebody remembers of the journal."""
    verdict = verify(str(path))
    return Known(verdict.size, verdict.root)


def test_a_whole_journal(whole: Path) -> None:
    """Each event has its leaf since it was recorded, and the tree grows with the next one."""
    verdict = verify(str(whole))
    assert verdict[1:4] == (EVENTS, EVENTS, 1)
    assert (verdict.set_aside, verdict.uncovered, verdict.finding) == (0, 0, None)
    before = checkpoint(whole)
    journal = journal_at(whole)
    append_calls(journal, "more")
    journal.close()
    assert found(whole, before) is None
    assert verify(str(whole)).root != before.root
    assert found(whole, before, checkpoint(whole)) is None


def swap(path: Path, one: int, other: int) -> None:
    """Let two events change places."""
    for position, to in ((one, 0), (other, one), (0, other)):
        sql(path, "UPDATE event SET position = ? WHERE position = ?", to, position)


def duplicate(path: Path) -> None:
    """Say an event twice."""
    columns = "stream, version, kind, at, run, actor, correlation, causation, body, leaf, happened"
    sql(
        path, f"INSERT INTO event (position, {columns}) SELECT 10, {columns} FROM event WHERE position = 3"
    )  # our columns
    sql(path, "UPDATE head SET position = 10")


Act = Callable[[Path], object]


def done(*statements: str) -> Act:
    """What somebody does with SQLite."""
    return lambda path: [sql(path, one) for one in statements]


ANOTHER_ACTOR = "UPDATE name SET text = 'agent' WHERE id = (SELECT actor FROM event WHERE position = 2)"
ANOTHER_LEAF = "UPDATE event SET leaf = (SELECT leaf FROM event WHERE position = 1) WHERE position = 2"
CONTENT: dict[str, tuple[Act, tuple[int, str] | None]] = {
    "edits a body": (done("UPDATE event SET body = body || x'00' WHERE position = 3"), (3, "changed")),
    "edits a time": (done("UPDATE event SET at = at + 1 WHERE position = 4"), (4, "changed")),
    "edits who did it": (done(ANOTHER_ACTOR), (1, "changed")),
    "says it happened before": (done("UPDATE event SET happened = 1 WHERE position = 5"), (5, "changed")),
    "adds a reason": (done("UPDATE event SET correlation = 'x' WHERE position = 9"), (9, "changed")),
    "swaps two": (lambda path: swap(path, 3, 5), (3, "changed")),
}
STRUCTURE: dict[str, tuple[Act, tuple[int, str] | None]] = {
    "deletes an event": (done("DELETE FROM event WHERE position = 6"), (6, "missing")),
    "deletes the first": (done("DELETE FROM event WHERE position = 1"), (1, "missing")),
    "deletes the last": (done("DELETE FROM event WHERE position = 9"), (9, "missing")),
    "duplicates one": (duplicate, None),
    "removes a leaf": (done("UPDATE event SET leaf = NULL WHERE position = 7"), (7, "without-leaf")),
    "cuts a leaf": (done("UPDATE event SET leaf = x'00' WHERE position = 7"), (7, "without-leaf")),
    "changes a leaf": (done(ANOTHER_LEAF), (2, "changed")),
    "changes the tree": (done("UPDATE tree SET peaks = zeroblob(64)"), (9, "rewritten")),
    "spoils the tree": (done("UPDATE tree SET peaks = x'00'"), (0, "rewritten")),
    "cuts it": (done("DELETE FROM event WHERE position > 7", "UPDATE head SET position = 7"), (8, "missing")),
}


@pytest.mark.parametrize("what", CONTENT | STRUCTURE)
def test_what_is_changed_shows(whole: Path, what: str) -> None:
    """Without any checkpoint, where it is done by hand. An event that is added is one that no tree has."""
    act, expected = (CONTENT | STRUCTURE)[what]
    act(whole)
    assert found(whole) == expected
    assert verify(str(whole)).uncovered == {"duplicates one": 1, "spoils the tree": 9}.get(what, 0)


@pytest.mark.parametrize("what", CONTENT)
def test_who_rewrites_all_is_found_by_a_checkpoint_alone(whole: Path, what: str) -> None:
    """An edit with new leaves and a new tree passes for a journal, unless somebody knows an earlier root of it."""
    known = checkpoint(whole)
    CONTENT[what][0](whole)
    rehash(whole)
    assert found(whole) is None
    assert found(whole, known) == (EVENTS, "rewritten")


def test_a_journal_that_lost_its_end_is_found_by_a_checkpoint_alone(whole: Path) -> None:
    known = checkpoint(whole)
    sql(whole, "DELETE FROM event WHERE position > 6")
    rehash(whole)
    assert found(whole) is None
    assert found(whole, known) == (7, "truncated")


def test_an_older_checkpoint_narrows_it(whole: Path) -> None:
    """It is the first that does not hold which names the position."""
    rows = verify_rows(whole)
    tree, known = MerkleTree(), []
    for _, leaf in rows:
        tree.append(leaf)
        known.append(Known(tree.size, tree.root))
    sql(whole, "UPDATE event SET at = at + 1 WHERE position = 4")
    rehash(whole)
    assert found(whole, *known[:3]) is None
    assert found(whole, *reversed(known)) == (4, "rewritten")


def test_a_checkpoint_of_another_journal_does_not_hold(whole: Path) -> None:
    assert found(whole, Known(EVENTS, b"\0" * 32)) == (EVENTS, "rewritten")
    assert found(whole, Known(0, b"\0" * 32)) is None


def test_what_a_repair_replaced_is_no_damage(whole: Path) -> None:
    """It is counted, and a checkpoint from before holds: the leaf is that of the event that was recorded."""
    known = checkpoint(whole)
    sql(whole, "UPDATE event SET body = x'c1' WHERE position = 3")
    assert found(whole) == (3, "changed")
    repair = Repair(str(whole), HOST, "r", lambda: 1, lambda: System().apply, lambda *_: False)
    assert [one.position for one in repair.perform()] == [3]
    verdict = verify(str(whole), [known])
    assert (verdict.finding, verdict.set_aside, verdict.uncovered) == (None, 1, 0)
    sql(whole, "UPDATE event SET body = x'c1' WHERE position = 4")
    assert found(whole, known) == (4, "changed")


def test_an_event_that_was_deleted_stays_gone(whole: Path) -> None:
    """A repair puts an emptied position there; that the event is gone is what a checkpoint still says."""
    known = checkpoint(whole)
    sql(whole, "DELETE FROM event WHERE position = 7")
    Repair(str(whole), HostId("h"), "r", lambda: 1, lambda: System().apply, lambda *_: False).perform()
    assert found(whole) is None
    assert found(whole, known) == (EVENTS, "rewritten")


# ---- journals from before there were leaves ----


def test_an_older_journal_is_taken_over(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, with progress; what was changed before cannot show, and `since` says from where on it does."""
    monkeypatch.setattr(leaves, "ROWS_AT_ONCE", 4)
    before = verify(str(whole))
    for statement in WITHOUT:
        sql(whole, statement)
    assert verify(str(whole))[1:4] == (EVENTS, 0, EVENTS + 1)
    told: list[tuple[int, int]] = []
    open_journal(str(whole), "r", lambda: 1, progress=lambda *done: told.append(done)).close()
    assert told == [(0, EVENTS), (4, EVENTS)]
    after = verify(str(whole))
    assert (after.root, after.size, after.since) == (before.root, EVENTS, EVENTS + 1)
    assert (after.finding, after.uncovered) == (None, 0)


def test_an_older_omac_beside_it(whole: Path) -> None:
    """What one that knows no leaves appends gets them with the next append, and is said not to be proven since then."""
    journal = journal_at(whole)
    sql(whole, "UPDATE event SET leaf = NULL WHERE position > 7")
    tree = MerkleTree()
    for _, leaf in verify_rows(whole)[:7]:
        tree.append(leaf)
    sql(whole, "UPDATE tree SET size = 7, peaks = ?", tree.peaks)
    assert verify(str(whole)).uncovered == 2
    append_calls(journal, "after")
    journal.close()
    verdict = verify(str(whole))
    assert (verdict.size, verdict.since, verdict.finding) == (EVENTS + 1, EVENTS + 1, None)


TAKING_OVER = """
    import os, signal, sys
    from omac.journal import leaves
    from omac.journal.opening import open_journal

    leaves.ROWS_AT_ONCE = 3
    calls = []

    def progress(done, whole):
        calls.append(done)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    open_journal(sys.argv[1], "r", lambda: 1, progress=progress)
"""


def test_a_takeover_that_was_killed_goes_on(whole: Path) -> None:
    for statement in WITHOUT:
        sql(whole, statement)
    assert run_python(TAKING_OVER, str(whole)).returncode == -signal.SIGKILL
    assert [leaf is not None for _, leaf in verify_rows(whole)] == [True] * 6 + [False] * 3
    told: list[tuple[int, int]] = []
    open_journal(str(whole), "r", lambda: 1, progress=lambda *done: told.append(done)).close()
    assert told == []  # the rest is little
    assert verify(str(whole)).finding is None
    assert verify(str(whole)).size == EVENTS


def test_a_journal_with_a_hole_is_not_taken_over(whole: Path) -> None:
    """It opens as far as it did, and nothing is appended after what cannot be proven."""
    for statement in WITHOUT:
        sql(whole, statement)
    sql(whole, "DELETE FROM event WHERE position = 4")
    journal = journal_at(whole)
    with pytest.raises(Refusal, match="position 4 is missing"):
        commit_now(journal, [called("more")])
    journal.close()


def test_it_works_beside_a_writer(whole: Path) -> None:
    """One snapshot: what is appended meanwhile counts for nothing."""
    journal = journal_at(whole)
    grown: list[int] = []

    def append(done: int, _whole: int) -> None:
        append_calls(journal, "meanwhile")
        grown.append(done)

    every, verification.PROGRESS_EVERY = verification.PROGRESS_EVERY, 3
    try:
        verdict = verify(str(whole), progress=append)
    finally:
        verification.PROGRESS_EVERY = every
    assert grown == [3, 6, 9]
    assert (verdict.head, verdict.size, verdict.finding) == (EVENTS, EVENTS, None)
    journal.close()
    assert verify(str(whole)).head == EVENTS + 3


def test_random_damage_is_never_taken_for_whole(whole: Path, tmp_path: Path) -> None:
    """Whatever value of whatever row is changed, the root of before does not come out."""
    known, chance = checkpoint(whole), random.Random(7)
    columns = ("stream", "version", "kind", "at", "run", "actor", "correlation", "causation", "body", "happened")
    for number in range(60):
        copy = tmp_path / f"{number}.db"
        shutil.copy(whole, copy)
        position, column = chance.randint(1, EVENTS), chance.choice(columns)
        before = sql(copy, f"SELECT {column} FROM event WHERE position = ?", position)  # our columns
        value = chance.choice([1, 2, 3, "x", b"x", None, 77])
        try:
            sql(copy, f"UPDATE event SET {column} = ? WHERE position = ?", value, position)  # our columns
        except Exception:  # two events of a stream cannot have one version
            continue
        if sql(copy, f"SELECT {column} FROM event WHERE position = ?", position) == before:  # our columns
            continue
        assert found(copy, known) == (position, "changed"), (position, column, value)
        rehash(copy)
        assert found(copy, known) == (EVENTS, "rewritten"), (position, column, value)
