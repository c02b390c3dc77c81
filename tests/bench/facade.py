"""The cost of a call of a skill through the facade, beside nginx as a proxy of the same skill.

The skill is an nginx that answers with 1 KiB. wrk calls it with headers that differ from request to request, through
each proxy in turn: a disturbance of one disturbs the others. *Strict audit* is `omac serve`, which records each call
durably before it forwards it. *No audit* is the same data plane with a recorder that records nothing
(`facade_unrecorded`). BENCH_FACADE_S is the length of a round; BENCH_FACADE_ROUNDS is the number of rounds.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import trio
from bench import facade_unrecorded, journal
from bench.facade_load import SCRIPT, Load, download, load, middle, rest, upload
from bench.facade_peers import BODY_BYTES, Way, nginx, others, serve_skills
from bench.report import Figure, median, percentile, publish
from real_omac import omac_in

SECONDS = int(os.environ.get("BENCH_FACADE_S", "3"))  # wrk takes whole ones
ROUNDS = int(os.environ.get("BENCH_FACADE_ROUNDS", "5"))
FIRST_S = 1  # of each series: what it begins with is not counted
IDLE = 2_000
FILES = 16_384  # descriptors, of this process and of those it starts
PROGRAMS = ("wrk", "nginx", "curl")
ROUTES, TARGETS, ROUTE_ROUNDS = 10_000, 20_000, 13

NO_AUDIT, STRICT, NGINX = "no audit", "strict audit", "nginx"
Series = Mapping[str, Load]


def main() -> bool:
    """Measure all; return whether the bounds hold."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        print(f"facade: {', '.join(missing)} cannot be found")
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="obf", dir="/tmp")))
        serving, skills = serve_skills(stack.enter_context(omac_in(folder)))
        script = folder / "unique.lua"
        script.write_text(SCRIPT)
        bare = stack.enter_context(unrecorded(skills.answering))
        ours = {NO_AUDIT: bare, STRICT: skills.omac}
        resting = memory(ours)  # first: what a load leaves in memory would hide it
        peer = stack.enter_context(nginx(folder, skills))
        beside = stack.enter_context(others(folder, skills))
        figures = rates({**ours, NGINX: peer}, beside, script, folder)
        figures += bodies(skills.omac, peer, folder)
        figures += [resting, routes(skills.answering, script, folder)]
        serving.end()
        return publish("facade", figures)


@contextmanager
def unrecorded(port: int, *many: str) -> Iterator[Way]:
    """Yield the data plane that records nothing, before the skill at `port`; `many`: count of routes, their journal."""
    line = [sys.executable, "-m", facade_unrecorded.__name__, str(port), *many]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            own = int(process.stdout.readline())
            path = facade_unrecorded.paths(1, 1)[0].rpartition("/")[0]
            yield Way(NO_AUDIT, f"http://127.0.0.1:{own}{path}", "", process.pid)
        finally:
            process.kill()


def rates(ways: Mapping[str, Way], beside: list[Way], script: Path, folder: Path) -> list[Figure]:
    """Measure rates with one connection, 32 and 256."""
    commits: dict[bool, list[float]] = {True: [], False: []}

    def commit(seconds: int) -> None:
        for ends, waits in commits.items():
            waits.append(commit_p50_us(folder / f"commit{len(waits)}{ends}.db", seconds, ends=ends))

    one = series(ways, script, 1, commit)
    many = series({**ways, **{way.name: way for way in beside}}, script, 32)
    most = series(ways, script, 256)
    call_us, single_us = (median(waits[1:]) for waits in commits.values())
    own_us = one[STRICT].p50 * 1000 - call_us
    return [
        rate("c=32, no audit, req/s", many, NO_AUDIT, 0.45, 0.70),
        rate("c=32, strict audit, req/s", many, STRICT, 0.25, 0.45),
        *(rate(f"c=32, {way.name}, req/s", many, way.name) for way in beside),
        rate("c=256, strict audit, req/s", most, STRICT, 0.45, 0.75),
        wait("c=256, no audit, p99", most, lambda seen: seen.p99, 1.5, 1.1),
        wait("c=1, no audit, p50", one, lambda seen: seen.p50, 2.5, 2.0),
        Figure(
            "c=1, strict audit, p50 above the commit's", str(one[STRICT]),
            f"p50 {call_us:.0f} us (its commit; {single_us:.0f} us without an outcome)",
            f"{own_us:+.0f} us", "<= 200 us, aim 60 us", own_us <= 200,
        ),
    ]  # fmt: skip


