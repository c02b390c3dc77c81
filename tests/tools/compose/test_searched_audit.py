"""tools/compose/searched_audit.py: an index changes the time that an answer takes, never the answer."""

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from contract.journals import run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.domain.access.access import (
    AccessAborted,
    AccessBatchCompleted,
    AccessBatchRequested,
    AccessCompleted,
    AccessRefused,
    AccessRequested,
)
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft, Event, Recorded
from omac.domain.kernel.ids import HostId
from omac.journal.audit_index import AuditIndex
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.journal.segment import Segment
from omac.projections.evidence.accesses import AuditRow
from omac.projections.evidence.audit_query import AuditQuery
from omac.tools.compose import searched_audit
from omac.tools.compose.searched_audit import SearchedAudit
from omac.tools.compose.state import StateDir
from omac.tools.terminal.version import VERSION

STREAM = ids.access_stream(HostId("h"))
SKILLS = st.sampled_from(["echo", "mail"])
ACCESSES = st.tuples(st.integers(1, 15), st.sampled_from([0, 0, 1, 2]))
EVENTS = st.one_of(
    st.builds(
        lambda skill, count: AccessBatchRequested("/w", skill, "m", None, ("GET",) * count, ("/x", "/y", "/z")[:count]),
        SKILLS, st.integers(2, 3),
    ),
    st.lists(ACCESSES, min_size=2, max_size=5).map(
        lambda of: AccessBatchCompleted(*zip(*of, strict=True), *[(1,) * len(of)] * 4)
    ),
    st.builds(AccessCompleted, st.integers(1, 15), st.just(200), st.just(1), st.just(1), st.just(1)),
    st.builds(AccessAborted, st.integers(1, 15), st.just("client-gone")),
    st.just(AccessRefused("/w", None, "nope", None, "PUT", "/y", 404, "unknown-mount")),
)  # fmt: skip
QUERIES = [
    AuditQuery(skill="echo"),
    AuditQuery(session=""),
    AuditQuery(skill=""),
    AuditQuery(session="s1", outcome="open"),
    AuditQuery(outcome="completed", since=3_000, until=9_000),
    AuditQuery(path="/x"),
    AuditQuery(),
]


class Kept:
    """A journal at `path` with its state directory; `clock` ticks."""

    def __init__(self, folder: Path) -> None:
        self.state = StateDir(str(folder))
        self.path = str(folder / "journal.db")
        self.now = 0

    def clock(self) -> int:
        self.now += 1_000
        return self.now

    def append(self, *events: Event) -> None:
        with closing(open_journal(self.path, "r", self.clock)) as journal:
            for event in events:
                journal.commit([journal.group([Draft(STREAM, None, event)], journal.envelope(Cause("agent")))])

    def require_equal(self) -> None:
        """Assert that each query has the same answer, with and without an index."""
        with closing(ReadJournal(self.path)) as journal:
            head = journal.store.head()
            plain, indexed = (SearchedAudit(journal, self.state, head, least) for least in (10**9, 0))
            for query in QUERIES:
                assert list(indexed.rows(query)) == list(plain.rows(query))
                for count in (0, 2, 100):
                    assert indexed.newest(query, count) == plain.newest(query, count)
                for after in (0, head // 2, head):
                    assert list(indexed.ended(query, after)) == list(plain.ended(query, after))
            assert indexed.fold().state([], []) == plain.fold().state([], [])

    @property
    def index_name(self) -> str:
        with closing(ReadJournal(self.path)) as journal:
            return f"{VERSION}:{journal.store.journal_id()}:0"

    @property
    def index(self) -> Path:
        (path,) = Path(self.state.path, "journals").glob("*.audit")
        return path


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Return a journal with some accesses, and its index."""
    journal = Kept(tmp_path)
    journal.append(*some())
    journal.require_equal()
    return journal


def some() -> Iterator[Event]:
    """Yield accesses that ended, and one that has not."""
    for position in range(1, 21, 2):
        yield AccessRequested("/w", "echo" if position % 4 == 1 else "mail", "m", "s1", "GET", "/x")
        yield AccessCompleted(position, 200, 1, 1, 1)
    yield AccessRequested("/w", "echo", "m", None, "GET", "/x")


@pytest.mark.full
@settings(max_examples=examples(60))
@given(st.lists(st.lists(EVENTS, max_size=6), min_size=1, max_size=4))
def test_answers_are_equal(batches: list[list[Event]]) -> None:
    """Answers are equal after each append, while the index grows in small steps."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(searched_audit, "BATCH", 2)
        journal = Kept(Path(folder))
        for batch in batches:
            journal.append(*batch)
            journal.require_equal()


def test_what_was_pruned_is_not_read(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole audit of a pruned journal reads its rows, and not the positions whose rows are gone."""
    with closing(ReadJournal(kept.path)) as journal:
        audit = SearchedAudit(journal, kept.state, journal.store.head(), 0)
        monkeypatch.setattr(journal.store, "segments", lambda: [Segment(1, 2, "a", 1, "b", pruned=1)])
        rows = list(audit.rows(AuditQuery()))  # makes the index again
        read, begun = journal.records, list[int]()

        def records(after: int = 0, until: int | None = None) -> Iterator[Recorded]:
            begun.append(after)
            return read(after, until)

        monkeypatch.setattr(journal, "records", records)
        assert list(audit.rows(AuditQuery())) == rows
        assert 0 not in begun


def test_an_index_that_breaks_beside_a_prune(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer goes on behind its last row, where the index breaks in the middle, and a prune drops what came before:
    no row is missing, and none comes twice."""
    with closing(ReadJournal(kept.path)) as journal:
        audit = SearchedAudit(journal, kept.state, journal.store.head(), 0)
        wanted = list(audit.rows(AuditQuery(skill="echo")))
        select, read = AuditIndex.select, journal.records

        def breaking(*arguments: Any, **more: Any) -> Iterator[Any]:
            yield from islice(select(*arguments, **more), 2)
            monkeypatch.setattr(
                journal, "records", lambda after, until: read(max(after, 6), until)
            )  # two rows are gone
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(AuditIndex, "select", breaking)
        assert list(audit.rows(AuditQuery(skill="echo"))) == wanted


def test_it_is_private(kept: Kept) -> None:
    """The index is private, because it has the same names as the journal."""
    assert os.stat(kept.index).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 5_000])
