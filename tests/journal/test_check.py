"""The check of a journal: each sort of damage is found where it is, and a sound journal has none."""

from contextlib import closing
from pathlib import Path

import pytest
from contract.journals import journal_at

from omac.domain.kernel.refusal import Refusal
from omac.journal.check import check
from omac.journal.reader import ReadJournal
from omac.projections.system import System

from .damage import BEYOND_REPAIR, DAMAGE, destroyed, journal_of, sql


def damaged_positions(path: Path) -> set[int]:
    """Return the positions with a finding."""
    return {finding.position for finding in check(str(path), System().apply)}


def test_a_sound_journal(path: Path) -> None:
    """A journal that omac wrote has no finding, and is not changed by the check."""
    journal_of(path)
    content = path.read_bytes()
    assert damaged_positions(path) == set()
    assert path.read_bytes() == content


def test_an_empty_journal(path: Path) -> None:
    """A journal without events is sound."""
    journal_at(path).close()
    assert damaged_positions(path) == set()


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_damage_is_found_and_refused_with_its_fix(path: Path, damage: str) -> None:
    """The check reports each damage at its position, with the problem. Reading and folding such a journal is refused
    with check and repair as fixes, but for three harmless sorts."""
    journal_of(path)
    spoil, positions = DAMAGE[damage]
    spoil(path)
    findings = check(str(path), System().apply)
    assert {finding.position for finding in findings} == positions
    assert all(finding.problem for finding in findings)
    try:
        with closing(ReadJournal(str(path))) as journal:
            System().replay(journal.records())
    except Refusal as refusal:
        error = refusal
    else:
        assert damage in ("time that runs back", "no index of versions", "a log without a name")
        return
    assert error.reason in ("journal-damaged", "journal-newer")
    for command in ("omac journal check", "omac journal repair"):
        assert any(command in fix for fix in error.fix), error.fix


@pytest.mark.parametrize("damage", BEYOND_REPAIR)
def test_a_damage_beyond_repair_is_reported(path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage beyond repair is a finding without a remedy, or a refusal with a restore and neither check nor repair."""
    monkeypatch.setattr("omac.journal.check.STRAYS_MAX", 7)
    journal_of(path)
    sql(path, BEYOND_REPAIR[damage])
    try:
        findings = check(str(path), System().apply)
    except Refusal as refusal:
        assert refusal.reason == "journal-damaged"  # noqa: PT017
        assert refusal.fix[0].startswith(f"omac journal restore BACKUP --journal {path}")  # noqa: PT017
        assert not any("journal check" in command or "journal repair" in command for command in refusal.fix)  # noqa: PT017
    else:
        assert "none" in [finding.remedy for finding in findings]


def test_pages_that_are_destroyed(path: Path) -> None:
    """A file whose pages were overwritten is a finding or a refusal, never a traceback."""
    journal_of(path)
    for start in destroyed(path):
        try:
            assert damaged_positions(path), f"the page at {start}"
        except Refusal as refusal:
            assert refusal.reason == "journal-damaged"  # noqa: PT017


def test_a_schema_that_is_no_text(path: Path) -> None:
    """A schema whose text SQLite cannot decode counts as damage for the check, the writer and the reader."""
    journal_of(path)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE event", b"CREATE TABL\xda event"))
    for use in (damaged_positions, journal_at, lambda path: ReadJournal(str(path))):
        with pytest.raises(Refusal) as refused:
            use(path)
        assert refused.value.reason == "journal-damaged"
