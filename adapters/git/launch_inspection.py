"""The inspection around a launch: what is there before is noted, what must not wait is set aside, and what is left is
judged and reported when it has ended.

A launch keeps a record of what is still to be inspected. What a launch that was killed has left is inspected before
the next one that overlaps, or by whoever calls `inspect_due`.
"""

from __future__ import annotations

import _thread
import os
import time
from itertools import zip_longest

from omac.adapters.git.launch_record import merged, record_of
from omac.adapters.git.layout import copy_back
from omac.adapters.git.pending import DueInspection, Pending
from omac.adapters.linux.descriptor_limit import raise_descriptor_limit
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.journal.folders import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable, Sequence

    from omac.adapters.git.inspection import Budget, Finding
    from omac.adapters.git.launch_record import Record
    from omac.adapters.git.layout import Layout
    from omac.adapters.git.watch import GitWatch
    from omac.adapters.linux.background import Background
else:
    import _signal

DESCRIPTORS = 8192
LOADED_AFTER_S = 0.5  # a program that ends sooner does not wait for what its end may not need
LINES_MAX = 20  # of findings on the terminal: more push those out of sight that come first
LINE_CHARACTERS_MAX = 400
GROUP_MIN = 5  # files of one folder
BUILD = "a build"  # the group of a build's files
SHORTEST_PATH = 40  # characters of a path that are shown in any case
REPLACED = "was replaced on the host while the program ran, which could change it from then on"
REST = "findings"  # a file beside what was set aside


class LaunchInspection:
    """The inspection around one launch; `fence`: the kernel keeps what `layouts` ask of it. Nobody inspects what is in
    `unjudged` folders. `files_of_settings` gives the files in a project that settings name, with who obeys them.
    `record` takes what is found for launches that ended before: their names, their projects, and a line for each
    finding."""

    def __init__(
        self, name: str, layouts: Sequence[Layout], state: str, now_ns: int, *, fence: bool, unjudged: tuple[str, ...],
        files_of_settings: Callable[[str], dict[str, str]], report: Callable[[str], None],
        record: Callable[[list[str], tuple[str, ...], list[str]], None],
    ) -> None:  # fmt: skip
        self._name = name
        self._state = state
        self._files_of_settings = files_of_settings
        self._report = report
        self._record = record
        self._records = records_of(name, layouts, now_ns, fence=fence)
        for begun in self._records:
            begun.unjudged = unjudged
        self._pending = Pending(state)
        self._findings: list[str] = []
        self._watches: list[GitWatch] = []
        self._flushing: list[Background] = []
        self._found_before: list[Finding] = []
        self._unkept = ""  # why settings that the program wrote could not be kept

    def begin(self) -> bool:
        """Record the launch; return False where something was inspected first. The plan may then be out of date, so the
        launch is not recorded. Raises Refusal."""
        for number, record in enumerate(self._records):
            if due := self._pending.begin(record):
                if due.busy_place:
                    self._report(f"waiting for the inspection of {due.busy_place}")
                    due.wait()
                else:
                    self._inspect(due)
                for begun in self._records[:number]:
                    self._end(begun)
                return False
        return True

    def note(self) -> None:
        """Record what is there. Raises OSError."""
        for record in self._records:
            named: dict[str, str] = {}
            for project in record.projects:
                if project not in record.kept:
                    named |= self._files_of_settings(project)
            record.named = named | record.named
            if not self._note(record):
                self._report(
                    f"{record.projects[0]} has more than can be noted now: the rest of it counts as new at the end"
                )

    def _note(self, record: Record) -> bool:
        """Record what is there, and begin to make that durable; return whether that is all of it. Raises OSError."""
        from omac.adapters.git import inspections, quarantine, watch  # noqa: F401  # before a program can change them
        from omac.adapters.linux.background import Background

        baseline = inspections.note(record)
        self._pending.complete(record, baseline)
        self._flushing.append(Background(lambda: self._pending.flush(record)))
        return baseline.is_whole

    def load(self) -> None:
        """Load what the end takes, before a program begins that can change that."""
        load()

    def begun(self, pid: int) -> None:
        """Record the process that the sandbox began with; what is there is on disk then. Raises OSError."""
        for flushing in self._flushing:
            flushing.wait()
        for record in self._records:
            self._pending.begun(record, pid)

    def watch(self) -> None:
        """Set aside what must not wait for the end, from now on: before the program can take what that needs."""
        _load_later()
        self._watches = [self._watch(record) for record in self._records]
        if not all(watch.is_watching for watch in self._watches):
            self._report("the kernel watches no more folders now: what git would run is set aside only at the end")

    def settle(self) -> None:
        """Have all judged that the program has left by now, which is held, as far as there is time."""
        for watch in self._watches:
            watch.settle()

    def _watch(self, record: Record) -> GitWatch:
        import resource  # noqa: F401  # the end takes it, and the program is at work now

        from omac.adapters.git.quarantine import Quarantine
        from omac.adapters.git.watch import GitWatch

        begun = GitWatch(record, Quarantine(self._state, self._name))
        begun.start()
        return begun

    def ended(self, written: Callable[[str], bytes | None]) -> None:
        """Keep what the program has `written` into the sandbox's own copies of settings, by the path of each."""
        for record in self._records:
            for copy in record.copies:
                if not copy.place and copy.before is not None:
                    copy.after = written(copy.path)
            try:
                self._pending.ended(record)
            except OSError as problem:  # such as a disk that the program has filled
                self._unkept = problem.strerror or str(problem)

    def end(self) -> list[str]:
        """Inspect what was left, or leave that to a launch that still lives; what a person should know. Raises
        Refusal."""
        self._found_before = [finding for watch in self._watches for finding in watch.end()]
        for record in self._records:
            if not self._end(record) and not record.kept:
                self._report("another launch still runs there: when that one ends, what this one left is inspected")
                if self._unkept:
                    self._report(f"git's settings that were made inside cannot be kept until then: {self._unkept}")
        if self._found_before:  # that one knows nothing of what was set aside while this one ran
            for line in lines(self._found_before, self._name, self._state):
                self._report(line)
            self._findings += recorded(self._found_before)
        return self._findings

    def _end(self, record: Record) -> bool:
        """Inspect what is due; False where that is left to another launch."""
        due = self._pending.end(record)
        if due:
            try:
                self._inspect(due)
            except Refusal as refusal:  # the program has run: its status is what its caller waits for
                self._report(": ".join((refusal.message, *refusal.fix)))
        return due is not None

    def _inspect(self, due: DueInspection) -> None:
        with due as records:
            found = _inspect(records, self._state, self._report, self._name, self._found_before)
            self._found_before = []
            self._findings += found
            if others := [record for record in records if record not in self._records]:
                self._record(_launches(others), merged(others).projects, found)


