"""The gate at which a sandbox waits, built and held back, until omac lets the program go."""

from __future__ import annotations

import os
import sys

_SHELL = "/bin/sh"
_END_HOLDERS = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from omac.adapters.sandbox.orphans import end_holders; end_holders(sys.argv[2])"
)


def opened() -> tuple[int, int]:
    """A pipe whose end for reading never comes to an end: whoever waits there for a byte, and takes the end for one as
    bubblewrap does, must not go on because omac is gone."""
    only_read, way = os.pipe()
    try:
        return os.open(f"/proc/self/fd/{only_read}", os.O_RDWR | os.O_CLOEXEC), way
    finally:
        os.close(only_read)


def watched(way: int) -> tuple[int, int]:
    """Start a process that ends whatever waits at the gate if omac is killed before it has let the program go: the
    namespace's init ends with bubblewrap only afterwards. Its pid, and where a byte tells it that all went well.

    It is a shell that reads a line, and becomes a Python when none comes.
    """
    ending, alive = os.pipe()
    home = __file__
    for _ in range(4):  # omac/adapters/sandbox/start_barrier.py
        home = os.path.dirname(home)
    python = [sys.executable, "-I", "-S", "-c", _END_HOLDERS, home, f"pipe:[{os.fstat(way).st_ino}]"]
    actions = [
        (os.POSIX_SPAWN_DUP2, ending, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    try:
        line = [_SHELL, "-c", 'read -r line || exec "$@"', _SHELL, *python]
        return os.posix_spawn(_SHELL, line, {}, file_actions=actions, setpgroup=0), alive
    finally:
        os.close(ending)
