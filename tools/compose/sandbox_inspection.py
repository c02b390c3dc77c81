"""The inspection around a launch: what is there before, what is done when it has ended, and what is said of it.

A launch keeps a record of what is still to be inspected. What a launch that was killed has left is inspected before
the next one that overlaps, or by whoever calls `inspect_due`.
"""

from __future__ import annotations

import os
import time

from omac.adapters.git.launch_record import Record, merged, record_of
from omac.adapters.git.layout import bring_home
from omac.adapters.git.pending import Pending
from omac.adapters.linux.descriptor_limit import raise_descriptor_limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Mapping, Sequence

    from omac.adapters.git.inspection import Budget, Finding
    from omac.adapters.git.watch import GitWatch
    from omac.adapters.linux.background import Background
    from omac.journal.spool import Spool
    from omac.tools.compose.sandbox_policy import SandboxPlan
else:
    import _signal

RECORDED_CHARACTERS_MAX = 8_000  # of a record, in which one may take six bytes
DESCRIPTORS = 8192
LINES_MAX = 50
LINE_CHARACTERS_MAX = 300
SHORTEST_PATH = 40  # characters of a path that are shown in any case
REST = "findings"  # a file beside what was set aside


class Inspecting:
    """The inspection around one launch; `say` tells a person. `findings` are what the end found."""

    def __init__(self, plan: SandboxPlan, name: str, say: Callable[[str], None], spool: Callable[[], Spool]) -> None:
        self._state = plan.state
        self._exposed = plan.exposed
        self._say = say
        self._spool = spool
        self._name = name
        self._records = _records(plan, name)
        self._pending = Pending(plan.state, self._inspect)
        self.findings: list[str] = []
        self._watches: list[GitWatch] = []
        self._flushing: list[Background] = []
        self._found_before: list[Finding] = []

    def begin(self) -> bool:
        """Put the launch on record. False where something was inspected first: there may be something else now than
        was planned with, so it is not on record. Raises Refusal."""
        for number, record in enumerate(self._records):
            if not self._pending.begin(record, lambda place: self._say(f"waiting for the inspection of {place}")):
                for begun in self._records[:number]:
                    self._pending.end(begun)
                return False
        return True

    def note(self) -> None:
        """Record what is there. Raises OSError."""
        if self._exposed:
            _load()
        from omac.adapters.git import inspections
        from omac.adapters.linux.background import Background

        for record in self._records:
            for copy in record.copies:
                copy.note()
            baseline = inspections.note(record.projects, record.folders, record.began_ns, record.kept)
            if not baseline.is_whole:
                self._say(
                    f"{record.projects[0]} has more than can be noted now: the rest of it counts as new at the end"
                )
            self._pending.complete(record, baseline)
            self._flushing.append(Background(self._flush_of(record)))

    def _flush_of(self, record: Record) -> Callable[[], None]:
        return lambda: self._pending.flush(record)

    def begun(self, pid: int) -> None:
        """Record the process that the sandbox began with; what is there is on disk then. Raises OSError."""
        for flushing in self._flushing:
            flushing.wait()
        for record in self._records:
            self._pending.begun(record, pid)

    def watch(self) -> None:
        """Set aside what must not wait for the end, from now on."""
        import resource  # noqa: F401  # the end takes it, and the program is at work now

        from omac.adapters.git.quarantine import Quarantine
        from omac.adapters.git.watch import GitWatch

        for record in self._records:
            self._watches.append(GitWatch(record, Quarantine(self._state, self._name)))
            self._watches[-1].start()

    def ended(self, written: Callable[[str], bytes | None]) -> None:
        """Keep what the program has `written` into the sandbox's own copies of settings, by the path of each."""
        for record in self._records:
            for copy in record.copies:
                if not copy.place and copy.before is not None:
                    copy.after = written(copy.path)
            self._pending.ended(record)

    def end(self) -> list[str]:
        """Inspect what was left, or leave that to a launch that still lives; what a person should know. Raises
        Refusal."""
        self._found_before = [finding for watch in self._watches for finding in watch.end()]
        for record in self._records:
            if not self._pending.end(record) and not record.kept:
                self._say("another launch still runs there: when that one ends, what this one left is inspected")
        if self._found_before:  # that one knows nothing of what was set aside while this one ran
            _tell(self._found_before, _folder(self._state, self._name), self._say)
            self.findings += map(str, self._found_before)
        return self.findings

    def _inspect(self, records: list[Record]) -> None:
        others = {record.name.partition("-")[0] for record in records} - {self._name}
        before = [*self._found_before, *_while_running(others, self._state, records)]
        found = inspect(records, self._name, self._state, self._say, before)
        self._found_before = []
        self.findings += found
        _recorded([record for record in records if record not in self._records], found, self._spool())


def _records(plan: SandboxPlan, name: str) -> list[Record]:
    """One for the projects, and one for what the agent keeps in the home, which its other launches can write too."""
    layouts, now, fence = list(plan.layouts.values()), time.time_ns(), bool(plan.policy.fence)
    kept = [layout for layout in layouts if layout.agents]
    records = [record_of(name, [layout for layout in layouts if not layout.agents], now, fence=fence)]
    return records + ([record_of(f"{name}-agents", kept, now, fence=fence)] if kept else [])


