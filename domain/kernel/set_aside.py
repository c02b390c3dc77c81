"""Positions set aside: what a repair of the journal records.

Rules

1. A repair keeps the bytes it replaces, in the table `set_aside`; the event that says so names their digest.
2. The replaced row becomes `PositionEmptied`, so positions stay consecutive. It keeps its stream and version where
   those were sound, so what came later in that stream still follows.
3. No state changes by either event: an emptied position counts as if its event had never happened.
"""

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event


class PositionSetAside(Event, frozen=True):
    """The row at `position` was replaced. `kind` and `stream` are what it had, "" where it was missing; `why` says
    what was wrong; `digest` is "sha256:" and 64 hex digits over its body, "" where it had none."""

    position: int
    kind: str
    stream: str
    why: str
    digest: str


class PositionEmptied(Event, frozen=True):
    """A position that holds no event any more."""


EVENTS = (PositionSetAside, PositionEmptied)
AGGREGATE = log("journal", EVENTS)
