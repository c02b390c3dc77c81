"""A process that will build a sandbox: it loads what that takes while omac brings the skills online, then waits.

Nothing is built before what is asked has been handed in. When that never comes, omac was killed, say, it ends.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from subprocess import Popen

import trio

from omac.domain.sandbox.request import SandboxRequest
from omac.tools.compose.agent_process import begun


class WaitingSandbox:
    """One that was begun with `argv`, to which the number of the descriptor that it reads is added, in `environment`.
    Make it in Trio's own thread. Raises Refusal (prerequisite-missing)."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        reader, self._writer = os.pipe2(os.O_CLOEXEC)
        try:
            self._child = begun([*argv, str(reader)], environment, handed_on=[reader])
        except BaseException:
            os.close(self._writer)
            raise
        finally:
            os.close(reader)

    async def begin(self, request: SandboxRequest, environment: Mapping[str, str]) -> "Popen[bytes]":
        """Have it build the sandbox and run the command there, with this environment in the place of its own."""
        content = json.dumps({"environment": dict(environment), "request": request.fields()}).encode()
        writer, self._writer = self._writer, -1
        with os.fdopen(writer, "wb", buffering=0) as stream, contextlib.suppress(BrokenPipeError):  # it tells why
            await trio.to_thread.run_sync(stream.write, content)
        return self._child

    def give_up(self) -> None:
        """End it, where nothing was handed in."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1
            self._child.kill()
            self._child.wait()
