"""The inner command: the agent that omac launches, its signals and its exit status passed through."""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

import trio

from omac.domain.refusal import Refusal


def find_program(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """`argv` with its program found on PATH. Raises Refusal (prerequisite-missing)."""
    found = shutil.which(argv[0], path=environment.get("PATH"))
    if found is None:
        message = f"{argv[0]} is not installed, or not on PATH"
        raise Refusal("prerequisite-missing", message, fix=[f"command -v {argv[0]}", "omac serve --no-inner"])
    return (found, *argv[1:])


class Inner:
    """An agent to be run in omac's own terminal."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)

    async def run(self, stop: trio.Event, hurry: trio.Event) -> int:
        """Run it to its end; `stop` asks it to end (SIGTERM), `hurry` makes it (SIGKILL).

        Returns its exit status, 128+n for a signal. Raises Refusal (prerequisite-missing) when it cannot be run.
        """
        try:
            child = subprocess.Popen(self._argv, env=self._environment)  # noqa: ASYNC220  # a thread that ends would take it along
        except OSError as problem:
            message = f"{self._argv[0]} cannot be run: {problem.strerror}"
            raise Refusal("prerequisite-missing", message, fix=[f"file {shlex.quote(self._argv[0])}"]) from problem
        watch = os.pidfd_open(child.pid)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send_when, stop, child, signal.SIGTERM)
                nursery.start_soon(_send_when, hurry, child, signal.SIGKILL)
                await trio.lowlevel.wait_readable(watch)
                nursery.cancel_scope.cancel()
        finally:
            os.close(watch)
            if child.poll() is None:
                child.kill()
            status = child.wait()  # it has ended
        return status if status >= 0 else 128 - status


async def _send_when(event: trio.Event, child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    await event.wait()
    child.send_signal(number)
