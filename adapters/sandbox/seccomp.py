"""The filter of system calls: what no sandboxed program may ask of the kernel, as classic BPF (seccomp(2)).

Rules

1. A list of what is refused, not of what is allowed: what programs ordinarily need must work. What is newer than the
   list does not exist (ENOSYS), so that nothing slips in with a new kernel; libraries then use what was there before.
2. Another architecture's calls (i386 on x86-64, x32, 32-bit Arm) end the process: their numbers mean something else.
3. Only the low 32 bits of an argument are looked at. The kernel looks at no more of those that are checked here.
4. What lies in memory cannot be checked: the program could change it afterwards. So `clone3` and `openat2` do not exist
   (ENOSYS): libraries fall back to `clone` and `openat`, which can be checked.
5. The program is a search tree over the numbers, so a call costs some eight comparisons; for those that are always
   allowed the kernel (5.11 and later) sees that and does not even run it.

Without namespaces a program shares sockets, IPC and processes with the host: what Landlock does not reach there is
refused here. Sources: seccomp(2), the kernel's Documentation/userspace-api/seccomp_filter.rst, <linux/bpf_common.h>.
"""

from __future__ import annotations

from omac.adapters.linux import syscall
from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False  # importing typing would take longer than building the program
if TYPE_CHECKING:
    from collections.abc import Sequence

    Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant
    Test = tuple[str, int, int, tuple[int, ...]]  # how, which argument, mask, values
    Clause = tuple[tuple[Test, ...], int]  # if all of these hold: this answer

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH_*, which of two numbers

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # SECCOMP_RET_*
EPERM, ENOSYS, ENOPROTOOPT, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT = 1, 38, 92, 93, 95, 97
NEWEST = 469  # file_setattr: the last call this list was made with; the numbers are the same on both architectures
X32, NOBODY = 0x40000000, 0xFFFFFFFF  # from here on the calls of x86-64's 32-bit twin; -1, which is no call at all

