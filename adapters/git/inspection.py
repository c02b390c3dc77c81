"""One inspection of what a sandbox can write: at launch, to know what was there, and at the end, to act on what is new.

Rules

1. The same walk judges by the same grammar both times. At launch nothing is changed: what the grammar does not allow is
   noted with its stamp, and what only the host may change with its content. At the end, what was noted is the
   host's.
2. Every folder is opened once, relative to the one around it, without following a link; what is judged is read, moved
   and written relative to that descriptor.
3. Time, entries and depth have bounds. `Exhausted` ends the inspection; nothing is kept of a folder but its name.
"""

from __future__ import annotations

import os
import time
from itertools import islice

from omac.adapters.git.open_folder import while_writable
from omac.adapters.git.stamp import stamp_of
from omac.domain.kernel.digest import sha256_hex
from omac.domain.kernel.terminal_escaping import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omac.adapters.git.entry import Entry
    from omac.adapters.git.git_place import GitPlace
    from omac.adapters.git.launch_record import Record
    from omac.adapters.git.quarantine import Quarantine
    from omac.adapters.git.stamp import Stamp

ENTRIES_MAX = 20_000_000
LOOK_EVERY = 16  # entries between two looks at the clock: a path through links may take a second
READ_BYTES = 256  # of a file take about as long as an entry
DEPTH_MAX = 200
PATH_CHARACTERS_MAX = 4096  # beyond, no system call takes a path, and no program is run there
TOO_DEEP = f"lies deeper than {DEPTH_MAX} folders or {PATH_CHARACTERS_MAX:,} characters"
HURRIED_SECONDS_MAX = 10.0
NOTED_BYTES_MAX = 32 << 20  # of all that is noted at launch, paths included: what is beyond counts as new
_STAMP_BYTES = 64
FINDINGS_MAX = 10_000
OBEYED_CHARACTERS_MAX = 32 << 20  # of the paths of new and changed files: most may be copies, of which nobody hears


# What a baseline holds, and what is written down of it.
BY_PATH = ("strays", "obeyed", "commits", "contents", "nodes", "digests", "around")
SETS = ("operations", "astray", "straight", "fine")


class Exhausted(Exception):
    """The budget is spent; what was not judged before is not judged."""


class Budget:
    """The time and the entries that one inspection may take, from when the budget is made."""

    def __init__(self, seconds: float, entries_max: int = ENTRIES_MAX) -> None:
        self._deadline = time.monotonic() + seconds
        self._entries = entries_max
        self._until_clock = LOOK_EVERY

    def spend(self, entries: int = 1) -> None:
        """Count entries that are looked at. Raises Exhausted."""
        self._until_clock -= entries
        if self._until_clock <= 0:
            self._entries -= LOOK_EVERY - self._until_clock
            self._until_clock = LOOK_EVERY
            self.check()

    def spend_read(self, content: bytes | None) -> None:
        """Count a content that was read, and is to be judged. Raises Exhausted."""
        if content is not None and len(content) >= READ_BYTES:
            self.spend(len(content) // READ_BYTES)

    def end(self) -> None:
        """Spend all of it."""
        self._entries = 0

    def renew(self, seconds: float) -> None:
        """Begin again with so much time, and all entries."""
        self._deadline = time.monotonic() + seconds
        self._entries = ENTRIES_MAX

    def check(self) -> None:
        """Raise Exhausted when the budget is spent."""
        if self._entries <= 0 or time.monotonic() > self._deadline:
            raise Exhausted


class Baseline:
    """The state of the projects at launch, by path.

    The stamps are those of files that the grammar does not allow, that the end need not read again, or that programs
    obey. The contents are those of files that only the host may change. The rest is the nodes of repositories, open
    operations, and the commits that worktrees were at. By git folder, `digests` has one digest after the other: of the
    entries of its index that a checkout writes where git obeys them. `around` has the digest of what that depends on.
    """

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.strays: dict[str, Stamp] = {}
        self.obeyed: dict[str, Stamp] = {}
        self.contents: dict[str, bytes] = {}
        self.commits: dict[str, str] = {}
        self.nodes: dict[str, tuple[int, int]] = {}
        self.operations: set[str] = set()
        self.astray: set[str] = set()  # git folders whose core.worktree leads past a link: the host has it so
        self.straight: set[str] = set()  # `.git` files that lead to a git folder past no link
        self.fine: set[str] = set()  # files that were judged by what else there is, and may be there
        self.digests: dict[str, bytes] = {}
        self.around: dict[str, str] = {}
        self.is_whole = True  # whether all was noted
        self.room = (NOTED_BYTES_MAX, NOTED_BYTES_MAX)  # that is left: for all, for what is the host's

    def add(self, other: Baseline, is_covered: Callable[[str], bool]) -> None:
        """Take over what another one says of paths that this one says nothing of."""
        for name in (*BY_PATH, *SETS):
            mine, others = getattr(self, name), getattr(other, name)
            uncovered = [path for path in others if not is_covered(path)]
            mine.update({path: others[path] for path in uncovered} if name in BY_PATH else uncovered)

    def keep(self, path: str, content: bytes, *, is_hosts: bool = False) -> None:
        """Note the content of a file, while there is room: no program takes that of files which are the host's."""
        if is_hosts:
            room, hosts_room = self.room
            self.room = room, hosts_room - (len(path) + len(content) + _STAMP_BYTES)
            if self.room[1] >= 0:
                self.contents[path] = content
        elif self._has_room(len(path) + len(content)):
            self.contents[path] = content

    def note(self, path: str, stamp: Stamp) -> None:
        """Note that something is there, while there is room."""
        if self._has_room(len(path)):
            self.strays[path] = stamp

    def note_obeyed(self, path: str, stamp: Stamp) -> None:
        """Note a file that programs obey, while there is room."""
        if self._has_room(len(path)):
            self.obeyed[path] = stamp

    def note_written(self, git: str, digests: bytes) -> None:
        """Note what the index of a git folder writes where git obeys it, while there is room."""
        if digests and self._has_room(len(git) + len(digests)):
            self.digests[git] = self.digests.get(git, b"") + digests

    def written_before(self, git: str) -> frozenset[bytes]:
        """Return the digests of what the index of a git folder wrote at launch."""
        from omac.domain.git.checkout import DIGEST_BYTES

        kept = self.digests.get(git, b"")
        return frozenset(kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES))

    def _has_room(self, size: int) -> bool:
        room, hosts_room = self.room
        self.room = room - (size + _STAMP_BYTES), hosts_room
        self.is_whole = self.is_whole and self.room[0] >= 0
        return self.room[0] >= 0


