"""tools/compose/searched_links.py: an index changes the time that an explanation takes, never the explanation."""

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from contract.journals import run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.domain.access.access import AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft
from omac.domain.kernel.ids import HostId
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.projections.evidence.explanation import explain
from omac.tools.compose import searched_links
from omac.tools.compose.searched_links import SearchedLinks
from omac.tools.compose.state import StateDir

Pairs = Sequence[tuple[int | None, str | None]]  # the cause and the conversation of each record
STREAM = ids.access_stream(HostId("h"))
EVENT = AccessRequested("/w", "echo", "m", None, "GET", "/x")
SOME: Pairs = [(None, None), (1, "c"), (2, "d"), (None, "c"), (1, None), (5, "d"), (3, "c"), (None, None), (1, "d")]


class Linked:
    """A journal at `path` with its state directory."""

    def __init__(self, folder: Path) -> None:
        self.state = StateDir(str(folder))
        self.path = str(folder / "journal.db")

    def append(self, pairs: Pairs) -> None:
        with closing(open_journal(self.path, "r", lambda: 1_000)) as journal:
            for causation, correlation in pairs:
                envelope = journal.envelope(Cause("agent", correlation, causation))
                journal.commit([journal.group([Draft(STREAM, None, EVENT)], envelope)])

    def require_equal(self) -> None:
        """Assert that each record has the same explanation, with and without an index, cut or whole."""
        with closing(ReadJournal(self.path)) as journal:
            plain, indexed = (SearchedLinks(journal, self.state, journal.store.head(), least) for least in (10**9, 0))
            for position in range(1, journal.store.head() + 1):
                for records_max in (200, 3):
                    assert explain(position, indexed, records_max) == explain(position, plain, records_max)

    @property
    def index(self) -> Path:
        (path,) = Path(self.state.path, "journals").glob("*.audit")
        return path

    def indexed(self) -> list[tuple[int, int | None, str | None]]:
        """Return the rows of the index."""
        with closing(sqlite3.connect(self.index)) as connection:
            return connection.execute("SELECT * FROM link ORDER BY position").fetchall()


@pytest.fixture
def linked(tmp_path: Path) -> Linked:
    """Return a journal with some links, and its index."""
    linked = Linked(tmp_path)
    linked.append(SOME)
    linked.require_equal()
    assert linked.indexed()
    return linked


PAIRS = st.tuples(st.none() | st.integers(0, 14), st.none() | st.sampled_from("cd"))


@pytest.mark.full
@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.lists(PAIRS, max_size=6), min_size=1, max_size=3).filter(any))
def test_explanations_are_equal(batches: list[Pairs]) -> None:
    """Explanations are equal after each append, while the index grows in small steps, even if causes are impossible."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(searched_links, "BATCH", 2)
        linked = Linked(Path(folder))
        for batch in batches:
            if batch:
                linked.append(batch)
                linked.require_equal()


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 5_000])
def test_a_damaged_index_is_made_again(linked: Linked, content: bytes) -> None:
    """A damaged index is made again, whatever its content is."""
    linked.index.write_bytes(content)
    linked.require_equal()
    linked.require_equal()
    assert linked.indexed()


def test_pages_that_are_damaged(linked: Linked) -> None:
    """An index with a sound header and damaged pages changes no explanation."""
    whole = linked.index.read_bytes()
    linked.index.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    linked.require_equal()


def test_an_index_of_another_journal(linked: Linked, tmp_path: Path) -> None:
    """Links of another journal's index are never shown, nor those of a later state of the same journal, or of a state
    that went on otherwise."""
    copy = tmp_path / "copy.db"
    shutil.copy(linked.path, copy)
    linked.append(SOME)
    linked.require_equal()
    shutil.copy(copy, linked.path)  # behind its index
    linked.require_equal()
    linked.append([(2, "d"), *SOME])
    linked.require_equal()
    foreign = Linked(tmp_path / "other")
    foreign.append([(None, "d"), *SOME])
    shutil.copy(foreign.path, linked.path)
    linked.require_equal()


def test_a_repair_replaced_what_was_indexed(linked: Linked) -> None:
    """The index is made again after a repair: an event that was set aside has no cause any more."""
    with closing(sqlite3.connect(linked.path)) as connection, connection:
        connection.execute("UPDATE event SET causation = NULL, correlation = NULL WHERE position = 2")
        connection.execute("INSERT INTO set_aside (record, position) VALUES (9, 2)")
    linked.require_equal()
    assert 2 not in [position for position, *_ in linked.indexed()]


def test_an_index_that_cannot_be_written(linked: Linked) -> None:
    """The journal answers if no index can be written."""
    folder = Path(linked.state.path, "journals")
    shutil.rmtree(folder)
    folder.write_text("in the way")
    linked.require_equal()


def test_an_index_that_another_process_holds(linked: Linked) -> None:
    """A reader does not wait for an index that another process holds, and the index stays."""
    linked.append(SOME)
    with closing(sqlite3.connect(linked.index, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with closing(ReadJournal(linked.path)) as journal:
            links = SearchedLinks(journal, linked.state, journal.store.head(), 0)
            assert list(links.caused_by({1})) == list(journal.caused_by({1}))
            assert links.of_correlation("c", 9) == journal.of_correlation("c", 9)
        connection.execute("ROLLBACK")
    linked.require_equal()


def test_it_is_private(linked: Linked) -> None:
    """The index is private, because it names conversations."""
    assert os.stat(linked.index).st_mode & 0o777 == 0o600


INDEXING = """
    import os, signal, sys
    from omac.journal.reader import ReadJournal
    from omac.tools.compose import searched_links
    from omac.tools.compose.state import StateDir

    searched_links.BATCH = 2

    def progress(done, whole):
        if done == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    journal = ReadJournal(sys.argv[1] + "/journal.db")
    list(searched_links.SearchedLinks(journal, StateDir(sys.argv[1]), journal.store.head(), 0, progress).caused_by({1}))
"""


def test_who_is_killed_while_indexing_leaves_a_part(linked: Linked) -> None:
    """A process killed while it indexes leaves a part of the index, and the next process continues it."""
    linked.index.unlink()
    assert run_python(INDEXING, linked.state.path).returncode == -signal.SIGKILL
    assert [position for position, *_ in linked.indexed()] == [2, 3, 4]
    linked.require_equal()
    assert len(linked.indexed()) == 7
