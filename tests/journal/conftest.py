"""Paths for journals, and one that is open."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.journals import journal_at

from omac.journal.application import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path where a journal may be made; its folder does not exist yet."""
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """Yield an empty journal, open for appending."""
    opened = journal_at(path)
    yield opened
    opened.close()
