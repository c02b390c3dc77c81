"""A policy as bubblewrap's arguments (bwrap(1)). `mounted.py` checks what it made of them.

Mounts are made parents first, so that what is deeper lies above what is around it: a file bound onto itself cannot be
moved or replaced while it is bound (EBUSY, rename(2)), whoever may write to the folder around it.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.files import atomic
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox import confinement
from omac.domain.sandbox.confinement import ALLOWED, DENY, GIT_HOOKS, PRIVATE, READ, WRITE, access_at, governing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.domain.sandbox.confinement import Entry, Policy

WORDS_MAX = 100  # of a command: a longer one goes past bubblewrap
ARGUMENTS_MAX = 9_000 - WORDS_MAX - 100  # bubblewrap takes 9,000, with the command
NAMESPACES = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns",
    "--die-with-parent", "--cap-drop", "ALL",
)  # fmt: skip
# Settings of the kernel, which root may change by writing here, capabilities or not.
KERNEL_SETTINGS = (
    "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs",
    "/proc/acpi", "/proc/asound", "/proc/driver", "/proc/scsi",
)  # fmt: skip
SHARED_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  # folders of the sandbox's own, of the usual mode
MEMORY_BYTES_MAX = 4 << 30  # of each folder that lives in memory, where the limit "tmp" says nothing else
MEMORY_SHARE = 4  # nor more than this part of the machine's memory
SHARED_MEMORY = "/dev/shm"  # noqa: S108


class Files:
    """Descriptors that bubblewrap reads the content of files from; close() when it has been started."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def add(self, content: bytes) -> str:
        """The number of a descriptor, for an argument, that reads as `content`."""
        descriptor = os.memfd_create("omac")
        self.descriptors.append(descriptor)
        atomic.write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return str(descriptor)

    def close(self) -> None:
        """Close all of them."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


def arguments(policy: Policy, files: Files, filter_program: bytes) -> list[str]:
    """Return the arguments between `bwrap` and `--`. Raises Refusal (policy-too-large)."""
    words = [*NAMESPACES]
    if policy.network == "none":
        words.append("--unshare-net")
    size = str(_memory_bytes(policy.limits))
    words += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", SHARED_MEMORY]
    for path in KERNEL_SETTINGS:
        words += ["--ro-bind-try", path, path]
    masks: list[str] = []
    for entry in policy.entries:
        if entry.access == DENY:
            words += _masked(entry.path, files, masks, entry.content, listed=entry.reason == GIT_HOOKS)
        elif not is_shown_by_folder(entry, policy):
            words += _mounts(entry, policy, files, size)
    for path in policy.hidden:
        if access_at(policy.entries, path) in (READ, WRITE):
            words += _masked(path, files, masks)
    for path in [*masks, "/dev", "/"]:  # now that everything below them has its place
        words += ["--remount-ro", path]
    words += ["--chdir", policy.workdir, "--seccomp", files.add(filter_program)]
    if len(words) + len(policy.fence) > ARGUMENTS_MAX:
        message = f"the policy for {policy.workdir} has {len(policy.entries)} paths, more than bubblewrap can mount"
        raise Refusal("policy-too-large", message, fix=["omac sandbox run --explain -- true  # which are they?"])
    return words


def is_shown_by_folder(entry: Entry, policy: Policy) -> bool:
    """Return whether an entry is a person's grant of a file in a folder that can be written: the folder's mount shows
    the file, and one of its own would keep a program from replacing or removing it. A socket is kept in its place:
    programs outside would connect to what replaced it."""
    if entry.access != WRITE or entry.reason != ALLOWED or not os.path.isfile(entry.path):
        return False
    around = governing(policy.entries, os.path.dirname(entry.path))
    return around is not None and around.access == WRITE and around.source == around.path


def _memory_bytes(limits: Mapping[str, float]) -> int:
    """Return the largest size, in bytes, of each folder that lives in memory."""
    if "tmp" in limits:
        return int(limits["tmp"])
    share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEMORY_SHARE
    return min(MEMORY_BYTES_MAX, share, int(limits.get("memory", MEMORY_BYTES_MAX)))


def _mounts(entry: Entry, policy: Policy, files: Files, size: str) -> list[str]:
    path = entry.path
    match entry.access:
        case confinement.READ:
            return ["--ro-bind", entry.source, path]
        case confinement.WRITE:
            return ["--bind", entry.source, path]
        case confinement.PRIVATE:
            mode = "1777" if path in SHARED_TEMPORARY else "0755" if path == "/run" else "0700"
            return ["--perms", mode, "--size", size, "--tmpfs", path]
        case confinement.LINK:
            return ["--symlink", entry.target, path]
        case _:
            if access_at(policy.entries, os.path.dirname(path)) in ("", PRIVATE):
                return ["--perms", "0600", "--file", files.add(entry.content), path]
            return ["--ro-bind-data", files.add(entry.content), path]


def _masked(path: str, files: Files, masks: list[str], marker: bytes = b"", *, listed: bool = False) -> list[str]:
    """Return the arguments that hide a path: behind a `marker` if it is a file, behind an empty folder if it is a
    folder. A path that does not exist, or is a link, needs none.

    A hidden folder can be passed through, to what an entry names below it. Programs that search it find that the file
    does not exist. If it is `listed`, they see that it is empty: an error would end a copy of the folder around it.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return []
    if stat.S_ISDIR(mode):
        masks.append(path)
        return ["--perms", "0555" if listed else "0111", "--tmpfs", path]
    if stat.S_ISLNK(mode):
        return []  # it leads nowhere: what it points to is there only if an entry says so
    return ["--perms", "0444" if marker else "0000", "--ro-bind-data", files.add(marker), path]
