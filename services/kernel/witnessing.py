"""Deliveries of signed checkpoints to a witness: as soon as one is recorded, and again until it has it."""

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from omac.domain.access import signing, witness
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.services.kernel.engine import Engine
from omac.services.kernel.threads import run_in_thread

DELIVERY_S = 10.0  # then it counts as failed
RETRY_S, RETRY_S_MAX = 5.0, 300.0

_log = logging.getLogger("omac.checkpoints")


class Witness(Protocol):
    """A witness that keeps notes."""

    @property
    def name(self) -> str:
        """The witness's name in the records."""

    def deliver(self, size: int, note: str) -> None:
        """Have it keep the signed note of the first `size` events. Blocks; raises OSError, which says why it cannot."""


class Witnessing:
    """Delivers for one run, to a witness or to nobody. `last_note` reads the text of the last checkpoint; it blocks,
    and raises Refusal."""

    def __init__(self, engine: Engine, to: Witness | None, last_note: Callable[[], str]) -> None:
        self._engine = engine
        self._to = to
        self._last_note = last_note

    async def run(self) -> None:
        """Deliver what is owed, from now on, until cancelled; return where there is nobody."""
        retry_s = RETRY_S
        while self._to is not None:
            await self._engine.until([ids.checkpoint_stream(self._engine.host)], self._is_owing)
            if await self.deliver():
                retry_s = RETRY_S
            else:
                await trio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_S_MAX)

    async def deliver(self) -> bool:
        """Deliver the last checkpoint, unless that was done; whether nothing is owed afterwards."""
        if self._to is None or not self._is_owing():
            return True
        size, why = self._signed(), ""
        try:
            with trio.fail_after(DELIVERY_S):
                await run_in_thread(self._hand_over, self._to, size, abandon_on_cancel=True)
        except OSError as problem:
            why = problem.strerror or str(problem)
        except trio.TooSlowError:
            why = "it does not answer"
        except Refusal as refusal:
            why = refusal.message
        await self._record(self._to.name, size, why)
        return not why

    def _hand_over(self, to: Witness, size: int) -> None:
        to.deliver(size, self._last_note())

    async def _record(self, name: str, size: int, why: str) -> None:
        command = witness.ReportLapse(size, name, why) if why else witness.ReportDelivery(size, name)
        stream = ids.witness_stream(self._engine.host)
        if why and why != self._engine.entry(witness.AGGREGATE, stream).state.problem:
            _log.warning("%s does not get the checkpoint of %s, which is owed: %s", name, counted(size, "event"), why)
        try:
            await self._engine.execute(witness.AGGREGATE, stream, command, Cause("omac"))
        except Refusal as refusal:  # the next start delivers it again, and finds that it is there
            _log.warning("the delivery of a checkpoint is not recorded: %s", refusal.message)

    def _signed(self) -> int:
        return self._engine.entry(signing.AGGREGATE, ids.checkpoint_stream(self._engine.host)).state.size

    def _is_owing(self) -> bool:
        witnessed = self._engine.entry(witness.AGGREGATE, ids.witness_stream(self._engine.host)).state
        return self._signed() > witnessed.size
