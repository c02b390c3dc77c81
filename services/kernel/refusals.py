"""Refusals, those of strangers recorded in bounded form: one event for each kind and interval, with a count.

A caller without a token can ask as often as it likes. So the first refusal of a kind is recorded at once, those that
follow within `INTERVAL_S` are counted and recorded together. Known callers' refusals are recorded one by one up to
`SINGLES_MAX`, and counted beyond that and while the journal is slow or away, for which no refusal waits.

An agent chooses what it claims, and with it the kinds of one log. So each log has a bound of its own for its kinds, and
what is beyond it is counted together: nobody can make the refusals of others vanish, nor one's own, nor have them
recorded by another name.
"""

import logging
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import trio

from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Event, Recorded
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.services.kernel.engine import Engine

INTERVAL_S = 10.0
FIRST_S = 1.0  # that the first of a kind waits for its record
KINDS_MAX = 256  # of one log, counted each for itself
SINGLES_MAX = 50  # of a known caller's that are recorded one by one, of each kind and interval

_log = logging.getLogger("omac.refusals")


_BEYOND = object()  # the kind of all that a log has no room for


class _Window(msgspec.Struct):
    """A kind of refusals within an interval: the first fact of it, and how many of them are not recorded yet. `singles`
    were recorded one by one."""

    fact: Addressed[Any, Any]
    cause: Cause
    unrecorded: int = 0
    singles: int = 1


class Refusals:
    """Counts for one server. Facts are events of logs that have a `count`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._windows: dict[str, dict[Hashable, _Window]] = {}  # by log, then by kind

    async def run(self) -> None:
        """Record what was counted at the end of each interval, until cancelled."""
        while True:
            await trio.sleep(INTERVAL_S)
            await self.flush()

    async def note(
        self,
        fact: Addressed[Any, Any],
        cause: Cause,
        kind: Hashable,
        *,
        stranger: bool = True,
        kinds_max: int | None = None,
        beyond: Event | None = None,
    ) -> None:
        """Record a refusal before this returns, if that can be; count it if it cannot, and where it is one more of a
        stranger's of this kind within the interval, or one more than is recorded one by one. `kinds_max` is how many
        kinds the fact's log has beside that of all others; None: KINDS_MAX. `beyond` is recorded where the log has no
        room for the kind: an event that names nobody; None: that of the fact."""
        windows = self._windows.setdefault(fact.aggregate.name, {})
        if kind not in windows and len(windows) >= (KINDS_MAX if kinds_max is None else kinds_max):
            kind, stranger = _BEYOND, True
            fact = fact if beyond is None else msgspec.structs.replace(fact, command=beyond)
        window = windows.get(kind)
        if window is None:
            window = windows[kind] = _Window(fact, cause)
        elif stranger or window.unrecorded or window.singles >= SINGLES_MAX:
            window.unrecorded += 1
            return
        else:
            window.singles += 1
        with trio.move_on_after(FIRST_S):
            await self._record(window, fact, 1)

    def count(self, fact: Addressed[Any, Any], cause: Cause, kind: Hashable, beyond: Event) -> None:
        """Count a known caller's refusal, for a record at the end of the interval or, once there can be one, later.
        `beyond` is as of `note`."""
        windows = self._windows.setdefault(fact.aggregate.name, {})
        if kind not in windows and len(windows) >= KINDS_MAX:
            kind, fact = _BEYOND, msgspec.structs.replace(fact, command=beyond)
        windows.setdefault(kind, _Window(fact, cause, singles=0)).unrecorded += 1

    async def flush(self) -> None:
        """Record what is counted and begin again; what cannot be recorded is kept for the next time."""
        kinds = [(windows, kind, window) for windows in self._windows.values() for kind, window in windows.items()]
        for windows, kind, window in kinds:
            if window.unrecorded:
                count, window.unrecorded, window.singles = window.unrecorded, 0, 0
                command = msgspec.structs.replace(window.fact.command, count=count)
                await self._record(window, msgspec.structs.replace(window.fact, command=command), count)
            elif windows.get(kind) is window:
                del windows[kind]

    async def _record(self, window: _Window, fact: Addressed[Any, Any], count: int) -> None:
        def late(_: Sequence[Recorded]) -> None:
            window.unrecorded -= count

        try:
            await self._engine.record([fact], window.cause, late)
        except trio.Cancelled:  # it may still be recorded, and is counted again if it is not
            window.unrecorded += count
            raise
        except Refusal as refusal:
            window.unrecorded += count
            refusals = counted(count, "refusal is", "refusals are")
            _log.info("%s not recorded yet: %s", refusals, refusal.message)
