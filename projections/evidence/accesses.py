"""The audit log: every access once, from its request to its outcome, every launch, and every change of trust.

`Accesses` is the live part, bounded by what is under way: open requests, and counts. `AuditFold` joins requests and
outcomes into rows; `audit_rows` brings them into the order of requests, holding no more than WAITING_MAX rows and the
accesses that are open.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from omac.domain.access.access import (
    AGGREGATE,
    BATCH_MAX,
    AccessAborted,
    AccessBatchAborted,
    AccessBatchCompleted,
    AccessBatchRequested,
    AccessCompleted,
    AccessEvent,
    AccessRefused,
    AccessRequested,
    access_id,
    access_ids,
    accesses_of,
    ids_of_ended,
    number_of,
)
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import StreamId, key_of
from omac.domain.kernel.run import RunRecovered, RunStarted, RunStopped
from omac.projections.evidence.changes import RequestedStart, TrustChange, TrustChanges
from omac.projections.evidence.launches import Launches, LaunchRow
from omac.projections.impossible import IMPOSSIBLE, cannot_follow

WAITING_MAX = 4_096  # rows that wait for an access which began before them and is still open

Outcome = Literal["completed", "aborted", "refused", "open", "done"]


class Accesses:
    """Accesses under way (by their ids, with the log of the request and the run that forwards it), and how many ended
    how.

    The first outcome of an access counts; one for no access under way counts for nothing.
    """

    def __init__(self) -> None:
        self.open: dict[int, tuple[StreamId, str]] = {}
        self.completed = 0
        self.aborted = 0
        self.refused = 0

    def apply(self, recorded: Recorded) -> None:
        """Fold one access event."""
        event = recorded.event
        kind = type(event)
        if kind is AccessRequested:
            self.open[recorded.position] = recorded.stream, recorded.run
        elif kind is AccessBatchRequested:
            begun = access_ids(recorded.position, len(event.method))
            self.open |= dict.fromkeys(begun, (recorded.stream, recorded.run))
        elif kind is AccessCompleted:
            self.completed += self.open.pop(event.request, None) is not None
        elif kind is AccessBatchCompleted:
            for access in ids_of_ended(event):
                self.completed += self.open.pop(access, None) is not None
        elif kind is AccessAborted:
            self.aborted += self.open.pop(event.request, None) is not None
        elif kind is AccessBatchAborted:
            for access in ids_of_ended(event):
                self.aborted += self.open.pop(access, None) is not None
        elif kind is AccessRefused:
            self.refused += event.count


class AuditRow(msgspec.Struct, frozen=True):
    """One access, one launch (`kind` is sandbox), or one change of trust: then `kind` is that of the event, and
    `outcome` done or refused. Refusals that were recorded together, since one caller repeats them, are one row: `count`
    says how many, and the rest describes the first.

    `at` is nanoseconds since 1970 UTC, bytes are of bodies, `duration` is in seconds. `status` and `duration` are None
    where there was none; `bytes` counts towards the agent, `bytes_in` towards the skill; `reason` says why it was
    refused or ended early, `detail` what changed. A launch, and the start of a sidecar, has the position and time of
    its beginning. `client` is the agent that the run launched, None where it launched another command or none. `run` is
    the run that recorded it, or that it was begun in. `number` tells requests apart that came together, and have one
    position.
    """

    position: int
    at: int
    dir: str | None
    skill: str | None
    session: str | None
    method: str
    path: str
    status: int | None
    bytes: int
    bytes_in: int
    duration: float | None
    outcome: Outcome
    reason: str | None
    kind: str = "access"
    actor: str = "agent"
    detail: str = ""
    client: str | None = None
    run: str = ""
    count: int = 1
    number: int = 0

    @property
    def access(self) -> int:
        """The id of an access."""
        return access_id(self.position, self.number)


class _Clients:
    """The agents that runs launched, while these runs last."""

    def __init__(self, of_runs: Mapping[str, str]) -> None:
        self._of_runs: dict[str, str] = dict(of_runs)

    def state(self) -> dict[str, str]:
        return dict(self._of_runs)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event of a run."""
        match recorded.event:
            case RunStarted(policy=policy):
                if isinstance(agent := policy.get("agent"), str):
                    self._of_runs[recorded.run] = agent
            case RunStopped() | RunRecovered():
                self._of_runs.pop(key_of(recorded.stream).name, None)
            case _:
                pass

    def named(self, row: AuditRow, recorded: Recorded) -> AuditRow:
        """Return the row with the run that recorded it, unless it was begun in another one, and that one's agent."""
        run = row.run or recorded.run
        return msgspec.structs.replace(row, run=run, client=self._of_runs.get(run))


