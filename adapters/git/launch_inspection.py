"""The inspection around one launch, as steps: what is there before is noted, what must not wait is set aside, and what
is left is judged and written down.
"""

from __future__ import annotations

import _thread
import os
import time

from omac.adapters.git.launch_record import merged, record_of
from omac.adapters.git.layout import copy_back
from omac.adapters.git.pending import Pending
from omac.adapters.git.stamp import birth_of
from omac.adapters.linux.descriptor_limit import raise_descriptor_limit
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.journal.folders import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Sequence

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
LINE_CHARACTERS_MAX = 300
SHORTEST_PATH = 40  # characters of a path that are shown in any case
REPLACED = "was replaced on the host while the program ran, which could change it from then on"
REST = "findings"  # a file beside what was set aside


def records(name: str, layouts: Sequence[Layout], now_ns: int, *, fence: bool) -> list[Record]:
    """Return one record for the projects, and one for the folders that the agent keeps in the home, which its other
    launches can write too: last, or first where a project is in one of them, and is inspected with it."""
    kept = [layout for layout in layouts if layout.agents]
    own = record_of(name, [layout for layout in layouts if not layout.agents], now_ns, fence=fence)
    if not kept:
        return [own]
    agents = record_of(f"{name}-agents", kept, now_ns, fence=fence)
    return [agents, own] if own.overlaps(agents) else [own, agents]


def pending(state: str) -> Pending:
    """Return the inspections of a state directory that are still to be done."""
    return Pending(state)


def projects(due: list[Record]) -> tuple[str, ...]:
    """Return the folders that are to be inspected for records."""
    return merged(due).projects


def load() -> None:
    """Import all that the end of a launch takes, before a program runs that can write where it is."""
    import bisect  # noqa: F401
    import resource  # noqa: F401
    import shlex  # noqa: F401
    import subprocess  # noqa: F401

    from omac.adapters.files import emptying  # noqa: F401
    from omac.adapters.git import (
        genuine_objects,  # noqa: F401
        inspections,  # noqa: F401
        set_back,  # noqa: F401
        watch,  # noqa: F401
    )
    from omac.domain.git import cache_tree, checkout, config_allowlist, config_changes, judges  # noqa: F401


def load_later() -> None:
    """Load the same while a program runs, unless that ends soon: omac may be removed or replaced meanwhile."""
    try:
        _thread.start_new_thread(_load_later, ())
    except RuntimeError:  # the system starts no more threads for this user
        load()


def _load_later() -> None:
    time.sleep(LOADED_AFTER_S)
    try:
        load()
    except ImportError:
        pass  # the end reports it: this thread would to the program's terminal


def note(record: Record, held: Pending) -> tuple[bool, Background]:
    """Record what is there; return whether that is all of it, and the work that makes it durable. Raises OSError."""
    from omac.adapters.git import inspections, quarantine, watch  # noqa: F401  # before a program could change them
    from omac.adapters.linux.background import Background

    for copy in record.copies:
        copy.note()
    record.closed = {path: birth for path in record.closed if (birth := birth_of(path))}
    baseline = inspections.note(
        record.projects, record.folders, record.began_ns, record.kept, record.closed, named=record.named
    )
    held.complete(record, baseline)
    return baseline.is_whole, Background(lambda: held.flush(record))


def watch(record: Record, state: str, name: str) -> GitWatch:
    """Set aside what must not wait for the end, from now on."""
    import resource  # noqa: F401  # the end takes it, and the program is at work now

    from omac.adapters.git.quarantine import Quarantine
    from omac.adapters.git.watch import GitWatch

    begun = GitWatch(record, Quarantine(state, name))
    begun.start()
    return begun


def keep_written(record: Record, written: Callable[[str], bytes | None]) -> None:
    """Keep what the program has `written` into the sandbox's own copies of settings, by the path of each."""
    for copy in record.copies:
        if not copy.place and copy.before is not None:
            copy.after = written(copy.path)


def while_running(names: set[str], state: str, due: list[Record]) -> list[Finding]:
    """Return a finding for each launch that can no longer report what was set aside while its program ran."""
    from omac.adapters.git.inspection import Finding

    folders = [_folder(state, name) for name in sorted(names)]
    roots = merged(due).projects[:1]
    message = "of what ran there, something was set aside while it ran"
    return [Finding(roots[0], message, folder) for folder in folders if roots and _has_entries(folder)]


def inspect(due: list[Record], name: str, state: str, report: Callable[[str], None]) -> list[Finding]:
    """Inspect what launches have left. `name` is that of the folder for what is set aside."""
    from omac.adapters.git import inspections
    from omac.adapters.git.inspection import Budget, Finding
    from omac.adapters.git.quarantine import Quarantine

    whole = merged(due)
    assert whole.baseline is not None
    replaced = {path: REPLACED for record in due if record.baseline is not None for path in record.replaced()}
    raise_descriptor_limit(DESCRIPTORS)
    budget = Budget(inspections.SECONDS_MAX)
    with _interruptible(budget, report):
        findings = inspections.act(
            whole.projects, whole.folders, whole.baseline, Quarantine(state, name), budget, whole.kept, whole.closed,
            named=whole.named,
        )  # fmt: skip
        refused = copy_back(whole.sessions, whole.narrowed, whole.copies)
    return [*(Finding(path, what) for path, what in (*refused, *replaced.items())), *findings]


def lines(findings: Sequence[Finding], name: str, state: str) -> list[str]:
    """Return so much of it as somebody reads, what was set aside first; all of it is in a file then."""
    findings = sorted(findings, key=lambda finding: not finding.moved)
    is_long = len(findings) > LINES_MAX
    shown = []
    for finding in findings[:LINES_MAX]:
        line = str(finding)
        if len(line) > LINE_CHARACTERS_MAX:
            is_long = True
            rest = len(line) - len(finding.path)
            line = finding.line(max(SHORTEST_PATH, LINE_CHARACTERS_MAX - rest))[:LINE_CHARACTERS_MAX]
        shown.append(line)
    if is_long:
        path = f"{_folder(state, name)}/{REST}"
        try:
            _write(path, findings)
            shown.append(f"all {len(findings)} findings: less {quoted(path)}")
        except OSError as problem:
            shown.append(f"all {len(findings)} findings cannot be written to {path}: {problem.strerror}")
    return shown


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
