"""The intake of a server: what short-lived programs spool is in its journal within `POLL_S`, and so in its state; and
the launches that nobody will report about any more are settled.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from omac.domain import ids, sandbox
from omac.domain.ids import StreamId
from omac.domain.recorded import Event
from omac.domain.refusal import Refusal
from omac.domain.sandbox import LaunchRequested, Sandbox
from omac.journal.ingestion import Inbox, ingest
from omac.journal.opening import INGESTION_S, open_journal
from omac.services.engine import Engine, together

POLL_S = 0.2
RETRY_S = 1.0
WHY = "the omac that launched it was killed"

_log = logging.getLogger("omac.intake")


class Intake:
    """Takes a spool into the journal at `path`, as another process would: the writer is not held up by it."""

    def __init__(self, inbox: Inbox, path: str, clock: Callable[[], int]) -> None:
        self._inbox = inbox
        self._path = path
        self._clock = clock

    async def run(self) -> None:
        """Look for new records until cancelled. While they cannot be recorded they stay where they are."""
        waiting: frozenset[str] = frozenset()  # what cannot follow yet is looked at again when something has changed
        said = ""
        while True:
            there = self._inbox.names()
            if there != waiting:
                try:
                    await self.take_in()
                except Refusal as refusal:
                    if refusal.message != said:
                        _log.error("%s", refusal.message)
                    said = refusal.message
                    await trio.sleep(RETRY_S)
                    continue
                waiting, said = there & self._inbox.names(), ""
            await trio.sleep(POLL_S)

    async def take_in(self) -> None:
        """Return when what is in the spool now is in the journal. Raises Refusal."""
        await trio.to_thread.run_sync(self._take_in)

    def _take_in(self) -> None:
        journal = open_journal(self._path, "", self._clock)
        try:
            ingest(self._inbox, journal, INGESTION_S)
        finally:
            journal.close()


async def settle_lost(
    engine: Engine, living: Callable[[int, int], bool], boot_id: str, take_in: Callable[[], Awaitable[None]]
) -> list[StreamId]:
    """Record the end of launches of this host whose omac is gone; `living` tells of a pid and its start_ticks.

    Returns their streams. What such an omac still reported about its end counts: it is taken in first.
    """

    def gone(launch: LaunchRequested) -> bool:
        return launch.boot_id != boot_id or not living(launch.pid, launch.start_ticks)

    def lost() -> list[StreamId]:
        return [
            stream
            for stream, entry in engine.system.sandboxes.entries.items()
            if ids.host_of(stream) == engine.host and entry.state.live and entry.state.launch
            if gone(entry.state.launch)
        ]

    if found := lost():
        await take_in()
        await engine.writer.catch_up()
        found = [stream for stream in found if engine.system.sandboxes[stream].state.live]
        await together(partial(engine.execute, engine.system.sandboxes, stream, _lose) for stream in found)
    return found


def _lose(state: Sandbox) -> list[Event]:
    return sandbox.lose(state, WHY)
