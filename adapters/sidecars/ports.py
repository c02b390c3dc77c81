"""The ports of sidecars: each is free when it is chosen, and still is when the sidecar begins to listen.

Rules

1. The system gives ports to connections, and to listeners that ask for any, from a range of its own (ip(7),
   ip_local_port_range). A sidecar gets one above that: the system gives it to no other, and a program in a sandbox,
   which may listen on ports that the system chooses, cannot take it.
2. omacs that choose at the same time keep out of each other's way: who chose a port has its UDP twin bound, until the
   sidecar answers or is gone. The kernel releases that of an omac that was killed.
3. Where the system's range leaves too few ports, or none of them is free, the system chooses.
4. None of the last REMEMBERED ports is chosen again: who knows the address of a sidecar that is gone meets nobody.
"""

import contextlib
import errno
import random
import socket
from collections import deque

from omac.domain.kernel.refusal import problem_of
from omac.services.ports import SpawnFailed

REMEMBERED = 256
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
PORT_MAX = 65_535
ENOUGH = 4 * REMEMBERED  # ports
TRIES = 64
_HOST = "127.0.0.1"
_random = random.SystemRandom()


class ReservedPort:
    """A port that no other omac chooses, until it is released."""

    def __init__(self, number: int, twin: socket.socket | None) -> None:
        self.number = number
        self._twin = twin

    def release(self) -> None:
        """Leave it to the one that listens there; the second call does nothing."""
        if self._twin is not None:
            self._twin.close()


class SidecarPorts:
    """Chooses ports, and remembers them."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=REMEMBERED)

    def reserve(self) -> ReservedPort:
        """Choose a port. Raises SpawnFailed."""
        try:
            chosen = self._of_nobody() or self._of_the_system()
        except OSError as problem:
            raise SpawnFailed(
                f"no free port on {_HOST}: {problem_of(problem)}; stop the program that holds so many of them"
            ) from problem
        self._recent.append(chosen.number)
        return chosen

    def _of_nobody(self) -> ReservedPort | None:
        """Return a port outside the system's range, None where there is none."""
        first = _system_range_end() + 1
        if PORT_MAX + 1 - first < ENOUGH:
            return None
        for number in _random.sample(range(first, PORT_MAX + 1), TRIES):
            if number not in self._recent and (reserved := _reserved(number)) is not None:
                return reserved
        return None

    def _of_the_system(self) -> ReservedPort:
        with contextlib.ExitStack() as tried:  # bound until the end: the system would choose the same one again
            for _ in range(REMEMBERED + 1):
                bound = tried.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                bound.bind((_HOST, 0))
                number: int = bound.getsockname()[1]
                if number not in self._recent:
                    return ReservedPort(number, None)
        raise SpawnFailed(
            f"no free port on {_HOST} that was not just used; stop the program that holds so many of them"
        )


def _system_range_end() -> int:
    """Return the last port that the system chooses by itself; PORT_MAX where that cannot be read."""
    try:
        with open(RANGE, encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return PORT_MAX


def _reserved(number: int) -> ReservedPort | None:
    """Reserve a port that is free; None where it is not. Raises OSError."""
    twin = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        twin.bind((_HOST, number))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
            listening.bind((_HOST, number))
    except OSError as problem:
        twin.close()
        if problem.errno == errno.EADDRINUSE:
            return None
        raise
    return ReservedPort(number, twin)
