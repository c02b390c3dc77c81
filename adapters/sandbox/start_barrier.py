"""The gate at which a sandbox waits, built and held back, until omac lets the program go."""

from __future__ import annotations

import os
import sys

from omac.adapters.files.descriptor import Descriptor

_SHELL = "/bin/sh"
_END_HOLDERS = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from omac.adapters.sandbox.orphans import end_holders; end_holders(sys.argv[2])"
)


def opened() -> tuple[int, int]:
    """A pipe whose end for reading never comes to an end: whoever waits there for a byte, and takes the end for one as
    bubblewrap does, must not go on because omac is gone."""
    only_read, way = os.pipe()
    with Descriptor(only_read):
        return os.open(f"/proc/self/fd/{only_read}", os.O_RDWR | os.O_CLOEXEC), way


def watched(way: int) -> tuple[int, int]:
    """Start a process that ends whatever has the gate open if omac is killed: what waits there, and, once the program
    has begun, the namespace's init. Its pid, and what closes with omac.

    bubblewrap lets the program begin before its init ends with it (PR_SET_PDEATHSIG); omac can be killed in between.
    It is a shell that waits to be killed, and becomes a Python where omac ends first.
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
    with Descriptor(ending):
        line = [_SHELL, "-c", 'read -r line; exec "$@"', _SHELL, *python]
        return os.posix_spawn(_SHELL, line, {}, file_actions=actions, setpgroup=0), alive
