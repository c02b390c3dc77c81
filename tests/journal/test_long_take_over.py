"""A journal of 200,000 events by the first omac, without proofs, gets them in place, however often omac is killed."""

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from clients.terminal import Terminal, terminal
from journal.old_journal import GOLDEN, write_old_journal
from journal.test_golden import host_with, used_state
from real_omac import COMMAND, Omac

EVENTS = 200_000
KILLS = 4
TOLD = re.compile(rb"([\d,]+) of ([\d,]+) events have proofs")


def rows(path: Path) -> list[tuple[object, ...]]:
    """Return every event as it is stored, with its names."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = dict(connection.execute("SELECT id, text FROM name"))
        query = "SELECT stream, kind, run, actor, * FROM event WHERE position <= ? ORDER BY position"
        return [(*map(names.get, row[:4]), *row[4:]) for row in connection.execute(query, (EVENTS,))]


def proven(path: Path) -> int:
    """Return how many events have a leaf; require that the tree counts as many."""
    query = "SELECT size, (SELECT count(*) FROM leaf), (SELECT max(position) FROM leaf) FROM tree"
    with (
        contextlib.suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection,
    ):
        for size, count, last in connection.execute(query):
            assert size == count == (last or 0)
            return int(size)
    return 0


@pytest.mark.full
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Proofs made before each kill -9 stay, a terminal shows the progress, and no event is lost."""
    old = tmp_path / "old.db"
    write_old_journal(old, EVENTS)
    before = rows(old)
    assert len(before) == EVENTS
    seed = int.from_bytes(os.urandom(4), "big")
    chosen = random.Random(seed)
    for folder in ("host", "used"):
        (tmp_path / folder).mkdir()
    with used_state(tmp_path / "used") as used, host_with(str(old), GOLDEN, tmp_path / "host", used) as omac:
        journal = omac.state / "journal.db"
        assert omac.run("audit", "verify").status != 0  # there is nothing to verify yet
        progress: list[tuple[int, int]] = []
        reached = []
        for _ in range(KILLS):
            progress += killed_in_between(omac, chosen)
            reached.append(proven(journal))
        print(f"seed {seed}, proven after each kill: {reached}", file=sys.stderr)
        assert reached == sorted(reached)
        assert 0 < reached[-1] < EVENTS
        assert progress == [] or all(0 < done < whole <= EVENTS for done, whole in progress)
        with at_terminal(omac) as screen:
            assert screen.status(60.0) == 0, screen.drawn
        progress += shown(screen)
        assert b"recorded %d events without proofs" % (EVENTS - reached[-1]) in screen.drawn
        assert progress
        assert rows(journal) == before
        assert proven(journal) > EVENTS
        verified = json.loads(omac.ok("audit", "verify", "--json"))
        assert (verified["findings"], verified["late"]) == ([], EVENTS)
        assert verified["checked"] == verified["size"] > EVENTS
        assert f"positions 1 to {EVENTS} got their proofs later" in omac.ok("audit", "verify")
        omac.ok("journal", "check")
        assert len(omac.audit("-n", "100000")) > EVENTS / 3


def killed_in_between(omac: Omac, chosen: random.Random) -> list[tuple[int, int]]:
    """Start omac at a terminal, and kill it when some more events have proofs; return the progress that it printed."""
    journal = omac.state / "journal.db"
    until = proven(journal) + chosen.randrange(EVENTS // KILLS // 2) + 1
    with at_terminal(omac) as screen:
        deadline = time.monotonic() + 30
        while proven(journal) < until:
            time.sleep(0.005)
            assert time.monotonic() < deadline
        os.kill(screen.pid, signal.SIGKILL)
        assert screen.status(10.0) == -signal.SIGKILL
    return shown(screen)


def at_terminal(omac: Omac) -> contextlib.AbstractContextManager[Terminal]:
    """Start omac at a terminal, which opens the journal to write."""
    return terminal((*COMMAND, "start", "--", "true"), omac.environment, omac.root / "shop")


def shown(screen: Terminal) -> list[tuple[int, int]]:
    """Return the progress that was drawn."""
    return [(int(done.replace(b",", b"")), int(whole.replace(b",", b""))) for done, whole in TOLD.findall(screen.drawn)]
