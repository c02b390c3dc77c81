"""Control groups of version 2: where one can be made for which limit, and its life.

Rules

1. Nothing escapes a bound that omac itself is under: a new cgroup stands beside omac's own, and takes its bounds over.
2. A folder is locked while its launcher lives; whoever makes the next one beside it removes what has no owner.
3. What is in a cgroup when it is removed is ended.

Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst, cgroups(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.sandbox.mounted import mount_rows, unescaped

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "omac-"  # cgroups of omac's begin with it
PERIOD_US = 100_000  # processors are dealt out in slices of it
UNIFIED = "systemd.unified_cgroup_hierarchy=1"  # the kernel option by which systemd mounts version 2 alone
# What a cgroup may be bound by that a process loses when it moves beside it (rule 1).
TAKEN_OVER = ("pids.max", "memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus", "cpuset.mems")


class ControlGroupFolder:
    """The folder where a cgroup could be made, beside `own`, omac's own one; `trouble` says why it cannot.

    Without version 2 the folder is empty. `older` are the controllers that belong to version 1, unused here.
    """

    def __init__(self, folder: str = "", own: str = "", *, older: Sequence[str], trouble: str = "") -> None:
        self.folder = folder
        self.own = own
        self.older = older
        self.trouble = trouble
        self.controllers = read(f"{folder}/cgroup.subtree_control").split() if folder else []

    def why_not(self, name: str) -> str:
        """Return why no cgroup here enforces the limit with this name; empty where one does."""
        if self.needs_version_2(name):
            return f"only cgroup v2 is supported, which has no controller {name} here; start Linux with {UNIFIED}"
        if name not in self.controllers:
            return f"no cgroup v2 here has the controller {name}"
        return self.trouble

    def needs_version_2(self, name: str) -> bool:
        """Return whether this machine has to be started with version 2 for this limit."""
        return not self.folder or name in self.older

    def settings(self, names: Sequence[str], limits: Mapping[str, float]) -> list[tuple[str, str, bool]]:
        """Return (file, text, whether it may be missing) for a cgroup that enforces the limits with these names."""
        rows = _taken_over(self.own) if self.own else []
        for name in names:
            rows += _settings(name, limits[name], dict(row[:2] for row in rows))
        return rows


def own_folder(proc: str) -> ControlGroupFolder:
    """Return where this process may have cgroups; `proc` is its folder in /proc."""
    own = ""
    older: list[str] = []
    for line in read(f"{proc}/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            own = path
        else:
            older += controllers.split(",")
    folders = [_beside(mount, _inside(own, root), older) for mount, root in _mounts(proc)] if own else []
    return min(folders, key=lambda folder: bool(folder.trouble), default=ControlGroupFolder(older=older))


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
            with Descriptor(os.open(f"{parent}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(f"{parent}/{name}", 100)
        except OSError:
            continue  # it has an owner, is another user's, or is gone


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
    """Return the content of a file of the kernel's; empty if it cannot be read."""
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
    with Descriptor(descriptor):
        try:
            os.write(descriptor, text.encode())
        except OSError as error:
            error.filename = path
            raise


def _kill(folder: str) -> None:
    try:
        write(f"{folder}/cgroup.kill", "1", False)  # since Linux 5.14
    except OSError:
        write(f"{folder}/pids.max", "0", True)
        for pid in read(f"{folder}/cgroup.procs").split():
            if pid != "0":  # that is how a process of a foreign pid namespace is shown
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    continue


def _mounts(proc: str) -> list[tuple[str, str]]:
    """Return the mount points of cgroup version 2, each with the cgroup at its root."""
    mounts = []
    for row in mount_rows(proc):
        if row[row.index(b"-") + 1] == b"cgroup2":
            root, mount = (os.fsdecode(unescaped(path)) for path in row[3:5])
            mounts.append((mount, root))
    return mounts


def _inside(path: str, root: str) -> str:
    """Return the path of a cgroup below a mount that shows the hierarchy from `root` on; ".." if the mount does not
    show it."""
    root = root.rstrip("/")
    return path[len(root) :].strip("/") if path == root or path.startswith(root + "/") else ".."


def _beside(mount: str, inside: str, older: Sequence[str]) -> ControlGroupFolder:
    """A cgroup with processes deals nothing out to those below it, so the new one stands beside omac's."""
    own = f"{mount}/{inside}" if inside else ""
    folder = own.rpartition("/")[0] or mount
    return ControlGroupFolder(folder, own, older=older, trouble=_trouble(folder, inside))


def _trouble(folder: str, inside: str) -> str:
    if ".." in inside.split("/"):
        return f"this process belongs to no cgroup that can be seen in {folder}"
    writable = os.access(folder, os.W_OK | os.X_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)
    return "" if writable else f"no cgroup can be made in {folder}"


def _taken_over(own: str) -> list[tuple[str, str, bool]]:
    rows = []
    for file in TAKEN_OVER:
        text = read(f"{own}/{file}").strip()
        if text and text.split()[0] != "max":
            rows.append((file, text, False))
    return rows


def _settings(name: str, amount: float, present: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    """Swap counts as memory: a flood ends where the limit says, and not when the swap is full."""
    if name == "cpu":
        if "cpu.max" in present:
            quota, period = present["cpu.max"].split()
            amount = min(amount, int(quota) / int(period))
        return [("cpu.max", f"{int(amount * PERIOD_US)} {PERIOD_US}", False)]
    file = f"{name}.max"
    rows = [(file, str(min(int(amount), int(present.get(file, amount)))), False)]
    return [*rows, ("memory.swap.max", "0", True)] if name == "memory" else rows
