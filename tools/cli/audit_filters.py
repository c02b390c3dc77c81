"""The filters of omac audit: from what was typed to an AuditQuery."""

import os
import re
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from omac.domain.harness.names import NAMES
from omac.domain.kernel.event import Actor
from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.event_kinds import KINDS
from omac.projections.evidence.accesses import Outcome
from omac.projections.evidence.audit_query import COUNTABLE, AuditQuery
from omac.tools.compose.clock import now_ns
from omac.tools.terminal.invocation import expanded, is_position, require_one_of
from omac.tools.terminal.render import with_journal
from omac.tools.terminal.timestamps import parse_end, parse_moment

Form = Literal["text", "csv", "json"]
STATUS_CLASS = re.compile(r"([1-5])xx")
STATUS_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


class Typed(NamedTuple):
    """The filters, as typed."""

    skill: str | None = None
    directory: str | None = None
    session: str | None = None
    actor: str | None = None
    kind: str | None = None
    outcome: str | None = None
    status: str | None = None
    method: str | None = None
    path: str | None = None
    text: str | None = None
    since: str | None = None
    until: str | None = None
    first: str | None = None
    last: str | None = None
    run: str | None = None
    client: str | None = None


def query_of(typed: Typed, clock: Callable[[], int] = now_ns) -> AuditQuery:
    """Return the query that was typed; ages are before the time of `clock`. Raises Refusal (misuse)."""
    if typed.outcome is not None:
        require_one_of(get_args(Outcome), typed.outcome, "--outcome")
    if typed.actor is not None:
        require_one_of(get_args(Actor), typed.actor, "--actor")
    if typed.client and typed.client not in NAMES:
        from omac.domain.harness.table import harness_named  # late: it loads every harness, for an alias

        typed = typed._replace(client=harness_named(typed.client, "--client").name)
    kinds = {"access", *KINDS, *(name.partition(".")[0] for name in KINDS)}
    if typed.kind is not None and typed.kind not in kinds:
        message = f"--kind takes access, sandbox, guard, skill, control and more, not {typed.kind!r}"
        raise Refusal("misuse", message, fix=["omac audit --count-by kind  # the kinds in this journal"])
    query = AuditQuery(
        skill=typed.skill,
        dir=os.path.realpath(expanded(typed.directory)) if typed.directory is not None else None,
        session=typed.session,
        run=typed.run,
        client=typed.client,
        actor=typed.actor,
        kind=typed.kind,
        outcome=typed.outcome,
        status=_status(typed.status) if typed.status is not None else None,
        method=typed.method,
        path=typed.path,
        text=typed.text,
        since=parse_moment(typed.since, clock, "--since") if typed.since is not None else None,
        until=parse_end(typed.until, clock, "--until") if typed.until is not None else None,
        first=position_of(typed.first, "--from") if typed.first is not None else None,
        last=position_of(typed.last, "--to") if typed.last is not None else None,
    )
    if query.first is not None and query.last is not None and query.last < query.first:
        raise between_none(query.first, query.last)
    if query.since is not None and query.until is not None and query.until < query.since:
        message = f"--since {typed.since} is later than --until {typed.until}: nothing lies between them"
        fix = [f"--since {quoted(typed.until or '')} --until {quoted(typed.since or '')}"]
        raise Refusal("misuse", message, fix=fix)
    return query


def count_command(query: AuditQuery, journal_path: str | None) -> str:
    """Return the command that shows which values rows have, of the fields that the query filters by."""
    filtered = [name for name in COUNTABLE if getattr(query, name, None) is not None]
    return with_journal(f"omac audit --count-by {','.join(filtered) or 'kind,skill,dir'}", journal_path)


def between_none(first: int, last: int) -> Refusal:
    """Return the refusal of a range of positions that ends before it begins."""
    message = f"--from {first} is behind --to {last}: no position lies between them"
    return Refusal("misuse", message, fix=[f"--from {last} --to {first}"])


def fields_of(count_by: str | None) -> tuple[str, ...]:
    """Return the fields to count by; none where nothing is counted. Raises Refusal (misuse)."""
    if count_by is None:
        return ()
    fields = tuple(field.strip() for field in count_by.split(","))
    for field in fields:
        require_one_of(COUNTABLE, field, "--count-by")
    if len(set(fields)) != len(fields):
        raise Refusal("misuse", "--count-by names a field twice", fix=[f"--count-by {','.join(dict.fromkeys(fields))}"])
    return fields


def form_of(*, csv: bool, json: bool) -> Form:
    """Return the form of the output. Raises Refusal (misuse)."""
    if csv and json:
        raise Refusal("misuse", "--csv and --json exclude each other")
    return "csv" if csv else "json" if json else "text"


def position_of(text: str, name: str) -> int:
    """Return a position. Raises Refusal (misuse)."""
    if not is_position(text):
        raise Refusal("misuse", f"{name} takes a position, not {text!r}", fix=[f"{name} 1"])
    return int(text)


def _status(text: str) -> tuple[int, int]:
    if of_class := STATUS_CLASS.fullmatch(text.lower()):
        return int(of_class[1]) * 100, int(of_class[1]) * 100 + 99
    if match := STATUS_RANGE.fullmatch(text):
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            message = f"--status {text}: {low} is above {high}, no status lies between them"
            raise Refusal("misuse", message, fix=[f"--status {high}-{low}"])
        return low, high
    raise Refusal("misuse", f"--status takes 404, 5xx or 400-499, not {text!r}", fix=["--status 5xx"])
