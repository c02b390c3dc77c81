"""omac top: how often agents call skills right now, read from the journal, for all omacs that record in it."""

import os
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial

import msgspec

from omac.projections.evidence.audit_query import AuditQuery
from omac.projections.evidence.load import CallLoad, RecentCalls
from omac.tools.compose.followed_journal import FollowedJournal
from omac.tools.compose.journals import to_read
from omac.tools.compose.searched_audit import SearchedAudit
from omac.tools.compose.state import StateDir
from omac.tools.terminal.columns import cell, elided_middle
from omac.tools.terminal.invocation import current, print_json
from omac.tools.terminal.render import print_line, show_columns
from omac.tools.terminal.screen import draw
from omac.tools.terminal.timestamps import rfc3339, wall_clock

EVERY_S = 1.0
WINDOW_S = 10.0
SESSION_COLUMNS = 36  # those of a UUID; an agent may name its session as it likes
HEADS = ("SKILL", "PROJECT", "SESSION", "CALLS/S", "OPEN", "FAILED", "MEDIAN", "P99", "BYTES")


def run(journal: str | None, count: int | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the load each second, `count` times or until the person ends it. Raises Refusal."""
    reading = _Reading(journal, environment)
    stdout = current().stdout
    draws = stdout.isatty() and not as_json
    if not draws and not as_json and count is None:
        count = 1
    shown = 0
    while count is None or shown < count:
        if shown:
            time.sleep(EVERY_S)
        now = time.time_ns()
        loads = reading.load(now)
        if as_json:
            print_json({"at": rfc3339(now), "window": WINDOW_S, "calls": msgspec.to_builtins(loads)})
        elif draws:
            draw(partial(_show, now, loads), "omac top | cat")
        else:
            _show(now, loads)
        stdout.flush()
        shown += 1
    return 0


class _Reading:
    """The journal, read on from where it was read last."""

    def __init__(self, journal: str | None, environment: Mapping[str, str]) -> None:
        self._calls = RecentCalls(WINDOW_S)
        with to_read(environment, journal) as opened:
            self._followed = FollowedJournal(opened, environment, journal)
            audit = SearchedAudit(opened, StateDir.of(environment), self._followed.position)
            now = time.time_ns()
            before = opened.store.position_at(now - round(2 * WINDOW_S * 1e9))
            for _, rows in audit.ended(AuditQuery(kind="access", until=now), before):  # however early they began
                for row in rows:
                    self._calls.end(row, now)
            self._fold = audit.fold()

    def load(self, now: int) -> list[CallLoad]:
        """Return the load at `now`. Raises Refusal."""
        for recorded in self._followed.later():
            for row in self._fold.apply(recorded):
                self._calls.end(row, now)
        return self._calls.load(now, self._fold.accesses.values())


def _show(now: int, loads: list[CallLoad]) -> None:
    print_line(f"{wall_clock(now)}, the last {WINDOW_S:g} s")
    if loads:
        names = Counter(map(os.path.basename, {load.dir or "" for load in loads}))
        show_columns([HEADS, *(_row(load, names) for load in loads)])
    else:
        print_line("no calls")


def _row(load: CallLoad, names: Mapping[str, int]) -> tuple[str, ...]:
    """A row; `names` say how many projects are called so: where there are several, the path tells them apart."""
    path = load.dir or ""
    name = os.path.basename(path)
    return (
        cell(load.skill),
        cell(path if names[name] > 1 else name),
        elided_middle(cell(load.session or load.client), SESSION_COLUMNS),
        f"{load.rate:.1f}",
        str(load.under_way),
        str(load.failed),
        _milliseconds(load.median),
        _milliseconds(load.p99),
        str(load.bytes),
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"
