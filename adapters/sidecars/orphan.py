"""Ending what an earlier run of omac left behind, and nothing else."""

import signal
from collections.abc import Callable

import trio

from omac.adapters.linux import process
from omac.adapters.linux.process import Stat
from omac.adapters.linux.process_identity import boot_id
from omac.adapters.sidecars import launch
from omac.domain.sidecars.sidecar import Birth

WITHIN_S = 5.0


async def end(birth: Birth) -> bool:
    """SIGKILL all that is left of it and wait until that is gone; False if there was nothing.

    It is left when the boot is the same and its first process still has its start time, or, for one without a
    namespace, when members of its session live on (Linux gives nobody a pid that is still a session's id). A process
    that resists SIGKILL (uninterruptible, or another user's) is given up after 5 s.
    """
    if birth.boot_id != boot_id():
        return False
    known: dict[tuple[int, int], Stat] = {}
    await _kill(lambda: _remains(birth, known))
    return bool(known)


async def end_unbuilt() -> int:
    """SIGKILL the inits whose bubblewrap was killed while it set their namespace up; return how many there were. No
    omac waits for one of them any more, be it dead or alive: it is found by what it is (`launch.is_unbuilt`)."""
    inits = [entry for entry in process.everyone() if launch.is_unbuilt(entry.pid)]
    await _kill(lambda: [entry for entry in inits if process.living(entry.pid, entry.start_ticks)])
    return len(inits)


async def _kill(remains: Callable[[], list[Stat]]) -> None:
    """SIGKILL what remains until nothing does, for 5 s at most."""
    pause = 0.002
    with trio.move_on_after(WITHIN_S):
        while living := remains():
            for entry in living:
                process.kill(entry.pid, entry.start_ticks, signal.SIGKILL)
            await trio.sleep(pause)
            pause = min(pause * 1.5, 0.05)


def _remains(birth: Birth, known: dict[tuple[int, int], Stat]) -> list[Stat]:
    """Return the processes of a sidecar that are alive now. `known` collects every process that was found, because dead
    processes no longer lead to their children."""
    leader = process.stat(birth.pid)
    ours = leader is not None and leader.start_ticks == birth.start_ticks
    remains: list[Stat] = []
    if leader and ours and leader.alive:
        remains += [leader, *process.descendants(birth.pid)]
    if not birth.isolated and (ours or leader is None):
        remains += [entry for entry in process.session_members(birth.pid) if entry.start_ticks >= birth.start_ticks]
    known |= {(entry.pid, entry.start_ticks): entry for entry in remains}
    return [entry for entry in known.values() if process.living(entry.pid, entry.start_ticks)]
