"""Control groups: where one can be made for which limit, and its life.

Rules

1. Nothing escapes a bound that omac itself is under: a version 2 cgroup, which stands beside omac's own, takes its
   bounds over.
2. A folder is locked while its launcher lives; whoever makes the next one beside it removes what has no owner.
3. What is in a cgroup when it is removed is ended.

Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/*.rst, cgroups(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "omac-"  # cgroups of omac's begin with it
PERIOD_US = 100_000  # processors are dealt out in slices of it
# What a cgroup may be bound by that a process loses when it moves beside it (rule 1).
TAKEN_OVER = ("pids.max", "memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus", "cpuset.mems")


class ControlGroup:
    """A cgroup to be made in `folder`. `settings` are (file, text, whether it may be missing), as they are written."""

    __slots__ = ("folder", "settings", "version")

    def __init__(self, version: int, folder: str, settings: tuple[tuple[str, str, bool], ...]) -> None:
        self.version = version
        self.folder = folder
        self.settings = settings


class ControlGroupFolder:
    """A cgroup hierarchy: where a cgroup could be made, for which limits; `trouble` says why it cannot.

    `own` is omac's own cgroup where the new one is made beside it, else empty: it is made below.
    """

    __slots__ = ("controllers", "folder", "own", "trouble", "version")

    def __init__(self, version: int, controllers: Sequence[str], folder: str, own: str, trouble: str) -> None:
        self.version = version
        self.controllers = controllers
        self.folder = folder
        self.own = own
        self.trouble = trouble

    def group(self, names: Sequence[str], limits: Mapping[str, float]) -> ControlGroup:
        """A cgroup here that enforces the limits with these names."""
        settings: list[tuple[str, str, bool]] = []
        if self.own:
            settings += _taken_over(self.own)
        for name in names:
            settings += _settings(self.version, name, limits[name], dict(row[:2] for row in settings))
        return ControlGroup(self.version, self.folder, tuple(settings))


def places(proc: str) -> list[ControlGroupFolder]:
    """Where this process may have cgroups, version 2 first; `proc` is its folder in /proc.

    Where both versions are mounted, each controller belongs to one of them.
    """
    own: dict[str, str] = {}
    for line in read(f"{proc}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    found = []
    for line in read(f"{proc}/mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, mount = (_unescaped(text) for text in fields.split(" ")[3:5])
        if kind == "cgroup2" and "" in own:
            found.append(_beside(mount, _inside(own[""], root)))
        named = [option for option in options.split(",") if option in own]
        if kind == "cgroup" and named:
            found.append(_under(mount, _inside(own[named[0]], root), named))
    return sorted(found, key=lambda place: -place.version)


def make_locked(folder: str) -> int:
    """Make a cgroup and lock it; the descriptor that holds the lock. Raises OSError.

    Another launch that looks for what is ownerless may be faster than the lock: then it is made again.
    """
    while True:
        try:
            os.mkdir(folder, 0o755)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not os.path.isdir(os.path.dirname(folder)):
                raise
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.stat(folder), os.fstat(lock)):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)


def remove_ownerless(parent: str) -> None:
    """End and remove the cgroups in `parent` whose launcher ended without doing so."""
    for name in os.listdir(parent):
        if not name.startswith(PREFIX):
            continue
        try:
            lock = os.open(f"{parent}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(f"{parent}/{name}", 100)
        except OSError:
            pass  # it has an owner, or is another user's
        finally:
            os.close(lock)


def remove(folder: str, ms_max: int) -> bool:
    """End all that is in a cgroup, and remove it; whether it is gone within `ms_max`.

    Nothing is born in the meantime where the kernel can be told so.
    """
    end = time.monotonic() + ms_max / 1000
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                return False
            _kill(folder)
            time.sleep(0.002)
        else:
            return True


def read(path: str) -> str:
    """What is in a file of the kernel's; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def write(path: str, text: str, optional: bool) -> None:
    """Write to a file of the kernel's, which may be missing if `optional`. Raises OSError with the file's name."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if optional:
            return
        raise
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def _kill(folder: str) -> None:
    try:
        write(f"{folder}/cgroup.kill", "1", False)  # version 2, since Linux 5.14
    except OSError:
        write(f"{folder}/pids.max", "0", True)
        for pid in read(f"{folder}/cgroup.procs").split():
            if pid != "0":  # that is how a process of a foreign pid namespace is shown
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    continue


def _inside(path: str, root: str) -> str:
    """Where a cgroup is below a mount that shows the hierarchy from `root` on; ".." where it is not."""
    root = root.rstrip("/")
    return path[len(root) :].strip("/") if path == root or path.startswith(root + "/") else ".."


def _beside(mount: str, inside: str) -> ControlGroupFolder:
    """Version 2: a cgroup with processes deals nothing out to those below it, so the new one stands beside omac's."""
    own = f"{mount}/{inside}" if inside else ""
    folder = own.rpartition("/")[0] or mount
    controllers = read(f"{folder}/cgroup.subtree_control").split()
    return ControlGroupFolder(2, controllers, folder, own, _trouble(folder, inside))


def _under(mount: str, inside: str, controllers: Sequence[str]) -> ControlGroupFolder:
    folder = f"{mount}/{inside}" if inside else mount
    usable = [name for name in controllers if name != "cpu" or os.path.exists(f"{folder}/cpu.cfs_quota_us")]
    return ControlGroupFolder(1, usable, folder, "", _trouble(folder, inside))


def _trouble(folder: str, inside: str) -> str:
    if ".." in inside.split("/"):
        return f"this process belongs to no cgroup that can be seen in {folder}"
    writable = os.access(folder, os.W_OK | os.X_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)
    return "" if writable else f"no cgroup can be made in {folder}"


def _taken_over(own: str) -> list[tuple[str, str, bool]]:
    found = []
    for file in TAKEN_OVER:
        text = read(f"{own}/{file}").strip()
        if text and text.split()[0] != "max":
            found.append((file, text, False))
    return found


def _settings(version: int, name: str, amount: float, present: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    """Swap counts as memory: a flood ends where the limit says, and not when the swap is full."""
    if name == "cpu":
        return _cpu_settings(version, amount, present)
    number = int(amount)
    file = {"pids": "pids.max", "memory": "memory.max" if version == 2 else "memory.limit_in_bytes"}[name]
    found = [(file, str(min(number, int(present.get(file, number)))), False)]
    if name == "memory":
        found.append(
            ("memory.swap.max", "0", True) if version == 2 else ("memory.memsw.limit_in_bytes", str(number), True)
        )
    return found


def _cpu_settings(version: int, amount: float, present: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    if version == 1:
        quota = str(int(amount * PERIOD_US))
        return [("cpu.cfs_period_us", str(PERIOD_US), False), ("cpu.cfs_quota_us", quota, False)]
    if "cpu.max" in present:
        quota, period = present["cpu.max"].split()
        amount = min(amount, int(quota) / int(period))
    return [("cpu.max", f"{int(amount * PERIOD_US)} {PERIOD_US}", False)]


def _unescaped(text: str) -> str:
    r"""A path of mountinfo, where blanks are written \040 (proc_pid_mountinfo(5))."""
    head, *rest = text.split("\\")
    return head + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)
