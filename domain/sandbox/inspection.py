"""What was found where launches had left something to inspect, apart from their own ends: a log without versions.

Rules

1. A launch says in `sandbox.exited` what was found when it ended. What was left by launches that were killed, or that
   ended while another one lived, is found later, and stands here.
2. It follows from nothing that is recorded, and nothing follows from it: any number may stand in the log.
"""

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event


class Inspected(Event, frozen=True):
    """What the `launches` left in the folders `projects` was inspected. `findings` are what was found and, where
    dangerous, set aside: a short text for each."""

    launches: tuple[str, ...]
    projects: tuple[str, ...]
    findings: tuple[str, ...] = ()


AGGREGATE = log("inspection", (Inspected,))
