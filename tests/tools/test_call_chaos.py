"""Calls whose clients, sidecar and server end at random: each forwarded call is recorded, and each has one outcome.

OMAC_SOAK_CALLS is the number of calls, OMAC_SOAK_SEED chooses them. The skill logs each request that reaches it.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import counting_skill
from polling import eventually
from random_callers import Callers
from real_omac import Omac, Serving

from omac.domain.access.access import AccessAborted, AccessCompleted, AccessRequested, accesses_of
from omac.domain.sidecars.sidecar import RestartPolicy

CALLS = int(os.environ.get("OMAC_SOAK_CALLS") or 20_000)
SEED = int(os.environ.get("OMAC_SOAK_SEED", time.time_ns()))  # a failure says it, and is nearly the same again with it
SERVER_KILLS = max(3, CALLS // 50_000)
OF_A_SERVER = 50_000  # calls at most that one server gets before it is killed
IN_A_ROW = RestartPolicy().limit + 1  # kills after which omac gives a sidecar up


class Counting:
    """A project with the counting skill, and the calls that reached that so far."""

    def __init__(self, omac: Omac) -> None:
        self.project = omac.root / "shop"
        self._log = omac.folder / "forwarded"
        program = Path(counting_skill.__file__).read_text()
        omac.skill(self.project, "counting", counting_skill.META.replace("LOG", str(self._log)), program)
        omac.approve(self.project, "counting")

    def url(self, serving: Serving) -> str:
        """Bring the skill online, and return its base."""
        return str(serving.skill(self.project, "counting")["base"])

    def bytes_forwarded(self) -> int:
        """Return the size of the list of requests that reached the skill."""
        return self._log.stat().st_size if self._log.exists() else 0

    def forwarded(self, numbers_max: int) -> bytearray:
        """Return how often each call reached the skill, by number."""
        times = bytearray(numbers_max + 1)
        if self._log.exists():
            with self._log.open("rb") as lines:
                for line in lines:
                    times[int(line)] += 1
        return times


class Recorded:
    """The journal's records of calls, read on from the last position, in a few bytes for each that has ended."""

    def __init__(self, omac: Omac, numbers_max: int) -> None:
        self._omac = omac
        self._position = 0
        self._open: dict[int, int] = {}  # the numbers of the calls without an outcome, by the ids of their accesses
        self.requested = bytearray(numbers_max + 1)  # by number
        self.completed = bytearray(numbers_max + 1)
        self.ended: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """The count of calls without an outcome."""
        return len(self._open)

    def follow(self) -> "Recorded":
        """Read the new records.

        Raises AssertionError for a call that is recorded twice, and for an outcome that is one too many or belongs to
        no call.
        """
        for record in self._omac.records(self._position):
            self._position = record.position
            for access, event in accesses_of(record.position, record.event):
                match event:
                    case AccessRequested():
                        number = int(event.path[1:])
                        assert not self.requested[number], f"call {number} is recorded twice (seed {SEED})"
                        self.requested[number] = 1
                        self._open[access] = number
                    case AccessCompleted():
                        self._end(access, "completed")
                    case AccessAborted():
                        self._end(access, event.reason)
                    case _:
                        pass
        return self

    def _end(self, access: int, how: str) -> None:
        number = self._open.pop(access, 0)
        assert number, f"access {access} has an outcome and is no call, or had one already (seed {SEED})"
        self.completed[number] = how == "completed"
        self.ended[how] += 1


def check(counting: Counting, recorded: Recorded, *, settled: bool = True) -> Counter[str]:
    """Compare the calls that reached the skill with the journal, and return how many calls ended how."""
    forwarded = counting.forwarded(len(recorded.requested) - 1)  # first: what comes meanwhile is recorded already
    recorded.follow()
    for number, times in enumerate(forwarded):
        assert times <= recorded.requested[number] * 2, f"call {number}: forwarded, and not recorded (seed {SEED})"
        assert times < 2 or counting_skill.broken(number), f"call {number} was answered, and asked again (seed {SEED})"
        assert times or not recorded.completed[number], f"call {number}: completed, and not forwarded (seed {SEED})"
    if settled:
        assert recorded.open == 0, f"{recorded.open} calls have no outcome (seed {SEED})"
    return recorded.ended


def test_clients_and_sidecar_end_at_random(omac: Omac) -> None:
    """Each call gets an answer and one outcome in the journal, and the server leaves no descriptor open."""
    counting = Counting(omac)
    serving = omac.serve()
    callers, recorded = Callers(counting.url(serving), range(1, CALLS + 1), SEED), Recorded(omac, CALLS)
    reload, idle = partial(serving.call, "reload", {"dir": str(counting.project)}), serving.descriptors()
    with contextlib.closing(callers), sidecars_killed(omac, reload) as killed:
        callers.run()
    eventually(lambda: recorded.follow().open == 0, 10.0, "the last outcomes")
    ended = check(counting, recorded)
    assert killed
    assert not callers.seen["no answer in time"], callers.seen
    assert callers.answered > CALLS / 10, (ended, callers.seen)
    assert ended["completed"] > CALLS / 10, (ended, callers.seen)
    assert ended["client-gone"], ended
    assert ended["upstream-error"], ended
    eventually(lambda: serving.descriptors() <= idle + 1, 20.0, "the end of all connections")
    assert serving.end() == 0


@contextmanager
def sidecars_killed(omac: Omac, reload: Callable[[], object]) -> Iterator[list[int]]:
    """Kill the sidecar now and then, and yield the killed processes. `reload` starts one that omac has given up."""
    chance, over, killed = random.Random(f"{SEED} kills"), threading.Event(), list[int]()

    def kill() -> None:
        position, pause_s = 0, 0.2
        while not over.wait(pause_s):
            births = list(omac.records(position, "sidecar.started"))
            if births:
                position, pid = births[-1].position, births[-1].event.birth.pid
                killed.append(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                if len(killed) % IN_A_ROW == 0:
                    over.wait(0.5)
                    reload()
            pause_s = chance.choice((0.1, 5.0, 20.0, 40.0)) if births else 0.1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_killed_servers_forwarded_nothing_unrecorded(omac: Omac) -> None:
    """A server killed amid calls has recorded each call that reached the skill, and the next start settles the rest."""
    counting, chance = Counting(omac), random.Random(f"{SEED} servers")
    recorded, serving = Recorded(omac, SERVER_KILLS * OF_A_SERVER), omac.serve()
    for kill in range(SERVER_KILLS):
        enough = counting.bytes_forwarded() + chance.randrange(500, 5_000)
        numbers = range(kill * OF_A_SERVER + 1, (kill + 1) * OF_A_SERVER)
        with contextlib.closing(Callers(counting.url(serving), numbers, (SEED, kill))) as callers:
            callers.run(lambda: counting.bytes_forwarded() > enough)  # noqa: B023  # called at once
            assert counting.bytes_forwarded() > enough
            serving.process.kill()
            assert serving.process.wait(10) == -signal.SIGKILL
        time.sleep(0.2)  # what the kernel had for the skill
        check(counting, recorded, settled=False)
        serving = omac.serve()
        check(counting, recorded)
    assert serving.end() == 0
