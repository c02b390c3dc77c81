"""Refusals, those of strangers recorded in bounded form: one event for each kind and interval, with a count.

A caller without a token can ask as often as it likes. So the first refusal of a kind is recorded at once, those that
follow within `INTERVAL_S` are counted and recorded together. Known callers' refusals are recorded one by one, and
counted only while the journal is slow or away, for which no refusal waits.
"""

import logging
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import trio

from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.refusal import Refusal
from omac.services.kernel.engine import Engine

INTERVAL_S = 10.0
FIRST_S = 1.0  # that the first of a kind waits for its record
KINDS_MAX = 256  # counted one by one; omac defines the kinds, and has fewer

_log = logging.getLogger("omac.refusals")


class _Window(msgspec.Struct):
    """One kind within an interval: the first fact of it, and how many of them are not recorded yet."""

    fact: Addressed[Any, Any]
    cause: Cause
    unrecorded: int


class Refusals:
    """Counts for one server. Facts are events of logs that have a `count`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._windows: dict[Hashable, _Window] = {}

    async def run(self) -> None:
        """Record what was counted at the end of each interval, until cancelled."""
        while True:
            await trio.sleep(INTERVAL_S)
            await self.flush()

    async def note(self, fact: Addressed[Any, Any], cause: Cause, kind: Hashable, *, stranger: bool = True) -> None:
        """Record a refusal before this returns, if that can be; count it if it cannot, and where it is one more of a
        stranger's of this kind within the interval."""
        key = (fact.aggregate.name, kind)
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= KINDS_MAX:
                return
            window = self._windows[key] = _Window(fact, cause, 0)
        elif stranger or window.unrecorded:
            window.unrecorded += 1
            return
        with trio.move_on_after(FIRST_S):
            await self._record(window, fact, 1)

    async def flush(self) -> None:
        """Record what is counted and begin again; what cannot be recorded is kept for the next time."""
        for key, window in list(self._windows.items()):
            if window.unrecorded:
                count, window.unrecorded = window.unrecorded, 0
                command = msgspec.structs.replace(window.fact.command, count=count)
                await self._record(window, window.fact._replace(command=command), count)
            elif self._windows.get(key) is window:
                del self._windows[key]

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
            _log.info("%d refusals are not recorded yet: %s", count, refusal.message)
