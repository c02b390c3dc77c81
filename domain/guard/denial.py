"""The writes that the write guard denied: a log without versions.

Rules

1. A denial holds, whether or not it can be recorded.
2. Paths are as the guard resolved them; `session` and `tool` are what the caller claimed.
3. A denial follows from nothing, and nothing follows from it: the log may have any number of them.
"""

from typing import Literal

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event

Origin = Literal["spool", "bridge"]  # written by the guard itself outside any sandbox; claimed from inside one


class GuardDenied(Event, frozen=True):
    """A tool of `harness` would have written to `path`, outside `root`; `probable` is the path meant, or "".

    `count` of them came within an interval, where they were claimed; of many that differ, this was the first.
    """

    harness: str
    tool: str
    path: str
    root: str
    probable: str = ""
    session: str | None = None
    origin: Origin = "spool"
    count: int = 1


AGGREGATE = log("guard", (GuardDenied,))
