"""omac audit: each access, each launch and each change of trust once, filtered, in their order."""

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple, get_args

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.journal.event_kinds import KINDS
from omac.projections.evidence.accesses import AuditRow, Outcome, audit_rows
from omac.tools.compose.journals import to_read
from omac.tools.terminal.invocation import expanded, print_json
from omac.tools.terminal.render import show_audit
from omac.tools.terminal.timestamps import SHOWN_NS, parse_moment, rfc3339


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
            parse_moment(until, clock) if until else None,
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
            and (self.until is None or row.at // SHOWN_NS <= self.until // SHOWN_NS)
            and self.outcome in (None, row.outcome)
            and (self.kind is None or row.kind == self.kind or row.kind.startswith(self.kind + "."))
        )


def run(wanted: Filter, journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the accesses. Raises Refusal."""
    with closing(to_read(environment, journal_path)) as journal:
        rows = (json_row(row) for row in audit_rows(journal.records()) if wanted.wants(row))
        if as_json:
            for row in rows:
                print_json(row)
        else:
            show_audit(rows)
    return 0


def json_row(row: AuditRow) -> dict[str, Any]:
    """A row as people and programs read it: `at` in RFC 3339."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields | {"at": rfc3339(row.at)}
