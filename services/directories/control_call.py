"""A control call: what it grants is recorded with its change, what is refused with its reason."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from omac.domain.access import control
from omac.domain.access.control import Action, ControlCalled, ControlRefused, Listener, Locking, VaultLocked
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Event
from omac.domain.kernel.refusal import Refusal, stopping
from omac.services.kernel.engine import Engine
from omac.services.kernel.refusals import Refusals

DIRECTORY_MAX = 1_024  # characters of a refused directory that are recorded


class Caller(msgspec.Struct, frozen=True):
    """A caller: the listener that it uses, and the id that links all records that follow from its request."""

    listener: Listener
    correlation: str


@dataclass(eq=False, repr=False)
class ControlCall:
    """One call, from its arrival to its answer; `path` is the directory that it names. `is_stopping` returns whether
    omac takes directories offline: then it is not the caller's fault that one is."""

    _engine: Engine
    _refusals: Refusals
    _action: Action | Locking
    _path: str
    _caller: Caller
    _is_stopping: Callable[[], bool] = lambda: False

    def cause(self) -> Cause:
        """Return what is recorded as the cause of all that follows."""
        return Cause("bridge" if self._caller.listener in ("tcp", "bridge") else "person", self._caller.correlation)

    def granted(self, canonical: str, session: str | None = None) -> tuple[Addressed[None, Event], ...]:
        """Return the record of the call, to be appended together with its change."""
        listener = self._caller.listener
        if self._action == "lock":
            return (self._fact(VaultLocked(listener)),)
        return (self._fact(ControlCalled(self._action, canonical, listener, session)),)

    async def __aenter__(self) -> "ControlCall":
        return self

    async def __aexit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Refusal):
            is_stopping = error.reason == "directory-offline" and self._is_stopping()
            reason = "stopping" if is_stopping else error.reason
            path = self._engine.scrubbed(self._path, DIRECTORY_MAX).encode("utf-8", "replace").decode()
            event = ControlRefused(self._action, path, self._caller.listener, reason)
            kind = self._action, self._caller.listener, reason
            await self._refusals.note(self._fact(event), self.cause(), kind, stranger=False)
            if is_stopping:
                raise stopping() from None

    def _fact(self, event: Event) -> Addressed[None, Event]:
        return Addressed(control.AGGREGATE, ids.control_stream(self._engine.host), event)