def series(
    ways: Mapping[str, Way], script: Path, connections: int, beside: Callable[[int], None] | None = None
) -> Series:
    """Return the medians of rounds in which each way is taken in turn, and `beside` is called."""
    measured: dict[str, list[Load]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        seconds = SECONDS if number else FIRST_S
        for name, way in ways.items():
            measured[name].append(load(way.answering, way.pid, script, connections, seconds))
        if beside is not None:
            beside(seconds)
    medians = {name: middle(loads[1:]) for name, loads in measured.items()}
    for name, figure in medians.items():
        print(f"  c={connections}, {name}: {figure}", flush=True)
    return medians


def commit_p50_us(path: Path, seconds: int, *, ends: bool) -> float:
    """Return the wait of a task for the durable record of a request, in microseconds, when no other task uses the
    journal. `ends`: the outcome of the request before is in that commit, as it is when calls follow one another."""
    _, waits = trio.run(partial(journal.appends, path, journal.GROUPED, 1, seconds, ends=ends))
    return percentile(waits, 50) * 1e6


def rate(name: str, found: Series, ours: str, must: float = 0, aim: float = 0) -> Figure:
    """Return a rate, as a part of nginx's; without a bound it is information."""
    part = found[ours].rate / found[NGINX].rate
    bound = f">= {must:g}x, aim {aim:g}x" if must else "-"
    return Figure(name, str(found[ours]), str(found[NGINX]), f"{part:.3f}x", bound, part >= must)


def wait(name: str, found: Series, of: Callable[[Load], float], must: float, aim: float) -> Figure:
    """Compare the waits of requests without audit with nginx's."""
    mine, theirs = of(found[NO_AUDIT]), of(found[NGINX])
    bound = f"<= {must:g}x, aim {aim:g}x"
    return Figure(name, f"{mine:.3f} ms", f"{theirs:.3f} ms", f"{mine / theirs:.2f}x", bound, mine <= must * theirs)


def bodies(ours: Way, peer: Way, folder: Path) -> list[Figure]:
    """Measure transfers of a gibibyte each way."""
    file = folder / "big"
    file.touch()
    os.truncate(file, BODY_BYTES)
    figures = []
    transfers: dict[str, Callable[[Way], float]]
    transfers = {"1 GiB from the skill": download, "1 GiB to the skill": lambda way: upload(way, file)}
    for name, transfer in transfers.items():
        pairs = [(transfer(ours), transfer(peer)) for _ in range(ROUNDS)]
        mine, theirs = (median([pair[side] for pair in pairs]) / 1e6 for side in (0, 1))
        part = mine / theirs
        cells = f"{mine:,.0f} MB/s", f"{theirs:,.0f} MB/s", f"{part:.2f}x"
        figures.append(Figure(name, *cells, ">= 0.5x, aim 0.8x", part >= 0.5))
    return figures


def memory(ways: Mapping[str, Way]) -> Figure:
    """Measure the memory of connections at rest. All of them have to stay open, which takes the listener of the bench:
    that of `omac serve` has bounds of its own, and closes those that rest longest."""
    resting = {name: rest(way, IDLE) for name, way in ways.items()}
    bare, strict = resting[NO_AUDIT], resting[STRICT]
    holds = bare.opened == IDLE and max(bare.more_mib, strict.more_mib) <= 40
    return Figure(
        f"memory with {IDLE:,} idle connections", f"+{bare.more_mib:.1f} MiB, {bare.opened:,} open",
        f"+{strict.more_mib:.1f} MiB, {strict.opened:,} open (omac serve)", "-", "<= +40 MiB, aim +15 MiB", holds,
    )  # fmt: skip


def routes(port: int, script: Path, folder: Path) -> Figure:
    """Compare requests to 10,000 routes in turn with as many different requests to one route."""
    with ExitStack() as stack:
        ways = {
            count: stack.enter_context(unrecorded(port, str(count), str(folder / f"routes{count}.db")))
            for count in (1, ROUTES)
        }
        targets = {count: folder / f"targets{count}" for count in ways}
        for count, file in targets.items():
            file.write_text("".join(f"{path}\n" for path in facade_unrecorded.paths(count, TARGETS)))

        def one(count: int, seconds: int) -> Load:
            return load(ways[count].answering, ways[count].pid, script, 32, seconds, str(targets[count]))

        loads: dict[int, list[Load]] = {count: [] for count in ways}
        for number in range(ROUTE_ROUNDS + 1):
            for count in sorted(ways, reverse=number % 2 == 0):
                loads[count].append(one(count, (SECONDS + 1) // 2 if number else FIRST_S))
    slower = median([few.rate / many.rate for few, many in zip(loads[1][1:], loads[ROUTES][1:], strict=True)])
    cells = str(middle(loads[ROUTES][1:])), f"{middle(loads[1][1:])} (1 route)", f"{slower:.3f}x slower"
    return Figure(f"{ROUTES:,} routes, no audit", *cells, "<= 1.05x, aim 1x", slower <= 1.05)