class PlacedRow(msgspec.Struct, frozen=True):
    """A row of the audit: its `number` in the order of `audit_rows`, and the position `ended` of the record that ended
    it (0 while it is open)."""

    number: int
    ended: int
    row: AuditRow


class AuditLogState(msgspec.Struct, frozen=True):
    """The complete state of an AuditLog: folded on from here, the rows are those of the whole journal."""

    agents: dict[str, str]
    paths: dict[str, str | None]
    launches: dict[StreamId, LaunchRow]
    accesses: dict[int, AuditRow]
    waiting: list[PlacedRow]
    lasting: list[int]
    requested: dict[StreamId, RequestedStart]


NOTHING_FOLDED = AuditLogState({}, {}, {}, {}, [], [], {})


class AuditFold:
    """Joins records into rows. Each row ends with one record; memory is bounded by what is open."""

    def __init__(self, state: AuditLogState = NOTHING_FOLDED) -> None:
        self._changes, self._launches = TrustChanges(state.paths, state.requested), Launches(state.launches)
        self._clients = _Clients(state.agents)
        self.accesses: dict[int, AuditRow] = dict(state.accesses)  # those that are open, by their ids

    def apply(self, recorded: Recorded) -> list[AuditRow]:
        """Fold one record, and return the rows that ended with it, in the order of their requests: several only where
        several calls were recorded together. Takes records in their order. Raises Refusal (journal-damaged)."""
        try:
            self._clients.apply(recorded)
            if type(recorded.event) in AGGREGATE.events:
                rows = [
                    row
                    for entry in accesses_of(recorded.position, recorded.event)
                    if (row := self._access(recorded, *entry)) is not None
                ]
                return sorted(rows, key=request_order) if len(rows) > 1 else rows
            return self._other(recorded)
        except IMPOSSIBLE as impossible:
            raise cannot_follow(recorded, impossible) from impossible

    def _access(self, recorded: Recorded, id_: int, event: AccessEvent) -> AuditRow | None:
        """Fold what a record says of one access; return its row if that ended."""
        match event:
            case AccessRequested():
                row = AuditRow(
                    recorded.position, recorded.at, event.dir, event.skill, event.session, event.method, event.path,
                    None, 0, 0, None, "open", None, number=number_of(id_),
                )  # fmt: skip
                self.accesses[id_] = self._clients.named(row, recorded)
                return None
            case AccessRefused():
                row = AuditRow(
                    recorded.position, recorded.at, event.dir, event.skill, event.session, event.method, event.path,
                    event.status, 0, 0, None, "refused", event.reason, count=event.count,
                )  # fmt: skip
                return self._clients.named(row, recorded)
            case AccessCompleted() | AccessAborted():
                begun = self.accesses.pop(id_, None)  # else it has its outcome, or no request
                return None if begun is None else _ended(begun, event)

    def _other(self, recorded: Recorded) -> list[AuditRow]:
        if launch := self._launches.of(recorded):
            return [self._clients.named(_launched(launch), recorded)]
        if change := self._changes.of(recorded):
            return [self._clients.named(_changed(recorded, change), recorded)]
        return []

    def state(self, waiting: list[PlacedRow], lasting: list[int]) -> AuditLogState:
        """Return all that is remembered, here and by an AuditLog."""
        launches = self._launches.state()
        return AuditLogState(
            self._clients.state(),
            self._changes.paths(),
            launches,
            dict(self.accesses),
            waiting,
            lasting,
            self._changes.requested(),
        )

    def open(self) -> Iterator[AuditRow]:
        """Yield the accesses and the launches that have not ended."""
        yield from self.accesses.values()
        yield from self.launches()

    def launches(self) -> Iterator[AuditRow]:
        """Return the launches that are open."""
        return map(_launched, self._launches.open())


