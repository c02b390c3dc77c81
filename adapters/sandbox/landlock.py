"""Landlock: rules that a process puts on itself and on all that it starts, and can never take off (landlock(7)).

Rules

1. Rules only allow. What a ruleset handles is refused wherever no rule allows it, beneath a folder or to a port.
2. A ruleset that handles the file system forbids every mount. So what goes before bubblewrap handles none of it
   (`confine_network_and_scope`), and what handles it comes after bubblewrap has mounted (`fence`).
3. Under a ruleset that does not handle REFER nothing can be renamed into another folder, as soon as another one handles
   the file system. So there is only ever one: the fence bounds network and scope too.
4. What the kernel is too old for is said, never left out in silence.

Sources: the kernel's Documentation/userspace-api/landlock.rst, <linux/landlock.h>.
"""

from __future__ import annotations

import errno
import os

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.linux import syscall
from omac.adapters.sandbox.mounted import mount_rows, unescaped
from omac.domain.kernel.paths import below, below_any
from omac.domain.sandbox.listening import numbers

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable

CREATE, ADD, RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION, _BENEATH, _PORT = 1, 1, 2  # LANDLOCK_CREATE_RULESET_VERSION, LANDLOCK_RULE_*
_PR_SET_NO_NEW_PRIVS = 38

# LANDLOCK_ACCESS_FS_*
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = 0x1, 0x2, 0x4, 0x8, 0x10, 0x20
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = 0x1000, 0x2000, 0x4000, 0x8000
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # a rule for a file may hold no other
EVERYTHING = 0xFFFF
SPECIAL = MAKE_SYM | MAKE_FIFO | MAKE_SOCK

BIND_TCP = 0x1  # LANDLOCK_ACCESS_NET_BIND_TCP
ABSTRACT, SIGNALS = 0x1, 0x2  # LANDLOCK_SCOPE_*

KERNELS = {1: "5.13", 2: "5.19", 3: "6.2", 4: "6.7", 5: "6.10", 6: "6.12"}  # the Linux that brought each ABI
FENCE_ABI, NETWORK_ABI, SCOPE_ABI = 2, 4, 6


def abi() -> int:
    """Return the version of the Landlock ABI of this kernel, a number that grows (KERNELS); 0 if Landlock is missing or
    off."""
    try:
        return syscall.call(CREATE, None, 0, _VERSION)
    except OSError:
        return 0


def confine_network_and_scope(*, bind_ports: tuple[int | str, ...] | None) -> None:
    """Before bubblewrap: no way to abstract sockets and no signals to processes that are not below this one.

    With `bind_ports`, TCP sockets may be bound to these ports and ranges, and to those the system deals out;
    connections go anywhere. UDP is not bounded. What this kernel cannot do of that is left out (`backends.py` warns of
    it); the rest holds. Raises OSError.
    """
    known = abi()
    if known >= SCOPE_ABI or (bind_ports is not None and known >= NETWORK_ABI):
        restrict(_bounded_ruleset(0, bind_ports, known))


def fence(folders: tuple[str, ...], bind_ports: tuple[int | str, ...] | None = None) -> None:
    """Inside, after bubblewrap has mounted: no symbolic link, FIFO or socket is made below `folders` (canonical), and
    what `confine_network_and_scope` bounds is bounded, as far as this kernel can.

    They may be made in every other folder that is there now, except directly in one that holds a fenced one (rule 1:
    what is allowed there would be allowed below). Everything else stays as it is. A folder keeps what it was allowed
    wherever it is moved, so the fenced ones must be mounts of their own: nothing can be moved across. Raises OSError,
    for a kernel before FENCE_ABI too.
    """
    if not folders:
        return
    known = abi()
    if known < FENCE_ABI:
        have = f"Landlock ABI {known}" if known else "no Landlock"
        needed = f"Linux {KERNELS[FENCE_ABI]} is needed (Landlock ABI {FENCE_ABI}), this kernel has {have}"
        raise OSError(errno.EOPNOTSUPP, needed)
    rules = _bounded_ruleset(SPECIAL | REFER, bind_ports, known)
    allowbelow(rules, "/", REFER)  # else nothing could be renamed into another folder
    for folder in _beside(folders):
        try:
            allowbelow(rules, folder, SPECIAL)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it has just gone, or is a link now: nothing is allowed there
    restrict(rules)


def ruleset(files: int, network: int, scope: int, known: int) -> int:
    """A descriptor of a ruleset that handles these; `known` is `abi()`. Raises OSError."""
    attributes = syscall.words(files, network, scope)
    return syscall.call(CREATE, attributes, 24 if known >= SCOPE_ABI else 16 if known >= NETWORK_ABI else 8, 0)


def allowbelow(rules: int, path: str, accesses: int) -> None:
    """Allow this for a folder, which may be no link, and for all below it. Raises OSError."""
    with Descriptor(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        allow(rules, descriptor, accesses)


def allow(rules: int, descriptor: int, accesses: int) -> None:
    """Allow these accesses for the file or folder open as `descriptor`, and all below it; for a file no more than
    OF_FILES. Raises OSError."""
    syscall.call(ADD, rules, _BENEATH, syscall.words(accesses) + descriptor.to_bytes(4, "little"), 0)


def allow_ports(rules: int, ports: Iterable[int | str]) -> None:
    """Allow binding TCP sockets to these ports, and to those that the system deals out. Raises OSError."""
    for port in {0, *numbers(ports)}:
        syscall.call(ADD, rules, _PORT, syscall.words(BIND_TCP, port), 0)


def restrict(rules: int) -> None:
    """Put this process under the ruleset, and close it. Raises OSError."""
    syscall.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    syscall.call(RESTRICT, rules, 0)
    os.close(rules)


def _bounded_ruleset(files: int, bind_ports: tuple[int | str, ...] | None, known: int) -> int:
    """A ruleset for files, and for network and scope as far as this kernel can bound them."""
    network = BIND_TCP if bind_ports is not None and known >= NETWORK_ABI else 0
    rules = ruleset(files, network, ABSTRACT | SIGNALS if known >= SCOPE_ABI else 0, known)
    if network:
        allow_ports(rules, bind_ports or ())
    return rules


def _beside(folders: Iterable[str]) -> list[str]:
    """The folders that neither lie in one of `folders` nor hold one, as high up as can be."""
    holding = {"/"}
    for folder in folders:
        parent = os.path.dirname(folder)
        while parent != "/":
            holding.add(parent)
            parent = os.path.dirname(parent)
    around = holding.union(folders)
    siblings = []
    for parent in holding:
        if below_any(parent, folders):
            continue
        try:
            with os.scandir(parent) as entries:
                siblings += [
                    entry.path for entry in entries if entry.path not in around and entry.is_dir(follow_symlinks=False)
                ]
        except PermissionError:  # a mask with a way through: only mounts lie in it
            mounts = [path for path in _mounts() if below(path, parent) and path not in around]
            siblings += [path for path in mounts if not below_any(path, folders)]
        except (FileNotFoundError, NotADirectoryError):
            continue
    return siblings


def _mounts() -> list[str]:
    """Return the mount points that are folders this process can reach."""
    paths = [os.fsdecode(unescaped(row[4])) for row in mount_rows("/proc/self")]
    return list(filter(os.path.isdir, paths))
