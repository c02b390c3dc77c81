"""Locking: a store of secrets is unlocked and locked by the person, and what waits for it goes on."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from omac.domain.directories import directory
from omac.domain.kernel.refusal import Refusal
from omac.services.directories.control_call import Caller, ControlCall
from omac.services.kernel.engine import Engine
from omac.services.kernel.refusals import Refusals


@dataclass(eq=False, repr=False)
class StoreLocking:
    """Use cases of one server."""

    _engine: Engine
    _refusals: Refusals

    async def unlock(self, caller: Caller, open_store: Callable[[], None]) -> list[str]:
        """Record that a store of secrets is unlocked, unlock it, and inspect every directory again that waits for one.
        Returns their paths. Raises Refusal, and then nothing was unlocked."""
        async with ControlCall(self._engine, self._refusals, "unlock", "", caller) as call:
            await self._engine.record(call.granted(""), call.cause())
            open_store()
            waiting = [
                (stream, entry.state.path)
                for stream, entry in self._engine.system.directories.entries.items()
                if entry.run == self._engine.run
                and any(route.why == "pending-credentials" for route in entry.state.routes.values())
            ]
            for stream, path in waiting:
                with contextlib.suppress(Refusal):  # it goes offline: it waits no longer
                    await self._engine.execute(directory.AGGREGATE, stream, directory.RequestReload(path), call.cause())
            return [path for _, path in waiting]

    async def lock(self, caller: Caller, close_store: Callable[[], bool]) -> bool:
        """Lock a store of secrets at once, and record it as soon as the journal takes that; whether it was open. What
        runs keeps the values it was started with."""
        async with ControlCall(self._engine, self._refusals, "lock", "", caller) as call:
            if was_open := close_store():
                self._engine.record_soon(call.granted(""), call.cause())
            return was_open