def inspect_due(
    state: str, report: Callable[[str], None], record: Callable[[list[str], tuple[str, ...], list[str]], None]
) -> bool:
    """Inspect what launches that were killed have left, and return whether nothing is still to be inspected then;
    `record` as of LaunchInspection. Raises Refusal."""
    pending = Pending(state)
    while due := pending.due():
        with due as records:
            found = _inspect(records, state, report)
            record(_launches(records), merged(records).projects, found)
    return pending.is_empty()


def records_of(name: str, layouts: Sequence[Layout], now_ns: int, *, fence: bool) -> list[Record]:
    """Return one record for the projects, and one for the folders that the agent keeps in the home, which its other
    launches can write too: last, or first where a project is in one of them, and is inspected with it."""
    kept = [layout for layout in layouts if layout.agents]
    own = record_of(name, [layout for layout in layouts if not layout.agents], now_ns, fence=fence)
    if not kept:
        return [own]
    agents = record_of(f"{name}-agents", kept, now_ns, fence=fence)
    return [agents, own] if own.overlaps(agents) else [own, agents]


def load() -> None:
    """Import all that the end of a launch takes, before a program runs that can write where it is."""
    import bisect  # noqa: F401
    import resource  # noqa: F401
    import shlex  # noqa: F401
    import subprocess  # noqa: F401

    from omac.adapters.files import emptying  # noqa: F401
    from omac.adapters.git import genuine_objects, inspections, set_back, watch  # noqa: F401
    from omac.domain.git import cache_tree, checkout, config_allowlist, config_changes, judges  # noqa: F401


def _load_later() -> None:
    """Load the same while a program runs, unless that ends soon: omac may be removed or replaced meanwhile."""
    try:
        _thread.start_new_thread(_load_after_pause, ())
    except RuntimeError:  # the system starts no more threads for this user
        load()


def _load_after_pause() -> None:
    time.sleep(LOADED_AFTER_S)
    try:
        load()
    except ImportError:
        pass  # the end reports it: this thread would to the program's terminal


def _inspect(
    due: list[Record], state: str, report: Callable[[str], None], own: str = "", before: Sequence[Finding] = ()
) -> list[str]:
    """Inspect what launches have left, and report it; return a line for each finding. `own` is the launch that has just
    ended, if one has, and `before` is what was found while it ran."""
    whole, name = merged(due), own or due[0].name
    if not whole.projects:
        return []
    others = [launch for launch in _launches(due) if launch != own]
    found = [*before, *_while_running(others, whole, state), *_at_end(due, whole, name, state, report)]
    for line in lines(found, name, state):
        report(line)
    return recorded(found)


def _while_running(launches: list[str], whole: Record, state: str) -> list[Finding]:
    """Return a finding for each launch that can no longer report what was set aside while its program ran."""
    from omac.adapters.git.inspection import Finding

    folders = [_folder(state, launch) for launch in launches]
    message = "of what ran there, something was set aside while it ran"
    return [Finding(whole.projects[0], message, folder) for folder in folders if _has_entries(folder)]


