"""Positions without their event: what a repair of the journal records, and what stands for events that were pruned.

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


class PositionPruned(Event, frozen=True):
    """A position whose event was dropped from a sealed segment (`domain/access/sealing.py`). The first of a segment has
    what the dropped events added to counts: accesses by outcome, denials, control calls."""

    completed: int = 0
    aborted: int = 0
    refused: int = 0
    denied: int = 0
    controls_called: int = 0
    controls_refused: int = 0


EVENTS = (PositionSetAside, PositionEmptied, PositionPruned)
AGGREGATE = log("journal", EVENTS)
