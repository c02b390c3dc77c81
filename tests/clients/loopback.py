"""A network namespace with loopback and nothing else: a program in it can reach no machine but its own.

Root makes one outright, other users with a user namespace in which they keep their own user id. The namespace ends with
the process that holds it, which ends when its standard input does, as that of a dead test does.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_HOLD = """\
import fcntl, socket, struct, sys
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack('16sH14x', b'lo', IFF_UP))
print('up', flush=True)
sys.stdin.read()
"""


class NoNamespace(Exception):
    """A namespace that this user may not make here; the text has the reason."""


@contextmanager
def loopback_only(python: str = sys.executable, uid: int | None = None) -> Iterator[tuple[str, ...]]:
    """Make such a namespace, and return the command that runs another command in it. Raises NoNamespace.

    `python` is an interpreter that this user can run; `uid` is the user that makes it, where root tries another user.
    """
    own = () if (os.geteuid() if uid is None else uid) == 0 else ("--user", "--map-current-user", "--keep-caps")
    line = ["unshare", "--net", *own, "--", python, "-I", "-S", "-c", _HOLD]
    holder = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=uid, group=uid,
        extra_groups=None if uid is None else [],
    )  # fmt: skip
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline() != "up\n":
                raise NoNamespace(f"a network namespace of its own cannot be had: {holder.stderr.read().strip()}")
            joined = ("--user", "--preserve-credentials") if own else ()
            yield ("nsenter", f"--target={holder.pid}", *joined, "--net", "--")
        finally:
            holder.kill()
