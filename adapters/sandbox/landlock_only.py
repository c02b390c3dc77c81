"""The sandbox for machines that refuse user namespaces: Landlock and the filter of system calls alone.

Rules

1. There is one file system, the host's. What no entry names can be neither read nor changed. But a path that is known
   shows whether something is there, its size and its times; and permission bits (but set-id) and times of what the
   user owns can be set: Landlock does not look at those.
2. Rules only allow, so what an entry allows holds for all below it. A policy that takes something back is refused.
3. Processes are the host's. Their names, command lines, states, limits and mounts can be read in /proc; their memory,
   environment, maps, working folders and what they have open cannot, and no signal reaches them.
4. Sockets with a name (session bus, agents, Docker) are out of reach because sockets of the Unix family cannot be made
   at all, connected pairs excepted. The same goes for System V and POSIX IPC.
5. No capability is left, also for root.
6. No pseudo-terminal can be made: /dev/pts is not there, because the user's other terminals are in it.
"""

from __future__ import annotations

import os
import stat
import struct

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.linux import syscall
from omac.adapters.sandbox import landlock, seccomp
from omac.adapters.sandbox.stage import close_descriptors
from omac.domain.kernel.paths import below, below_any
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import COPY, DENY, LINK, PRIVATE, READ, WRITE

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from omac.domain.sandbox.confinement import Entry, Policy

ABI_MIN = landlock.SCOPE_ABI  # below 6 signals reach every process of the user, below 3 files outside can be truncated

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
PROCESSES = "/proc"

READING = landlock.READ_FILE | landlock.READ_DIR | landlock.EXECUTE
WRITING = landlock.EVERYTHING & ~(landlock.MAKE_CHAR | landlock.MAKE_BLOCK | landlock.IOCTL_DEV)
OF_DEVICES = landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE | landlock.IOCTL_DEV

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4


def refusals(policy: Policy) -> list[str]:
    """Return the parts of this policy that Landlock cannot express, each in words for a person; none if it can enforce
    the policy."""
    problems = ((entry, _problem(entry, _above(policy.entries, entry))) for entry in policy.entries)
    lines = [f"{entry.path}: {problem}" for entry, problem in problems if problem]
    for hidden in policy.hidden:
        for entry in policy.entries:
            if entry.access in (READ, WRITE) and (below(hidden, entry.path) or below(entry.path, hidden)):
                lines.append(f"{hidden}: omac's own, but {entry.path} may be {_done(entry)}")
    for folder in policy.fence:
        for entry in policy.entries:
            if entry.access == WRITE and below(folder, entry.path) and folder != entry.path:
                lines.append(f"{folder}: links may not be made there, but {entry.path} above it may be changed")
    return lines


def _problem(entry: Entry, above: Entry | None) -> str:
    """Return what cannot be enforced of an entry, given the one that governs the folder around it; empty: nothing."""
    if entry.access in (PRIVATE, COPY):
        return f"a private {'copy' if entry.access == COPY else 'folder'} needs a mount of its own"
    if entry.source != entry.path:
        return f"showing {entry.source} there needs a mount of its own"
    if entry.made:
        return "a path that omac makes and pins needs a mount of its own"
    if above is None or above.access in (DENY, LINK):
        return ""  # nothing is allowed there: a denial changes nothing, anything else stands for itself
    if entry.access == DENY:
        return f"denied, but {above.path} above it may be {_done(above)}"
    if entry.access == READ and above.access == WRITE:
        return f"read-only, but {above.path} above it may be changed"
    return ""


def enter(policy: Policy) -> None:
    """Put this process under the policy for good; then exec. Nothing that was open stays open but the standard three.

    After an error the process may be half confined, and must end. Raises OSError, and Refusal("sandbox-unavailable")
    for a kernel or an architecture that cannot do it, for a policy that has `refusals`, and for an entry whose path
    is not there or is not canonical.
    """
    known = landlock.abi()
    if known < ABI_MIN:
        have = f"has ABI {known}" if known else "has none, or has it switched off"
        raise _unavailable(
            f"a sandbox without user namespaces needs Landlock ABI {ABI_MIN}"
            f" (Linux {landlock.KERNELS[ABI_MIN]}), and this kernel {have}"
        )
    impossible = refusals(policy)
    if impossible:
        raise _unavailable("Landlock alone cannot enforce this policy: " + "; ".join(impossible))
    filter_ = seccomp.program(os.uname().machine, namespaces=False, network=policy.network)
    close_descriptors()
    rules = landlock.ruleset(
        landlock.EVERYTHING, landlock.BIND_TCP, landlock.ABSTRACT | landlock.SIGNALS, known
    )  # ABI 6 knows all of it
    for entry in policy.entries:
        if entry.access in (READ, WRITE):
            _allow(rules, entry.path, READING if entry.access == READ else _writing(policy, entry.path))
    _allow(rules, PROCESSES, landlock.READ_FILE | landlock.READ_DIR)
    for device in DEVICES:
        if os.path.exists(device):
            _allow(rules, device, OF_DEVICES)
    if policy.network != "none":
        landlock.allow_ports(rules, policy.ports)
    landlock.restrict(rules)
    _drop_capabilities()
    seccomp.load(filter_)


def _above(entries: tuple[Entry, ...], entry: Entry) -> Entry | None:
    """The entry that decides about the folder this one lies in."""
    nearest = None
    for other in entries:
        around = other.path != entry.path and below(entry.path, other.path)
        if around and (nearest is None or len(other.path) > len(nearest.path)):
            nearest = other
    return nearest


def _writing(policy: Policy, path: str) -> int:
    """Return the accesses allowed below a writable path; in folders of the fence, links, FIFOs and sockets cannot be
    made."""
    fenced = below_any(path, policy.fence)
    return WRITING & ~landlock.SPECIAL if fenced else WRITING


def _allow(rules: int, path: str, accesses: int) -> None:
    """Allow it for what is at `path`, if no part of the path is a link."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _unavailable(f"{path} is in the sandbox policy, but does not exist") from None
    with Descriptor(descriptor):
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISLNK(mode) or os.readlink(f"/proc/self/fd/{descriptor}") != path:
            raise _unavailable(f"{path} is now a symbolic link, and its target was not granted")
        landlock.allow(rules, descriptor, accesses if stat.S_ISDIR(mode) else accesses & landlock.OF_FILES)


def _drop_capabilities() -> None:
    """Root keeps its user id and nothing else; nothing that is executed later brings a capability back."""
    syscall.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    if os.geteuid() == 0:  # anybody else has none to drop, and gains none: no_new_privs
        capability = 0
        while _bounded(capability):
            capability += 1
    header, none = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    syscall.call(_CAPSET[os.uname().machine], header, none)


def _bounded(capability: int) -> bool:
    """Take one capability out of the bounding set; False when the kernel has no capability of this number."""
    try:
        if syscall.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0):
            syscall.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    except OSError as failure:
        if failure.errno != 22:  # EINVAL
            raise
        return False
    return True


def _done(entry: Entry) -> str:
    return "changed" if entry.access == WRITE else "read"


def _unavailable(message: str) -> Refusal:
    return Refusal("sandbox-unavailable", message)
