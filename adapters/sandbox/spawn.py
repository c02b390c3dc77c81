"""Starting programs without a fork of omac: a fork shares its memory, and each page that omac writes afterwards is
copied, which takes a tenth of a launch. posix_spawn(3) has no copies to make.
"""

from __future__ import annotations

import _thread
import errno
import os

from omac.adapters.sandbox.terminal import IGNORED_BY_PYTHON, PASSED_ON

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Mapping, Sequence
else:
    import _signal


class SandboxParent:
    """The thread that a sandbox is a child of: it gives up for good what the sandbox shall not have, and nothing else.

    The kernel takes the end of this thread for the end of the sandbox's parent (PR_SET_PDEATHSIG, prctl(2)): it lives
    until `close`.
    """

    def __init__(self) -> None:
        self._spawned = _thread.allocate_lock()
        self._closed = _thread.allocate_lock()
        self._pid = 0
        self._problem: OSError | None = None

    def spawn(
        self,
        line: Sequence[str],
        environment: Mapping[str, str],
        *,
        confine: Callable[[], None],
        streams: Mapping[int, int],
        descriptors: Sequence[int],
        in_group: bool,
    ) -> int:
        """Start a program as the thread is after `confine`; its pid. Raises OSError.

        It has the standard `streams`, by number, and `descriptors`, and nothing else that is open. `in_group`: it stays
        in the process group of omac, and keeps what the terminal sends waiting; without it, it gets a group of its own.
        """
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, PASSED_ON)
        options: dict[str, object] = {"setsigmask": (*mask, *PASSED_ON) if in_group else mask}
        if not in_group:
            options |= {"setpgroup": 0, "setsigdef": IGNORED_BY_PYTHON}

        def work() -> None:
            try:
                confine()
                for descriptor in descriptors:
                    os.set_inheritable(descriptor, True)
                actions = [(os.POSIX_SPAWN_DUP2, theirs, number) for number, theirs in streams.items()]
                self._pid = os.posix_spawn(line[0], line, environment, file_actions=actions, **options)  # type: ignore[arg-type]
            except OSError as problem:
                self._problem = problem
            self._spawned.release()
            self._closed.acquire()

        self._spawned.acquire()
        self._closed.acquire()
        try:
            _thread.start_new_thread(work, ())
            self._spawned.acquire()
        except RuntimeError as problem:
            raise OSError(errno.EAGAIN, str(problem)) from problem
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        if self._problem is not None:
            raise self._problem
        return self._pid

    def close(self) -> None:
        if self._closed.locked():
            self._closed.release()


def withhold_descriptors() -> None:
    """Let no program that omac starts have what whoever started omac had open, beyond the standard streams. Raises
    OSError."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                pass  # it listed them
