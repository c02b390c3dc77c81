"""The use of one run: its calls by skill, the writes that were denied, and the files gone with its sandbox. A pure
fold.
"""

from collections.abc import Iterable

import msgspec

from omac.domain.access.access import (
    AccessAborted,
    AccessBatchAborted,
    AccessBatchCompleted,
    AccessBatchRequested,
    AccessCompleted,
    AccessRefused,
    AccessRequested,
    access_ids,
    accesses_of,
    ids_of_ended,
)
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.run import RunStarted
from omac.domain.sandbox.launch import LaunchExited


class Calls(msgspec.Struct):
    """The calls of one skill: all of them, those that ended early, those that were refused, those that the skill
    answered with a status of 500 or more."""

    all: int = 0
    aborted: int = 0
    refused: int = 0
    failed: int = 0


class RunUse:
    """Folds the records of the run `run` and passes over all others; memory grows with its skills, and with the calls
    that are under way."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._open: dict[int, str] = {}
        self.began_at = 0
        self.calls: dict[str, Calls] = {}
        self.writes_denied = 0
        self.last_denied = ""
        self.vanished: tuple[str, ...] = ()
        self.vanished_more = 0

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to report."""
        return not (self.calls or self.writes_denied or self.vanished)

    def apply(self, recorded: Recorded) -> None:
        """Fold one record."""
        if recorded.run != self._run:
            return
        event = recorded.event
        kind = type(event)  # of most events: what a pattern tries costs more than these folds
        if kind is AccessRequested:
            self._count(event.skill, 1)
            self._open[recorded.position] = event.skill
        elif kind is AccessBatchRequested:
            self._count(event.skill, len(event.method))
            self._open |= dict.fromkeys(access_ids(recorded.position, len(event.method)), event.skill)
        elif kind is AccessCompleted:
            self._complete((event.request,), (event.status,))
        elif kind is AccessBatchCompleted:
            self._complete(ids_of_ended(event), event.status)
        else:
            self._apply_rarer(recorded)

    def _complete(self, accesses: Iterable[int], statuses: Iterable[int]) -> None:
        under_way = self._open
        for access, status in zip(accesses, statuses, strict=True):
            skill = under_way.pop(access, "")
            if skill and status >= 500:
                self._count(skill, failed=1)

    def _apply_rarer(self, recorded: Recorded) -> None:
        match recorded.event:
            case RunStarted():
                self.began_at = recorded.at
            case AccessAborted() | AccessBatchAborted() as aborted:
                for access, _ in accesses_of(recorded.position, aborted):
                    if skill := self._open.pop(access, ""):
                        self._count(skill, aborted=1)
            case AccessRefused(skill=skill, count=count) if skill:
                self._count(skill, count, refused=count)
            case GuardDenied(path=path, count=count):
                self.writes_denied += count
                self.last_denied = path
            case LaunchExited(vanished=vanished):
                paths = tuple(entry for entry in vanished if entry.startswith("/"))
                self.vanished += paths
                # "12 more" than a record has room for
                more = (entry.partition(" ")[0] for entry in vanished[len(paths) :])
                self.vanished_more += sum(int(number) for number in more if number.isdecimal())
            case _:
                pass

    def _count(self, skill: str, number: int = 0, *, aborted: int = 0, refused: int = 0, failed: int = 0) -> None:
        calls = self.calls.get(skill)
        if calls is None:
            calls = self.calls[skill] = Calls()
        calls.all += number
        calls.aborted += aborted
        calls.refused += refused
        calls.failed += failed
