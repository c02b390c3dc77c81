"""Durable events per second of the group-commit writer, on one disk in one run against one commit per event, and
against sqlite3 that is given the same rows in the same batches."""

import contextlib
import gc
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import trio
from bench.report import Figure, median, percentile, publish

from omac.adapters.files.state import StateDir
from omac.domain.access.access import AccessCompleted, AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft, Recorded
from omac.journal import commit_thread, group_commit
from omac.journal.opening import open_journal
from omac.projections.system import System
from omac.tools.entry import GC_OBJECTS

TASKS = 256
SECONDS = 5.0
ROUNDS = 3
TABLES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name IN ('event', 'leaf')"
GROUPED = commit_thread.BATCH_MAX
EVENT = AccessRequested("/home/user/projects/acme-web", "slack", "slack", None, "POST", "/v1/channels/general/messages")


def main() -> bool:
    """Run both sides in turn; return whether the bounds hold."""
    gc.set_threshold(GC_OBJECTS)  # as every omac has it
    folder = tempfile.mkdtemp(prefix="omac-bench-", dir=".")
    ours, latencies, peers, raws = [], [], [], []
    try:
        for number in range(ROUNDS):
            peers.append(trio.run(appends, Path(folder) / f"peer{number}.db", 1)[0])
            rate, seconds = trio.run(appends, Path(folder) / f"ours{number}.db", GROUPED)
            ours.append(rate)
            latencies.append(seconds)
            raws.append(raw_appends(Path(folder) / f"ours{number}.db", Path(folder) / f"raw{number}.db"))
            print(
                f"  round {number + 1}: {rate:,.0f} events/s against {peers[-1]:,.0f}, {raws[-1]:,.0f} raw", flush=True
            )
    finally:
        shutil.rmtree(folder)
    p50 = median([percentile(waits, 50) for waits in latencies]) * 1000
    p99 = median([percentile(waits, 99) for waits in latencies]) * 1000
    rate, peer, raw = median(ours), median(peers), median(raws)
    return publish(
        "journal",
        [
            Figure(
                f"durable events/s, {TASKS} tasks", f"{rate:,.0f}", f"{peer:,.0f} (a commit each)",
                f"{rate / peer:.0f}x", ">= 50,000", rate >= 50_000,
            ),
            Figure(
                "the same rows and batches", f"{rate:,.0f}", f"{raw:,.0f} (raw sqlite3)", f"{rate / raw:.2f}x",
                ">= 0.2, aim 0.5", rate / raw >= 0.2,
            ),
            Figure("wait for one event, p99", f"{p99:.1f} ms", f"{p50:.1f} ms (p50)", "", "< 25 ms", p99 < 25),
        ],
    )  # fmt: skip


async def appends(
    path: Path, batch_max: int, task_count: int = TASKS, seconds: float = SECONDS, *, ends: bool = False
) -> tuple[float, list[float]]:
    """Return events per second and every task's waits in seconds, for tasks that each wait for their own event.

    `batch_max` 1 is a commit, and a flush of the disk, for each event. With `ends` each request of a task goes with the
    outcome of the one before, as those of a client that calls a skill again and again.
    """
    commit_thread.BATCH_MAX = batch_max
    keys = partial(StateDir(str(path.absolute()) + ".state").subject_keys, str(path))
    journal = open_journal(str(path.absolute()), "bench", time.time_ns, keys=keys)
    system = System()

    def fold(records: Iterable[Recorded]) -> None:
        for recorded in records:
            system.apply(recorded)

    ours = group_commit.Writer(journal, 0, fold)
    waits: list[float] = []
    stream = ids.access_stream(ids.HostId("host"))
    draft = Draft(stream, None, EVENT)
    async with trio.open_nursery() as outer:
        await outer.start(ours.run)
        began = time.perf_counter()
        async with trio.open_nursery() as tasks:

            async def append() -> None:
                while (start := time.perf_counter()) < began + seconds:
                    (recorded,) = await ours.submit((draft,), Cause("agent"))
                    waits.append(time.perf_counter() - start)
                    if ends:
                        outcome = AccessCompleted(recorded.position, 200, 0, 1024, 500)
                        ours.submit_soon((Draft(stream, None, outcome),), Cause("agent", None, recorded.position))

            for _ in range(task_count):
                tasks.start_soon(append)
        elapsed = time.perf_counter() - began
        outer.cancel_scope.cancel()
    count = len(waits) * (1 + ends)
    assert journal.store.head() == count
    assert system.position in (count, count - ends)  # nobody waits for the last outcome
    journal.close()
    return len(waits) / elapsed, waits


def raw_appends(ours: Path, path: Path) -> float:
    """Return events per second of sqlite3 alone, for the rows of a journal, in batches of one row for each task."""
    with contextlib.closing(sqlite3.connect(ours)) as journal:
        tables = dict(journal.execute(TABLES).fetchall())
        rows = {name: journal.execute(f"SELECT * FROM {name} ORDER BY position").fetchall() for name in tables}
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        for text in tables.values():
            connection.execute(text)
        began = time.perf_counter()
        for start in range(0, len(rows["event"]), TASKS):
            connection.execute("BEGIN IMMEDIATE")
            for name, of_table in rows.items():
                marks = ",".join("?" * len(of_table[0]))
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", of_table[start : start + TASKS])
            connection.execute("COMMIT")
        return len(rows["event"]) / (time.perf_counter() - began)
