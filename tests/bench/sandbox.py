"""The cost of a sandbox: launching nothing in one, and building in one, each beside the same without omac.

One peer in the same run is bubblewrap with the very arguments that omac gives it, computed beforehand. The others are
sandboxes of other makers, where they are on PATH (`npm install @anthropic-ai/sandbox-runtime @openai/codex`; their
folder node_modules/.bin on PATH, with rg and socat).
"""

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.report import Figure, median, publish

from omac.adapters.sandbox import bubblewrap, seccomp
from omac.adapters.sandbox.placeholders import Placeholders
from omac.services.sandbox.policy import plan
from omac.tools.compose.sandbox_ports import SandboxAdapters
from omac.tools.hotpath.sandbox_options import parse

ROUNDS = 40
BUILD_ROUNDS = 9
FILES = 2_000
SET_CHILD_SUBREAPER = 36
OMAC = str(Path(sys.executable).parent / "omac")
BUILD = """\
set -e
git clone -q {origin} copy
cd copy
i=0; while [ $i -lt {files} ]; do echo "value_$i = $i" > module_$i.py; i=$((i+1)); done
git add .
git -c user.name=A -c user.email=a@example.org commit -qm build
/usr/bin/python3 -m compileall -q .
"""


def main() -> bool:
    """Measure all; return whether the bounds hold."""
    with _world() as (top, environment):
        figures = [
            *launching("run true", top / "work", environment, _others(top / "work", environment)),
            *launching("run true in a linked worktree", _linked_worktree(top, environment), environment, {}),
            building(top, environment),
        ]
    return publish("sandbox", figures)


def launching(
    what: str, work: Path, environment: dict[str, str], others: dict[str, Callable[[], None]]
) -> list[Figure]:
    """Measure `true` in each sandbox, in turn, as a whole process; the record made durable included."""
    calls = {"omac": _process([OMAC, "sandbox", "run", "--", "true"], work, environment)}
    calls["bubblewrap"] = _equal_policy(work, environment)
    calls |= others
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            if number:
                samples[name].append(1000 * (time.perf_counter() - begun))
    ours = median(samples["omac"])
    figures = []
    for name, times in samples.items():
        if name == "omac":
            continue
        peer = median(times)
        most = 8.0 if name == "bubblewrap" else 1.0
        bound = "<= 8x, aim 5x" if name == "bubblewrap" else "< 1x"
        holds = ours / peer <= most
        figures.append(
            Figure(f"{what}, to {name}", f"{ours:.1f} ms", f"{peer:.1f} ms", f"{ours / peer:.2f}x", bound, holds)
        )
    return figures


def _others(work: Path, environment: dict[str, str]) -> dict[str, Callable[[], None]]:
    """Return the installed sandboxes of other makers that work, with a real home: one of them wants none in /tmp."""
    environment = environment | {"HOME": os.environ["HOME"]}
    calls = {}
    if srt := shutil.which("srt"):
        calls["sandbox-runtime"] = _process([srt, "true"], work, environment)
    if codex := shutil.which("codex"):
        calls["codex"] = _process([codex, "sandbox", "linux", "true"], work, environment)
        if not _works(calls["codex"]):
            calls["codex"] = _process([codex, "sandbox", "true"], work, environment)
    working = {name: call for name, call in calls.items() if _works(call)}
    for name in calls.keys() - working.keys():
        print(f"{name} is there and does not work", file=sys.stderr)
    return working


def building(top: Path, environment: dict[str, str]) -> Figure:
    """Compare the CPU time of clone, 2,000 files, add, commit and compile inside and outside: the median of pairs."""
    work, origin = top / "work", top / "work" / "origin"
    _repository(origin, environment)
    script = BUILD.format(origin=origin, files=FILES)
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # bubblewrap does not wait for what it started
    inside = _process([OMAC, "sandbox", "run", "--", "sh", "-c", script], work, environment)
    outside = _process(["sh", "-c", script], work, environment)
    pairs = []
    for _ in range(BUILD_ROUNDS + 1):
        pair = []
        for call in (inside, outside):
            pair.append(_cpu(call))
            shutil.rmtree(work / "copy")  # the sandbox could not: it is a repository, and pinned in the next run
        pairs.append(pair)
    pairs = pairs[1:]  # the first warmed up
    ratio = median([inner / outer for inner, outer in pairs])
    ours, peer = median([inner for inner, _ in pairs]), median([outer for _, outer in pairs])
    return Figure("build, CPU", f"{ours:.2f} s", f"{peer:.2f} s", f"{ratio:.3f}x", "<= 1.10x", ratio <= 1.10)


def _linked_worktree(top: Path, environment: dict[str, str]) -> Path:
    _repository(top / "main", environment)
    git = ["git", "-C", str(top / "main"), "worktree", "add", "-q", str(top / "linked")]
    subprocess.run(git, check=True, env=environment)
    return top / "linked"


def _repository(folder: Path, environment: dict[str, str]) -> None:
    """Make a repository with one commit."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True, env=environment)
    (folder / "README").write_text("origin\n")
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "add", "."], check=True, env=environment)
    subprocess.run([*git, "commit", "-qm", "first"], check=True, env=environment)


def _equal_policy(work: Path, environment: dict[str, str]) -> Callable[[], None]:
    """Return a call of bubblewrap alone, with the arguments, the filter and the variables that omac would give it."""
    with contextlib.chdir(work):
        ports = SandboxAdapters(environment, print)
        planned = plan(parse(["--", "true"]), ports)
    placeholders = Placeholders(ports.state)
    placeholders.hold()
    placeholders.make(planned.policy)
    for layout in planned.layouts.values():
        ports.git.prepare(layout)
    filter_program = seccomp.program(os.uname().machine)

    def call() -> None:
        files = bubblewrap.Files()
        line = ["/usr/bin/bwrap", *bubblewrap.arguments(planned.policy, files, filter_program)]
        try:
            subprocess.run(
                [*line, "--", *planned.argv],
                check=True,
                env=dict(planned.policy.environment),
                pass_fds=files.descriptors,
            )
        finally:
            files.close()

    return call


def _process(line: list[str], work: Path, environment: dict[str, str]) -> Callable[[], None]:
    def call() -> None:
        subprocess.run(line, check=True, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True)

    return call


def _works(call: Callable[[], None]) -> bool:
    try:
        call()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _cpu(call: Callable[[], None]) -> float:
    """Return the seconds of CPU time of all processes that the call started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextlib.contextmanager
def _world() -> Iterator[tuple[Path, dict[str, str]]]:
    top = Path(tempfile.mkdtemp(prefix="omac-bench-"))
    try:
        (top / "work").mkdir()
        (top / "home").mkdir(mode=0o700)
        yield (
            top,
            {
                "HOME": str(top / "home"),
                "PATH": os.environ["PATH"],
                "OMAC_STATE_DIR": str(top / "state"),
                "GIT_CONFIG_GLOBAL": "/dev/null",
            },
        )
    finally:
        shutil.rmtree(top, ignore_errors=True)
