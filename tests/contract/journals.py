"""Journals for tests: on a path, with events that are simple to distinguish, and drivers in other processes."""

import os
import secrets
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from contract.recorder import log

from omac.domain.access.control import ControlCalled
from omac.domain.directories.events import SessionAdmitted
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Cause, Draft, Recorded
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.journal.application import Journal
from omac.journal.judgement import Conflict, Envelope
from omac.journal.opening import open_journal
from omac.journal.sql_recorder import SqlRecorder
from omac.journal.store import open_for_writing

LOG = StreamId("control/test")
PERSON = Cause("person")


def sqlite_recorder(path: str) -> SqlRecorder:
    """Return a recorder on a SQLite file, which is created if it is missing."""
    return SqlRecorder(path, open_for_writing(path, secrets.token_hex(8)))


def commits_of(recorder: SqlRecorder) -> list[str]:
    """Return a list that gets each COMMIT of a recorder from now on."""
    commits: list[str] = []

    def note(statement: str) -> None:
        if statement == "COMMIT":
            commits.append(statement)

    recorder._writer.set_trace_callback(note)
    return commits


def create(path: str) -> str:
    """Open the journal at `path` as a process of its own would, append one event, and return the journal's name."""
    recorder = sqlite_recorder(path)
    try:
        recorder.insert_events(log(LOG, b"", kind="control.called"), groups=[(1, Envelope(1, "run", "person"))])
        return recorder.journal_id()
    finally:
        recorder.close()


def journal_at(path: Path, run: str = "run-1") -> Journal:
    """Return a journal whose clock ticks once for every event."""
    return open_journal(str(path), run, count(1).__next__)


def called(text: str) -> Draft:
    """Return an event of a log, recognisable by `text`."""
    return Draft(LOG, None, ControlCalled("activate", text, "socket"))


def admitted(stream: str, version: int, session: str = "s") -> Draft:
    """Return an event of an aggregate."""
    return Draft(StreamId(stream), version, SessionAdmitted(session, TokenDigest("d" * 64)))


def texts(records: Sequence[Recorded]) -> list[str]:
    """Return the texts that distinguish events of `called`."""
    return [recorded.event.dir for recorded in records]


def run_python(code: str, *arguments: str, wrap: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a driver, as `python` starts it, to its end."""
    with python(code, *arguments, wrap=wrap) as process:
        try:
            out, err = process.communicate(timeout=60)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def python(code: str, *arguments: str, wrap: Sequence[str] = (), stdin: int | None = None) -> subprocess.Popen[str]:
    """Start a driver in a process of its own, inside `wrap` (a bubblewrap command) if given; it can import tests."""
    argv = [*wrap, sys.executable, "-c", textwrap.dedent(code), *arguments]
    root = Path(__file__).parents[2]
    variables = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"}
    return subprocess.Popen(argv, env=variables, text=True, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lock(path: Path) -> sqlite3.Connection:
    """Return another program's connection, which holds the write lock until it is closed."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def decide_now(
    journal: Journal, aggregate: Aggregate[Any, Any], stream: StreamId, command: Any, cause: Cause = PERSON
) -> Sequence[Recorded]:
    """Decide and commit at this very moment, as another process does, without giving a task in this one a turn."""
    entry = journal.load(stream, aggregate.initial, aggregate.evolve) if aggregate.versioned else None
    events = aggregate.decided(command, entry.state if entry else aggregate.initial)
    drafts = [Draft(stream, entry.version + n if entry else None, event) for n, event in enumerate(events, 1)]
    return commit_now(journal, drafts, cause) if drafts else ()


def commit_now(journal: Journal, drafts: Sequence[Draft], cause: Cause = PERSON) -> Sequence[Recorded]:
    """Append drafts as they are; raises Conflict when others were first."""
    (result,) = journal.commit([journal.group(drafts, journal.envelope(cause))])
    if isinstance(result, Conflict):
        raise result
    return result
