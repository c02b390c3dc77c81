"""A cursor of the audit: how far a reader has come in a journal, as text to resume from."""

import re
from typing import NamedTuple

from omac.domain.kernel.refusal import Refusal

START = "start"
FORM = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9]{1,18})")


class Cursor(NamedTuple):
    """All rows that ended at `position` of the journal `journal_id`, or before, are known to the reader."""

    journal_id: str
    position: int

    def __str__(self) -> str:
        return f"{self.journal_id}.{self.position}"

    @classmethod
    def parse(cls, text: str, journal_id: str, head: int) -> "Cursor":
        """Return the cursor that was typed, for the journal with this id and last position. Raises Refusal (misuse)."""
        if text == START:
            return cls(journal_id, 0)
        fix = ["--after start  # from the beginning"]
        match = FORM.fullmatch(text)
        if match is None:
            raise Refusal("misuse", f"--after takes start, or a cursor that omac audit printed, not {text!r}", fix=fix)
        cursor = cls(match[1], int(match[2]))
        if cursor.journal_id != journal_id:
            message = (
                f"the cursor {text} is of another journal (id {cursor.journal_id}) than this one (id {journal_id})"
            )
            raise Refusal("misuse", message, fix=fix)
        if cursor.position > head:
            message = f"the cursor {text} is ahead of the journal, which ends at {head}: it is an older copy"
            raise Refusal("misuse", message, fix=fix)
        return cursor