def _load() -> None:
    """Import all that the end of a launch takes, before a program runs that can write where it is."""
    import bisect  # noqa: F401
    import resource  # noqa: F401
    import shlex  # noqa: F401
    import shutil  # noqa: F401
    import subprocess  # noqa: F401

    from omac.adapters.git import (
        inspections,  # noqa: F401
        watch,  # noqa: F401
    )
    from omac.domain.git import cache_tree, checkout, config_allowlist, config_changes, judges  # noqa: F401


def inspect_due(state: str, say: Callable[[str], None], spool: Callable[[], Spool]) -> None:
    """Inspect what launches that were killed have left, and record what was found. Raises Refusal."""

    def done(records: list[Record]) -> None:
        before = _while_running({record.name.partition("-")[0] for record in records}, state, records)
        _recorded(records, inspect(records, records[0].name, state, say, before), spool())

    Pending(state, done).do_due()


def inspect_all_due(environment: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Do the same for the state directory of an environment, in which a launch may have been killed. Raises Refusal."""
    from omac.adapters.files.journal_in_use import journal_in_use, spool_of
    from omac.adapters.files.state import StateDir
    from omac.journal.spool import Spool

    folder = StateDir.of(environment)
    if folder.has_inspections():
        state = folder.path
        inspect_due(state, say, lambda: Spool(spool_of(state, journal_in_use(state, environment))))


def inspect(
    records: list[Record], name: str, state: str, say: Callable[[str], None], before: Sequence[Finding] = ()
) -> list[str]:
    """Inspect what launches have left; what was found, a line each, after what was found `before`. `name` is that of
    the folder for what is set aside."""
    from omac.adapters.git import inspections
    from omac.adapters.git.inspection import Budget, Finding
    from omac.adapters.git.quarantine import Quarantine

    whole = merged(records)
    if not whole.projects or whole.baseline is None:
        return []
    raise_descriptor_limit(DESCRIPTORS)
    budget = Budget(inspections.SECONDS_MAX)
    with _interruptible(budget, say):
        found = inspections.act(
            whole.projects, whole.folders, whole.baseline, Quarantine(state, name), budget, whole.kept
        )
        found += [Finding(place, what) for place, what in bring_home(whole.sessions, whole.narrowed, whole.copies)]
    _tell([*before, *found], _folder(state, name), say)
    return [str(finding) for finding in (*before, *found)]


def _while_running(names: set[str], state: str, records: list[Record]) -> list[Finding]:
    """A finding for each launch that cannot tell any more what was set aside while its program ran."""
    from omac.adapters.git.inspection import Finding

    folders = [_folder(state, name) for name in sorted(names)]
    place = merged(records).projects[:1]
    what = "of what ran there, something was set aside while it ran"
    return [Finding(place[0], what, folder) for folder in folders if place and _has_entries(folder)]


def _folder(state: str, name: str) -> str:
    """Where a launch sets things aside."""
    from omac.adapters.git.quarantine import FOLDER

    return f"{state}/{FOLDER}/{name}"


def _has_entries(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def first(findings: list[str]) -> list[str]:
    """Return as many findings as a record has room for."""
    room = RECORDED_CHARACTERS_MAX
    for at, finding in enumerate(findings):
        room -= min(len(finding), 4096)
        if room < 0:
            return [*findings[:at], f"{len(findings) - at} more"]
    return findings


def _recorded(records: list[Record], findings: list[str], spool: Spool) -> None:
    """Record what was inspected for launches that have ended before, if any."""
    whole = merged(records)
    if whole.projects:
        fields = {
            "launches": sorted({record.name.partition("-")[0] for record in records}),
            "projects": list(whole.projects),
            "findings": first(findings),
        }
        spool.append(
            "sandbox.inspected", fields, stream="inspection", version=None, at=time.time_ns(), run="", actor="omac",
            id=os.urandom(8).hex(),
        )  # fmt: skip


def _tell(findings: list[Finding], folder: str, say: Callable[[str], None]) -> None:
    """Say so much of it as somebody reads; all of it is in a file then."""
    is_long = len(findings) > LINES_MAX
    for finding in findings[:LINES_MAX]:
        line = str(finding)
        if len(line) > LINE_CHARACTERS_MAX:
            is_long = True
            rest = len(line) - len(finding.path)
            line = finding.line(max(SHORTEST_PATH, LINE_CHARACTERS_MAX - rest))[:LINE_CHARACTERS_MAX]
        say(line)
    if is_long:
        os.makedirs(folder, 0o700, exist_ok=True)
        path = f"{folder}/{REST}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "wb") as file:
            for finding in findings:
                file.write(f"{finding}\n".encode(errors="surrogateescape"))
        say(f"all {len(findings)} findings are in {path}")


class _interruptible:  # noqa: N801  # used as a statement: with _interruptible(...):
    """While inside, a second interrupt spends the budget: all that is not yet judged is set aside."""

    def __init__(self, budget: Budget, say: Callable[[str], None]) -> None:
        self._budget = budget
        self._say = say
        self._times = 0
        self._before: object = None

    def __enter__(self) -> None:
        self._before = _signal.signal(_signal.SIGINT, self._interrupt)

    def __exit__(self, *_: object) -> None:
        _signal.signal(_signal.SIGINT, self._before)  # type: ignore[arg-type]  # as it was

    def _interrupt(self, _number: int, _frame: object) -> None:
        self._times += 1
        if self._times == 1:
            self._say("still inspecting what was left; ^C again sets aside everything that is not inspected yet")
        else:
            self._budget.end()
