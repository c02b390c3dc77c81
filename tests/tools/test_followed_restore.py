"""Readers that go on, and the refusal that they get where a restored backup took the place of what they have read."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from polling import eventually
from real_omac import Omac
from tools.test_snapshots import called_often

REPLACED = "has other records than those that were read: a backup was restored meanwhile"


def cursor_of(omac: Omac) -> str:
    """Return the cursor of a reader who knows all rows."""
    cursor: str = json.loads(omac.ok("audit", "--after", "start", "--json").splitlines()[-1])["cursor"]
    return cursor


def restored(omac: Omac, backup: Path, calls: int) -> None:
    """Put a backup back, and go on otherwise."""
    omac.ok("journal", "restore", str(backup), "--yes")
    called_often(omac, calls)


@pytest.fixture
def backup(omac: Omac, tmp_path: Path) -> Path:
    """Return a backup of a journal that went on."""
    omac.approved("shop")
    path = tmp_path / "backup.db"
    omac.ok("journal", "backup", str(path))
    called_often(omac, 3)
    return path


@pytest.mark.full
@pytest.mark.parametrize("calls", [0, 2, 5], ids=["shorter", "nearly as long", "longer"])
@pytest.mark.parametrize(
    "command", [("audit", "-n", "1", "--follow", "--json"), ("top", "--json")], ids=["audit", "top"]
)
def test_a_reader_that_goes_on(omac: Omac, backup: Path, command: Sequence[str], calls: int) -> None:
    """`omac audit --follow` and `omac top` end where the journal does not go on as they have read it."""
    following = omac.start(*command)
    following.line()
    restored(omac, backup, calls)
    eventually(lambda: following.process.poll() is not None, 10.0, "the end")
    assert following.process.returncode == 5
    journal = omac.state / "journal.db"
    assert f"the journal {journal} {REPLACED}\n  try: omac {' '.join(command)}  # shows the restored one" in (
        following.said()
    )


@pytest.mark.full
def test_a_reader_beside_a_seal_and_a_prune(omac: Omac, backup: Path) -> None:
    """`omac audit --follow` goes on where the record that it read last was sealed and pruned."""
    assert backup.exists()
    following = omac.start("audit", "-n", "1", "--follow", "--json")
    following.line()
    for words in (("checkpoint",), ("journal", "seal"), ("checkpoint",), ("journal", "prune", "--keep", "0s", "--yes")):
        omac.ok(*words)
    assert json.loads(following.line())["kind"] == "segment.sealed"
    assert json.loads(following.line())["kind"] == "segment.pruned"
    following.end()


def test_a_cursor_of_before(omac: Omac, backup: Path) -> None:
    """A cursor is refused once a restored journal has gone on otherwise, and one of the restored part is not."""
    common = json.loads(omac.ok("audit", "--after", "start", "--page", "1", "--json").splitlines()[-1])
    cursor = cursor_of(omac)
    restored(omac, backup, 8)
    done = omac.run("audit", "--after", cursor)
    assert done.status == 2
    assert f"the cursor {cursor} is of records that this journal does not have: a backup was restored" in done.err
    assert "  try: omac audit --after start  # from the beginning" in done.err
    assert omac.run("audit", "--after", common["cursor"]).status == 0
    assert omac.run("audit", "--after", cursor_of(omac)).status == 0
    whole = cursor_of(omac).partition("-")[0]  # as an earlier omac printed it
    assert omac.run("audit", "--after", whole).status == 0
