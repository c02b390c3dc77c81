"""omac logs: what the sidecars of a project printed, from the journal's record of where each start wrote.

A log has no times of its own. `--since` takes the output of the starts that had not ended before: each start begins
with a line of omac's, and the journal knows when.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import SpawnRequested, Started
from omac.tools.compose.clock import now_ns
from omac.tools.compose.journals import to_read
from omac.tools.compose.scope_options import Where, directory_of, place_of
from omac.tools.compose.state import living_sockets
from omac.tools.terminal.invocation import wait_for_more
from omac.tools.terminal.render import print_line, report
from omac.tools.terminal.timestamps import wall_clock

POLL_S = 0.2
JOURNAL_S = 1.0  # between two looks for a start that writes to a new log
TAIL_BYTES_MAX = 8 * 1024 * 1024  # as far back as a log is read
LINE_BYTES_MAX = 1024 * 1024  # of what is followed
START_MARK = b"[omac] sidecar "
KINDS = ("sidecar.spawn-requested", "sidecar.started")


class LogsRequest(NamedTuple):
    """The command line, as typed. `since` in ns, UTC; None: however long ago."""

    skill: str | None
    where: Where
    follow: bool = False
    since: int | None = None
    lines: int = 50
    journal: str | None = None


class SidecarLog(NamedTuple):
    """The log of a skill's sidecar in a run, and when each of the starts that wrote to it was recorded (ns, UTC)."""

    skill: str
    dir: str
    path: str
    starts: tuple[int, ...]


def run(request: LogsRequest, environment: Mapping[str, str]) -> int:
    """Print the end of each log, and with `follow` what is added. Raises Refusal (not-found)."""
    began = now_ns()
    logs = _logs(request, environment)
    if not logs:
        what = f"the sidecar of {request.skill} has not" if request.skill else "no sidecar has"
        message = f"{what} been started {place_of(request.where)}, so there is no log"
        if not request.follow:
            raise Refusal("not-found", message, fix=[f"omac list {request.where.flags}".strip(), "omac status"])
        report(f"omac: {message} yet")
    offsets: dict[str, tuple[int, int]] = {}
    for log in logs:
        lines = _tail(log, request.lines, request.since)
        if len(logs) > 1 and lines is not None:
            print_line(f"==> {log.skill}: {log.path} <==")
        for line in lines or ():
            print_line(line)
        offsets[log.path] = _end(log.path)
    if request.follow:
        _follow(request, environment, offsets, began)
    return 0


def _logs(request: LogsRequest, environment: Mapping[str, str]) -> list[SidecarLog]:
    """The logs of each requested sidecar, by name: those of runs that live, and the newest, unless one that lives is
    followed instead."""
    wanted = {""} if request.where.shared else {directory_of(request.where)}
    if request.where.workdir is None:
        wanted.add("")
    specs: dict[str, tuple[str, str]] = {}
    found: dict[tuple[str, str], dict[str, SidecarLog]] = {}
    with to_read(environment, request.journal) as journal:
        for recorded in journal.of_kinds(KINDS):
            match recorded.event:
                case SpawnRequested(spec):
                    specs[recorded.stream] = (spec.workdir, spec.skill)
                case Started(birth) if recorded.stream in specs:
                    workdir, skill = specs[recorded.stream]
                    logs = found.setdefault((workdir, skill), {})
                    before = logs.pop(birth.log, None)  # the newest comes last
                    starts = before.starts if before is not None else ()
                    logs[birth.log] = SidecarLog(skill, workdir, birth.log, (*starts, recorded.at))
                case _:
                    pass
    alive = {os.path.realpath(os.path.dirname(path)) for path in living_sockets(environment)}
    shown: list[SidecarLog] = []
    for (workdir, skill), logs in sorted(found.items()):
        if workdir in wanted and request.skill in (None, skill):
            living = [log for log in logs.values() if _run_of(log.path) in alive]
            newest = next(reversed(logs.values()))
            goes_without = newest in living or (request.follow and living)
            shown += living if goes_without else [*living, newest]
    return shown


def _run_of(log: str) -> str:
    """The folder of the run that a log belongs to."""
    return os.path.realpath(os.path.dirname(os.path.dirname(log)))


def _tail(log: SidecarLog, count: int, since: int | None) -> list[str] | None:
    """The last lines of a log; None where it cannot be read."""
    try:
        with open(log.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL_BYTES_MAX))
            lines = file.read(TAIL_BYTES_MAX).split(b"\n")
    except FileNotFoundError:
        why = "omac keeps those of the latest runs, and omac erase deletes those of its directory"
        report(f"{log.skill}: its log of {wall_clock(log.starts[-1])} is gone; {why}")
        return None
    except OSError as error:
        report(f"{log.skill}: its log {log.path} cannot be read: {error.strerror}")
        return None
    lines = lines[:-1] if lines and lines[-1] == b"" else lines
    if since is not None:
        lines = _since(lines, log.starts, since)
    return [line.decode(errors="backslashreplace").expandtabs(8) for line in lines[max(0, len(lines) - count) :]]


def _since(lines: list[bytes], starts: Sequence[int], since: int) -> list[bytes]:
    """The lines of the starts that had not been followed by another one before `since`."""
    begins = [index for index, line in enumerate(lines) if line.startswith(START_MARK)]
    known = starts[len(starts) - len(begins) :] if len(begins) <= len(starts) else starts
    ended = sum(1 for following in known[1:] if following < since)
    return lines[begins[ended] if begins and ended else 0 :] if len(known) == len(begins) else lines


def _follow(
    request: LogsRequest, environment: Mapping[str, str], offsets: dict[str, tuple[int, int]], began: int
) -> None:
    """Print what is added to the logs, until the person ends it. A log that comes instead of one whose run has ended is
    printed from its beginning if it was begun since `began`."""
    read_at, names = 0.0, dict.fromkeys(offsets, "")
    while True:
        now = time.monotonic()
        if now - read_at >= JOURNAL_S:
            read_at = now
            logs = _logs(request, environment)
            offsets |= {log.path: _end(log.path) for log in logs if log.path not in offsets and log.starts[-1] < began}
            skills = [log.skill for log in logs]
            names = {log.path: _name(log, skills.count(log.skill) > 1) for log in logs}
        for path, skill in names.items():
            prefix = f"{skill}: " if len(names) > 1 else ""
            for line in _added(path, offsets):
                print_line(prefix + line)
        wait_for_more(POLL_S)


def _name(log: SidecarLog, is_of_several: bool) -> str:
    return f"{log.skill} in run {os.path.basename(_run_of(log.path))}" if is_of_several else log.skill


def _added(path: str, offsets: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Yield the whole lines that a log got since the last time, and what is too long for one in parts; a log that was
    rotated begins anew, and one whose beginning was freed goes on behind that."""
    inode, offset = offsets.get(path, (0, 0))
    with suppress(OSError), open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_ino != inode or status.st_size < offset:
            offset = 0
        if offset < status.st_size:
            offset = os.lseek(file.fileno(), offset, os.SEEK_DATA)
        file.seek(offset)
        added = file.read(LINE_BYTES_MAX)
        whole = added.rfind(b"\n") + 1
        if not whole and len(added) == LINE_BYTES_MAX:
            whole = len(added)
        offsets[path] = (status.st_ino, offset + whole)
        for line in added[:whole].removesuffix(b"\n").split(b"\n") if whole else ():
            yield line.decode(errors="backslashreplace").expandtabs(8)


def _end(path: str) -> tuple[int, int]:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_ino, status.st_size
    return 0, 0