def test_a_damaged_index_is_made_again(kept: Kept, content: bytes) -> None:
    """A damaged index is made again, whatever its content is."""
    kept.index.write_bytes(content)
    kept.require_equal()
    kept.require_equal()


def test_pages_that_are_damaged(kept: Kept) -> None:
    """An index with a sound header and damaged pages changes no answer."""
    whole = kept.index.read_bytes()
    kept.index.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    kept.require_equal()


def test_an_index_of_another_journal(kept: Kept, tmp_path: Path) -> None:
    """Rows of another journal's index are never shown, nor those of a later state of the same journal."""
    copy = tmp_path / "copy.db"
    shutil.copy(kept.path, copy)
    kept.append(*some())
    kept.require_equal()
    shutil.copy(copy, kept.path)  # behind its index
    kept.require_equal()
    foreign = Kept(tmp_path / "other")
    foreign.append(AccessRequested("/w", "mail", "m", "s1", "GET", "/x"), *some())
    shutil.copy(foreign.path, kept.path)
    kept.require_equal()


def test_an_index_that_is_ahead(kept: Kept) -> None:
    """A reader that began before another process indexed more gets the answer of that time, and leaves the index as it
    is."""
    with closing(ReadJournal(kept.path)) as journal:
        head = journal.store.head()
        before = list(SearchedAudit(journal, kept.state, head, 10**9).ended(AuditQuery(), 0))
        kept.append(*some())
        kept.require_equal()
        stamp = kept.index.stat().st_mtime_ns, kept.index.stat().st_ino
        late = SearchedAudit(journal, kept.state, head, 0)
        assert list(late.ended(AuditQuery(), 0)) == before
        assert late.newest(AuditQuery(), 100)
        assert (kept.index.stat().st_mtime_ns, kept.index.stat().st_ino) == stamp


def test_an_index_that_cannot_be_written(kept: Kept) -> None:
    """The journal answers if no index can be written."""
    kept.index.unlink()
    folder = Path(kept.state.path, "journals")
    shutil.rmtree(folder)
    folder.write_text("in the way")
    kept.require_equal()


INDEXING = """
    import os, signal, sys
    from omac.journal.reader import ReadJournal
    from omac.projections.evidence.audit_query import AuditQuery
    from omac.tools.compose import searched_audit
    from omac.tools.compose.state import StateDir

    searched_audit.BATCH, searched_audit.TOLD_EVERY = 2, 1
    journal = ReadJournal(sys.argv[1] + "/journal.db")

    def progress(done, whole):
        if done == 12:
            os.kill(os.getpid(), signal.SIGKILL)

    audit = searched_audit.SearchedAudit(journal, StateDir(sys.argv[1]), journal.store.head(), 0, progress)
    list(audit.rows(AuditQuery(skill="echo")))
"""


def test_who_is_killed_while_indexing_leaves_a_part(kept: Kept) -> None:
    """A process killed while it indexes leaves a part of the index, and the next process continues it."""
    kept.index.unlink()
    assert run_python(INDEXING, kept.state.path).returncode == -signal.SIGKILL
    with closing(AuditIndex(str(kept.index), kept.index_name)) as index:
        progress = index.progress()
    assert progress is not None
    assert progress.position == 10
    kept.require_equal()


def test_two_who_index_at_once(kept: Kept) -> None:
    """Two processes that index at once both have the answer."""
    kept.index.unlink()
    with closing(ReadJournal(kept.path)) as journal:
        head, query = journal.store.head(), AuditQuery(skill="echo")
        inner: list[list[AuditRow]] = []

        def meanwhile(done: int, _whole: int) -> None:
            if done == 6:
                inner.append(list(SearchedAudit(journal, kept.state, head, 0).rows(query)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(searched_audit, "BATCH", 2)
            patch.setattr(searched_audit, "TOLD_EVERY", 1)
            outer = list(SearchedAudit(journal, kept.state, head, 0, meanwhile).rows(query))
        plain = list(SearchedAudit(journal, kept.state, head, 10**9).rows(query))
    assert outer == plain
    assert inner == [plain]
    kept.require_equal()
