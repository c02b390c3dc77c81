"""The end of a server: who asked for it, and how long it may take.

Rules

1. The first request is passed on to the agent, by the same signal. When the agent has ended, directories have STOP_S to
   go offline in order.
2. Who asks twice waits for nobody: agent and sidecars are killed, and directories have HURRY_S. What ends is still
   recorded.
3. Once directories should be offline, no caller waits for a journal that stalls: omac would never end.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator

import trio

from omac.services.sidecars.supervision import Supervision
from omac.tools.compose.agent_process import OF_THE_TERMINAL, Inner

STOP_S = 15.0  # for directories to go offline in order; after that their processes are killed
HURRY_S = 2.0  # the same when asked to stop twice
STALL_S = 1.0  # that one record may take after that


class Ending:
    """The end of one server, from its start on. `inner` is its agent, while it runs; `supervision` has its sidecars,
    once there can be some."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.by = signal.SIGTERM  # the signal that asked for it
        self.inner: Inner | None = None
        self.supervision: Supervision | None = None
        self._why = ""
        self._within_s = STOP_S
        self._offline = trio.CancelScope(shield=True)  # taking directories offline
        self._patience = trio.CancelScope()  # the same for a journal that stalls meanwhile

    @property
    def why(self) -> str:
        """Return the reason that is recorded."""
        return self._why or "its agent ended"

    def ask(self, why: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the server to end (rules 1 and 2)."""
        if self.inner is not None:
            self.inner.end(number)
        if self.asked.is_set():
            self._within_s = HURRY_S
            self._set_deadline(min(self._offline.deadline, trio.current_time() + HURRY_S))
            if self.supervision is not None:
                self.supervision.hurry()
        else:
            self.by = number
        self._why = self._why or why
        self.asked.set()

    def fail(self, why: str) -> None:
        """Give the reason why the server cannot go on."""
        self._why = why

    @contextlib.contextmanager
    def offline(self) -> Iterator[None]:
        """Bound the time that the block takes for directories to go offline."""
        self._set_deadline(trio.current_time() + self._within_s)
        with self._offline:
            yield

    def _set_deadline(self, deadline: float) -> None:
        self._offline.deadline = self._patience.deadline = deadline

    async def refuse_stalled(self, refuse_waiting: Callable[[float], None]) -> None:
        """Have callers refused that wait for a record longer than the given seconds, from then on (rule 3)."""
        with self._patience:
            await trio.sleep_forever()
        while True:
            refuse_waiting(STALL_S)
            await trio.sleep(STALL_S)

    async def watch_signals(self, task_status: trio.TaskStatus[None]) -> None:
        """Take signals as requests to end; those of the terminal are the agent's, while there is one. Who started omac
        by nohup(1) has it ignore SIGHUP."""
        hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        with trio.open_signal_receiver(*OF_THE_TERMINAL, signal.SIGTERM, *hang_up) as signals:
            task_status.started()
            async for raw in signals:
                number = signal.Signals(raw)
                if self.inner is not None and number in OF_THE_TERMINAL:
                    self.inner.interrupt(number)
                else:
                    self.ask(f"asked by {number.name}", number)