class Finding:
    """The finding that `path` has a problem, `what`, and where it was put: `moved`, empty for what is reported only.
    `group`: one line may show several findings of a folder that have the same text here; empty for one of its own.
    """

    def __init__(self, path: str, what: str, moved: str = "", group: str = "") -> None:
        self.path = _shortened(path, PATH_CHARACTERS_MAX)
        self.what = _shortened(what, PATH_CHARACTERS_MAX)
        self.moved = moved
        self.group = group if self.path == path else ""  # a path that was cut leads nowhere

    def __repr__(self) -> str:
        return f"Finding({self.path!r}, {self.what!r}, {self.moved!r})"

    def __str__(self) -> str:
        return self.line(PATH_CHARACTERS_MAX)

    def line(self, path_characters_max: int) -> str:
        """Return it as a line in which the path is cut, in its middle, to so many characters."""
        end = f"; set aside as {named(self.moved)}" if self.moved else ""
        parts = _shortened(self.path, path_characters_max).split(": ")  # a file, and a setting or a ref of it
        return f"{': '.join(map(named, parts))}: {self.what}{end}"


def _shortened(path: str, characters_max: int) -> str:
    if len(path) <= characters_max:
        return path
    kept = characters_max // 2 - 1
    return f"{path[:kept]}…{path[-kept:]}"