def ended_rows(records: Iterable[Recorded], fold: AuditFold | None = None) -> Iterator[tuple[int, list[AuditRow]]]:
    """Yield the rows that ended, by the position of the record that ended them, in the order of these positions.
    `fold` has folded what comes before the records; None: nothing does.

    That order is final: records that are appended add rows at its end.
    """
    fold = fold or AuditFold()
    for recorded in records:
        if rows := fold.apply(recorded):
            yield recorded.position, rows


def audit_rows(records: Iterable[Recorded]) -> Iterator[AuditRow]:
    """Yield each access among `records` once, in the order of requests; those without an outcome come as `open`.

    Changes of trust come among them where they happened, launches where they ended: a sandbox may be open for days, and
    what happens meanwhile does not wait for it. Rows that wait for an access are at most WAITING_MAX: an access that
    outlasts them comes where it ended, too. Those that have not ended come last.
    """
    log = AuditLog()
    for recorded in records:
        for placed in log.apply(recorded):
            yield placed.row
    yield from log.rest()


class AuditLog:
    """Brings rows into the order of `audit_rows`. Each row that can come has a number, which grows; the others are the
    rest."""

    def __init__(self, state: AuditLogState = NOTHING_FOLDED) -> None:
        self.fold = AuditFold(state)
        self._waiting = OrderedDict((placed.number, placed) for placed in state.waiting)
        self._lasting = {id_: self.fold.accesses[id_] for id_ in state.lasting}

    def apply(self, recorded: Recorded) -> Iterator[PlacedRow]:
        """Fold one record, and yield the rows that can come now. They are to be taken before the next record."""
        waiting, lasting = self._waiting, self._lasting
        for number, ended in enumerate(self.fold.apply(recorded)):
            place = _place(ended.position, ended.number)
            if lasting.pop(ended.access, None) is not None or place not in waiting:
                place = _place(recorded.position, number)
            waiting[place] = PlacedRow(place, recorded.position, ended)
        if type(recorded.event) in (AccessRequested, AccessBatchRequested):
            for id_, _ in accesses_of(recorded.position, recorded.event):
                place = _place(recorded.position, number_of(id_))
                waiting[place] = PlacedRow(place, 0, self.fold.accesses[id_])
        while waiting and (len(waiting) > WAITING_MAX or next(iter(waiting.values())).ended):
            _, placed = waiting.popitem(last=False)
            if placed.ended:
                yield placed
            else:
                lasting[placed.row.access] = placed.row

    def waiting(self) -> Iterator[PlacedRow]:
        """Yield the rows that ended, and wait for what is open."""
        return (placed for placed in self._waiting.values() if placed.ended)

    def rest(self) -> Iterator[AuditRow]:
        """Yield what is open, and what waits for it."""
        yield from self._lasting.values()
        yield from (placed.row for placed in self._waiting.values())
        yield from self.fold.launches()

    def state(self) -> AuditLogState:
        """Return all that is remembered."""
        return self.fold.state(list(self._waiting.values()), list(self._lasting))


def _place(position: int, number: int) -> int:
    """Return the number of a row in the order of the audit."""
    return position * BATCH_MAX + number


def request_order(row: AuditRow) -> tuple[int, int]:
    """Return what rows that ended with one record are sorted by."""
    return row.position, row.number


def _changed(recorded: Recorded, change: TrustChange) -> AuditRow:
    position, at = (change.begun.position, change.begun.at) if change.begun else (recorded.position, recorded.moment)
    return AuditRow(
        position, at, change.dir, change.skill, change.session, "", "", None, 0, 0, None,
        "refused" if change.refused else "done", change.reason, change.kind, recorded.actor, change.detail,
        count=getattr(recorded.event, "count", 1),
    )  # fmt: skip


def _launched(launch: LaunchRow) -> AuditRow:
    return AuditRow(
        launch.position, launch.at, launch.dir, None, None, "", "", launch.status, 0, 0, launch.duration_s,
        launch.outcome, launch.reason, "sandbox", launch.actor, launch.detail, run=launch.run,
    )  # fmt: skip


def _ended(row: AuditRow, event: AccessCompleted | AccessAborted) -> AuditRow:
    aborted = isinstance(event, AccessAborted)
    return msgspec.structs.replace(
        row,
        status=event.status,
        bytes=event.bytes_out,
        bytes_in=event.bytes_in,
        duration=None if event.duration_us is None else event.duration_us / 1_000_000,
        outcome="aborted" if aborted else "completed",
        reason=event.reason if isinstance(event, AccessAborted) else None,
    )
