"""The record of a launch: what is to be inspected when the launch has ended, in its written form.

The first line of a record names what the program will be able to write, and what is made for it. The second holds what
was there before the program began, the third the process that the sandbox began with, the fourth what its own copies of
settings held at the end. Each line is a Python literal: that is written with nothing loaded, and paths need not be
UTF-8.
"""

from __future__ import annotations

from omac.adapters.git.config_copies import ConfigCopy
from omac.adapters.git.layout import Layout, Narrowed
from omac.adapters.git.refs import Session
from omac.adapters.git.stamp import birth_of
from omac.domain.git.folder import Folder
from omac.domain.kernel.paths import below, below_any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from omac.adapters.git.inspection import Baseline

_VERSION = 1


class Record:
    """One launch. `places` are the folders that it can write, `fenced` those in which it can make no link, nor move
    one or a folder there; `kept` are those of `projects` that are an agent's own in the home, `closed` the paths in
    `projects` and `folders` below which it can write nothing, each with its birth, `named` those that settings name,
    with who obeys them.
    In `unjudged` folders, those of tool caches, programs write what nobody inspects.
    `baseline` is None until the record is complete; `init` is the sandbox's first process: its pid, its start ticks,
    the boot. `descriptor` is its file, locked, or -1; `is_busy`: somebody inspects for it."""

    def __init__(self, name: str, began_ns: int, places: tuple[str, ...] = (), fenced: tuple[str, ...] = ()) -> None:
        self.name = name
        self.began_ns = began_ns
        self.places = places
        self.fenced = fenced
        self.projects: tuple[str, ...] = ()
        self.kept: tuple[str, ...] = ()
        self.closed: dict[str, bytes] = {}
        self.named: dict[str, str] = {}
        self.unjudged: tuple[str, ...] = ()
        self.folders: dict[str, Folder] = {}
        self.sessions: list[Session] = []
        self.narrowed: dict[str, Narrowed] = {}
        self.copies: list[ConfigCopy] = []
        self.baseline: Baseline | None = None
        self.init = (0, 0, "")
        self.descriptor = -1
        self.is_busy = False

    def overlaps(self, other: Record) -> bool:
        """Return whether one can write what is to be inspected for the other, and lead astray who inspects it."""
        return (
            any(below(a, b) or below(b, a) for a in self.places for b in other.places)
            or any(below(a, b) for a in self.fenced for b in other.places)
            or any(below(a, b) for a in other.fenced for b in self.places)
        )

    def reaches(self, path: str) -> bool:
        """Return whether the launch could write at or below a path."""
        return any(below(path, place) or below(place, path) for place in self.places) and not below_any(
            path, self.still_closed()
        )

    def still_closed(self) -> dict[str, bytes]:
        """Return the closed paths that are what they were: a mount ends with its file, and the program could write what
        the host put in the place of one."""
        return {path: birth for path, birth in self.closed.items() if birth_of(path) == birth}

    def replaced(self) -> list[str]:
        """Return the closed paths at which there is something else now: the program could write that."""
        closed = self.still_closed()
        return [path for path in self.closed if path not in closed and birth_of(path)]

    def covers(self, path: str) -> bool:
        """Return whether the baseline says what was at a path."""
        if below_any(path, self.closed):
            return False
        return below_any(path, self.projects) or any(
            below(path, git) and folder.inspects(path[len(git) + 1 :]) for git, folder in self.folders.items()
        )

    def head(self) -> bytes:
        """Return the first line."""
        return _line(
            version=_VERSION,
            began_ns=self.began_ns,
            places=self.places,
            fenced=self.fenced,
            projects=self.projects,
            kept=self.kept,
            unjudged=self.unjudged,
            sessions=[session.state() for session in self.sessions],
            folders={
                path: [folder.role, folder.worktree, folder.common, folder.only, folder.pinned]
                for path, folder in self.folders.items()
            },
            narrowed={git: [narrowed.refs, narrowed.own] for git, narrowed in self.narrowed.items()},
        )

    def noted(self) -> bytes:
        """Return the second line."""
        assert self.baseline is not None
        sessions = [session.state() for session in self.sessions]
        copies = [copy.state() for copy in self.copies]
        baseline = _baseline_written(self.baseline)
        return _line(sessions=sessions, copies=copies, closed=self.closed, named=self.named, baseline=baseline)

    def begun(self) -> bytes:
        """Return the third line."""
        return _line(init=self.init)

    def ended(self) -> bytes:
        """Return the fourth line."""
        return _line(written={copy.path: copy.after for copy in self.copies if copy.after != copy.before})


