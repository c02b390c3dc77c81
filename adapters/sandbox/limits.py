"""Bounds on what runs in a sandbox: processes, memory, processors, open files.

Rules

1. A limit is enforced by a cgroup where one can be made, else by an rlimit, else it is refused. `Enforcement.by` says
   which.
2. Folders that live in memory are as large as "tmp" says, whether it is named or not: see `bubblewrap.arguments`.
3. The program is held back until `Held.add` has bound its first process; all that it starts is bound with it.

Sources: getrlimit(2), user_namespaces(7). Since Linux 5.14 RLIMIT_NPROC counts by user namespace: set once the sandbox
has its own, it counts what is in there and nothing else. It never holds for the root of the initial namespace.
RLIMIT_DATA and not RLIMIT_AS: what reserves addresses without using them (Node.js, Bun) would not start.
"""

from __future__ import annotations

import errno
import os
import resource

from omac.adapters.sandbox import cgroups
from omac.domain.kernel import PlainData
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import parse_size, shown_size
from omac.domain.sandbox.confinement import LIMITS

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

END_MS_MAX = 5_000
# With less nothing starts; more the kernel does not know.
LEAST = {"pids": 2.0, "memory": 16.0 * 2**20, "cpu": 0.01, "files": 16.0, "tmp": 2.0**20}
MOST = {"pids": 2.0**22, "memory": 2.0**60, "cpu": 10_000.0, "files": 2.0**30, "tmp": 2.0**60}
EXAMPLES = {"pids": "pids=200", "memory": "memory=2G", "cpu": "cpu=1.5", "files": "files=1024", "tmp": "tmp=2G"}
RLIMITS = {"pids": resource.RLIMIT_NPROC, "memory": resource.RLIMIT_DATA, "files": resource.RLIMIT_NOFILE}


class Enforcement(PlainData):
    """The means by which each limit is enforced. `by` has a sentence for each, for people; `rlimits` are by name of the
    limit.

    A cgroup with these `settings` is made in `folder`, if one is needed.
    """

    by: Mapping[str, str]
    rlimits: Mapping[str, int]
    folder: str
    settings: Sequence[tuple[str, str, bool]]


def parse(words: Iterable[str]) -> dict[str, float]:
    """Limits from words such as "pids=200,memory=2G"; the last one of a name counts. Raises Refusal("misuse")."""
    amounts: dict[str, float] = {}
    for word in words:
        for part in word.split(","):
            name, equals, text = part.strip().partition("=")
            if name not in LIMITS or not equals:
                known = ", ".join(EXAMPLES.values())
                raise _misuse(f"--limit {part!r} is not a limit; known limits are {known}", "pids")
            amounts[name] = _amount(name, text)
    return amounts


def plan(limits: Mapping[str, float], *, namespaced: bool = True, proc: str = "/proc/self") -> Enforcement:
    """Return the means by which each of these limits can be enforced here; change nothing.

    `namespaced` says whether the program gets a user namespace of its own. Raises Refusal("limit-unenforceable").
    """
    by: dict[str, str] = {}
    rlimits: dict[str, int] = {}
    grouped: list[str] = []
    cgroup = cgroups.own_folder(proc)
    for name, amount in limits.items():
        if name == "tmp":
            by[name] = _by_size(namespaced)
        elif not cgroup.why_not(name):
            grouped.append(name)
            by[name] = f"cgroup v2 in {cgroup.folder}"
        else:
            by[name] = _by_rlimit(name, amount, namespaced, cgroup)
            rlimits[name] = int(amount)
    return Enforcement(
        by, rlimits, cgroup.folder if grouped else "", cgroup.settings(grouped, limits) if grouped else ()
    )


def begin(enforcement: Enforcement, name: str) -> LaunchLimits:
    """Make the cgroup, named after `name`, which no other launch has. Raises Refusal("limit-unenforceable")."""
    held = LaunchLimits(enforcement)
    if not enforcement.folder:
        return held
    try:
        cgroups.remove_ownerless(enforcement.folder)
        held.make(f"{enforcement.folder.rstrip('/')}/{cgroups.PREFIX}{name}")
    except OSError as error:
        held.end()
        raise _unenforceable(f"the cgroup {error.filename or name} cannot be made: {error.strerror}", ()) from error
    return held


class LaunchLimits:
    """The limits of one launch, and its cgroup, if it has one, while it lives."""

    def __init__(self, enforcement: Enforcement) -> None:
        self.enforcement = enforcement
        self.folder = ""
        self._lock = -1

    def make(self, folder: str) -> None:
        """Make the cgroup with its settings. Raises OSError."""
        self._lock = cgroups.make_locked(folder)
        self.folder = folder
        for file, text, optional in self.enforcement.settings:
            cgroups.write(f"{folder}/{file}", text, optional)

    def add(self, pid: int) -> None:
        """Bind a process that is held back, and all that it will start. Where it gets a user namespace, it has it.
        Raises ProcessLookupError when it has ended, Refusal("limit-unenforceable") when the kernel refuses."""
        try:
            if self.folder:
                cgroups.write(f"{self.folder}/cgroup.procs", str(pid), False)
            for name, amount in self.enforcement.rlimits.items():
                kind = RLIMITS[name]
                resource.prlimit(pid, kind, _lowered(resource.prlimit(pid, kind), amount))
        except ProcessLookupError:
            raise
        except OSError as error:
            message = f"process {pid} cannot be bound: {error.filename or 'prlimit'}: {error.strerror}"
            raise _unenforceable(message, ()) from error

    def end(self) -> tuple[str, ...]:
        """End what is left and remove the cgroup; its folder if it is still there after `END_MS_MAX`."""
        if not self.folder:
            return ()
        left = () if cgroups.remove(self.folder, END_MS_MAX) else (self.folder,)
        os.close(self._lock)
        self.folder = ""
        return left


