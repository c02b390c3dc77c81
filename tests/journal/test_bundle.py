"""journal/bundle.py: the events of a journal as they go into an export."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from contract.journals import called, commit_now

from omac.journal import bundle
from omac.journal.application import Journal
from omac.journal.checkpoint import current_checkpoint
from omac.journal.codec import Codec
from omac.journal.redaction import Redaction


def test_what_is_appended_meanwhile_leaves_the_log(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export of many events goes on in a later snapshot: the write-ahead log does not grow until its end."""
    monkeypatch.setattr(bundle, "RUN_MAX", 10)
    commit_now(journal, [called(str(number)) for number in range(50)])
    tree = current_checkpoint(str(path), 1)
    events = bundle.taken(str(path), range(1, 51), tree.size, tree.root, Redaction.of(()), Codec())
    lines = [next(events)]
    commit_now(journal, [called("later")])
    lines += [next(events) for _ in range(30)]
    with closing(sqlite3.connect(path)) as connection:
        _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert frames == moved > 0
    lines += events
    assert [event.position for _, event in lines if event is not None] == list(range(1, 51))
