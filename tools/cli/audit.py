"""omac audit: each access, each launch and each change of trust once, filtered, in their order."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import Refusal
from omac.projections.evidence.accesses import AuditRow, audit_rows
from omac.projections.evidence.audit_query import AuditQuery, count_by
from omac.tools.cli.audit_filters import Form
from omac.tools.compose.journals import to_read
from omac.tools.terminal.csv import print_csv
from omac.tools.terminal.invocation import current, print_json
from omac.tools.terminal.render import show_audit, show_columns
from omac.tools.terminal.timestamps import rfc3339

FOLLOW_S = 0.3
FOLLOWED_AFTER = 10  # rows before those that are followed


class AuditRequest(NamedTuple):
    """The command line, as typed. `last` None: all rows, or with `follow` the last FOLLOWED_AFTER. `fields`: those that
    rows are counted by, instead of shown."""

    query: AuditQuery
    last: int | None = None
    follow: bool = False
    journal: str | None = None
    form: Form = "text"
    fields: tuple[str, ...] = ()


def run(request: AuditRequest, environment: Mapping[str, str]) -> int:
    """Show the rows, the newest last; with `follow` those that end from now on too. Raises Refusal."""
    if request.follow and request.fields:
        raise Refusal("misuse", "--follow and --count-by exclude each other")
    count = FOLLOWED_AFTER if request.follow and request.last is None else request.last
    with closing(to_read(environment, request.journal)) as journal:
        head = journal.store.head()
        wanted = (row for row in audit_rows(journal.records(0, head)) if request.query.matches(row))
        rows: Iterable[AuditRow] = wanted if count is None else deque(wanted, maxlen=count)
        if request.fields:
            _show_counts(rows, request)
        else:
            _show(rows, request.form)
    if request.follow:
        _follow(request, environment, head)
    return 0


def _show(rows: Iterable[AuditRow], form: Form, *, headed: bool = True) -> None:
    if form == "json":
        for row in rows:
            print_json(json_row(row))
    elif form == "csv":
        if headed:
            print_csv(AuditRow.__struct_fields__)
        for row in rows:
            print_csv(tuple(json_row(row).values()))
    else:
        show_audit(map(json_row, rows), headed=headed)


def _show_counts(rows: Iterable[AuditRow], request: AuditRequest) -> None:
    counts = count_by(rows, request.fields)
    names = (*request.fields, "count")
    if request.form == "json":
        for values, count in counts:
            print_json(dict(zip(names, (*values, count), strict=True)))
    elif request.form == "csv":
        print_csv(names)
        for values, count in counts:
            print_csv((*values, count))
    else:
        lines = [["-" if value is None else str(value) for value in (*values, count)] for values, count in counts]
        show_columns([list(names), *lines])


def _follow(request: AuditRequest, environment: Mapping[str, str], head: int) -> None:
    """Show each row as it ends, until the person ends it. Those up to position `head` were shown."""
    live = _Live(request, environment)
    for row in audit_rows(live.records(), waiting_max=0):
        if live.position > head and request.query.matches(row):
            _show([row], request.form, headed=False)
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
