"""A sandboxed program where the kernel refuses namespaces: Landlock confines it, and omac ends what it started."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from omac.adapters.sandbox.landlock_only import enter
from omac.adapters.sandbox.launch import HeldProgram
from omac.adapters.sandbox.terminal import default

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from omac.adapters.sandbox.streams import Streams
    from omac.adapters.sandbox.temporary_folder import TemporaryFolder
    from omac.domain.sandbox.confinement import Policy

LEFT = "processes that it started go on, as too many start others too fast; what they change is not inspected"


class WithoutNamespaces(HeldProgram):
    """A program that confines itself by Landlock; the folder `temporary` is removed when it has ended.

    What it started is found again as omac's own children (PR_SET_CHILD_SUBREAPER, prctl(2)), and ended with it.
    """

    def __init__(self, policy: Policy, argv: Sequence[str], temporary: TemporaryFolder) -> None:
        super().__init__(policy, argv)
        self._temporary = temporary
        self._are_left = False

    def _start(self) -> int:
        from omac.adapters.sandbox.orphans import adopt_orphans

        adopt_orphans()
        omac = os.getpid()
        child = os.fork()
        if not child:
            _confine(self, self._streams, self._gate, omac)
        self._child = self.init = child
        self._streams.start()
        return child

    def built(self) -> int:
        """Return the pid of its process, which confines itself."""
        return self.init

    def ended(self, settle: Callable[[], None]) -> int:
        """Return its exit status, as HeldProgram."""
        from omac.adapters.sandbox.orphans import end_orphans

        status = self._wait(settle)
        if not end_orphans(self._streams.pumps):
            self._are_left = True
            with suppress(OSError):  # nobody reads it
                sys.stderr.write(f"omac: {LEFT}\n")
            return status  # they may hold the streams
        self._streams.finish()
        return status

    def _close(self) -> None:
        if not self._are_left:
            self._temporary.remove()

    def _reap(self, child: int) -> None:
        from omac.adapters.sandbox.orphans import reap_orphans

        reap_orphans([child, *self._streams.pumps])

    def _above(self) -> tuple[int, Collection[int]]:
        return os.getpid(), self._streams.pumps

    def _target(self) -> int | None:
        return self.init if self._begun else None


def _confine(run: HeldProgram, streams: Streams, gate: int, omac: int) -> None:
    """Wait in the child for the word, confine it, and become the program. Does not return."""
    from omac.adapters.sandbox.orphans import die_with

    status = 126
    try:
        streams.take()
        os.closerange(3, gate)  # nobody inside shall hold what whoever started omac had open
        os.closerange(gate + 1, 1 << 20)
        if run.terminal.is_elsewhere:
            os.setsid()
        elif not run.terminal.foreground:
            os.setpgid(0, 0)
        default()
        die_with(omac)
        os.read(gate, 1)
        os.close(gate)
        os.chdir(run.policy.workdir)
        enter(run.policy)
        os.execve(run.argv[0], run.argv, dict(run.policy.environment))  # noqa: S606  # no shell is wanted
    except BaseException as problem:
        os.write(2, f"omac: {run.argv[0]} cannot be started: {problem}\n".encode(errors="backslashreplace"))
        status = 127 if isinstance(problem, FileNotFoundError) else 126
    finally:
        os._exit(status)
