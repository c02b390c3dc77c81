"""The intake of a server: what short-lived programs spool is in its journal within `POLL_S`, and so in its state; and
the launches that nobody will report about any more are settled.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import trio

from omac.domain.kernel import ids
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox import launch
from omac.domain.sandbox.launch import Lose, Sandbox
from omac.domain.sandbox.reaction import react
from omac.journal.inbox import Inbox
from omac.journal.problem_log import ProblemLog
from omac.journal.spool import id_in, open_folder
from omac.services.kernel.engine import Engine, together
from omac.services.kernel.ingestion import ingest

POLL_S = 0.2
WATCHED_POLL_S = 2.0  # the same where the spool is watched
RETRY_S = 1.0
TICK_NS = 10**9  # longer than any file system's clock needs for its next tick
INGESTION_S = 2.0  # for another process that is ingesting the spool right now

_log = logging.getLogger("omac.intake")


class Intake:
    """Ingests a spool through the engine, so the journal has one writer in this process."""

    def __init__(self, inbox: Inbox, engine: Engine) -> None:
        self._inbox = inbox
        self._engine = engine

    async def run(self, changed: Callable[[], Awaitable[None]] | None = None) -> None:
        """Look for new records until cancelled, at once where `changed` returns when the spool has changed.

        While they cannot be recorded they stay where they are.
        """
        waiting: frozenset[str] = frozenset()  # what cannot follow yet is tried again when something has changed
        seen, problems = -1, ProblemLog(_log)
        while True:
            stamp = self._inbox.stamp()
            if stamp != seen:
                there = self._inbox.names()
                try:
                    if there != waiting:
                        await self.take_in()
                except Refusal as refusal:
                    problems.met(refusal.message)
                    await trio.sleep(RETRY_S)
                    continue
                waiting = there & self._inbox.names()
                problems.over()
                if self._engine.clock() - stamp > TICK_NS:  # else another file may come with the same stamp
                    seen = stamp
            if changed is None:
                await trio.sleep(POLL_S)
            else:
                with trio.move_on_after(WATCHED_POLL_S):
                    await changed()

    def folder(self) -> str:
        """The spool's folder, which is there when this returns. Raises Refusal (state-unusable)."""
        os.close(open_folder(self._inbox.folder, create=True))
        return self._inbox.folder

    async def take_in(self) -> None:
        """Return when what is in the spool now is in the journal. Raises Refusal."""
        await ingest(self._inbox, self._engine, INGESTION_S)

    def waiting(self) -> frozenset[str]:
        """Return the ids of the records that wait in the spool, such as those that only a later omac can read."""
        return frozenset(map(id_in, self._inbox.names()))


async def settle_lost(
    engine: Engine,
    living: Callable[[str, int, int, str], bool],
    take_in: Callable[[], Awaitable[None]],
    waiting: Callable[[], Collection[str]] = frozenset,
) -> list[StreamId]:
    """Record the end of launches of this host whose omac is gone; `living` tells of a launch, and of the pid, start
    ticks and boot of its omac. Returns their streams. What such an omac still reported about its end counts: it is
    taken in first, and where `waiting` has the launch even then, a later omac will do that."""

    def is_reported(stream: StreamId, state: Sandbox) -> bool:
        request, name = state.launch, ids.key_of(stream).name
        return request is not None and living(name, request.pid, request.start_ticks, request.boot_id)

    sandboxes = engine.system.sandboxes
    ours = [stream for stream in sandboxes.entries if ids.key_of(stream).host == engine.host]
    states = {stream: sandboxes[stream].state for stream in ours if sandboxes[stream].state.live}
    silent = [stream for stream, state in states.items() if react(state, is_reported=is_reported(stream, state))]
    if silent:
        await take_in()
        await engine.catch_up()
    due = [stream for stream in silent if ids.key_of(stream).name not in waiting()]
    lost = {stream: react(sandboxes[stream].state, is_reported=False, is_taken_in=True) for stream in due}
    commands = {stream: command for stream, command in lost.items() if isinstance(command, Lose)}
    await together(partial(engine.execute, launch.AGGREGATE, stream, command) for stream, command in commands.items())
    return list(commands)
