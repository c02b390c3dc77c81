"""A process that will build a sandbox: it loads what that takes while omac loads and brings the skills online, then
waits.

Nothing is built before what is asked has been handed in. When that never comes, omac was killed, say, it ends. Until
then Ctrl-C is for omac alone, whose end is its own: an interpreter that begins would show a traceback.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask
from subprocess import Popen

from omac.adapters.files.descriptor import Descriptor
from omac.domain.sandbox.request import SandboxRequest
from omac.tools.compose.own_program import OMAC, begun
from omac.tools.hotpath.sandbox_run import REQUEST_DESCRIPTOR
from omac.tools.terminal.invocation import current


class WaitingSandbox:
    """A process, begun in `environment`, that waits to build a sandbox. Make it in Trio's own thread. Raises Refusal
    (command-not-executable)."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        reader, self._writer = os.pipe2(os.O_CLOEXEC)
        argv = (*OMAC, "sandbox", "run", REQUEST_DESCRIPTOR, str(reader))
        mask = pthread_sigmask(SIG_BLOCK, [SIGINT])  # it lets Ctrl-C in when it is asked
        try:
            self._child = begun(argv, environment, handed_on=[reader])
        except BaseException:
            os.close(self._writer)
            raise
        finally:
            os.close(reader)
            pthread_sigmask(SIG_SETMASK, mask)

    async def begin(
        self, request: SandboxRequest, environment: Mapping[str, str], beginning: Callable[[], None]
    ) -> "Popen[bytes]":
        """Have it build the sandbox and run the command there, with this environment in the place of its own.
        `beginning` is called just before."""
        # late: the process begins before omac loads what it needs itself
        from omac.adapters.files.atomic import write_all
        from omac.services.kernel.threads import run_in_thread

        typed = list(current().words)  # for commands that it proposes
        message = {"by": os.getpid(), "environment": dict(environment), "request": request.fields(), "typed": typed}
        content = json.dumps(message).encode()
        writer, self._writer = self._writer, -1
        with Descriptor(writer), contextlib.suppress(BrokenPipeError):  # it tells why
            await run_in_thread(write_all, writer, content)  # whatever interrupts it, such as ^Z
            beginning()  # it begins once the pipe is closed
        return self._child

    def give_up(self) -> None:
        """End it, where nothing was handed in."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1
            self._child.kill()
            self._child.wait()
