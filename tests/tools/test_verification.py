"""`omac audit verify`: a person is told whether the journal holds what was recorded, and where it does not."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from real_omac import Omac


@pytest.fixture
def used(omac: Omac) -> Path:
    """The journal of somebody who approved a skill and ran a command."""
    project = omac.project("shop")
    omac.approve(project)
    omac.ok("start", "--workdir", str(project), "--", "true")
    return omac.state / "journal.db"


def sql(path: Path, *statements: str) -> None:
    """Run statements beside omac."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_whole_journal(omac: Omac, used: Path) -> None:
    """All events, and the root that stands for them."""
    told = json.loads(omac.ok("audit", "verify", "--json"))
    events = json.loads(omac.ok("journal", "stats", "--json"))["events"]
    assert (told["events"], told["verified"], told["proven_since"], told["finding"]) == (events, events, 1, None)
    assert told["path"] == str(used)
    text = omac.ok("audit", "verify")
    assert f"{events} events are those that were recorded" in " ".join(text.split())
    assert told["root"] in text


def test_a_changed_event(omac: Omac, used: Path) -> None:
    """Its position, exit code 10, and the next command; for programs too."""
    sql(used, "UPDATE event SET at = at + 1 WHERE position = 3")
    done = omac.run("audit", "verify")
    assert done.status == 10
    assert done.out == "position 3: it is not the event that was recorded (changed)\n"
    assert "try: omac journal check" in done.err
    done = omac.run("audit", "verify", "--json")
    assert done.status == 10
    assert json.loads(done.out)["finding"]["position"] == 3
    assert json.loads(done.out)["finding"]["problem"] == "changed"


def test_a_journal_of_an_earlier_omac(omac: Omac, used: Path) -> None:
    """The next command that records anything gives it proofs, and verify says since when it has them."""
    sql(used, "UPDATE event SET leaf = NULL", "DROP TABLE tree")
    (events,) = [json.loads(omac.ok("audit", "verify", "--json"))["without_proof"]]
    assert f"{events} later events have no proof yet" in " ".join(omac.ok("audit", "verify").split())
    omac.ok("revoke", "echo", "--workdir", str(omac.root / "shop"))
    told = json.loads(omac.ok("audit", "verify", "--json"))
    assert (told["without_proof"], told["proven_since"], told["finding"]) == (0, events + 1, None)
    assert f"positions below {events + 1} had no proof when they" in " ".join(omac.ok("audit", "verify").split())


def test_what_cannot_be_verified(omac: Omac, tmp_path: Path) -> None:
    """No journal, none of omac, and options at the wrong place."""
    assert omac.run("audit", "verify").status == 5
    other = tmp_path / "other.db"
    other.write_text("no journal")
    done = omac.run("audit", "verify", "--journal", str(other))
    assert (done.status, "is not a journal" in done.err) == (10, True)
    done = omac.run("audit", "--json", "verify")
    assert (done.status, "options of verify go behind it" in done.err) == (2, True)
