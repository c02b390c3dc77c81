"""Accesses: one request of an agent to one skill. A log without versions; `request` is the position of the request.

Rules

1. `requested` is durable before a byte of the request leaves omac.
2. Exactly one `completed` or `aborted` follows each `requested`; after a crash, the next start writes it.
3. A request that was not forwarded is `refused`, with the reason its caller got.
4. Paths are recorded below the mount, without query and without token.
5. Refusals of callers without a token are counted: the first for a reason is recorded at once, those that follow within
   an interval together. Those of callers with one are counted for skill, session and reason, beyond a number that is
   recorded one by one. Where too many of these differ, the rest are counted together, by no name.
"""

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event


class AccessRequested(Event, frozen=True):
    """The request is about to be forwarded. `session` is None if the caller named none."""

    dir: str
    skill: str
    mount: str
    session: str | None
    method: str
    path: str


class AccessCompleted(Event, frozen=True):
    """The skill's answer was relayed to its end. Bodies in bytes, duration in microseconds."""

    request: int
    status: int
    bytes_in: int
    bytes_out: int
    duration_us: int


class AccessAborted(Event, frozen=True):
    """The access ended early. `status` is None if no answer was sent, `duration_us` if omac died before it could
    measure it."""

    request: int
    reason: str
    status: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    duration_us: int | None = None


class AccessRefused(Event, frozen=True):
    """A request was not forwarded, `count` times. `dir` and `skill` are None where the token or the mount led nowhere,
    and for the rest of too many that differ: of these, method, status and reason are those of the first."""

    dir: str | None
    skill: str | None
    mount: str
    session: str | None
    method: str
    path: str
    status: int
    reason: str
    count: int = 1


AGGREGATE = log("access", (AccessRequested, AccessCompleted, AccessAborted, AccessRefused))
