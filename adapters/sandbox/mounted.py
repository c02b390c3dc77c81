"""A check, from outside and before the program's first instruction, that the sandbox has the mounts of its policy.

bubblewrap resolves paths itself, so a process that swaps a folder for a link meanwhile chooses what is mounted, or
where.

Rules

1. A file or folder of the host that is shown is found twice by a walk without links: when the policy is made, and below
   the sandbox's root. Both walks find the same file.
2. Every path of the policy that is a mount is the root of its own mount, and of the mount on top there. Nothing else
   shows that a file was mounted onto itself.
3. A mount that the policy makes read-only is read-only.
4. No other spelling of its name leads past such a mount. Where a file system takes upper for lower case, the kernel may
   keep a name for each spelling of a file, of which the mount covers one.
"""

from __future__ import annotations

import errno
import os
import stat

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.without_links import mount_of, opened_without_links
from omac.adapters.sandbox.bubblewrap import is_shown_by_folder
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.sandbox.confinement import COPY, DENY, LINK, PRIVATE, READ, WRITE, access_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.sandbox.confinement import Entry, Policy

_NO_CASE = "the file system takes upper for lower case, or the file has both names"
_MOVE = "# move the project to a file system that tells them apart, or remove the other name"


class Expected:
    """The expected mounts: `nodes` has device and inode by path; `read_only` says for each path that is a mount whether
    it is read-only; `spelled` has for such a path another one that leads to the same file."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[int, int]] = {}
        self.read_only: dict[str, bool] = {}
        self.spelled: dict[str, str] = {}


def expected(policy: Policy) -> Expected:
    """Look at everything that the policy mounts, as it is now. Raises Refusal (path-changed)."""
    mounts = Expected()
    with Descriptor(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as host:
        for entry in policy.entries:
            if entry.access in (READ, WRITE):
                with Descriptor(_opened(entry.source, host)) as descriptor:
                    mounts.nodes[entry.path] = _node(entry.source, descriptor)
            if _is_mount(entry, policy):
                mounts.read_only[entry.path] = read_only = entry.access not in (WRITE, PRIVATE)
                if read_only and (spelled := _spelled_otherwise(entry.path)):
                    mounts.spelled[entry.path] = spelled
    return mounts


def check(pid: int, wanted: Expected) -> None:
    """Compare with what lies below the root of process `pid`. Raises Refusal (path-changed, sandbox-inexpressible)."""
    points = _points(pid)
    with Descriptor(os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as inside:
        for path, read_only in wanted.read_only.items():
            with Descriptor(_opened(path, inside)) as descriptor:
                node, mount = _node(path, descriptor), mount_of(descriptor)
            if wanted.nodes.get(path, node) != node:
                raise _changed(path, "another file is there now")
            on_top, is_read_only = points.get(path, (-1, False))
            if on_top < 0 or mount not in (on_top, None):
                raise _changed(path, "the expected mount is missing")
            if read_only and not is_read_only:
                raise _changed(path, "it can be changed")
            spelled = wanted.spelled.get(path, path)
            if spelled not in wanted.read_only and _leads_past(spelled, inside, on_top):
                message = f"{path} cannot be kept from the program, which reaches it as {spelled}: {_NO_CASE}"
                raise Refusal(
                    "sandbox-inexpressible", message, fix=[f"{list_command(path)} {quoted(spelled)}  {_MOVE}"]
                )


def _spelled_otherwise(path: str) -> str:
    """Return a path with the last name in other letters, upper for lower case, that leads to the same file; empty where
    none does."""
    folder, _, name = path.rpartition("/")
    other = f"{folder}/{name.swapcase()}"
    try:
        return other if other != path and os.path.samestat(os.lstat(other), os.lstat(path)) else ""
    except OSError:
        return ""


def _leads_past(path: str, root: int, mount: int) -> bool:
    """Return whether a path leads to something, and not into the mount."""
    try:
        descriptor = opened_without_links(path, root)
    except OSError:
        return False
    with Descriptor(descriptor):
        return mount_of(descriptor) not in (mount, None)


def _is_mount(entry: Entry, policy: Policy) -> bool:
    """Return whether bubblewrap mounts something at the entry's path (`bubblewrap.arguments`)."""
    if entry.access == LINK or is_shown_by_folder(entry, policy):
        return False
    if entry.access == COPY:
        return access_at(policy.entries, os.path.dirname(entry.path)) not in ("", PRIVATE)
    if entry.access == DENY:
        try:
            return not stat.S_ISLNK(os.lstat(entry.path).st_mode)
        except OSError:
            return False
    return True


def _points(pid: int) -> dict[str, tuple[int, bool]]:
    """The mount points of a process: the number of the mount on top, and whether that is read-only (proc(5))."""
    points = {}
    for number, _, _, _, point, options, *_ in mount_rows(f"/proc/{pid}"):
        path = unescaped(point) if b"\\" in point else point
        points[os.fsdecode(path)] = (int(number), options.startswith(b"ro"))
    return points


def mount_rows(proc: str) -> list[list[bytes]]:
    """Return the fields of each mount that a process has; `proc` is its folder in /proc. A path of it may hold all that
    other tables take for the end of a line, such as CR. Raises OSError."""
    with open(f"{proc}/mountinfo", "rb") as file:
        return [line.split(b" ") for line in file.read().split(b"\n") if line]


def unescaped(point: bytes) -> bytes:
    """Return a path of mountinfo, where blanks, line ends and backslashes are three octal digits, as it is."""
    first, *parts = point.split(b"\\")
    return first + b"".join(bytes((int(part[:3], 8),)) + part[3:] for part in parts)


def _opened(path: str, root: int) -> int:
    try:
        return opened_without_links(path, root)
    except OSError as problem:
        linked = problem.errno == errno.ELOOP
        raise _changed(path, "a symbolic link is in its path" if linked else problem.strerror or "gone") from problem


def _node(path: str, descriptor: int) -> tuple[int, int]:
    seen = os.fstat(descriptor)
    if stat.S_ISLNK(seen.st_mode):
        raise _changed(path, "it is a symbolic link now")
    return (seen.st_dev, seen.st_ino)


def _changed(path: str, detail: str) -> Refusal:
    message = (
        f"{path} was replaced while the sandbox was built ({detail}); another process may be changing it: try again"
    )
    return Refusal("path-changed", message, fix=[list_command(path)])