# Name, number on x86-64, number on aarch64 (-1: it does not have it).
REFUSED = (
    # other processes' memory, descriptors and threads
    ("ptrace", 101, 117), ("process_vm_readv", 310, 270), ("process_vm_writev", 311, 271),
    ("process_madvise", 440, 440), ("pidfd_getfd", 438, 438), ("kcmp", 312, 272),
    # what the kernel's own bugs are most often reached through
    ("io_uring_setup", 425, 425), ("io_uring_enter", 426, 426), ("io_uring_register", 427, 427),
    ("userfaultfd", 323, 282), ("bpf", 321, 280), ("perf_event_open", 298, 241), ("modify_ldt", 154, -1),
    ("uselib", 134, -1),
    # keys: they belong to the user, not to a namespace
    ("add_key", 248, 217), ("request_key", 249, 218), ("keyctl", 250, 219),
    # mounts, namespaces and files by number
    ("mount", 165, 40), ("umount2", 166, 39), ("pivot_root", 155, 41), ("chroot", 161, 51),
    ("open_tree", 428, 428), ("open_tree_attr", 467, 467), ("move_mount", 429, 429), ("fsopen", 430, 430),
    ("fsconfig", 431, 431), ("fsmount", 432, 432), ("fspick", 433, 433), ("mount_setattr", 442, 442),
    ("setns", 308, 268), ("name_to_handle_at", 303, 264), ("open_by_handle_at", 304, 265),
    ("fanotify_init", 300, 262), ("fanotify_mark", 301, 263),
    # the machine
    ("init_module", 175, 105), ("finit_module", 313, 273), ("delete_module", 176, 106),
    ("kexec_load", 246, 104), ("kexec_file_load", 320, 294), ("reboot", 169, 142), ("swapon", 167, 224),
    ("swapoff", 168, 225), ("acct", 163, 89), ("quotactl", 179, 60), ("quotactl_fd", 443, 443),
    ("settimeofday", 164, 170), ("clock_settime", 227, 112), ("adjtimex", 159, 171),
    ("clock_adjtime", 305, 266), ("syslog", 103, 116), ("lookup_dcookie", 212, 18), ("vhangup", 153, 58),
    ("iopl", 172, -1), ("ioperm", 173, -1),
)  # fmt: skip
ABSENT = (("clone3", 435, 435), ("openat2", 437, 437))  # rule 4
SHARED = (  # System V and POSIX IPC: without a namespace these are every process's of the user
    ("shmget", 29, 194), ("shmat", 30, 196), ("shmctl", 31, 195), ("semget", 64, 190), ("semop", 65, 193),
    ("semctl", 66, 191), ("semtimedop", 220, 192), ("msgget", 68, 186), ("msgsnd", 69, 189),
    ("msgrcv", 70, 188), ("msgctl", 71, 187), ("mq_open", 240, 180), ("mq_unlink", 241, 181),
)  # fmt: skip
METADATA = (  # who owns what, and extended attributes: Landlock does not look at them, and few programs need them
    ("chown", 92, -1), ("fchown", 93, 55), ("lchown", 94, -1), ("fchownat", 260, 54), ("setxattr", 188, 5),
    ("lsetxattr", 189, 6), ("fsetxattr", 190, 7), ("removexattr", 197, 14), ("lremovexattr", 198, 15),
    ("fremovexattr", 199, 16), ("setxattrat", 463, 463), ("removexattrat", 466, 466),
    ("file_setattr", 469, 469),
)  # fmt: skip
SCHEDULING = (  # when and where a process runs; every process of the user's, where it is not the caller (0)
    ("sched_setparam", 142, 118), ("sched_setscheduler", 144, 119), ("sched_setattr", 314, 274),
    ("sched_setaffinity", 203, 122),
)  # fmt: skip

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16  # AF_*
STREAM, DGRAM, SEQPACKET = 1, 2, 5  # SOCK_*; flags are above the low four bits
PROTOCOLS = (0, 1, 6, 17, 58)  # any, ICMP, TCP, UDP, ICMPv6. MPTCP, SCTP and SMC connect and bind past Landlock
TERMINAL = (0x5412, 0x541C, 0x541D, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD: input in another's name
CONSOLE, OF_GROUP = (0x4B00, 0x5600), 0xFFFFFF00  # ioctl_console(2): keyboard, font, consoles
LEASES = (1024, 1040)  # F_SETLEASE, F_SETDELEG: a program outside that opens or renames the file waits for 45 s
NAMESPACES = 0x7E020000  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
NEWTIME = 0x80  # CLONE_NEWTIME; in `clone` these bits are the signal at exit
CREATES = 0o100 | 0o20000000  # O_CREAT, and what sets O_TMPFILE apart from O_DIRECTORY: only then is there a mode
FASTOPEN = 0x20000000  # MSG_FASTOPEN: connects without asking Landlock
SET_UID, SET_GID = 0o4000, 0o2000
TCP, TCP_FASTOPEN_CONNECT, TCP_ULP = 6, 30, 31  # the last makes of a socket one that Landlock does not know
ANY_BIT, AMONG, NOT_AMONG = "any-bit", "among", "not-among"
WHOLE = 0xFFFFFFFF

LOAD, AND, JUMP, JUMP_EQUAL, JUMP_FROM, JUMP_BITS, RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x45, 0x06
NR_AT, ARCH_AT, ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data; both architectures are little-endian
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2


def program(machine: str, *, namespaces: bool = True, network: str = "host", set_gid: bool = False) -> bytes:
    """The filter for `machine` (as uname(2) says it), an array of struct sock_filter.

    `namespaces`: whether the program has its own of everything, so that sockets and IPC need no more than Landlock.
    `network` "none" refuses Internet sockets where no network namespace does. `set_gid` lets it set the set-gid bit,
    which git does to folders where a repository has `core.sharedRepository`. Raises Refusal("sandbox-unavailable")
    for an architecture that has no table here.
    """
    if machine not in ARCHITECTURES:
        raise Refusal(
            "sandbox-unavailable",
            f"the filter of system calls is made for {' and '.join(ARCHITECTURES)}, and this machine is a {machine}",
        )
    architecture, column = ARCHITECTURES[machine]
    answers = {0: _answer(ALLOW), NEWEST + 1: _answer(ERRNO | ENOSYS)}
    if machine == "x86_64":
        answers[X32] = _answer(KILL)
        answers[NOBODY] = _answer(ERRNO | ENOSYS)
    shared = () if namespaces else SHARED + METADATA
    for table, answer in ((REFUSED, EPERM), (ABSENT, ENOSYS), (shared, EPERM)):
        for row in table:
            answers[row[1:][column]] = _answer(ERRNO | answer)
    for row, clauses in _checked(namespaces, network, SET_UID if set_gid else SET_UID | SET_GID):
        answers[row[1:][column]] = [operation for clause in clauses for operation in _clause(clause)] + _answer(ALLOW)
    answers.pop(-1, None)
    for number in list(answers):  # after a number that is named, what is not named goes on
        if 0 < number < NEWEST and number + 1 not in answers:
            answers[number + 1] = _answer(ALLOW)
    code = [(LOAD, 0, 0, ARCH_AT), (JUMP_EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NR_AT)]
    code += _tree(_merged(answers))
    # struct sock_filter: 16 bits, two times 8, 32. Importing struct for it takes 0.4 ms
    return b"".join([(do | yes << 16 | no << 24 | k << 32).to_bytes(8, "little") for do, yes, no, k in code])


def load(filter_: bytes) -> None:
    """Put this process, and all that it starts, under the filter for good; set-uid programs gain nothing any more.
    Raises OSError."""
    syscall.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # struct sock_fprog: how many, six bytes of padding, where
    syscall.prctl(_PR_SET_SECCOMP, _FILTER, syscall.words(len(filter_) // 8) + syscall.address(filter_))


def _checked(
    namespaces: bool, network: str, set_id: int
) -> tuple[tuple[tuple[str, int, int], tuple[Clause, ...]], ...]:
    """The calls that depend on their arguments: name and numbers, and what is asked of them, in turn."""
    mode_1 = _refuse(ERRNO | EPERM, (ANY_BIT, 1, set_id, ()))
    mode_2 = _refuse(ERRNO | EPERM, (ANY_BIT, 2, set_id, ()))
    families = (UNIX, NETLINK) if network == "none" and not namespaces else (UNIX, INET, INET6, NETLINK)
    sockets = (
        *_refuse(ERRNO | EAFNOSUPPORT, (NOT_AMONG, 0, WHOLE, families)),
        *_refuse(ERRNO | EPERM, (AMONG, 0, WHOLE, (INET, INET6)), (NOT_AMONG, 1, 0xF, (STREAM, DGRAM))),
        *_refuse(ERRNO | EPROTONOSUPPORT, (AMONG, 0, WHOLE, (INET, INET6)), (NOT_AMONG, 2, WHOLE, PROTOCOLS)),
    )
    terminal = _refuse(ERRNO | EPERM, (AMONG, 1, WHOLE, TERMINAL))
    options = (AMONG, 2, WHOLE, (TCP_FASTOPEN_CONNECT, TCP_ULP))
    calls = [
        (("openat", 257, 56), _refuse(ERRNO | EPERM, (ANY_BIT, 2, CREATES, ()), (ANY_BIT, 3, set_id, ()))),
        (("open", 2, -1), _refuse(ERRNO | EPERM, (ANY_BIT, 1, CREATES, ()), (ANY_BIT, 2, set_id, ()))),
        (("creat", 85, -1), mode_1),
        (("chmod", 90, -1), mode_1),
        (("fchmod", 91, 52), mode_1),
        (("fchmodat", 268, 53), mode_2),
        (("fchmodat2", 452, 452), mode_2),
        (("mknod", 133, -1), mode_1),
        (("mknodat", 259, 33), mode_2),
        (("clone", 56, 220), _refuse(ERRNO | EPERM, (ANY_BIT, 0, NAMESPACES, ()))),
        (("unshare", 272, 97), _refuse(ERRNO | EPERM, (ANY_BIT, 0, NAMESPACES | NEWTIME, ()))),
        (("fcntl", 72, 25), _refuse(ERRNO | EPERM, (AMONG, 1, WHOLE, LEASES))),
        (("ioctl", 16, 29), terminal + _refuse(ERRNO | EPERM, (AMONG, 1, OF_GROUP, CONSOLE))),
        (("sendto", 44, 206), _refuse(ERRNO | EOPNOTSUPP, (ANY_BIT, 3, FASTOPEN, ()))),
        (("sendmsg", 46, 211), _refuse(ERRNO | EOPNOTSUPP, (ANY_BIT, 2, FASTOPEN, ()))),
        (("sendmmsg", 307, 269), _refuse(ERRNO | EOPNOTSUPP, (ANY_BIT, 3, FASTOPEN, ()))),
        (("setsockopt", 54, 208), _refuse(ERRNO | ENOPROTOOPT, (AMONG, 1, WHOLE, (TCP,)), options)),
    ]
    if namespaces:
        return (*calls, (("socket", 41, 198), sockets), (("socketpair", 53, 199), sockets))
    # A socket with a name in the file system is the way to the session bus, to agents, to Docker: Landlock does not see
    # it. A connected pair has no way to a name, unless it is of datagrams.
    pair = _refuse(ERRNO | EPERM, (NOT_AMONG, 1, 0xF, (STREAM, SEQPACKET)))
    named = _refuse(ERRNO | EPERM, (AMONG, 0, WHOLE, (UNIX, NETLINK) if network == "none" else (UNIX,)))
    itself = _refuse(ERRNO | EPERM, (NOT_AMONG, 1, WHOLE, (0,)))
    return (
        *calls,
        (("socket", 41, 198), named + sockets),
        (("socketpair", 53, 199), sockets + pair),
        (("prlimit64", 302, 261), _refuse(ERRNO | EPERM, (NOT_AMONG, 0, WHOLE, (0,)))),
        *((row, _refuse(ERRNO | EPERM, (NOT_AMONG, 0, WHOLE, (0,)))) for row in SCHEDULING),
        (("setpriority", 141, 140), _refuse(ERRNO | EPERM, (NOT_AMONG, 0, WHOLE, (0,))) + itself),  # PRIO_PROCESS
        (("ioprio_set", 251, 30), _refuse(ERRNO | EPERM, (NOT_AMONG, 0, WHOLE, (1,))) + itself),  # IOPRIO_WHO_PROCESS
    )


def _refuse(answer: int, *tests: Test) -> tuple[Clause, ...]:
    return ((tests, answer),)


def _answer(value: int) -> list[Instruction]:
    return [(RETURN, 0, 0, value)]


def _clause(clause: Clause) -> list[Instruction]:
    """Return the answer if all tests hold, else fall through to what follows."""
    tests, answer = clause
    code = _answer(answer)
    for how, argument, mask, values in reversed(tests):
        code = _test(how, argument, mask, values, len(code)) + code
    return code


def _test(how: str, argument: int, mask: int, values: Sequence[int], skip: int) -> list[Instruction]:
    """Fall through if it holds, else jump over the next `skip` instructions."""
    code: list[Instruction] = [(LOAD, 0, 0, ARGUMENTS_AT + 8 * argument)]
    if how == ANY_BIT:
        return [*code, (JUMP_BITS, 0, skip, mask)]
    if mask != WHOLE:
        code.append((AND, 0, 0, mask))
    for left, value in zip(range(len(values) - 1, -1, -1), values, strict=True):
        if how == NOT_AMONG:
            code.append((JUMP_EQUAL, left + skip, 0, value))
        else:
            code.append((JUMP_EQUAL, left, 0 if left else skip, value))
    return code


def _merged(answers: dict[int, list[Instruction]]) -> list[tuple[int, list[Instruction]]]:
    """Return the calls by number, without those that are answered like the number before."""
    blocks: list[tuple[int, list[Instruction]]] = []
    for number, code in sorted(answers.items()):
        if not blocks or blocks[-1][1] != code:
            blocks.append((number, code))
    return blocks


def _tree(answers: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Find the answer of the number that is loaded: the last whose key is not above it."""
    if len(answers) == 1:
        return answers[0][1]
    middle = len(answers) // 2
    below, above = _tree(answers[:middle]), _tree(answers[middle:])
    if len(below) < 256:
        return [(JUMP_FROM, len(below), 0, answers[middle][0]), *below, *above]
    return [(JUMP_FROM, 0, 1, answers[middle][0]), (JUMP, 0, 0, len(below)), *below, *above]
