"""omac audit: each access, each launch and each change of trust once, filtered, in their order."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple, get_args

import msgspec

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import Refusal
from omac.journal.event_kinds import KINDS
from omac.projections.evidence.accesses import AuditRow, Outcome, audit_rows
from omac.tools.compose.journals import to_read
from omac.tools.terminal.invocation import current, expanded, print_json
from omac.tools.terminal.render import show_audit
from omac.tools.terminal.timestamps import parse_end, parse_moment, rfc3339

FOLLOW_S = 0.3
FOLLOWED_AFTER = 10  # rows before those that are followed


class Filter(NamedTuple):
    """Which rows are wanted; None wants all. Times in nanoseconds since 1970 UTC; `kind` may be the part before the
    dot."""

    skill: str | None
    directory: str | None
    since: int | None
    until: int | None
    outcome: str | None
    kind: str | None = None

    @classmethod
    def of(
        cls,
        skill: str | None,
        directory: str | None,
        since: str | None,
        until: str | None,
        outcome: str | None,
        kind: str | None,
        clock: Callable[[], int],
    ) -> "Filter":
        """From what was typed. Raises Refusal (misuse)."""
        if outcome is not None and outcome not in get_args(Outcome):
            raise Refusal("misuse", f"--outcome takes {', '.join(get_args(Outcome))}, not {outcome!r}")
        kinds = {"access", *KINDS, *(name.partition(".")[0] for name in KINDS)}
        if kind is not None and kind not in kinds:
            raise Refusal("misuse", f"unknown kind {kind!r}; try access, sandbox, guard, skill, secret, config")
        return cls(
            skill,
            os.path.realpath(expanded(directory)) if directory else None,
            parse_moment(since, clock) if since else None,
            parse_end(until, clock) if until else None,
            outcome,
            kind,
        )

    def wants(self, row: AuditRow) -> bool:
        """Whether this access is asked for."""
        below = self.directory is None or (
            row.dir is not None and (row.dir == self.directory or row.dir.startswith(self.directory.rstrip("/") + "/"))
        )
        return (
            below
            and self.skill in (None, row.skill)
            and (self.since is None or row.at >= self.since)
            and (self.until is None or row.at <= self.until)
            and self.outcome in (None, row.outcome)
            and (self.kind is None or row.kind == self.kind or row.kind.startswith(self.kind + "."))
        )


class AuditRequest(NamedTuple):
    """The command line, as typed. `last` None: all rows, or with `follow` the last FOLLOWED_AFTER."""

    wanted: Filter
    last: int | None = None
    follow: bool = False
    journal: str | None = None
    json: bool = False


def run(request: AuditRequest, environment: Mapping[str, str]) -> int:
    """Show the rows, the newest last; with `follow` those that end from now on too. Raises Refusal."""
    count = FOLLOWED_AFTER if request.follow and request.last is None else request.last
    with closing(to_read(environment, request.journal)) as journal:
        head = journal.store.head()
        wanted = (row for row in audit_rows(journal.records(0, head)) if request.wanted.wants(row))
        rows: Iterable[AuditRow] = wanted if count is None else deque(wanted, maxlen=count)
        _show(rows, request)
    if request.follow:
        _follow(request, environment, head)
    return 0


def _show(rows: Iterable[AuditRow], request: AuditRequest, *, headed: bool = True) -> None:
    if request.json:
        for row in rows:
            print_json(json_row(row))
    else:
        show_audit(map(json_row, rows), headed=headed)


def _follow(request: AuditRequest, environment: Mapping[str, str], head: int) -> None:
    """Show each row as it ends, until the person ends it. Those up to position `head` were shown."""
    live = _Live(request, environment)
    for row in audit_rows(live.records(), waiting_max=0):
        if live.position > head and request.wanted.wants(row):
            _show([row], request, headed=False)
            current().stdout.flush()


class _Live:
    """The records of a journal, those to come included; `position` is that of the one read last."""

    def __init__(self, request: AuditRequest, environment: Mapping[str, str]) -> None:
        self._request = request
        self._environment = environment
        self.position = 0

    def records(self) -> Iterator[Recorded]:
        """Yield them in order, for ever. Raises Refusal."""
        while True:
            with closing(to_read(self._environment, self._request.journal)) as journal:
                for recorded in journal.records(self.position):
                    self.position = recorded.position
                    yield recorded
            time.sleep(FOLLOW_S)


def json_row(row: AuditRow) -> dict[str, Any]:
    """A row as people and programs read it: `at` in RFC 3339."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields | {"at": rfc3339(row.at)}
