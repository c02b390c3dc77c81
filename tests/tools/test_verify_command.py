"""`omac audit verify`: what a person sees of a journal that is whole, and of one that is not."""

import json
import sqlite3
from contextlib import closing

from real_omac import Omac


def spoil(omac: Omac, statement: str) -> None:
    """Change the journal as nothing of omac would."""
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as connection:
        connection.execute(statement)


def test_verify_beside_a_server(omac: Omac) -> None:
    """A journal that is in use, and grows, verifies."""
    project = omac.project("shop", "echo")
    serving = omac.serve()
    omac.approve(project, "echo")
    serving.activate(project)
    done = omac.run("audit", "verify")
    assert (done.status, done.err) == (0, "")
    figures = json.loads(omac.ok("audit", "verify", "--json", "--from", "2", "--to", "4"))
    assert figures["checked"] == 3
    assert figures["findings"] == []
    assert f"root {figures['root']}" in done.out or figures["size"] > 4
    assert json.loads(omac.ok("audit", "--json", "-n", "1"))


def test_verify_names_the_position(omac: Omac) -> None:
    """An edit that decodes, and that no other command can see, is found; the exit code is 10."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    spoil(omac, "UPDATE event SET at = at + 1 WHERE position = 2")
    done = omac.run("audit", "verify")
    assert done.status == 10
    assert "position 2: its event is not what was recorded (altered)" in done.out
    assert "from position 2 on" in done.err
    found = omac.run("audit", "verify", "--json")
    assert found.status == 10
    (finding,) = json.loads(found.out)["findings"]
    assert (finding["position"], finding["kind"]) == (2, "altered")


def test_verify_takes_positions(omac: Omac) -> None:
    """A word that is no position is misuse."""
    omac.approve(omac.project("shop", "echo"), "echo")
    refused = omac.run("audit", "verify", "--from", "x")
    assert refused.status == 2
    assert "--from takes a position" in refused.err
