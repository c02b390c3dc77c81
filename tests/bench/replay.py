"""The cost of a long journal: commands with 0, 100,000 and 1,000,000 events, and the speed of reading events.

Commands run as people run them; the first after the journal was filled is not counted, it leaves the snapshot and the
index. BENCH_EVENTS is the number of events of the longest journal.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.report import Figure, median, publish
from real_omac import Omac, omac_in

from omac.domain.access.access import AccessAborted, AccessCompleted, AccessRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft, Event
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.projections.evidence.audit_query import AuditQuery
from omac.projections.system import System
from omac.services.kernel.restoring import restored
from omac.tools.compose.journals import snapshots_of
from omac.tools.compose.searched_audit import SearchedAudit
from omac.tools.compose.state import StateDir, host_id

EVENTS = int(os.environ.get("BENCH_EVENTS", "1000000"))
INSTALLED = Path(sys.executable).with_name("omac")
READY = "omac serve, ready"
SIZES = (0, EVENTS // 10, EVENTS)
ROUNDS = 5
BATCH = 2_000
HOUR_NS = 3_600 * 10**9
STARTS_MS_MORE_MAX, FLAT_MS_MORE_MAX, MEMORY_MIB_MORE_MAX = 150.0, 50.0, 20.0
REPLAYED_MIN, POSITION_S_MAX, QUERY_MS_MAX, VERIFIED_MIN = 200_000, 0.5, 100.0, 400_000
EXPORT_MIB_MAX = 200.0
AGENT = Cause("agent")
COMMANDS: dict[str, tuple[str, ...]] = {
    "omac start -- true": ("start", "--", "true"),
    "omac status": ("status",),
    "omac list": ("list",),
    "omac approvals": ("approvals",),
    "omac audit --since 1m": ("audit", "--since", "1m"),
    "omac audit -n 10": ("audit", "-n", "10"),
    "omac audit | head": ("audit", "|", "head"),
    "omac replay --at N/2": ("replay", "--at", "N/2"),
}


def main() -> bool:
    """Measure all; return whether the bounds hold."""
    assert INSTALLED.exists(), f"{INSTALLED} is not there: omac is not installed"
    times: dict[str, list[float]] = {name: [] for name in (*COMMANDS, READY)}
    memory: dict[str, list[float]] = {name: [] for name in ("omac status", READY)}
    figures: list[Figure] = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="obr", dir="/tmp") as folder, omac_in(Path(folder)) as omac:
            omac.project("shop")
            fill(omac, size)
            subprocess.run((str(INSTALLED), "start", "--", "true"), env=omac.environment, cwd=omac.root, check=True)
            for name, words in COMMANDS.items():
                times[name].append(took(omac, words))
            took_ms, took_mib = ready(omac)
            times[READY].append(took_ms)
            memory[READY].append(took_mib)
            memory["omac status"].append(peak_mib(omac, "status"))
            print(f"  {size:,} events: {', '.join(f'{name} {values[-1]:.0f} ms' for name, values in times.items())}")
            if size == EVENTS:
                figures = reading(omac)
    memory_figures = [grown_memory(name, values) for name, values in memory.items()]
    return publish("replay", [*(grown(name, values) for name, values in times.items()), *memory_figures, *figures])


def fill(omac: Omac, size: int) -> None:
    """Fill a new journal up to this many events: calls of skills over three days, until an hour ago."""
    log = ids.access_stream(host_id(StateDir(str(omac.state))))
    began, moment = time.time_ns() - 73 * HOUR_NS, 0
    with closing(open_journal(str(omac.state / "journal.db"), "bench", lambda: moment)) as journal:

        def commit(events: Iterable[Event]) -> list[Any]:
            envelope = journal.envelope(AGENT)
            return journal.commit([journal.group((Draft(log, None, event),), envelope) for event in events])

        while (head := journal.store.head()) < size:
            moment = began + head * 72 * HOUR_NS // size
            requests = (
                AccessRequested(
                    str(omac.root / f"p{number % 7}"), f"skill{number % 3}", "m", None, "GET", f"/v1/item/{number}"
                )
                for number in range(BATCH)
            )
            positions = [group[0].position for group in commit(requests)]
            commit(
                AccessCompleted(at, 200, 10, 2_000, 1_500) if at % 50 else AccessAborted(at, "client-gone")
                for at in positions
            )


def took(omac: Omac, words: tuple[str, ...]) -> float:
    """Return the milliseconds of a command; the first time is not counted."""
    with closing(ReadJournal(str(omac.state / "journal.db"))) as journal:
        half = str(journal.store.head() // 2)
    line = " ".join((str(INSTALLED), *(half if word == "N/2" else word for word in words)))
    quiet = subprocess.DEVNULL
    options: dict[str, Any] = {"env": omac.environment, "cwd": omac.root / "shop", "stdout": quiet, "stderr": quiet}

    def run() -> None:
        subprocess.run(line, shell=True, check=True, **options)

    return median([elapsed_ms(run) for _ in range(ROUNDS + 1)][1:])


def ready(omac: Omac) -> tuple[float, float]:
    """Return the milliseconds until a server is ready, and its largest memory in MiB until then."""
    times, peaks = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        serving = omac.serve()
        times.append((time.perf_counter() - began) * 1000)
        status = Path(f"/proc/{serving.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        peaks.append(int(fields["VmHWM"].split()[0]) / 1024)
        serving.process.terminate()
        serving.process.wait()
    return median(times), median(peaks)


def peak_mib(omac: Omac, *words: str) -> float:
    """Return the largest memory of a command."""
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
    script += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    line = (sys.executable, "-I", "-S", "-c", script, str(INSTALLED), *words)
    done = subprocess.run(line, env=omac.environment, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024  # getrusage(2) gives KiB


def grown(name: str, values: list[float]) -> Figure:
    """Return the time that the longest journal adds to a command."""
    more = values[-1] - values[0]
    bound = STARTS_MS_MORE_MAX if name.startswith(("omac start", "omac serve")) else FLAT_MS_MORE_MAX
    return Figure(
        name, f"{values[-1]:.0f} ms ({SIZES[-1]:,})", f"{values[1]:.0f} ms ({SIZES[1]:,}), {values[0]:.0f} ms (none)",
        f"{more:+.0f} ms", f"<= +{bound:.0f} ms", more <= bound,
    )  # fmt: skip


def grown_memory(name: str, values: list[float]) -> Figure:
    """Return the memory that the longest journal adds to a command."""
    more = values[-1] - values[0]
    return Figure(
        f"{name}: memory", f"{values[-1]:.0f} MiB ({SIZES[-1]:,})",
        f"{values[1]:.0f} MiB ({SIZES[1]:,}), {values[0]:.0f} MiB (none)", f"{more:+.0f} MiB",
        f"<= +{MEMORY_MIB_MORE_MAX:g} MiB", more <= MEMORY_MIB_MORE_MAX,
    )  # fmt: skip


def reading(omac: Omac) -> list[Figure]:
    """Measure the reads of the longest journal in this process."""
    state = StateDir(str(omac.state))
    with closing(ReadJournal(str(omac.state / "journal.db"))) as journal:
        head = journal.store.head()
        scan = rate(head, lambda: scanned(journal))
        decode = rate(head, lambda: sum(1 for _ in journal.records()))
        replay = rate(head, lambda: System().replay(journal.records()))
        snapshots = snapshots_of(state, journal.store)
        positions = [head * part // 7 for part in range(1, 8)]
        longest = max(elapsed_ms(lambda at=at: restored(journal, snapshots, at)) for at in positions) / 1000  # type: ignore[misc]
        audit = SearchedAudit(journal, state, head)
        now = time.time_ns()
        query = AuditQuery(skill="skill1", since=now - 10 * HOUR_NS, until=now - 9 * HOUR_NS)
        row_count = len(list(audit.rows(query)))
        query_ms = median([elapsed_ms(lambda: list(audit.rows(query))) for _ in range(ROUNDS)])
    verified = rate(head, lambda: omac.process("audit", "verify"))  # as people run it, its start included
    began = time.perf_counter()
    peak = peak_mib(omac, "export", "--format", "parquet", "--out", str(omac.root / "evidence"))
    exported = time.perf_counter() - began
    return [
        Figure(
            "replay, events/s", f"{replay:,.0f}", f"{scan:,.0f} (scan), {decode:,.0f} (decode)",
            f"{replay / scan:.2f}x", f">= {REPLAYED_MIN:,}, aim 500,000", replay >= REPLAYED_MIN,
        ),
        Figure(
            "the state at any position", f"{longest:.2f} s", "-", "-", f"<= {POSITION_S_MAX:g} s",
            longest <= POSITION_S_MAX,
        ),
        Figure(
            "audit by skill and time", f"{query_ms:.0f} ms", f"{row_count:,} rows", "-", f"< {QUERY_MS_MAX:.0f} ms",
            query_ms < QUERY_MS_MAX,
        ),
        Figure(
            "omac audit verify, events/s", f"{verified:,.0f}", "-", "-", f">= {VERIFIED_MIN:,}",
            verified >= VERIFIED_MIN,
        ),
        Figure(
            "export as Parquet", f"{peak:.0f} MiB", f"{exported:.1f} s", "-", f"<= {EXPORT_MIB_MAX:g} MiB",
            peak <= EXPORT_MIB_MAX,
        ),
    ]  # fmt: skip


def scanned(journal: ReadJournal) -> int:
    """Return the number of rows, read without being decoded."""
    at = 0
    while rows := journal.store.select(at, 1_000):
        at = rows[-1].id
    return at


def rate(events: int, work: Callable[[], object]) -> float:
    """Return events per second, the best of some rounds."""
    return events / min(elapsed_ms(work) for _ in range(3)) * 1000


def elapsed_ms(work: Callable[[], object]) -> float:
    """Return the milliseconds that work takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