def record_of(name: str, layouts: Sequence[Layout], began_ns: int, *, fence: bool) -> Record:
    """Return the record of a launch that is about to begin; `fence`: the kernel keeps what layouts ask of it."""
    folders = {path: folder for layout in layouts for path, folder in layout.folders.items()}
    projects = tuple(layout.workdir for layout in layouts)
    fenced = tuple(path for path, folder in folders.items() if fence and folder.only)
    record = Record(name, began_ns, (*projects, *(path for path in folders if path not in fenced)), fenced)
    record.projects, record.folders = projects, folders
    record.kept = tuple(layout.workdir for layout in layouts if layout.agents)
    record.named = {path: who for layout in layouts for path, who in layout.named.items()}
    record.closed = dict.fromkeys((path for layout in layouts for path in layout.closed), b"")
    record.sessions = [session for layout in layouts for session in layout.sessions]
    record.copies = [copy for layout in layouts for copy in layout.copies]
    record.narrowed = {git: narrowed for layout in layouts for git, narrowed in layout.narrowed.items()}
    return record


def parsed(name: str, content: bytes) -> Record:
    """Return the record with this content, whose last line may be cut off, as by a full disk or a kill. Raises
    ValueError, SyntaxError, LookupError, TypeError: it is none."""
    from ast import literal_eval

    *lines, cut_off = content.split(b"\n")
    head = literal_eval(lines[0].decode())
    if head["version"] != _VERSION:
        raise ValueError(head["version"])
    record = Record(name, head["began_ns"], tuple(head["places"]), tuple(head["fenced"]))
    record.projects, record.kept = tuple(head["projects"]), tuple(head["kept"])
    record.unjudged = tuple(head.get("unjudged", ()))  # an earlier omac wrote none
    for path, (role, worktree, common, only, *pinned) in head["folders"].items():  # an earlier omac wrote no pins
        record.folders[path] = Folder(role, worktree, common, tuple(only), *map(tuple, pinned))
    record.narrowed = {git: Narrowed(refs, own) for git, (refs, own) in head["narrowed"].items()}
    record.sessions = [Session.of_state(state) for state in head.get("sessions", ())]  # an earlier omac wrote none
    if len(lines) > 1:
        noted = literal_eval(lines[1].decode())
        record.sessions = [Session.of_state(state) for state in noted["sessions"]]
        record.copies = [ConfigCopy.of_state(state) for state in noted["copies"]]
        record.closed = noted.get("closed", {})  # an earlier omac wrote none here
        record.named = noted.get("named", {})  # nor these
        record.baseline = _baseline_of(noted["baseline"])
    if len(lines) > 2:
        pid, ticks, boot = literal_eval(lines[2].decode())["init"]
        record.init = (pid, ticks, boot)
    if len(lines) > 3:
        written = literal_eval(lines[3].decode())["written"]
        for copy in record.copies:
            copy.after = written.get(copy.path, copy.before)
    elif len(lines) == 3 and cut_off:
        for copy in record.copies:
            copy.after = None  # nobody knows it any more
    return record


def merged(records: list[Record]) -> Record:
    """Return one record for all: what was there is what was there before the first launch that could write it."""
    from omac.adapters.git.inspection import Baseline

    records = sorted((record for record in records if record.baseline is not None), key=lambda record: record.began_ns)
    whole = Record("", records[0].began_ns if records else 0)
    whole.baseline = Baseline(whole.began_ns)
    whole.closed = {
        path: birth
        for record in records
        for path, birth in record.still_closed().items()
        if not any(other.reaches(path) for other in records)
    }
    for number, record in enumerate(records):
        whole.projects += tuple(path for path in record.projects if path not in whole.projects)
        whole.kept += tuple(path for path in record.kept if path not in whole.kept)
        whole.named |= record.named
        whole.unjudged += tuple(path for path in record.unjudged if path not in whole.unjudged)
        whole.sessions += record.sessions
        whole.copies += record.copies
        for path, folder in record.folders.items():
            if path not in whole.folders or not folder.only:
                whole.folders[path] = folder
        for git, narrowed in record.narrowed.items():
            whole.narrowed.setdefault(git, narrowed)
        assert record.baseline is not None
        whole.baseline.add(record.baseline, _covered_by(records[:number]))
    return whole


def _covered_by(records: list[Record]) -> Callable[[str], bool]:
    return lambda path: any(record.covers(path) for record in records)


def _line(**fields: object) -> bytes:
    return ascii(fields).encode() + b"\n"


def _baseline_written(baseline: Baseline) -> dict[str, object]:
    from omac.adapters.git.inspection import BY_PATH, SETS

    return {name: getattr(baseline, name) for name in ("since_ns", *BY_PATH, *SETS)}


def _baseline_of(written: dict[str, Any]) -> Baseline:
    from omac.adapters.git.inspection import BY_PATH, SETS, Baseline

    baseline = Baseline(written["since_ns"])
    for name in (*BY_PATH, *SETS):
        setattr(baseline, name, written[name])
    return baseline
