"""Checkpoints, signed and recorded in the chain of a host: when a person asks, and now and then in a run that stays."""

import logging
from collections.abc import Callable
from typing import NamedTuple

import trio

from omac.domain.access import signing
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause
from omac.domain.kernel.refusal import Refusal
from omac.services.kernel.engine import Engine
from omac.services.kernel.execution import Execution

EVENTS_MAX = 10_000  # that no checkpoint counts yet
EVERY_S = 300.0
LOOK_S = 2.0
WORTH = 1_000  # events since the last that make one worth it when a run ends

_log = logging.getLogger("omac.checkpoints")


class SignedNote(NamedTuple):
    """A signed checkpoint: how many events it counts, and its text."""

    size: int
    text: str


async def record_checkpoint(execution: Execution, sign: Callable[[], SignedNote], cause: Cause) -> SignedNote:
    """Sign what the journal holds now, record it, and return it. Raises Refusal."""
    note = await trio.to_thread.run_sync(sign)
    command = signing.RecordCheckpoint(note.size, note.text)
    await execution.execute(signing.AGGREGATE, ids.checkpoint_stream(execution.host), command, cause)
    return note


class Checkpointing:
    """Signs for one run. `sign` signs the journal as it stands; it blocks, and raises Refusal."""

    def __init__(self, engine: Engine, sign: Callable[[], SignedNote]) -> None:
        self._engine = engine
        self._sign = sign
        self._problem = ""

    async def run(self) -> None:
        """Sign when EVENTS_MAX events are not counted, or some have not been for EVERY_S, until cancelled."""
        signed_at = trio.current_time()
        while True:
            await trio.sleep(LOOK_S)
            waited = trio.current_time() - signed_at
            if self._uncounted() >= EVENTS_MAX or (self._uncounted() and waited >= EVERY_S):
                await self.sign()
                signed_at = trio.current_time()

    async def sign_last(self) -> None:
        """Sign when a run ends, where that is worth it."""
        if self._uncounted() >= WORTH:
            await self.sign()

    async def sign(self) -> None:
        """Sign and record. What keeps it from that is reported once, and the next time tries again."""
        try:
            await record_checkpoint(self._engine, self._sign, Cause("omac"))
        except Refusal as refusal:
            if refusal.message != self._problem:
                _log.warning("no checkpoint is signed: %s", refusal.message)
            self._problem = refusal.message

    def _uncounted(self) -> int:
        """How many events were recorded since the last checkpoint, which is one itself."""
        last = self._engine.system.of(signing.AGGREGATE)[ids.checkpoint_stream(self._engine.host)]
        return self._engine.system.position - last.position
