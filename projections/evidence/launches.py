"""Launches in the audit log: each once, what was launched where by whom, joined with how it ended.

A fold of its own, bounded by what has not ended.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.redaction import ERASED
from omac.domain.kernel.sizes import counted
from omac.domain.kernel.terminal_escaping import named
from omac.domain.sandbox.launch import Denied, LaunchExited, LaunchRequested

POLICY_SHOWN = 12  # digits of a policy's digest
HEAD_SHOWN, TAIL_SHOWN = 100, 200  # characters of a command
HOW = re.compile(r"; (for \S+, )?by \S+, network ")  # its first occurrence: findings come later, and agents name them


class LaunchRow(NamedTuple):
    """A launch: `position`, `at` (nanoseconds since 1970 UTC) and `run` are those of its first record, `duration_s` is
    until its last.

    `outcome` is completed when its program ended by itself, aborted when nobody saw that, refused when it did not run.
    """

    position: int
    at: int
    run: str
    actor: str
    dir: str
    detail: str
    outcome: Literal["open", "completed", "aborted", "refused"] = "open"
    status: int | None = None
    duration_s: float | None = None
    reason: str | None = None


class Launches:
    """Tells of each event whether a launch ended with it, and in the end which have not."""

    def __init__(self, begun: Mapping[StreamId, LaunchRow]) -> None:
        self._open: dict[StreamId, LaunchRow] = dict(begun)

    def state(self) -> dict[StreamId, LaunchRow]:
        """Return the launches that are open, to begin with another time."""
        return dict(self._open)

    def of(self, recorded: Recorded) -> LaunchRow | None:
        """The launch that ended with an event, if one did. Takes events in their order."""
        event, stream = recorded.event, recorded.stream
        match event:
            case LaunchRequested():
                detail = f"{_command(event.argv)}; {_how(event)}"
                self._open[stream] = _begun(recorded, event.workdir, detail)
                return None
            case LaunchExited(status, findings, lost, vanished):
                begun = self._open.pop(stream, None)
                if begun is None:  # its beginning is not among the records
                    return None
                listed = f"; found: {', '.join(findings)}" if findings else ""
                listed += f"; gone with the sandbox: {', '.join(map(_shown, vanished))}" if vanished else ""
                return begun._replace(
                    outcome="aborted" if status is None else "completed",
                    status=status,
                    duration_s=None if status is None else max(0, recorded.moment - begun.at) / 10**9,
                    reason=lost or None,
                    detail=begun.detail + listed,
                )
            case Denied():
                begun = self._open.pop(stream, None) or _begun(recorded, event.workdir, _command(event.argv))
                return begun._replace(outcome="refused", reason=event.reason, detail=f"{begun.detail}; {event.message}")
            case _:
                return None

    def open(self) -> Iterator[LaunchRow]:
        """Yield the launches that have not ended, in the order they were launched."""
        yield from self._open.values()


def short_detail(detail: str) -> str:
    """Return the detail of a launch with the middle of a long command left out: there omac puts its own options."""
    how = HOW.search(detail)
    left = (how.start() if how else 0) - HEAD_SHOWN - TAIL_SHOWN
    if left <= 0:
        return detail
    return f"{detail[:HEAD_SHOWN]}[{counted(left, 'character')}]{detail[HEAD_SHOWN + left :]}"


def _begun(recorded: Recorded, workdir: str, detail: str) -> LaunchRow:
    return LaunchRow(recorded.position, recorded.moment, recorded.run, recorded.actor, workdir, detail)


def _shown(vanished: str) -> str:
    """A path, or how many more there are."""
    return named(vanished) if vanished.startswith("/") else vanished


def _command(argv: tuple[str, ...]) -> str:
    return ERASED if argv == (ERASED,) else shlex.join(argv)


def _how(event: LaunchRequested) -> str:
    harness = f"for {event.harness}, " if event.harness else ""
    return f"{harness}by {event.backend}, network {event.network}, policy {event.policy[:POLICY_SHOWN]}"
