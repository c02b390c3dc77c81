"""Call batches: what the calls of one pass of the Trio loop have to record is recorded together.

A record takes its time whether it holds one request or a hundred: it is encoded, encrypted, proven, stored and folded.
So the requests that come on one route in one pass are one record, and so are the answers that end in one. Each call
gets the id of its own access, as if it had been alone. While an omac is at work that would misread such records, each
call has its own.
"""

from collections.abc import Callable, Sequence

import trio

from omac.domain.access.access import (
    AGGREGATE,
    AccessAborted,
    AccessBatchRequested,
    AccessCompleted,
    AccessEnd,
    AccessRequested,
    access_ids,
    ends_together,
    in_batches,
)
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Event, Recorded
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute
from omac.services.kernel.engine import Engine

_AGENT = Cause("agent")


Answered = Callable[[int | Exception], None]  # the id of an access, or why there is none
_Begun = tuple[str, str, Answered]  # a request that waits for its record: method, path, and who gets the answer


class CallBatches:
    """Gathers the calls of one pass, and submits them to `engine` before it commits; `stream` is their log."""

    def __init__(self, engine: Engine, stream: StreamId) -> None:
        self._engine = engine
        self._stream = stream
        self._begun: dict[int, tuple[ResolvedRoute, list[_Begun]]] = {}  # by the identity of the route
        self._ended: list[tuple[int, AccessEnd]] = []  # by the ids of their accesses

    def begin(self, route: ResolvedRoute, method: str, path: str, answered: Answered) -> None:
        """Have a request recorded. `answered` is called once, in the Trio loop, with the id of the access when that is
        durable and folded, or with the Refusal. It must not fail. Raises Refusal for what can be said at once."""
        entry = self._begun.get(id(route))
        if entry is None:
            self._engine.require_recording()
            entry = self._begun[id(route)] = route, []
            self._engine.gather(self._flush, is_awaited=True)
        entry[1].append((method, path, answered))

    def end(self, access: int, end: AccessEnd) -> None:
        """Have the end of an access recorded, without waiting."""
        self._ended.append((access, end))
        if len(self._ended) == 1:
            self._engine.gather(self._flush, is_awaited=False)

    def _flush(self) -> None:
        most = self._engine.batch_max
        if self._ended:
            ended, self._ended = self._ended, []
            for event in ends_together(ended, most):
                request = event.request if isinstance(event, AccessCompleted | AccessAborted) else None
                cause = Cause("agent", None, request)
                self._engine.record_soon([self._fact(event)], cause)
        if self._begun:
            begun, self._begun = self._begun, {}
            for route, requests in begun.values():
                for waiting in in_batches(requests, most):
                    self._record_begun(route, waiting)

    def _record_begun(self, route: ResolvedRoute, requests: Sequence[_Begun]) -> None:
        def recorded(answer: Sequence[Recorded] | Exception) -> None:
            if isinstance(answer, Exception):
                for _, _, answered in requests:
                    answered(answer)
            else:
                accesses = access_ids(answer[0].position, len(requests))
                for access, (_, _, answered) in zip(accesses, requests, strict=True):
                    answered(access)

        try:
            self._engine.record_then(self._fact(_requested(route, requests)), _AGENT, recorded)
        except Exception as problem:
            if isinstance(problem, Refusal) and problem.reason == "unfoldable" and len(requests) > 1:
                for request in requests:  # one of them is to blame, and not the others
                    self._record_begun(route, [request])
            else:  # not in this moment: the loop is about to wait, and would not look at what this brings about
                trio.lowlevel.current_trio_token().run_sync_soon(recorded, problem)

    def _fact(self, event: Event) -> "Addressed[None, Event]":
        return Addressed(AGGREGATE, self._stream, event)


def _requested(route: ResolvedRoute, requests: Sequence[_Begun]) -> Event:
    names = route.dir, route.skill, route.mount, route.session
    if len(requests) == 1:
        ((method, path, _),) = requests
        return AccessRequested(*names, method, path)
    methods, paths, _ = zip(*requests, strict=True)
    return AccessBatchRequested(*names, methods, paths)
