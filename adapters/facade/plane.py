"""The data plane: the connections that the poller has, and the tasks of the others."""

import logging
import socket
from functools import partial

import msgspec
import trio

from omac.adapters.facade.connection import BegunRequest, FacadeConnection, Surroundings
from omac.adapters.facade.ordinary import OrdinaryAnswers
from omac.adapters.facade.polled import Phase, PolledConnection
from omac.adapters.facade.poller import Poller, guarded
from omac.adapters.facade.pool import REST_S, SkillConnections
from omac.adapters.http.accepting import log_failure
from omac.adapters.http.slots import Slot
from omac.adapters.http.wire import Wire

SWEEP_S = 0.25

_LOG = logging.getLogger("omac.facade")


class DataPlane:
    """Connections from their acceptance to their end: each is the poller's, or a task's of `tasks`. At most
    `clients_max` exist at one time."""

    def __init__(self, tasks: trio.Nursery, surroundings: Surroundings, clients_max: int) -> None:
        self._tasks = tasks
        self._poller = Poller.of_loop()
        self.put_off = self._poller.put_off  # of a Keeper, and without a call between: it is for each request
        self._connections = SkillConnections(self._poller, clients_max, surroundings.reaches)
        answers = OrdinaryAnswers(surroundings.limits.answer_head_bytes_max)
        self.surroundings = msgspec.structs.replace(surroundings, connections=self._connections, answers=answers)
        self._polled: set[PolledConnection] = set()
        self._busy = trio.Event()
        self._stopped = False

    async def run(self) -> None:
        """Run the poller until cancelled, and then close every connection that is polled or at rest."""
        recorder = self.surroundings.recorder
        recorder.answer_by(self._poller.call_soon)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._poller.run)
                nursery.start_soon(self._sweep)
        finally:
            self._stopped = True
            try:
                for connection in tuple(self._polled):
                    connection.stop()
                self._connections.close()
            finally:
                recorder.answer_by(None)  # whatever fails: tasks wait for these answers, also elsewhere
                self._poller.close()

    def begin(self, surroundings: Surroundings, sock: socket.socket, slot: Slot) -> None:
        """Have the poller watch a connection that was accepted."""
        self._watch(PolledConnection(sock, slot, surroundings, self), surroundings.limits.head_timeout_s)

    def promote(self, connection: PolledConnection, client: Wire, begun: BegunRequest | None) -> None:
        """Implement Keeper: continue a connection in a task, with the request that was begun."""
        self._tasks.start_soon(self._run_task, connection, client, begun)

    def forget(self, connection: PolledConnection) -> None:
        """Implement Keeper: stop watching a connection."""
        self._polled.discard(connection)
        self._poller.forget(connection.socket)

    def _watch(self, connection: PolledConnection, wait_s: float) -> None:
        connection.slot.evict = connection.close
        connection.rest(self.surroundings.clock() + wait_s)
        self._polled.add(connection)
        try:
            self._poller.watch(connection.socket, connection)
        except OSError as problem:  # the system has no room for more
            log_failure(_LOG, problem)
            connection.close()
        self._busy.set()

    async def _run_task(self, connection: PolledConnection, client: Wire, begun: BegunRequest | None) -> None:
        slot, kept = connection.slot, False
        try:
            with trio.CancelScope() as scope:
                slot.evict_by(scope.cancel)
                task = FacadeConnection(client, slot, connection.surroundings)
                wait_s = max(0.0, connection.deadline - self.surroundings.clock())
                kept = await task.run(begun, wait_s=wait_s, until_rest=True)
        except Exception as error:
            log_failure(_LOG, error)
        finally:
            if kept and not slot.evicted and not self._stopped:
                self._watch(connection, connection.surroundings.limits.idle_timeout_s)
                if (ahead := client.take_ahead()) and connection.phase is Phase.RESTING:
                    guarded(connection, partial(connection.take, ahead))
            else:
                client.close()
                slot.leave()
                self._busy.set()  # its connection to the skill may rest

    async def _sweep(self) -> None:
        """Handle connections whose deadline has passed, and end those at rest for too long, as long as any connection
        exists."""
        while True:
            if not self._polled and not self._connections:
                self._busy = trio.Event()
                await self._busy.wait()
            await trio.sleep(SWEEP_S)
            now = self.surroundings.clock()
            for connection in [each for each in self._polled if each.deadline <= now]:
                guarded(connection, connection.late)
            self._connections.sweep(now - REST_S)
