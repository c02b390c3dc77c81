"""The tamper suite: the changes that a verification finds with nothing that was kept, and with a kept root.

`UNSEEN` is the honest part: changes that a user who kept nothing outside of the machine cannot find.
`test_impossible.py` makes the changes that the table in SECURITY.md names.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at
from journal.damage import append_calls, journal_of, new_leaves, sql

from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.journal.merkle import root_of
from omac.journal.repair import Repair
from omac.journal.verification import PART, KeptRoot, Verified, verify
from omac.projections.system import System

EVENTS = 9


def swap(path: Path, one: int, other: int) -> None:
    """Let two events change places, and leave their leaves."""
    for position, to in ((one, -1), (other, one), (-1, other)):
        sql(path, "UPDATE event SET position = ? WHERE position = ?", to, position)


def delete(path: Path, position: int) -> None:
    """Delete one event, and move those behind it."""
    sql(path, "DROP INDEX event_version")
    sql(path, "DELETE FROM event WHERE position = ?", position)
    for behind in range(position + 1, EVENTS + 1):
        sql(path, "UPDATE event SET position = ? WHERE position = ?", behind - 1, behind)


def duplicate(path: Path) -> None:
    """Put a copy of one event in the place of another."""
    sql(
        path,
        "UPDATE event SET (stream, version, kind, at, run, actor, body) = "
        "(SELECT stream, version, kind, at, run, actor, body FROM event WHERE position = 3) WHERE position = 5",
    )


def truncate(path: Path) -> None:
    """Cut the end off, with everything in the journal that depends on it."""
    for table in ("event", "leaf"):
        sql(path, f"DELETE FROM {table} WHERE position > 6")
    new_leaves(path)


def edit(path: Path) -> None:
    """Change the content of an event."""
    sql(path, "UPDATE event SET body = (SELECT body FROM event WHERE position = 2) WHERE position = 3")


TAMPERED: dict[str, tuple[Callable[[Path], object], int, str]] = {  # the first position, and the kind of damage
    "a body is edited": (edit, 3, "altered"),
    "a time is edited": (lambda path: sql(path, "UPDATE event SET at = at - 1 WHERE position = 4"), 4, "altered"),
    "a correlation is added": (
        lambda path: sql(path, "UPDATE event SET correlation = 'c' WHERE position = 7"), 7, "altered",
    ),
    "the time it happened is added": (
        lambda path: sql(path, "UPDATE event SET happened = 1 WHERE position = 7"), 7, "altered",
    ),
    "sealed fields are added": (
        lambda path: sql(path, "UPDATE event SET sealed = x'00' WHERE position = 7"), 7, "altered",
    ),
    "the unused column is filled": (
        lambda path: sql(path, "UPDATE event SET leaf = x'00' WHERE position = 7"), 7, "altered",
    ),
    "a number becomes text": (
        lambda path: sql(path, "UPDATE event SET causation = '1' WHERE position = 2"), 2, "altered",
    ),
    "an actor is another": (
        lambda path: sql(path, "UPDATE name SET text = 'agent' WHERE text = 'person'"), 1, "altered",
    ),
    "a stream is renamed": (
        lambda path: sql(path, "UPDATE name SET text = 'control/other' WHERE text = 'control/test'"), 2, "altered",
    ),
    "a name is missing": (lambda path: sql(path, "DELETE FROM name WHERE text = 'control/test'"), 2, "altered"),
    "an event is deleted": (lambda path: sql(path, "DELETE FROM event WHERE position = 5"), 5, "missing"),
    "an event is deleted and the rest moved up": (lambda path: delete(path, 5), 5, "altered"),
    "two events are swapped": (lambda path: swap(path, 3, 7), 3, "out-of-place"),
    "an event is duplicated": (duplicate, 5, "altered"),
    "the end is cut off": (lambda path: sql(path, "DELETE FROM event WHERE position > 6"), 7, "missing"),
    "a leaf is edited": (
        lambda path: sql(path, "UPDATE leaf SET hash = zeroblob(32) WHERE position = 4"), 4, "altered",
    ),
    "a leaf is deleted": (lambda path: sql(path, "DELETE FROM leaf WHERE position = 4"), 4, "leaf-missing"),
    "a leaf is no hash": (lambda path: sql(path, "UPDATE leaf SET hash = x'00' WHERE position = 4"), 4, "leaf-missing"),
    "leaves are added": (lambda path: sql(path, "INSERT INTO leaf VALUES (12, zeroblob(32))"), 12, "tree-altered"),
    "the tree counts more than can be": (
        lambda path: sql(path, "UPDATE tree SET size = 9000000000000000000"), 10, "tree-altered",
    ),
    "the peaks are edited": (lambda path: sql(path, "UPDATE tree SET peaks = zeroblob(64)"), 1, "tree-altered"),
    "the tree forgets the end": (
        lambda path: sql(path, "UPDATE tree SET size = 8, peaks = (SELECT hash FROM leaf WHERE position = 1)"),
        1, "tree",
    ),
}  # fmt: skip
UNSEEN: dict[str, tuple[Callable[[Path], object], ...]] = {  # by whoever kept nothing
    "an event is edited and all is hashed again": (edit, new_leaves),
    "events are swapped and all is hashed again": (lambda path: swap(path, 3, 7), new_leaves),
    "an event is deleted and all is hashed again": (lambda path: delete(path, 5), new_leaves),
    "the end is cut off with its leaves": (truncate,),
}


@pytest.fixture
def kept(path: Path) -> KeptRoot:
    """The root of a whole journal, as a user keeps it outside of the machine."""
    journal_of(path)
    verified = verify(str(path))
    return KeptRoot(verified.size, verified.root)


def first_finding(verified: Verified) -> tuple[int, str]:
    """Return the first bad position, and the kind of damage there."""
    assert verified.findings
    return verified.findings[0].position, verified.findings[0].kind


def test_a_whole_journal(path: Path, kept: KeptRoot) -> None:
    """A whole journal has no findings, with the roots of its beginnings, and after it has grown."""
    assert verify(str(path), [kept]).findings == ()
    journal = journal_at(path)
    append_calls(journal, "six", "seven")
    verified = verify(str(path), [kept])  # beside whoever has it open
    journal.close()
    assert (verified.size, verified.checked, verified.late, verified.findings) == (11, 11, 0, ())
    assert verify(str(path), [kept, KeptRoot(11, verified.root), KeptRoot(0, b"")]).findings == ()


@pytest.mark.parametrize("way", TAMPERED)
def test_tampering_is_found(path: Path, kept: KeptRoot, way: str) -> None:
    """Each change is found at its position, with nothing that was kept."""
    tamper, position, kind = TAMPERED[way]
    tamper(path)
    at, problem = first_finding(verify(str(path)))
    assert at == position
    assert problem.startswith(kind) or kind == "tree"
    assert verify(str(path), [kept]).findings


@pytest.mark.parametrize("way", UNSEEN)
def test_what_cannot_be_found_without_a_kept_root(path: Path, kept: KeptRoot, way: str) -> None:
    """A change by an attacker who can write the journal and rehash it is found only with a kept root."""
    for step in UNSEEN[way]:
        step(path)
    assert verify(str(path)).findings == ()
    verified = verify(str(path), [kept])
    assert verified.findings
    assert verified.findings[0].kind in ("rewritten", "truncated")


def test_what_was_rewritten_lies_between_two_kept_roots(path: Path) -> None:
    """A rewrite is reported between the last root that holds and the first that does not."""
    journal = journal_at(path)
    roots = []
    for word in ("one", "two", "three", "four", "five", "six"):
        append_calls(journal, word)
        verified = verify(str(path))
        roots.append(KeptRoot(verified.size, verified.root))
    journal.close()
    sql(path, "UPDATE event SET at = at + 1 WHERE position = 4")
    new_leaves(path)
    finding = verify(str(path), [roots[1], roots[4], roots[5]]).findings[0]
    assert (finding.position, finding.last, finding.kind) == (3, 5, "rewritten")


@pytest.mark.parametrize(
    ("stated", "signed", "is_found"),
    [(0, 0, False), (4, 4, False), (11, 4, False), (0, 4, True), (3, 4, True), (9, 4, True), (4, 0, True)],
)
def test_how_far_late_leaves_go(path: Path, kept: KeptRoot, stated: int, signed: int, *, is_found: bool) -> None:
    """A tree whose late leaves contradict a checkpoint is found. Events that the checkpoint counts get no late leaf
    afterwards, and earlier late ones stay late."""
    journal = journal_at(path)
    append_calls(journal, "six", "seven")
    journal.close()
    sql(path, "UPDATE tree SET late = ?", stated)
    findings = verify(str(path), [kept._replace(late=signed)]).findings
    assert [finding.kind for finding in findings] == ["tree-altered"] * is_found


def test_no_number_of_findings_hides_that_history_was_rewritten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of changed events, a bounded number is named, and the rewriting beside them."""
    journal_of(path)
    monkeypatch.setattr("omac.journal.verification.FINDINGS_MAX", 2)
    sql(path, "UPDATE event SET at = at + 1")
    verified = verify(str(path), [KeptRoot(EVENTS, bytes(32))])
    assert sorted(finding.kind for finding in verified.findings) == ["altered", "altered", "rewritten"]


