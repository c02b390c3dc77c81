"""Durable events per second: the group-commit writer, against one commit per event on the same disk in the same run."""

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import trio
from bench.report import Figure, median, percentile, publish

from omac.domain.access.access import AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft, Recorded
from omac.journal import group_commit
from omac.journal.opening import open_journal
from omac.projections.system import System

TASKS = 256
SECONDS = 5.0
ROUNDS = 3
GROUPED = group_commit.BATCH_MAX
EVENT = AccessRequested("/home/user/projects/acme-web", "slack", "slack", None, "POST", "/v1/channels/general/messages")


def main() -> bool:
    """Run both sides in turn; True when the bounds hold."""
    folder = tempfile.mkdtemp(prefix="omac-bench-", dir=".")
    ours, latencies, peers = [], [], []
    try:
        for number in range(ROUNDS):
            peers.append(trio.run(appends, Path(folder) / f"peer{number}.db", 1)[0])
            rate, seconds = trio.run(appends, Path(folder) / f"ours{number}.db", GROUPED)
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


async def appends(path: Path, batch_max: int) -> tuple[float, list[float]]:
    """Events per second and every task's waits in seconds, for tasks that each wait for their own event.

    `batch_max` 1 is a commit, and a flush of the disk, for each event.
    """
    group_commit.BATCH_MAX = batch_max
    journal = open_journal(str(path.absolute()), "bench", time.time_ns)
    system = System()

    def fold(records: Iterable[Recorded]) -> None:
        for recorded in records:
            system.apply(recorded)

    ours = group_commit.Writer(journal, 0, fold)
    waits: list[float] = []
    draft = Draft(ids.access_stream(ids.HostId("host")), None, EVENT)
    async with trio.open_nursery() as outer:
        await outer.start(ours.run)
        began = time.perf_counter()
        async with trio.open_nursery() as tasks:

            async def append() -> None:
                while (start := time.perf_counter()) < began + SECONDS:
                    await ours.submit((draft,), Cause("agent"))
                    waits.append(time.perf_counter() - start)

            for _ in range(TASKS):
                tasks.start_soon(append)
        elapsed = time.perf_counter() - began
        outer.cancel_scope.cancel()
    assert journal.store.head() == len(waits) == system.position
    journal.close()
    return len(waits) / elapsed, waits
