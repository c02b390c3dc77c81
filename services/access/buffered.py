"""Buffered audit: a call goes to its skill while its record is under way, for who chooses speed over certainty.

Rules

1. A call waits for its record, as everywhere, once UNRECORDED_MAX calls have gone without one, or the first of them
   has for BEHIND_S: what a kill of omac can lose is bounded by both.
2. Behind a record that could not be made, for whatever reason, calls wait until the journal takes one again.
3. It counts for the limits of calls until it ends, recorded or not, or until its record cannot be made.
4. Its outcome, which is what its caller got, follows its record. A call whose record could not be made has none;
   stderr says how many have none: when the journal is back, or at the end.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import trio

from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.call_gauges import CountedFor
from omac.services.access.port import Answer, Request
from omac.services.access.recorder import JournalAccessRecorder

UNRECORDED_MAX = 1_000
BEHIND_S = 1.0
NO_RECORD = 0

_log = logging.getLogger("omac.audit")


class _Ahead(NamedTuple):
    """A call without a record: when it began, and what it counts for."""

    since: float
    counted: CountedFor


class _Outcome(NamedTuple):
    """The outcome of a call, kept until the record of the call exists. `reason` None: the call was completed."""

    answer: Answer
    reason: str | None


class BufferedAccessRecorder:
    """Implements AccessRecorder: lets calls go ahead of their records in `recorder`, known by numbers below 0."""

    def __init__(self, recorder: JournalAccessRecorder) -> None:
        self._recorder = recorder
        self.knows = recorder.knows
        self.resolve = recorder.resolve
        self.watch = recorder.watch
        self.unwatch = recorder.unwatch
        self.stopped = recorder.stopped
        self.refused = recorder.refused
        self.answer_by = recorder.answer_by
        self._last = 0
        self._began: dict[int, _Ahead] = {}  # calls without a record, the first first
        self._positions: dict[int, int] = {}  # of the records of calls without an outcome, NO_RECORD where none is
        self._outcomes: dict[int, _Outcome] = {}  # of calls without a record
        self._unrecorded = 0  # calls that went ahead, and then got no record; above 0, calls wait

    async def admit(self, route: ResolvedRoute, request: Request) -> int:
        """Implement AccessRecorder: admit a request ahead of its record, and return its number, below 0. While too many
        records are missing or late, record first, and return the position."""
        if self._may_go_ahead():
            number = self._go_ahead(route, request)  # at once: the limits were looked at by the caller
            await trio.lowlevel.cancel_shielded_checkpoint()
            return number
        access = await self._recorder.admit(route, request)
        self._journal_is_back()
        return access

    def admit_then(self, route: ResolvedRoute, request: Request, answered: Callable[[int | Exception], None]) -> None:
        """Implement AccessRecorder: call `answered` at once with a number where the request may go ahead of its
        record."""
        if self._may_go_ahead():
            answered(self._go_ahead(route, request))
        else:

            def recorded(access: int | Exception) -> None:
                if isinstance(access, int):
                    self._journal_is_back()
                answered(access)

            self._recorder.admit_then(route, request, recorded)

    def completed(self, access: int, answer: Answer) -> None:
        """Implement AccessRecorder: record that the answer was relayed to its end."""
        self._end(access, _Outcome(answer, None))

    def aborted(self, access: int, answer: Answer, reason: str) -> None:
        """Implement AccessRecorder: record that the access ended early."""
        self._end(access, _Outcome(answer, reason))

    def _may_go_ahead(self) -> bool:
        if self._unrecorded or len(self._began) >= UNRECORDED_MAX:
            return False
        first = next(iter(self._began.values()), None)
        return first is None or trio.current_time() - first.since <= BEHIND_S

    def _go_ahead(self, route: ResolvedRoute, request: Request) -> int:
        """The number of a call whose record is under way. Raises Refusal."""
        number = self._last - 1
        counted = self._recorder.admit_then(route, request, partial(self._recorded, number), ahead=True)
        self._last = number
        self._began[number] = _Ahead(trio.current_time(), counted)
        return number

    def _recorded(self, number: int, access: int | Exception) -> None:
        """The record of a call is durable, or could not be made."""
        del self._began[number]
        self._positions[number] = access if isinstance(access, int) else NO_RECORD
        if isinstance(access, Exception):
            if not self._unrecorded:
                why = access.message if isinstance(access, Refusal) else type(access).__name__
                _log.error("a call was forwarded that could not be recorded (--audit buffered): %s", why)
            self._unrecorded += 1
        if outcome := self._outcomes.pop(number, None):
            self._end(number, outcome)

    def close(self) -> None:
        """Report how many calls have no record, if that was not reported. The journal takes nothing more."""
        if self._unrecorded:
            _log.error("calls without a record (--audit buffered): %d", self._unrecorded)
            self._unrecorded = 0

    def _journal_is_back(self) -> None:
        """A call that has waited has its record."""
        if self._unrecorded:
            _log.error("calls without a record (--audit buffered): %d; the journal is back", self._unrecorded)
            self._unrecorded = 0

    def _end(self, access: int, outcome: _Outcome) -> None:
        if ahead := self._began.get(access):
            self._recorder.end_ahead(ahead.counted)
            self._outcomes[access] = outcome
            return
        position = access if access > 0 else self._positions.pop(access, NO_RECORD)
        if position == NO_RECORD:
            return
        if outcome.reason is None:
            self._recorder.completed(position, outcome.answer)
        else:
            self._recorder.aborted(position, outcome.answer, outcome.reason)