def test_a_leaf_that_is_missing_is_what_is_named(path: Path, kept: KeptRoot) -> None:
    """A missing leaf is the finding: kept roots behind it cannot be computed, and only those before it are compared."""
    sql(path, "DELETE FROM leaf WHERE position = 4")
    assert [finding[:3] for finding in verify(str(path), [kept]).findings] == [(4, 4, "leaf-missing")]
    assert first_finding(verify(str(path), [KeptRoot(3, b"r" * 32), kept])) == (1, "rewritten")


def test_without_any_leaf(path: Path, kept: KeptRoot) -> None:
    """A journal without leaves is refused if a root of it was kept: an omac that makes proofs wrote it."""
    sql(path, "DROP TABLE leaf")
    sql(path, "DROP TABLE tree")
    with pytest.raises(Refusal, match="has no leaves at all") as refused:
        verify(str(path), [kept])
    assert refused.value.exit_code == 10


def test_a_range(path: Path) -> None:
    """A verification of a range does not compare the events outside of it."""
    journal_of(path)
    edit(path)
    assert first_finding(verify(str(path), (), 2, 4)) == (3, "altered")
    verified = verify(str(path), (), 4, 6)
    assert (verified.checked, verified.findings) == (3, ())
    assert verify(str(path), (), 1, 2).checked == 2
    assert verify(str(path), (), 8, 99).checked == 2
    assert verify(str(path), (), 50).checked == 0


