"""A cursor of the audit: how far a reader has come in a journal, as text to resume from."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from omac.domain.access.access import number_of, position_of
from omac.domain.kernel.refusal import Refusal
from omac.journal.reader import Reader
from omac.projections.evidence.accesses import AuditRow, request_order

START = "start"
LEAF_DIGITS = 16  # of a leaf: enough to tell two records apart
FORM = re.compile(rf"([A-Za-z0-9_-]{{1,64}})\.([0-9]{{1,18}})(?:\.([0-9]{{1,18}}))?(?:-([0-9a-f]{{{LEAF_DIGITS}}}))?")


class Cursor(NamedTuple):
    """All rows that ended at `position` of the journal `journal_id`, or before, are known to the reader; with an
    `access`, of those that ended at `position` the ones up to that. `leaf` begins that of the record there: a restored
    backup goes on with others. "" for one that is not known."""

    journal_id: str
    position: int
    access: int | None = None
    leaf: str = ""

    def __str__(self) -> str:
        access = "" if self.access is None else f".{self.access}"
        return f"{self.journal_id}.{self.position}{access}{self.leaf and f'-{self.leaf}'}"

    def bound(self, leaf: str) -> "Cursor":
        """Return it as the cursor of the record with this leaf."""
        return self._replace(leaf=leaf[:LEAF_DIGITS])

    @property
    def known(self) -> int:
        """The last position of which all rows are known."""
        return self.position if self.access is None else self.position - 1

    def behind(self, ended: Iterable[tuple[int, list[AuditRow]]]) -> "Iterator[tuple[Cursor, AuditRow]]":
        """Yield the rows behind this one, of those that ended behind `known`, each with its own cursor."""
        for position, rows in ended:
            if position == self.position and self.access is not None:
                last = position_of(self.access), number_of(self.access)
                rows = [row for row in rows if request_order(row) > last]
            for number, row in enumerate(rows, 1):
                yield Cursor(self.journal_id, position, row.access if number < len(rows) else None), row

    @classmethod
    def parse(cls, text: str, store: Reader) -> "Cursor":
        """Return the cursor that was typed, for this journal. Raises Refusal (misuse)."""
        journal_id, head = store.journal_id(), store.head()
        if text == START:
            return cls(journal_id, 0)
        fix = ["--after start  # from the beginning"]
        match = FORM.fullmatch(text)
        if match is None:
            raise Refusal("misuse", f"--after takes start, or a cursor that omac audit printed, not {text!r}", fix=fix)
        cursor = cls(match[1], int(match[2]), int(match[3]) if match[3] else None, match[4] or "")
        if cursor.journal_id != journal_id:
            message = (
                f"the cursor {text} is of another journal (id {cursor.journal_id}) than this one (id {journal_id})"
            )
            raise Refusal("misuse", message, fix=fix)
        if cursor.position > head:
            message = f"the cursor {text} is ahead of the journal, which ends at {head}: it is an older copy"
            raise Refusal("misuse", message, fix=fix)
        if cursor.leaf and not store.leaf(cursor.position).startswith(cursor.leaf):
            message = f"the cursor {text} is of records that this journal does not have: a backup was restored since"
            raise Refusal("misuse", message, fix=fix)
        return cursor
