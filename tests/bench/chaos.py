"""Minutes of disorder: real processes, random commands, and faults of the machine; acknowledged changes must survive.

`./bench chaos [--minutes 10] [--seed N]`. The state directory is on a small disk of its own, which bubblewrap mounts
for this process. A round lets people, agents and programs work (`simulation/disorder.py`) while one fault comes. Then
the server must end in order, and the journal must be sound and have all acknowledged changes.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.report import Figure, publish
from contract.media import small_disk
from polling import eventually
from real_omac import Omac
from simulation.disorder import BOUND_S, Disorder

DISK = "OMAC_CHAOS_DISK"  # in the environment of the process that has the small disk: where it is
DISK_BYTES = 96 << 20
WORKERS = 3
ROUND_S = 8.0  # of work, in each round
READY_S = 40.0
END_S = 40.0  # for a server to end in order
STALL_S = 3.0
FULL_S = 4.0


def main(words: Sequence[str] = ()) -> bool:
    """Run for some minutes; return whether every check held."""
    parser = argparse.ArgumentParser(prog="./bench chaos")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(words)
    seed = random.getrandbits(31) if options.seed is None else options.seed
    if DISK not in os.environ:
        return _on_a_small_disk(["--minutes", str(options.minutes), "--seed", str(seed)])
    print(f"  --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos", dir="/tmp") as folder, _omac(Path(folder)) as omac:
        return Chaos(omac, seed).run(options.minutes)


def _on_a_small_disk(words: Sequence[str]) -> bool:
    """Run the benchmark again in a process that has a small disk."""
    with tempfile.TemporaryDirectory(prefix="disk", dir="/tmp") as folder:
        argv = [*small_disk(Path(folder), DISK_BYTES), sys.executable, "-m", "bench", "chaos", *words]
        return subprocess.run(argv, env=os.environ | {DISK: folder}).returncode == 0


@contextmanager
def _omac(folder: Path) -> Iterator[Omac]:
    """Yield an omac whose state is on the small disk."""
    omac = Omac(folder)
    omac.state.rmdir()
    omac.state = Path(os.environ[DISK]) / "s"
    omac.state.mkdir(0o700)
    omac.environment["OMAC_STATE_DIR"] = str(omac.state)
    try:
        yield omac
    finally:
        omac.close()


class Chaos:
    """Rounds of work, each with a fault, and the checks after each."""

    def __init__(self, omac: Omac, seed: int) -> None:
        self._omac = omac
        self._seed = seed
        self._chance = random.Random(seed)
        self._disorder = Disorder(omac, self._chance)
        self._rounds: dict[str, int] = {}
        self._slowest_end = 0.0

    def run(self, minutes: float) -> bool:
        """Run rounds until the time is over, or a check failed; return whether all checks held."""
        faults: list[Callable[[], None]] = [
            self._kill, self._stall, self._fill_disk, self._remove_run, self._copy_and_restore, self._leave_alone,
        ]  # fmt: skip
        end = time.monotonic() + minutes * 60
        self._serve()
        while time.monotonic() < end and not self._disorder.failures:
            if not self._rounds:
                self._chance.shuffle(faults)
            fault = faults[sum(self._rounds.values()) % len(faults)]
            name = fault.__name__.strip("_")
            self._rounds[name] = self._rounds.get(name, 0) + 1
            fault()
            self._check()
            print(f"  {end - time.monotonic():5.0f} s left  {name:16}  {sum(self._disorder.done.values())} operations")
            sys.stdout.flush()
            self._serve()
        self._stop()
        return self._publish()

    # ---- rounds: work, and what comes in between ----

    @contextmanager
    def _working(self) -> Iterator[None]:
        until = time.monotonic() + ROUND_S
        workers = [threading.Thread(target=self._disorder.work, args=(until,), daemon=True) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        time.sleep(self._chance.uniform(0.5, ROUND_S / 2))
        yield
        for worker in workers:
            worker.join(ROUND_S + 2 * BOUND_S)
            if worker.is_alive():
                self._disorder.fail("whoever worked is stuck")

    def _leave_alone(self) -> None:
        with self._working():
            pass

    def _kill(self) -> None:
        """Kill the server with SIGKILL, once or twice, and start it again each time."""
        with self._working():
            for _ in range(self._chance.randrange(1, 3)):
                if self._disorder.server is not None:
                    self._disorder.server.end(signal.SIGKILL)
                    self._disorder.serve(None)
                self._serve()

    def _stall(self) -> None:
        """Stop and continue the server and the commands that are under way, by SIGSTOP and SIGCONT."""
        with self._working():
            for _ in range(self._chance.randrange(1, 4)):
                pids = [pid for pid in self._pids() if self._chance.random() < 0.7]
                _signal(pids, signal.SIGSTOP)
                time.sleep(self._chance.uniform(0.2, STALL_S))
                _signal(pids, signal.SIGCONT)

    def _fill_disk(self) -> None:
        """Fill the disk to the last byte for a while."""
        filler = self._omac.state.parent / "filler"
        with self._working():
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                for size in (1 << 20, 1 << 12, 1):
                    with suppress(OSError):
                        while file.write(b"\0" * size):
                            pass
            time.sleep(FULL_S)
            filler.unlink()

    def _remove_run(self) -> None:
        """Remove the folder of the runs, as a cleaner of temporary files does."""
        with self._working():
            shutil.rmtree(self._omac.state / "run", ignore_errors=True)

    def _copy_and_restore(self) -> None:
        """Back up the journal, work, and restore the backup: the work since then never happened."""
        backup = self._omac.folder / "backup.db"
        self._stop()
        backup.unlink(missing_ok=True)
        self._must("status", "--json")  # what is spooled is taken in
        self._must("journal", "backup", str(backup))
        ledger = self._disorder.ledger.copied()
        self._serve()
        with self._working():
            pass
        self._check()
        self._must("status", "--json")
        self._must("journal", "restore", str(backup), "--yes")
        ledger.claims.pop(("setting", "git.hooks"), None)  # the file says what was set last
        self._disorder.ledger = ledger

    # ---- what must hold ----

    def _check(self) -> None:
        self._stop()
        self._must("status", "--json")
        self._must("journal", "check")
        self._disorder.compare()
        with suppress(AssertionError):
            eventually(lambda: not self._omac.left(), 20.0, "the end of what omac started")
        if processes := self._omac.left():
            self._disorder.fail(f"processes are left: {processes}")

    def _must(self, *words: str) -> None:
        done = self._disorder.command(*words, mortal=False)
        if done.status != 0:
            self._disorder.fail(f"omac {' '.join(words)} ended with {done.status}: {done.err[-1500:]}{done.out[-500:]}")

    def _serve(self) -> None:
        if self._disorder.server is not None:
            return
        serving = self._omac.start("serve", "--no-inner", "--json", "--root", str(self._omac.root))
        try:
            self._disorder.serve(serving.await_ready(READY_S))
        except (AssertionError, OSError, ValueError) as error:
            self._disorder.fail(f"no server: {error}")
            serving.close()

    def _stop(self) -> None:
        """Send SIGTERM; a server that ended by itself, or does not end, is a failure."""
        server = self._disorder.server
        self._disorder.serve(None)
        if server is None:
            return
        if server.process.poll() is not None:
            self._disorder.fail(f"the server ended by itself with {server.process.returncode}: {server.said()[-3000:]}")
            return
        begun = time.monotonic()
        try:
            if status := server.end(seconds=END_S):
                self._disorder.fail(f"the server ended with {status}: {server.said()[-3000:]}")
        except subprocess.TimeoutExpired:
            self._disorder.fail(f"the server does not end within {END_S:.0f} s of SIGTERM: {server.said()[-3000:]}")
            server.close()
        self._slowest_end = max(self._slowest_end, time.monotonic() - begun)
        if "Traceback" in server.said():
            self._disorder.fail(f"the server showed a traceback: {server.said()[-3000:]}")
        server.close()

    def _pids(self) -> list[int]:
        """Return the processes of the server and of commands that are under way."""
        server = self._disorder.server
        return ([server.process.pid] if server else []) + self._disorder.running()

    def _publish(self) -> bool:
        disorder = self._disorder
        figures = [
            Figure(f"{name}: {outcome}", str(count), "-", f"{disorder.slowest[name]:.1f} s at most", f"{BOUND_S:.0f} s",
                   outcome != "broken" and disorder.slowest[name] <= BOUND_S + 5)
            for (name, outcome), count in sorted(disorder.done.items())
        ]  # fmt: skip
        figures += [Figure(f"rounds: {name}", str(count), "-", "-", "-", True) for name, count in self._rounds.items()]
        end = f"{self._slowest_end:.1f} s"
        figures.append(Figure("SIGTERM to the end", end, "-", "-", f"{END_S:.0f} s", self._slowest_end <= END_S))
        fell = disorder.failures
        figures.append(Figure("fell", str(len(fell)), "-", f"--seed {self._seed}", "0", not fell))
        for failure in fell:
            print(f"  FELL (--seed {self._seed}): {failure}")
        return publish("chaos", figures) and not fell


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
