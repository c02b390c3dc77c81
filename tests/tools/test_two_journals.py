"""Two servers with two journals in one state directory: each ingests the launches of its own journal."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest
from contract.media import needs_bubblewrap
from polling import eventually
from real_omac import Omac

LAUNCHES = 4
ENTRY = (sys.executable, "-c", "from omac.tools.entry import main; main()")


def launches(path: Path) -> int:
    """Return how many launches a journal holds from beginning to end."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        query = "SELECT count(*) FROM event JOIN name ON name.id = kind WHERE text IN (?, ?)"
        (count,) = connection.execute(query, ("sandbox.launch-requested", "sandbox.exited")).fetchone()
    return int(count) // 2


def launch(omac: Omac, project: Path, extra: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run a command in a sandbox."""
    subprocess.run([*ENTRY, "sandbox", "run", "--", "true"], cwd=project, env={**omac.environment, **extra}, check=True)


@pytest.mark.full
@needs_bubblewrap
def test_launches_are_recorded_where_commands_look(omac: Omac, tmp_path: Path) -> None:
    """Every launch is in the journal in use, and none in the other one; a launch that names the other journal goes
    there."""
    project = omac.project("shop", "echo")
    omac.serve()
    in_use = tmp_path / "other.db"
    omac.start("serve", "--no-inner", "--json", "--root", str(omac.root), "--journal", str(in_use)).await_ready()
    for _ in range(LAUNCHES):
        launch(omac, project)
    eventually(lambda: launches(in_use) == LAUNCHES, 10, "all launches in the journal in use")
    assert launches(omac.state / "journal.db") == 0
    rows = omac.ok("audit", "--kind", "sandbox", "--json").splitlines()
    assert len([json.loads(row) for row in rows]) == LAUNCHES
    launch(omac, project, {"OMAC_JOURNAL": str(omac.state / "journal.db")})
    eventually(lambda: launches(omac.state / "journal.db") == 1, 10, "the launch that named the first journal")
    assert launches(in_use) == LAUNCHES
