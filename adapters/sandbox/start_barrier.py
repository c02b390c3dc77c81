"""The gate at which a sandbox waits, built and held back, until omac lets the program go."""

from __future__ import annotations

import os

from omac.adapters.sandbox.terminal import ignored


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
    namespace's init ends with bubblewrap only afterwards. Its pid, and where a byte tells it that all went well."""
    told, alive = os.pipe()
    watcher = os.fork()
    if not watcher:
        try:
            ignored()
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            held = f"pipe:[{os.fstat(way).st_ino}]"
            os.closerange(3, told)
            os.closerange(told + 1, 1 << 20)
            if not os.read(told, 1):
                from omac.adapters.sandbox.orphans import end_holders

                end_holders(held)
        finally:
            os._exit(0)
    os.close(told)
    return watcher, alive
