"""omac audit: each access, each launch and each change of trust once, filtered, in their order."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.pruned import day_of
from omac.journal.reader import ReadJournal
from omac.projections.evidence.accesses import AuditRow, ended_rows
from omac.projections.evidence.audit_query import AuditQuery, count_by
from omac.tools.cli.audit_cursor import START, Cursor
from omac.tools.cli.audit_filters import Form, count_command
from omac.tools.compose.followed_journal import FollowedJournal
from omac.tools.compose.journals import to_read
from omac.tools.compose.searched_audit import SearchedAudit
from omac.tools.compose.state import StateDir
from omac.tools.terminal.columns import cell
from omac.tools.terminal.csv import print_csv
from omac.tools.terminal.invocation import print_json, typed_with, wait_for_more
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.render import report, report_fix, report_whole, show_audit, show_columns
from omac.tools.terminal.timestamps import rfc3339

FOLLOW_S = 0.3
FOLLOWED_AFTER = 10  # rows before those that are followed


class AuditRequest(NamedTuple):
    """The command line, as typed. `last` None: all rows, or with `follow` the last FOLLOWED_AFTER. `fields`: those that
    rows are counted by, instead of shown. `after`: the cursor to resume from; then rows come in the order in which they
    ended, at most `page` of them."""

    query: AuditQuery
    last: int | None = None
    follow: bool = False
    journal: str | None = None
    form: Form = "text"
    fields: tuple[str, ...] = ()
    after: str | None = None
    page: int | None = None

    def require_consistent(self) -> None:
        """Raise Refusal (misuse) for options that exclude each other."""
        if self.follow and self.fields:
            raise Refusal("misuse", "--follow and --count-by exclude each other")
        if self.follow and (self.query.until is not None or self.query.last is not None):
            raise Refusal("misuse", "--follow prints rows as they end, so it excludes --until and --to")
        if self.after is not None and (self.fields or self.last is not None):
            raise Refusal("misuse", "--after excludes -n and --count-by; --page limits the rows")
        fix = [] if self.follow else [f"--after {quoted(self.after or START)} --page {self.page or 100}"]
        if self.page is not None and (self.after is None or self.follow or not self.page):
            raise Refusal("misuse", "--page takes one row or more, with --after and without --follow", fix=fix)


def run(request: AuditRequest, environment: Mapping[str, str]) -> int:
    """Show the rows, the newest last; with `follow` those that end from now on too. Raises Refusal."""
    request.require_consistent()
    if request.after is not None:
        return _resume(request, environment)
    count = FOLLOWED_AFTER if request.follow and request.last is None else request.last
    with to_read(environment, request.journal) as journal:
        head = journal.store.head()
        progress = Progress("events indexed")
        audit = SearchedAudit(journal, StateDir.of(environment), head, progress=progress.show)
        rows = audit.rows(request.query) if count is None else audit.newest(request.query, count)
        rows = progress.before(rows)
        if request.form == "text" and not request.follow:
            rows = _report_if_empty(rows, request)
        if request.fields:
            _show_counts(rows, request)
        else:
            _show(rows, request.form)
        if count is None:
            _report_pruned(journal, request.query)
    if request.follow:
        _follow(request, environment, Cursor("", head))
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


def _report_if_empty(rows: Iterable[AuditRow], request: AuditRequest) -> Iterator[AuditRow]:
    """Yield the rows; where there are none, say so, and how to see which there are."""
    row = None
    for row in rows:
        yield row
    if row is None:
        report("no row matches")
        report_fix([f"{count_command(request.query, request.journal)}  # the values that rows have"])


def _report_pruned(journal: ReadJournal, query: AuditQuery, after: int = 0) -> None:
    """Say, where a query reaches back to what was pruned, that rows of that are missing from the answer."""
    last, at = journal.store.pruned_to()
    since = journal.store.position_at(query.since - 1) if last and query.since is not None else 0
    if max(since + 1, query.first or 1, after + 1) <= last:
        report(f"positions 1 to {last} were pruned on {day_of(at)}: what was dropped of them has no row here")


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
        lines = [
            [cell(None if value is None else str(value)) for value in (*values, count)] for values, count in counts
        ]
        show_columns([list(names), *lines])


def _resume(request: AuditRequest, environment: Mapping[str, str]) -> int:
    """Show a page of the rows that ended after a cursor, then the cursor of the next page."""
    with to_read(environment, request.journal) as journal:
        head = journal.store.head()
        cursor = Cursor.parse(request.after or START, journal.store)
        if request.follow:
            _follow(request, environment, cursor, shows_cursors=True)
            return 0
        progress = Progress("events indexed")
        audit = SearchedAudit(journal, StateDir.of(environment), head, progress=progress.show)
        page = AuditPage(islice(cursor.behind(audit.ended(request.query, cursor.known)), request.page))
        _show(progress.before(page.rows()), request.form)
        _report_pruned(journal, request.query, cursor.known)
        following = page.last if page.last and page.count == request.page else Cursor(cursor.journal_id, head)
        following = following.bound(journal.store.leaf(following.position))
    if request.form == "json":
        print_json({"cursor": str(following)})
    else:
        report_whole(f"next: {typed_with(f'--after {following}')}")
    return 0


class AuditPage:
    """Rows as they are shown, with `count` and the cursor of the `last` one."""

    def __init__(self, ended: Iterable[tuple[Cursor, AuditRow]]) -> None:
        self._ended = ended
        self.count = 0
        self.last: Cursor | None = None

    def rows(self) -> Iterator[AuditRow]:
        """Yield them."""
        for cursor, row in self._ended:
            self.last = cursor
            self.count += 1
            yield row


def _follow(
    request: AuditRequest, environment: Mapping[str, str], cursor: Cursor, *, shows_cursors: bool = False
) -> None:
    """Show each row behind the cursor as it ends, until the person ends it; with its own cursor, in JSON, if wanted.
    Raises Refusal."""
    with to_read(environment, request.journal) as journal:
        followed = FollowedJournal(journal, environment, request.journal)
        audit = SearchedAudit(journal, StateDir.of(environment), followed.position)
        fold, leaf = audit.fold(), journal.store.leaf
        known = cursor.behind(audit.ended(request.query, cursor.known))
        _show_each(((each.bound(leaf(each.position)), row) for each, row in known), request, shows_cursors)
    later = cursor.behind(ended_rows(_later_for_ever(followed), fold))
    _show_each(((each.bound(followed.leaf), row) for each, row in later), request, shows_cursors)


def _show_each(ended: Iterable[tuple[Cursor, AuditRow]], request: AuditRequest, shows_cursors: bool) -> None:
    for cursor, row in ended:
        if request.query.matches(row):
            if shows_cursors and request.form == "json":
                print_json(json_row(row) | {"cursor": str(cursor)})
            else:
                _show([row], request.form, headed=False)


def _later_for_ever(followed: FollowedJournal) -> Iterator[Recorded]:
    """Yield the records of a journal as they come. Raises Refusal."""
    while True:
        yield from followed.later()
        wait_for_more(FOLLOW_S)


def json_row(row: AuditRow) -> dict[str, Any]:
    """A row as people and programs read it: `at` in RFC 3339."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields | {"at": rfc3339(row.at)}
