"""The stored tree: a leaf for every event, in the event's transaction, for every appender, also after a kill."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from contract.journals import called, commit_now, journal_at, run_python
from journal.damage import append, append_calls, encoded, journal_of, sql

from omac.domain.kernel.event import Cause, Spooled
from omac.domain.kernel.ids import HostId, StreamId
from omac.domain.kernel.refusal import Refusal
from omac.journal import leaves
from omac.journal.check import check
from omac.journal.leaves import NEAR
from omac.journal.merkle import MerkleTree, leaf_hash, root_of
from omac.journal.reader import ReadJournal
from omac.journal.repair import Repair
from omac.projections.system import System


def stored(path: Path) -> tuple[int, list[bytes], list[bytes], int]:
    """Return size, peaks, leaves and the last late position of the journal at `path`."""
    ((size, peaks, late),) = sql(path, "SELECT size, peaks, late FROM tree")
    hashes = [hash_ for _, hash_ in sql(path, "SELECT position, hash FROM leaf ORDER BY position")]
    assert [at for (at,) in sql(path, "SELECT position FROM leaf ORDER BY position")] == list(range(1, size + 1))
    return size, [peaks[at : at + 32] for at in range(0, len(peaks), 32)], hashes, late


def expected(path: Path) -> list[bytes]:
    """Return the leaves that the documentation defines, computed by other means."""
    with contextlib.closing(ReadJournal(str(path))) as journal:
        rows = journal.store.select(0, 1_000_000)
    return [
        leaf_hash(
            msgspec.msgpack.encode(
                [row.id, row.originator_id, row.originator_version, row.topic, row.at, row.run, row.actor,
                 row.correlation, row.causation, row.happened, None, row.state]
            )
        )
        for row in rows
    ]  # fmt: skip


def require_whole(path: Path, size: int, late: int) -> None:
    """Require that every event has the leaf that it should have, and that the peaks are those of the leaves."""
    stored_size, peaks, hashes, stored_late = stored(path)
    assert (stored_size, stored_late) == (size, late)
    assert hashes == expected(path)
    assert MerkleTree(size, peaks).root() == root_of(hashes)


def without_leaves(path: Path) -> None:
    """Make the journal one that an earlier omac wrote."""
    sql(path, "DROP TABLE leaf")
    sql(path, "DROP TABLE tree")


def test_every_event_has_a_leaf(path: Path) -> None:
    """Events of aggregates and logs have leaves, with and without optional fields, after one opening or two."""
    journal_of(path)
    journal = journal_at(path)
    commit_now(journal, [called("six"), called("seven")], Cause("bridge", "c-1", 3))
    envelope = journal.envelope(Cause("agent"), Spooled("h", "file", "run-9", 17, frozenset(("file",))))
    journal.commit([journal.group([called("eight")], envelope)])
    journal.close()
    require_whole(path, 12, 0)


def test_processes_in_turn_continue_one_tree(path: Path) -> None:
    """The next append continues the tree with the events that another process appended."""
    first, second = journal_at(path), journal_at(path, "run-2")
    for number in range(20):
        append_calls(first if number % 3 else second, str(number))
    first.close()
    second.close()
    require_whole(path, 20, 0)


def test_an_old_journal_is_taken_over(path: Path) -> None:
    """Events of an old journal get leaves at the next opening, and count as late; later events get theirs in time."""
    journal_of(path)
    without_leaves(path)
    journal = journal_at(path)
    append_calls(journal, "six")
    journal.close()
    require_whole(path, 10, 9)


def test_what_an_earlier_omac_appends_beside_a_server_gets_leaves_with_the_next_append(path: Path) -> None:
    """Events of an earlier omac, which knows no leaves, get late ones with the next append; none is refused."""
    journal = journal_at(path)
    append_calls(journal, "one")
    for _ in range(3):
        append(path, StreamId("control/test"), None, *encoded(called("old").event))
    append_calls(journal, "two")
    require_whole(path, 5, 4)
    journal.close()


def test_too_many_of_them_are_left_to_the_next_opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append does not compute many missing leaves; the next opening does."""
    monkeypatch.setattr(leaves, "NEAR", 2)
    journal = journal_at(path)
    append_calls(journal, "one")
    for _ in range(3):
        append(path, StreamId("control/test"), None, *encoded(called("old").event))
    append_calls(journal, "two")
    assert stored(path)[0] == 1
    journal.close()
    journal_at(path).close()
    require_whole(path, 5, 5)
    assert NEAR > 2


def test_a_damaged_position_ends_it_and_a_repair_lets_it_go_on(path: Path) -> None:
    """Opening a journal computes leaves up to a missing event, and is not refused; after a repair it computes the
    rest."""
    journal_of(path)
    without_leaves(path)
    sql(path, "DELETE FROM event WHERE position = 5")
    journal_at(path).close()
    assert stored(path)[0] == 4
    Repair(str(path), HostId("h"), "r", lambda: 10**6, lambda: System().apply, lambda *_: False).perform()
    journal_at(path).close()
    require_whole(path, 10, 10)


def test_a_tree_larger_than_the_journal_refuses_appends(path: Path) -> None:
    """A journal that lost its last events and their head is refused for its leaves; the check finds the positions."""
    journal_of(path)
    sql(path, "DELETE FROM event WHERE position > 7")
    sql(path, "UPDATE head SET position = 7")
    with pytest.raises(Refusal, match="leaves of 9 events") as refused:
        journal_at(path)
    assert refused.value.reason == "journal-damaged"
    assert [finding.position for finding in check(str(path), System().apply)] == [8, 9]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM tree", "UPDATE tree SET peaks = x'00'", "UPDATE tree SET size = 1", "UPDATE tree SET size = 1.5",
        "UPDATE tree SET size = 'one'",
    ],
)  # fmt: skip
def test_a_tree_that_cannot_be(path: Path, statement: str) -> None:
    """A tree that cannot be right is refused; nothing is appended to it."""
    journal_of(path)
    sql(path, statement)
    with pytest.raises(Refusal) as refused, contextlib.closing(journal_at(path)) as journal:
        append_calls(journal, "six")
    assert refused.value.reason in ("journal-damaged", "journal-unavailable")


@pytest.mark.full
def test_a_take_over_that_is_killed_goes_on(path: Path) -> None:
    """An opening killed by kill -9 leaves a tree that is right as far as it goes; the next opening does the rest."""
    made = run_python(
        """
        import sys
        from omac.journal.store import open_for_writing
        from contract.journals import called, commit_now, journal_at
        from pathlib import Path
        journal = journal_at(Path(sys.argv[1]))
        for _ in range(40):
            commit_now(journal, [called("x" * 50)] * 1000)
        journal.close()
        """,
        str(path),
    )
    assert made.returncode == 0, made.stderr
    without_leaves(path)
    code = (
        "import sys; from omac.journal import leaves; leaves.PART = 50; from contract.journals import journal_at; "
        "from pathlib import Path; journal_at(Path(sys.argv[1]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], env=os.environ | {"PYTHONPATH": ":".join(sys.path)}
    ) as process:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(sqlite3.OperationalError):
                if sql(path, "SELECT size FROM tree WHERE size > 1000"):
                    break
        process.send_signal(signal.SIGKILL)
    size, peaks, hashes, _ = stored(path)
    assert 1000 < size < 40_000
    assert MerkleTree(size, peaks).root() == root_of(hashes)
    journal_at(path).close()
    require_whole(path, 40_000, 40_000)
