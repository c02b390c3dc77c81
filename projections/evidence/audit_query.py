"""An audit query: which rows of the audit log are wanted, and how they are counted. Pure: every output shares it."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from omac.domain.kernel.paths import below
from omac.projections.evidence.accesses import AuditRow

COUNTABLE = (
    "skill", "dir", "session", "actor", "kind", "outcome", "status", "method", "path", "reason", "client", "run",
)  # fmt: skip


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that are wanted; None wants all.

    `dir` is a canonical path, and means what is below it too. "" as `skill`, `session`, `client`, `method` or `path`
    means rows without one. `kind` may be the part before the dot. `status`, times (nanoseconds since 1970 UTC) and
    positions are ranges that include both ends; a class such as 200 to 299 is of answers alone, and no exit code of a
    launch. `path` is a glob: * stands for any characters, ? for one. `text` is part of a field that holds more than a
    word of omac's, in any case.
    """

    skill: str | None = None
    dir: str | None = None
    session: str | None = None
    run: str | None = None
    client: str | None = None
    actor: str | None = None
    kind: str | None = None
    outcome: str | None = None
    status: tuple[int, int] | None = None
    method: str | None = None
    path: str | None = None
    text: str | None = None
    since: int | None = None
    until: int | None = None
    first: int | None = None
    last: int | None = None

    @property
    def is_selective(self) -> bool:
        """Return whether the query has any condition, and so may leave out rows."""
        return any(value is not None for value in msgspec.structs.astuple(self))

    def matches(self, row: AuditRow) -> bool:
        """Return whether a row is wanted."""
        return (
            (self.skill is None or self.skill == (row.skill or ""))
            and (self.since is None or row.at >= self.since)
            and (self.until is None or row.at <= self.until)
            and (self.first is None or row.position >= self.first)
            and (self.last is None or row.position <= self.last)
            and self.outcome in (None, row.outcome)
            and self.actor in (None, row.actor)
            and (self.session is None or self.session == (row.session or ""))
            and self.run in (None, row.run)
            and (self.client is None or self.client == (row.client or ""))
            and (self.method is None or self.method.upper() == row.method.upper())
            and (self.kind is None or row.kind == self.kind or row.kind.startswith(self.kind + "."))
            and self._matches_more(row)
        )

    def _matches_more(self, row: AuditRow) -> bool:
        low, high = self.status or (0, 0)
        is_exit_code = row.kind == "sandbox" and low >= 100 and (low % 100, high) == (0, low + 99)  # a class of answers
        return (
            (self.dir is None or (row.dir is not None and below(row.dir, self.dir)))
            and (self.status is None or (row.status is not None and low <= row.status <= high and not is_exit_code))
            and (self.path is None or (bool(self.path) == bool(row.path) and matches_glob(row.path, self.path)))
            and (self.text is None or _holds(row, self.text.casefold()))
        )


def count_by(rows: Iterable[AuditRow], fields: Sequence[str]) -> list[tuple[tuple[str | int | None, ...], int]]:
    """Return how often rows have the same values of `fields`, the most frequent first: a row counts for all refusals
    that it stands for. Memory grows with the values."""
    counts = Counter[tuple[str | int | None, ...]]()
    for row in rows:
        counts[tuple(getattr(row, field) for field in fields)] += row.count
    return sorted(counts.items(), key=lambda entry: (-entry[1], [(value is None, str(value)) for value in entry[0]]))


def matches_glob(text: str, glob: str) -> bool:
    """Return whether `glob` describes the whole text: * any characters, ? one. Takes at most len(text) * len(glob)
    steps, whatever an agent put into the text."""
    at = position = 0
    star, resumed = -1, 0
    while at < len(text):
        if position < len(glob) and glob[position] == "*":
            star, resumed = position, at
            position += 1
        elif position < len(glob) and glob[position] in ("?", text[at]):
            at, position = at + 1, position + 1
        elif star >= 0:
            resumed += 1
            at, position = resumed, star + 1
        else:
            return False
    return glob[position:].strip("*") == ""


def _holds(row: AuditRow, text: str) -> bool:
    fields = (row.path, row.detail, row.skill, row.dir, row.session, row.reason, row.kind, row.client, row.method)
    return any(field is not None and text in field.casefold() for field in fields)