@pytest.mark.parametrize(
    "damage", ["UPDATE event SET body = x'c1' WHERE position = 3", "DELETE FROM event WHERE position = 3"]
)
def test_what_a_repair_set_aside_is_named(path: Path, damage: str) -> None:
    """A repair leaves the tree as it was, so kept roots hold; its position is reported, but not as a finding."""
    journal_of(path)
    before = verify(str(path))
    sql(path, damage)
    assert first_finding(verify(str(path)))[0] == 3
    Repair(str(path), HostId("h"), "r", lambda: 1, lambda: System().apply, lambda *_: True).perform()
    journal_at(path).close()
    after = verify(str(path), [KeptRoot(before.size, before.root)])
    assert (after.size, after.set_aside, after.findings, after.late) == (10, (3,), (), 0)


@pytest.mark.parametrize("change", ["DELETE FROM set_aside", "UPDATE set_aside SET body = x'c2'"])
def test_what_a_repair_set_aside_is_kept(path: Path, change: str) -> None:
    """A replaced row that is taken away or changed is found at the record of the repair."""
    journal_of(path)
    sql(path, "UPDATE event SET body = x'c1' WHERE position = 3")
    Repair(str(path), HostId("h"), "r", lambda: 1, lambda: System().apply, lambda *_: True).perform()
    assert verify(str(path)).findings == ()
    sql(path, change)
    assert first_finding(verify(str(path))) == (EVENTS + 1, "altered")


def repaired(path: Path) -> None:
    """Repair the journal, and open it once."""
    Repair(str(path), HostId("h"), "r", lambda: 1, lambda: System().apply, lambda *_: True).perform()
    journal_at(path).close()


