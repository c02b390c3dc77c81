"""Durable events per second: the group-commit writer, against one commit per event on the same disk in the same run."""

import sqlite3
import tempfile
import time
from pathlib import Path

import trio
from bench.report import Figure, median, percentile, publish

from omac.domain import ids
from omac.domain.access import AccessRequested
from omac.domain.recorded import Cause, Draft
from omac.journal.opening import open_journal
from omac.journal.writer import Writer
from omac.projections.system import System

TASKS = 256
SECONDS = 5.0
ROUNDS = 3
EVENT = AccessRequested("/home/user/projects/acme-web", "slack", "slack", None, "POST", "/v1/channels/general/messages")


def main() -> bool:
    """Run both sides in turn; True when the bounds hold."""
    folder = tempfile.mkdtemp(prefix="omac-bench-", dir=".")
    ours, latencies, peers = [], [], []
    try:
        for number in range(ROUNDS):
            peers.append(one_commit_per_event(Path(folder) / f"peer{number}.db"))
            rate, seconds = trio.run(group_commit, Path(folder) / f"ours{number}.db")
            ours.append(rate)
            latencies.append(seconds)
            print(f"  round {number + 1}: {rate:,.0f} events/s against {peers[-1]:,.0f}", flush=True)
    finally:
        for path in Path(folder).iterdir():
            path.unlink()
        Path(folder).rmdir()
    p50 = median([percentile(one, 50) for one in latencies]) * 1000
    p99 = median([percentile(one, 99) for one in latencies]) * 1000
    rate, peer = median(ours), median(peers)
    return publish(
        "journal",
        [
            Figure(
                f"durable events/s, {TASKS} tasks", f"{rate:,.0f}", f"{peer:,.0f} (a commit each)",
                f"{rate / peer:.0f}x", ">= 50,000", rate >= 50_000,
            ),
            Figure("wait for one event, p99", f"{p99:.1f} ms", f"{p50:.1f} ms (p50)", "", "< 30 ms", p99 < 30),
        ],
    )  # fmt: skip


async def group_commit(path: Path) -> tuple[float, list[float]]:
    """Events per second and every task's waits, for tasks that each wait for their own event."""
    journal = open_journal(str(path.absolute()), "bench", time.time_ns)
    system = System()

    def fold(records: object) -> None:
        for recorded in records:  # type: ignore[attr-defined]
            system.apply(recorded)

    writer = Writer(journal, 0, fold)
    waits: list[float] = []
    draft = Draft(ids.access_stream(ids.HostId("host")), None, EVENT)
    async with trio.open_nursery() as outer:
        await outer.start(writer.run)
        began = time.perf_counter()
        async with trio.open_nursery() as tasks:

            async def append() -> None:
                while (start := time.perf_counter()) < began + SECONDS:
                    await writer.append((draft,), Cause("agent"))
                    waits.append(time.perf_counter() - start)

            for _ in range(TASKS):
                tasks.start_soon(append)
        elapsed = time.perf_counter() - began
        outer.cancel_scope.cancel()
    assert journal.store.head() == len(waits) == system.position
    journal.close()
    return len(waits) / elapsed, waits


def one_commit_per_event(path: Path) -> float:
    """What SQLite alone gives with the same durability when every event is committed for itself."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("pragma journal_mode=wal")
    database.execute("pragma synchronous=full")
    database.execute("create table event(position integer primary key, body blob not null)")
    count, began = 0, time.perf_counter()
    while time.perf_counter() < began + 1:
        database.execute("begin immediate")
        database.execute("insert into event(body) values (?)", (b"x" * 200,))
        database.execute("commit")
        count += 1
    elapsed = time.perf_counter() - began
    database.close()
    return count / elapsed
