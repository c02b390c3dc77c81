"""Checkpoints, signed and recorded in the chain of a host: when a person asks, and now and then in a run that stays.

A receipt for the checkpoint of another journal is counted by the next one, and makes none due before EVENTS_MAX: of two
omacs that are each other's witness, each receipt would lead to the next delivery, for ever.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import trio

from omac.domain.access import signing, witness
from omac.domain.access.receipt import CheckpointReceived
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.refusal import Refusal
from omac.services.kernel.engine import Engine
from omac.services.kernel.execution import Execution
from omac.services.kernel.threads import run_in_thread

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
    try:
        note = await run_in_thread(sign)
    except (OSError, ImportError) as error:  # such as EMFILE, which passes; or another omac was installed meanwhile
        raise Refusal("journal-unavailable", f"the journal cannot be signed: {error}") from error
    command = signing.RecordCheckpoint(note.size, note.text)
    await execution.execute(signing.AGGREGATE, ids.checkpoint_stream(execution.host), command, cause)
    return note


class Checkpointing:
    """Signs for one run. `sign` signs the journal as it stands; it blocks, and raises Refusal."""

    def __init__(self, engine: Engine, sign: Callable[[], SignedNote]) -> None:
        self._engine = engine
        self._sign = sign
        self._problem = ""
        self._receipts: deque[int] = deque(maxlen=EVENTS_MAX)  # positions that no checkpoint counts, since it runs
        engine.observe(self._notice)

    async def run(self) -> None:
        """Sign when EVENTS_MAX events are not counted, or some but receipts have not been for EVERY_S, until
        cancelled."""
        signed_at = trio.current_time()
        while True:
            await trio.sleep(LOOK_S)
            waited = trio.current_time() - signed_at
            is_many = self._uncounted() >= EVENTS_MAX and not self._problem  # else each look would try again
            if is_many or (waited >= EVERY_S and self._uncounted() > len(self._receipts)):
                await self.sign()
                signed_at = trio.current_time()

    async def sign_last(self) -> None:
        """Sign when a run ends, where that is worth it."""
        if self._uncounted() >= WORTH:
            await self.sign()

    async def sign(self) -> None:
        """Sign and record. What keeps it from that is reported and recorded once, and the next time tries again: its
        checkpoint counts what this one would have."""
        try:
            try:
                await record_checkpoint(self._engine, self._sign, Cause("omac"))
            except Refusal as refusal:
                if refusal.reason != "out-of-order":
                    raise
                await record_checkpoint(self._engine, self._sign, Cause("omac"))  # the key was rotated meanwhile
            self._problem = ""
        except Refusal as refusal:
            if refusal.message != self._problem:
                _log.warning("no checkpoint is signed: %s", refusal.message)
            self._problem = refusal.message
            delay, stream = signing.RecordDelay(refusal.message), ids.checkpoint_stream(self._engine.host)
            with suppress(Refusal):  # the journal itself may be what cannot be written
                await self._engine.execute(signing.AGGREGATE, stream, delay, Cause("omac"))

    def _notice(self, recorded: Recorded) -> None:
        kind = type(recorded.event)
        if kind is CheckpointReceived:
            self._receipts.append(recorded.position)
        elif kind is signing.CheckpointSigned:
            while self._receipts and self._receipts[0] <= recorded.event.size:
                self._receipts.popleft()

    def _uncounted(self) -> int:
        """Return how many events were recorded since the last checkpoint, except its own record and those of its
        delivery."""
        last = self._engine.system.of(signing.AGGREGATE)[ids.checkpoint_stream(self._engine.host)].state
        witnessed = self._engine.system.of(witness.AGGREGATE)[ids.witness_stream(self._engine.host)].state
        own = 1 + witnessed.records_behind(last.size) if last.size else 0
        return self._engine.system.position - last.size - own