class Inspection:
    """One pass. `baseline` is filled at launch, and read at the end, when there is a `quarantine`, or `while_running`:
    then only what must not wait for the end is judged. What is `closed` is left alone, and no link may lead into
    `unjudged` folders; see Record."""

    def __init__(
        self,
        record: Record,
        baseline: Baseline,
        budget: Budget,
        quarantine: Quarantine | None = None,
        *,
        while_running: bool = False,
    ) -> None:
        self.projects = record.projects
        self.baseline = baseline
        self.budget = budget
        self.quarantine = quarantine
        self.while_running = while_running
        self.kept = record.kept
        self.closed = frozenset(record.closed)
        self.named = record.named
        self.unjudged = record.unjudged
        self.is_hurried = self.is_cut = False
        self.by_themselves: frozenset[str] = frozenset()  # git folders that the launch knew
        self.findings: list[Finding] = []
        self.places: list[GitPlace] = []  # of all git folders that were judged
        self.gits: set[str] = set()  # their paths
        self.changed: set[str] = set()  # of those whose index has changed
        self.marked = 0  # the sum of digests of all folders that have some of what makes a folder git's own
        self.announced: set[tuple[str, str]] = set()  # git folders that are new and reported, each with its worktree
        self.worktrees: dict[str, set[str]] = {}  # folders whose `.git` names a git folder, by that
        self.pinned: frozenset[str] = frozenset()  # what settings name
        self.relative: dict[str, tuple[str, ...]] = {}  # the same, relative to the main worktree, by its git folder
        self.traversed: set[str] = set()  # what git reaches by paths that its files name
        self.obeyed: list[tuple[str, str, str]] = []
        self.unlisted = 0
        self._obeyed_room = OBEYED_CHARACTERS_MAX
        self._reported: set[int] = set()
        self._logs: set[Stamp] = set()  # that have several names, and may be there
        self._disarmed: set[tuple[int, int]] = set()

    @property
    def is_first(self) -> bool:
        """Return whether this inspection is the one at launch."""
        return self.quarantine is None

    def mark(self, folder: str, marks: int) -> None:
        """Count a folder of a worktree that has these `marks`."""
        self.marked += int(sha256_hex(f"{folder}:{marks}".encode(errors="surrogateescape")), 16)

    def hurry(self) -> bool:
        """Go on for a while with a spent budget, only to find repositories and set them aside. Return False if that
        pass itself took too long, or at launch, when nothing may be changed."""
        if self.is_first or self.is_hurried:
            return False
        self.is_hurried = True
        self.budget.renew(HURRIED_SECONDS_MAX)
        return True

    def note_log(self, entry: Entry) -> None:
        """Note a log, which may be long, and in which there is no problem."""
        status = entry.stat(follow_symlinks=False)
        if status.st_nlink > 1:
            self._logs.add(stamp_of(status))

    def has_judged(self, entry: Entry, here: str) -> bool:
        """Return whether a log is one that was judged by another of its names, and may have this one, too."""
        if not self._logs or stamp_of(entry.stat(follow_symlinks=False)) not in self._logs:
            return False
        from omac.domain.git.judges import ref_path

        return not ref_path(here)

    def obey(self, project: str, path: str, who: str) -> None:
        """Add a file of a project that `who` obeys, and that is new or changed."""
        self._obeyed_room -= len(path) + _STAMP_BYTES
        if self._obeyed_room >= 0:
            self.obeyed.append((project, path, who))
        else:
            self.unlisted += 1

    def add(self, findings: Iterator[Finding]) -> None:
        """Add findings, up to a bound of their own."""
        self.findings += islice(findings, FINDINGS_MAX)
        self.unlisted += sum(1 for _ in findings)

    def position(self) -> tuple[int, tuple[int, int]]:
        """Return where the inspection is, to go back to."""
        return len(self.places), self.baseline.room

    def go_back(self, position: tuple[int, tuple[int, int]]) -> None:
        """Judge what follows a position once more: what was reported or set aside meanwhile stays so."""
        places, self.baseline.room = position
        del self.places[places:]

    def report(self, path: str, problem: str, moved: str = "") -> None:
        """Report a problem, once. What was set aside has as much room again as what is reported only."""
        known = hash((path, problem, moved))  # a path below folders without end is long
        if known in self._reported:
            return
        if len(self.findings) < (2 * FINDINGS_MAX if moved else FINDINGS_MAX):
            self._reported.add(known)
            self.findings.append(Finding(path, problem, moved))
        else:
            self.unlisted += 1

    def set_aside(self, parent: int, name: str, path: str, problem: str) -> bool:
        """Move an entry of an open folder away, or at least out of its name, and report it; return whether it is
        gone."""
        quarantine = self.quarantine
        assert quarantine is not None
        try:
            moved = while_writable(parent, lambda: quarantine.take(parent, name))
        except OSError as error:
            return self._disarm(parent, name, path, f"{problem}; it could not be set aside: {error.strerror}")
        self.report(path, problem, moved)
        return True

    def _disarm(self, parent: int, name: str, path: str, problem: str) -> bool:
        """Leave an entry that cannot be moved away, as on a full disk, in its folder, under a name that nothing obeys,
        and report it. Return whether that was done."""
        from omac.adapters.git.quarantine import disarmed

        if self.while_running:
            return False  # the end tells of it
        try:
            seen = os.lstat(name, dir_fd=parent)
            if (seen.st_dev, seen.st_ino) in self._disarmed:
                return False  # met again, under its new name
            self._disarmed.add((seen.st_dev, seen.st_ino))
            done = while_writable(parent, lambda: disarmed(parent, name))
        except FileNotFoundError:
            return False  # it is gone
        except OSError:
            self.report(
                path, f"{problem}. It is still there: remove it before you run anything in {os.path.dirname(path)}"
            )
            return False
        self.report(path, f"{problem}; {done}")
        return True