@pytest.mark.parametrize(
    "damage", ["UPDATE event SET body = x'c1' WHERE position = {}", "DELETE FROM event WHERE position = {}"]
)
def test_a_repair_whose_record_was_damaged_and_repaired(path: Path, damage: str) -> None:
    """The copy of a repair's record, proven by its leaf, still names the row set aside, however often that happens."""
    journal_of(path)
    before = verify(str(path))
    for position in (3, EVENTS + 1, EVENTS + 2):
        sql(path, damage.format(position))
        assert first_finding(verify(str(path))) == (position, "altered" if "UPDATE" in damage else "missing")
        repaired(path)
    after = verify(str(path), [KeptRoot(before.size, before.root)])
    assert (after.set_aside, after.findings, after.late) == ((3, EVENTS + 1, EVENTS + 2), (), 0)


@pytest.mark.parametrize(
    "forged",
    [
        "UPDATE set_aside SET body = (SELECT body FROM event WHERE position = {0} - 1) WHERE record = -{0}",
        "UPDATE set_aside SET at = at + 1 WHERE record = -{0}",
        "DELETE FROM set_aside WHERE record = -{0}",
        "UPDATE set_aside SET record = -5, position = 5 WHERE record = -{0}",
    ],
)
def test_a_copy_that_is_not_what_was_recorded_excuses_nothing(path: Path, forged: str) -> None:
    """A copy excuses damage only if it is the very content of the record's own leaf."""
    journal_of(path)
    sql(path, "UPDATE event SET body = x'c1' WHERE position = 3")
    repaired(path)
    record = EVENTS + 1
    sql(path, f"UPDATE event SET body = x'c1' WHERE position = {record}")
    repaired(path)
    sql(path, forged.format(record))
    assert first_finding(verify(str(path))) == (3, "altered")


def test_an_emptied_position_that_no_repair_names_is_damage(path: Path) -> None:
    """An emptied position that no repair recorded is damage, so an attacker who puts one there hides nothing."""
    journal_of(path)
    sql(path, "INSERT INTO name (text) VALUES ('position.emptied')")
    sql(path, "UPDATE event SET kind = (SELECT id FROM name WHERE text = 'position.emptied') WHERE position = 3")
    assert first_finding(verify(str(path))) == (3, "altered")


def test_a_journal_of_an_earlier_omac(path: Path) -> None:
    """A journal without leaves cannot be verified; after an opening, a verification reports how far late leaves go."""
    journal_of(path)
    sql(path, "DROP TABLE leaf")
    sql(path, "DROP TABLE tree")
    with pytest.raises(Refusal, match="earlier omac"):
        verify(str(path))
    journal = journal_at(path)
    append_calls(journal, "six")
    journal.close()
    verified = verify(str(path))
    assert (verified.size, verified.late, verified.findings) == (10, 9, ())


def test_ranges_of_a_long_journal(tmp_path: Path) -> None:
    """Events are read a thousand at a time; damage, bounds and roots are found beside the edges of such a range."""
    path = tmp_path / "journal.db"
    with contextlib.closing(journal_at(path)) as journal:
        commit_now(journal, [called(str(number)) for number in range(2 * PART + 10)])
    leaves = [leaf for (leaf,) in sql(path, "SELECT hash FROM leaf ORDER BY position")]
    roots = [KeptRoot(size, root_of(leaves[:size])) for size in (1, PART - 1, PART, PART + 1, len(leaves))]
    assert (verify(str(path), roots).findings, verify(str(path)).root) == ((), root_of(leaves))
    for position in (1, PART, PART + 1, len(leaves)):
        sql(path, "UPDATE event SET at = at + 1 WHERE position = ?", position)
        (finding,) = verify(str(path), roots).findings
        assert (finding.position, finding.kind) == (position, "altered")
        for first, last in ((position, position), (position + 1, len(leaves)), (1, position - 1)):
            verified = verify(str(path), roots, first, last)
            assert (verified.checked, len(verified.findings)) == (last - first + 1, first == last)
            assert verified.root == root_of(leaves)
        sql(path, "UPDATE event SET at = at - 1 WHERE position = ?", position)
        sql(path, "UPDATE leaf SET hash = zeroblob(32) WHERE position = ?", position)
        kinds = {problem.kind for problem in verify(str(path), roots, 2, 1).findings}
        assert kinds == {"tree-altered", "rewritten"}
        sql(path, "UPDATE leaf SET hash = ? WHERE position = ?", leaves[position - 1], position)