def mends(name: str, cgroup: cgroups.ControlGroupFolder) -> tuple[str, ...]:
    """The commands with which a user, who may make no cgroup for a limit, gets one.

    A scope of the user's service manager lies in one that the user may divide, and the property turns on what is needed
    there. Elsewhere root gives one away, and puts the shell into it. With cgroup v1 alone the machine has to be started
    with version 2.
    """
    if cgroup.needs_version_2(name):
        option = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {cgroups.UNIFIED}"'
        return (f"echo '{option}' | sudo tee -a /etc/default/grub && sudo update-grub",)
    if os.path.isdir("/run/systemd/system"):
        properties = {"cpu": "CPUWeight=100", "pids": "TasksAccounting=yes", "memory": "MemoryAccounting=yes"}
        start = f"systemd-run --user --scope -p {properties[name]}"
        return (f"{start} omac sandbox run --limit {EXAMPLES[name]} -- COMMAND",)
    if name not in cgroup.controllers or os.geteuid() == 0:
        return ()
    group = f"{cgroup.folder}/omac"
    turn_on = f"echo +{name} | sudo tee {group}/cgroup.subtree_control"
    return (
        f"sudo mkdir -p {group}/shell && {turn_on} && sudo chown -R $USER {group}",
        f"echo $$ | sudo tee {group}/shell/cgroup.procs",
    )


def _by_size(namespaced: bool) -> str:
    """Return the effect of the limit on folders in memory, in words. Raises Refusal if the sandbox has no such
    folders."""
    if not namespaced:
        raise _unenforceable("the limit tmp is for folders of the sandbox's own, and Landlock alone has none", ())
    return "the size of each folder that lives in memory"


def _by_rlimit(name: str, amount: float, namespaced: bool, cgroup: cgroups.ControlGroupFolder) -> str:
    """Return the effect of the rlimit, in words. Raises Refusal if no rlimit would hold."""
    if name == "files":
        return "RLIMIT_NOFILE, for each process"
    if name == "memory":
        return "RLIMIT_DATA, for each process; memory that processes share is not counted"
    why = cgroup.why_not(name)
    if name == "cpu":
        raise _unenforceable(f"the limit cpu needs a cgroup, and {why}", mends(name, cgroup))
    if os.geteuid() == 0 and not _bounds_root():
        message = f"the limit pids needs a cgroup, since RLIMIT_NPROC does not hold for root, and {why}"
        raise _unenforceable(message, mends(name, cgroup))
    if namespaced and _kernel() >= (5, 14):
        return "RLIMIT_NPROC, in the sandbox's own user namespace"
    running = _threads(os.getuid())
    if running >= amount:
        message = f"RLIMIT_NPROC counts every process of this user here, {running} already, and {why}"
        raise _unenforceable(f"the limit pids={int(amount)} needs a cgroup: {message}", mends(name, cgroup))
    return "RLIMIT_NPROC, which counts all that this user runs, in the sandbox and outside"


def _bounds_root() -> bool:
    """Return whether RLIMIT_NPROC holds for this process though its user is called root, as in a container's user
    namespace."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            if os.fork() == 0:
                os._exit(0)
        except OSError as error:
            os._exit(1 if error.errno == errno.EAGAIN else 0)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def _kernel() -> tuple[int, int]:
    major, minor, *_ = os.uname().release.split(".")
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def _threads(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = dict(
                line.split(":", 1) for line in cgroups.read(f"/proc/{name}/status").splitlines() if ":" in line
            )
            if fields.get("Uid", "-1").split()[0] == str(uid):
                count += int(fields["Threads"])
    return count


def _lowered(now: tuple[int, int], amount: int) -> tuple[int, int]:
    """Both limits, brought down to `amount` where they are higher or infinite (-1)."""
    soft, hard = (amount if limit == resource.RLIM_INFINITY else min(limit, amount) for limit in now)
    return soft, hard


def _amount(name: str, text: str) -> float:
    if name in ("memory", "tmp"):
        try:
            amount = float(parse_size(text))
        except Refusal as refusal:
            raise _misuse(f"{name}: {refusal.message}", name) from None
    else:
        whole = name in ("pids", "files")
        digits = text if whole else text.replace(".", "", 1)
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise _misuse(f"{name}={text!r} is no {'whole number' if whole else 'amount'}", name)
        amount = float(text)
    if not LEAST[name] <= amount <= MOST[name]:
        bound, word = (LEAST[name], "less") if amount < LEAST[name] else (MOST[name], "more")
        is_size = name in ("memory", "tmp")
        shown = f"{shown_size(int(bound))}; a number alone is bytes" if is_size else f"{bound:.10g}"
        raise _misuse(f"{name}={text} is {word} than {shown}", name)
    return amount


def _misuse(message: str, name: str) -> Refusal:
    return Refusal("misuse", message, fix=[f"omac sandbox run --limit {EXAMPLES[name]} -- COMMAND"])


def _unenforceable(message: str, fix: Sequence[str]) -> Refusal:
    return Refusal("limit-unenforceable", message, fix=fix)
