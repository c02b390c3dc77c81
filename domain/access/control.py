"""Control calls: what was asked of the control plane. A log without versions.

Rules

1. A call that changes something is recorded together with the change, before its effect; one that locks, after it.
2. A call that is refused is recorded with the reason.
3. A call that only reads, or changes nothing, is not recorded.
4. An agent's bridge may make the calls of BRIDGE_CALLS, and deactivates a session, never a directory; one that was
   written for the Go omac, where a person allows that, may make those of COMPAT_CALLS, and deactivates both.
5. The session of PERSON is for what a person tries: no bridge gets its token, nor ends it.
6. Refusals of one kind are counted: the first is recorded at once, those that follow within an interval together.
"""

from typing import Literal, get_args

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event

Action = Literal["activate", "deactivate", "reload", "unlock", "denied"]  # changes something
Locking = Literal["lock"]  # takes away: done first, and recorded by an event of its own
Query = Literal["dirs", "global", "session", "status"]  # changes nothing
WITNESS_CALLS = frozenset(("witness",))  # recorded by an event of its own (receipt.py)
CALLS: tuple[str, ...] = (*get_args(Action), *get_args(Locking), *get_args(Query), *WITNESS_CALLS)
BRIDGE_CALLS = frozenset(("activate", "deactivate", "denied"))
COMPAT_CALLS = BRIDGE_CALLS | {"session"}
PERSON = "cli"  # the session of `omac call`, `omac url` and `omac env`
Listener = Literal["socket", "tcp", "bridge", "command-line"]  # how the caller came in: its authority


class ControlCalled(Event, frozen=True):
    """The call was granted. `session` is the session that was ended, or None for a call about all of `dir`."""

    action: Action
    dir: str
    listener: Listener
    session: str | None = None


class VaultLocked(Event, frozen=True):
    """The key of the vault, which was given to this run, is forgotten."""

    listener: Listener


class ControlRefused(Event, frozen=True):
    """The call was refused, `count` times in a row. `dir` is the text that the first caller sent, cut to 1,024
    characters."""

    action: str
    dir: str
    listener: Listener
    reason: str
    count: int = 1


AGGREGATE = log("control", (ControlCalled, ControlRefused, VaultLocked))
