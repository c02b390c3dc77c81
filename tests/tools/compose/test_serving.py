"""The composition of a server."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from omac.domain.harness.table import DEFAULT_HARNESS
from omac.domain.kernel.refusal import Refusal
from omac.tools.compose.serve_options import ServeOptions
from omac.tools.compose.serving import Server


def test_a_server_that_cannot_begin_closes_its_journal(tmp_path: Path) -> None:
    """A server that is refused at its start is listed no more among the runs that have the journal open."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "fingerprint.key").mkdir()
    options = ServeOptions(DEFAULT_HARNESS, (str(tmp_path),))
    with pytest.raises(Refusal) as refused:
        Server(options, {"PATH": os.environ["PATH"], "OMAC_STATE_DIR": str(state)}, None)
    assert refused.tb is not None, "it keeps the server"
    with closing(sqlite3.connect(state / "journal.db")) as journal:
        assert journal.execute("SELECT * FROM opened").fetchall() == []
