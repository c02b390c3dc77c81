"""The load of skills: what agents called within the last seconds, by skill and session. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from omac.projections.evidence.accesses import AuditRow

ENDED_MAX = 200_000  # calls of a window that are held; of more the oldest are left out


class CallLoad(msgspec.Struct, frozen=True):
    """The calls of one skill by one session within a window. `rate` counts those that ended, by second; `failed` were
    refused, cut off, or answered with 5xx; `under_way` have not ended. Durations, in seconds, are those of calls that a
    skill answered: the median, and what 99 of 100 did not exceed; None where there is none. Bytes are of bodies."""

    dir: str | None
    skill: str | None
    session: str | None
    client: str | None
    rate: float
    failed: int
    under_way: int
    median: float | None
    p99: float | None
    bytes_in: int
    bytes: int


class RecentCalls:
    """Calls as they end; what ended before the window is forgotten."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._ended: deque[tuple[int, AuditRow]] = deque(maxlen=ENDED_MAX)

    def end(self, row: AuditRow, seen: int) -> None:
        """Take in a row of the audit that had ended when it was `seen`; only those of accesses count. A journal that is
        ahead of the clock gives all rows one time, so what was seen earlier than that ended then."""
        if row.kind == "access":
            self._ended.append((min(row.at + round((row.duration or 0) * 1e9), seen), row))

    def load(self, now: int, under_way: Iterable[AuditRow]) -> list[CallLoad]:
        """Return the load at `now`, in nanoseconds since 1970 UTC, the busiest first. `under_way` have not ended."""
        begins = now - round(self._window_s * 1e9)
        while self._ended and self._ended[0][0] < begins:
            self._ended.popleft()
        groups: dict[_Key, list[AuditRow]] = {}
        for ended, row in self._ended:
            if ended >= begins:
                groups.setdefault(_key(row), []).append(row)
        waiting: dict[_Key, int] = {}
        for row in under_way:
            waiting[_key(row)] = waiting.get(_key(row), 0) + 1
        loads = [self._of(key, groups.get(key, []), waiting) for key in groups.keys() | waiting.keys()]
        return sorted(loads, key=lambda load: (-load.rate, -load.under_way, *(str(part) for part in _key(load))))

    def _of(self, key: "_Key", rows: list[AuditRow], waiting: "Mapping[_Key, int]") -> CallLoad:
        taken = sorted(row.duration for row in rows if row.duration is not None and row.outcome == "completed")
        failed = sum(row.count for row in rows if row.outcome != "completed" or (row.status or 0) >= 500)
        return CallLoad(
            *key, sum(row.count for row in rows) / self._window_s, failed, waiting.get(key, 0),
            _percentile(taken, 0.5), _percentile(taken, 0.99),
            sum(row.bytes_in for row in rows), sum(row.bytes for row in rows),
        )  # fmt: skip


_Key = tuple[str | None, str | None, str | None, str | None]


def _key(row: AuditRow | CallLoad) -> _Key:
    return row.dir, row.skill, row.session, row.client


def _percentile(ascending: list[float], part: float) -> float | None:
    """The value that `part` of the values do not exceed (nearest rank)."""
    return ascending[max(0, -int(-len(ascending) * part // 1) - 1)] if ascending else None