def _at_end(due: list[Record], whole: Record, name: str, state: str, report: Callable[[str], None]) -> list[Finding]:
    """Inspect what launches have left, which are the `whole` together; what is set aside comes to the folder `name`."""
    from omac.adapters.git import inspections
    from omac.adapters.git.inspection import Budget, Finding
    from omac.adapters.git.quarantine import Quarantine

    replaced = {path: REPLACED for record in due if record.baseline is not None for path in record.replaced()}
    raise_descriptor_limit(DESCRIPTORS)
    budget = Budget(inspections.SECONDS_MAX)
    with _interruptible(budget, report):
        findings = inspections.act(whole, Quarantine(state, name), budget)
        refused = copy_back(whole.sessions, whole.narrowed, whole.copies)
    return [*(Finding(path, what) for path, what in (*refused, *replaced.items())), *findings]


def lines(findings: Sequence[Finding], name: str, state: str) -> list[str]:
    """Return so much of it as somebody reads, what was set aside first; all of it is in a file then."""
    findings = sorted(findings, key=_order)
    grouped = _grouped(findings)
    shown = [_line(finding) for finding in grouped[:LINES_MAX]]
    if len(findings) > len(shown) or shown != list(map(str, grouped)):
        path = f"{_folder(state, name)}/{REST}"
        try:
            _write(path, findings)
            shown.append(f"all {len(findings)} findings: less {quoted(path)}")
        except OSError as problem:
            shown.append(f"all {len(findings)} findings cannot be written to {path}: {problem.strerror}")
    return shown


def recorded(findings: Iterable[Finding]) -> list[str]:
    """Return a line for each of them, as short as on the terminal: a record has little room. The first of each kind
    come first, then the second ones: no kind, of which a program made many, keeps others out."""
    kinds: dict[tuple[bool, str], list[Finding]] = {}
    for finding in sorted(findings, key=_order):
        kinds.setdefault((_order(finding), finding.group), []).append(finding)
    return [_line(finding) for rank in zip_longest(*kinds.values()) for finding in rank if finding]


def _order(finding: Finding) -> bool:
    return not finding.moved


def _line(finding: Finding) -> str:
    """Return the line of a finding, its path cut first where it is too long."""
    line = str(finding)
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    rest = len(line) - len(finding.path)
    return finding.line(max(SHORTEST_PATH, LINE_CHARACTERS_MAX - rest))[:LINE_CHARACTERS_MAX]


def _grouped(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, with one in the place of many files of a folder and a group, and in the place of those that
    CMake writes all over its build folder."""
    from omac.adapters.git.inspection import Finding
    from omac.domain.sandbox.autorun_files import describe_build, describe_group

    built: dict[str, str] = {}
    places = [_place(finding, built) for finding in findings]
    files, whole = dict.fromkeys(places, 0), set(built.values())
    for place in places:
        files[place] += 1
    shown: dict[tuple[str, str], Finding] = {}
    for finding, place in zip(findings, places, strict=True):
        folder, who = place
        if who == BUILD and folder in whole and files[place] > 1:
            shown[place] = Finding(folder, describe_build(files[place], who))
        elif who and files[place] >= GROUP_MIN:
            shown[place] = Finding(folder, describe_group(folder, files[place], who))
        else:
            shown[finding.path, str(finding)] = finding
    return [*shown.values()]


def _place(finding: Finding, built: dict[str, str]) -> tuple[str, str]:
    """Return the folder that may stand for a file, and the group: its own folder, or the build folder of CMake's around
    it. `built` gets the latter, by the former."""
    folder = os.path.dirname(finding.path)
    if finding.group == BUILD and folder not in built:
        above = folder
        while above != os.path.dirname(above) and not os.path.lexists(f"{above}/.git"):
            if os.path.lexists(f"{above}/CMakeCache.txt"):
                built[folder] = above
            above = os.path.dirname(above)
    return built.get(folder, folder) if finding.group == BUILD else folder, finding.group


def _launches(records: list[Record]) -> list[str]:
    return sorted({record.name.partition("-")[0] for record in records})


def _write(path: str, findings: Sequence[Finding]) -> None:
    """Write all findings to a file, a line each, which no program obeys that shows it. Raises OSError."""
    make_private(os.path.dirname(path))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "wb") as file:
        for finding in findings:
            file.write(f"{printable(str(finding))}\n".encode())


def _folder(state: str, name: str) -> str:
    """Return the folder where a launch sets things aside."""
    from omac.adapters.git.quarantine import FOLDER

    return f"{state}/{FOLDER}/{name}"


def _has_entries(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


class _interruptible:  # noqa: N801  # used as a statement: with _interruptible(...):
    """A context in which a second interrupt spends the budget: all that is not yet judged is set aside."""

    def __init__(self, budget: Budget, report: Callable[[str], None]) -> None:
        self._budget = budget
        self._report = report
        self._times = 0
        self._before: object = None

    def __enter__(self) -> None:
        self._before = _signal.signal(_signal.SIGINT, self._interrupt)

    def __exit__(self, *_: object) -> None:
        _signal.signal(_signal.SIGINT, self._before)  # type: ignore[arg-type]  # as it was

    def _interrupt(self, _number: int, _frame: object) -> None:
        self._times += 1
        if self._times == 1:
            self._report("still inspecting what was left; ^C again sets aside everything that is not inspected yet")
        else:
            self._budget.end()
