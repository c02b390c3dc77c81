"""The filter of system calls: it refuses real calls, under bubblewrap and by `load`; tables check both machines."""

import functools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import omac
from omac.adapters.sandbox import seccomp
from omac.domain.kernel.refusal import Refusal

SOURCE = str(Path(omac.__file__).parent.parent)
MACHINE = os.uname().machine
MACHINES = ("x86_64", "aarch64")
COLUMN = {"x86_64": 1, "aarch64": 2}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003, "arm": 0x40000028}
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
BITS_64 = {"3264_fcntl": "fcntl", "3264_openat": "openat"}
ALLOW, KILL = "allow", "kill"
EPERM, EACCES, ENOSYS, EAFNOSUPPORT, EPROTONOSUPPORT, EOPNOTSUPP, ENOPROTOOPT = 1, 13, 38, 97, 93, 95, 92
GARBAGE = 0xDEADBEEF << 32

# What no sandboxed program may call, whatever its arguments: written down here once more, on purpose.
NEVER = """
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp io_uring_setup io_uring_enter
    io_uring_register userfaultfd bpf perf_event_open modify_ldt uselib add_key request_key keyctl mount umount2
    pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr setns name_to_handle_at
    open_by_handle_at fanotify_init fanotify_mark init_module finit_module delete_module kexec_load kexec_file_load
    reboot swapon swapoff acct quotactl quotactl_fd settimeofday clock_settime adjtimex clock_adjtime syslog
    lookup_dcookie vhangup iopl ioperm
""".split()  # noqa: SIM905 - read by people
NEVER_SHARED = """
    shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink
    chown fchown lchown fchownat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat
    removexattrat file_setattr
""".split()  # noqa: SIM905
NOT_THERE = ["clone3", "openat2"]


def judged(program: bytes, machine: str, number: int, *arguments: int) -> str | int:
    """Return a filter's answer, "allow", "kill" or the errno, by an interpreter for the few instructions used."""
    words = [*arguments, *(0,) * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, AUDIT[machine], 0, *(word & (1 << 64) - 1 for word in words))
    code: list[tuple[int, int, int, int]] = [
        struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)
    ]
    assert len(code) <= 4096
    held, at = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        match operation:
            case 0x20:  # load a word
                (held,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                held &= constant
            case 0x05:
                at += constant
            case 0x15:
                at += if_true if held == constant else if_false
            case 0x35:
                at += if_true if held >= constant else if_false
            case 0x45:
                at += if_true if held & constant else if_false
            case 0x06:
                if constant == 0x7FFF0000:
                    return ALLOW
                if constant == 0x80000000:
                    return KILL
                assert constant >> 16 == 5
                return constant & 0xFFFF
            case _:
                raise AssertionError(f"instruction {operation:#x} is not one this program may use")


@functools.cache
def numbers(machine: str) -> dict[str, int]:
    """Return the numbers of an architecture's system calls, from the kernel's own headers."""
    for path in HEADERS[machine]:
        if os.path.exists(path):
            text = Path(path).read_text()
            table = {BITS_64.get(name, name): int(n) for name, n in re.findall(r"#define __NR_?(\w+)\s+(\d+)\b", text)}
            return {name.removeprefix("3264_"): number for name, number in table.items() if name != "syscalls"}
    pytest.skip("no kernel headers here (linux-libc-dev)")


def number(machine: str, name: str) -> int:
    """Return the number from the source's tables, which `test_numbers_are_the_kernels` compares with the headers."""
    tables = (
        *seccomp.REFUSED,
        *seccomp.ABSENT,
        *seccomp.SHARED,
        *seccomp.METADATA,
        *(row for row, _ in seccomp._checked(False, "host", 0)),
    )
    return next(row for row in tables if row[0] == name)[1:][COLUMN[machine] - 1]


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_the_kernels(machine: str) -> None:
    """Each number in the tables is that of the call beside it; calls marked as absent are missing in the headers."""
    headers = numbers(machine)
    checked = [row for row, _ in seccomp._checked(False, "none", 0)]
    rows = [*seccomp.REFUSED, *seccomp.ABSENT, *seccomp.SHARED, *seccomp.METADATA, *checked]
    assert len({row[0] for row in rows}) == len(rows)
    compared = 0
    for row in rows:
        ours = row[1:][COLUMN[machine] - 1]
        if row[0] in headers:
            assert ours == headers[row[0]], row[0]
            compared += 1
        else:
            assert ours == -1 or ours > 450, (
                f"{row[0]}: not in the headers"
            )  # the newest ones may be younger than these
    assert compared > 60


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("namespaces", [True, False])
def test_every_call_is_answered_as_it_should_be(machine: str, namespaces: bool) -> None:
    """Of all calls that the machine has, the filter refuses exactly the listed ones and allows all others."""
    program = seccomp.program(machine, namespaces=namespaces)
    refused = {*NEVER, *(() if namespaces else NEVER_SHARED)}
    for name, nr in numbers(machine).items():
        expected = EPERM if name in refused else ENOSYS if name in NOT_THERE else ALLOW
        if name in ("socket", "socketpair", "setpriority", "ioprio_set", "arch_specific_syscall"):
            continue  # judged by their arguments, below
        assert judged(program, machine, nr) == expected, name
        assert judged(program, machine, nr, *(GARBAGE,) * 6) == expected, name


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_newer_than_the_list_do_not_exist(machine: str) -> None:
    """Calls that are newer than the list do not exist inside, so a newer kernel adds nothing to the sandbox."""
    program = seccomp.program(machine)
    newest = seccomp.NEWEST
    assert judged(program, machine, newest) == ALLOW
    for unknown in (newest + 1, newest + 2, 512, 1000, 0x3FFFFFFF, -1):
        assert judged(program, machine, unknown) == ENOSYS


@pytest.mark.parametrize(
    ("machine", "foreign", "nr"),
    [
        ("x86_64", "i386", 20),
        ("x86_64", "i386", 102),
        ("x86_64", "aarch64", 172),
        ("aarch64", "arm", 20),
        ("aarch64", "x86_64", 39),
        ("x86_64", "x86_64", 0x40000000),
        ("x86_64", "x86_64", 0x40000000 + 39),
        ("x86_64", "x86_64", 0x40000000 + 520),
        ("x86_64", "x86_64", 0x80000000),
        ("x86_64", "x86_64", 0xFFFFFFFE),
    ],
)
def test_other_architectures_end_the_process(machine: str, foreign: str, nr: int) -> None:
    """i386, x32 and 32-bit Arm calls end the process and never pass for calls of the machine."""
    assert judged(seccomp.program(machine), foreign, nr) == KILL


U, I4, I6, NL = 1, 2, 10, 16  # socket families
CLONES = {"NEWNS": 0x20000, "NEWCGROUP": 0x2000000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000, "NEWUSER": 0x10000000,
          "NEWPID": 0x20000000, "NEWNET": 0x40000000}  # fmt: skip
THREAD = 0x3D0F00  # what pthread_create asks of clone
BY_ARGUMENTS: list[tuple[str, tuple[int, ...], str | int]] = [
    *(("clone", (17 | flag,), EPERM) for flag in CLONES.values()),
    *(("unshare", (flag,), EPERM) for flag in (*CLONES.values(), 0x80, 0x20000 | 0x10000000)),
    ("clone", (17,), ALLOW),
    ("clone", (THREAD,), ALLOW),
    ("clone", (0x4111,), ALLOW),  # vfork
    ("unshare", (0x200,), ALLOW),  # CLONE_FS
    ("unshare", (0x400 | 0x40000,), ALLOW),
    *(("ioctl", (0, code), EPERM) for code in (0x5412, 0x541C, 0x541D, 0x5423)),
    *(("ioctl", (0, GARBAGE | code), EPERM) for code in (0x5412, 0x541C)),
    *(("ioctl", (0, code), EPERM) for code in (*range(0x4B00, 0x4C00), *range(0x5600, 0x5700), GARBAGE | 0x4B45)),
    *(("ioctl", (0, code), ALLOW) for code in (0x4AFF, 0x4C00, 0x55FF, 0x5700, 0xC0685600)),
    *(("ioctl", (0, code), ALLOW) for code in (0x5401, 0x540E, 0x5410, 0x5413, 0x5414, 0x541B, 0x40049409)),
    *(("fcntl", (3, command, 1), EPERM) for command in (1024, 1040, GARBAGE | 1024)),
    *(("fcntl", (3, command, 1), ALLOW) for command in (0, 1, 2, 3, 4, 6, 7, 37, 38, 1025, 1026, 1030, 1031, 1033)),
    *(("socket", (family, 1, 0), ALLOW) for family in (U, I4, I6)),
    ("socket", (NL, 3, 0), ALLOW),
    ("socket", (I4, 2 | 0o2000000 | 0o4000, 17), ALLOW),
    ("socket", (I6, 2, 58), ALLOW),
    ("socket", (I4, 1, 6), ALLOW),
    *(("socket", (family, 1, 0), EAFNOSUPPORT) for family in range(50) if family not in (U, I4, I6, NL)),
    ("socket", (GARBAGE | 40, 1, 0), EAFNOSUPPORT),
    *(("socket", (family, kind, 0), EPERM) for family in (I4, I6) for kind in (3, 4, 5, 6, 10, 3 | 0o2000000)),
    *(
        ("socket", (family, 1, protocol), EPROTONOSUPPORT)
        for family in (I4, I6)
        for protocol in (262, 132, 256, 33, 115)
    ),
    ("socket", (GARBAGE | I4, GARBAGE | 1, GARBAGE | 262), EPROTONOSUPPORT),
    ("socketpair", (U, 1, 0), ALLOW),
    ("socketpair", (U, 2, 0), ALLOW),
    ("socketpair", (30, 1, 0), EAFNOSUPPORT),
    ("setsockopt", (3, 6, 30), ENOPROTOOPT),
    ("setsockopt", (3, 6, 31), ENOPROTOOPT),
    ("setsockopt", (3, GARBAGE | 6, GARBAGE | 30), ENOPROTOOPT),
    ("setsockopt", (3, 6, 1), ALLOW),
    ("setsockopt", (3, 1, 30), ALLOW),  # SO_ACCEPTCONN's number at another level
    ("sendto", (3, 0, 0, 0x20000000), EOPNOTSUPP),
    ("sendto", (3, 0, 0, GARBAGE | 0x20004000), EOPNOTSUPP),
    ("sendto", (3, 0, 0, 0x4000), ALLOW),
    ("sendmsg", (3, 0, 0x20000000), EOPNOTSUPP),
    ("sendmsg", (3, 0, 0x4000, 0x20000000), ALLOW),
    ("sendmmsg", (3, 0, 1, 0x20000000), EOPNOTSUPP),
    ("sendmmsg", (3, 0, 1, 0x40), ALLOW),
]
WITH_MODE = [  # name, where the mode is, what must stand before it for there to be one
    ("chmod", 1, {}),
    ("fchmod", 1, {}),
    ("fchmodat", 2, {}),
    ("fchmodat2", 2, {}),
    ("mknod", 1, {}),
    ("mknodat", 2, {}),
    ("creat", 1, {}),
    ("open", 2, {1: 0o101}),
    ("openat", 3, {2: 0o101}),
    ("open", 2, {1: 0o20200002}),
    ("openat", 3, {2: 0o20040002}),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_what_depends_on_arguments(machine: str) -> None:
    """Namespaces, terminal injection and sockets past Landlock are refused in every spelling; their twins work."""
    program = seccomp.program(machine)
    for name, arguments, expected in BY_ARGUMENTS:
        assert judged(program, machine, number(machine, name), *arguments) == expected, (name, arguments)


@pytest.mark.full
@pytest.mark.parametrize("machine", MACHINES)
def test_set_id_bits_are_refused_wherever_a_mode_is_given(machine: str) -> None:
    """Set-id bits are refused in every call with a mode; without O_CREAT an open has none, whatever the register
    holds."""
    program, shared = seccomp.program(machine), seccomp.program(machine, set_gid=True)
    for name, at, before in WITH_MODE:
        nr = number(machine, name)
        if nr < 0:
            continue
        for mode in range(0o10000):
            arguments = [0] * 6
            arguments[at] = GARBAGE | mode
            for index, value in before.items():
                arguments[index] = value
            assert judged(program, machine, nr, *arguments) == (EPERM if mode & 0o6000 else ALLOW), (name, oct(mode))
            if mode % 64 == 0o55:
                assert judged(shared, machine, nr, *arguments) == (EPERM if mode & 0o4000 else ALLOW), (name, oct(mode))
        for index in before:
            assert judged(program, machine, nr, *[0o6777 if i != index else 0o2000002 for i in range(6)]) == ALLOW


SCHEDULING = ("sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity")  # of others
SHARED_ARGUMENTS: list[tuple[str, tuple[int, ...], str | int]] = [
    ("socket", (U, 1, 0), EPERM),
    ("socket", (U, 2, 0), EPERM),
    ("socket", (GARBAGE | U, 5, 0), EPERM),
    ("socketpair", (U, 1 | 0o2000000, 0), ALLOW),
    ("socketpair", (U, 5, 0), ALLOW),
    ("socketpair", (U, 2, 0), EPERM),  # of datagrams: these can still be sent to a name
    ("socketpair", (U, 3, 0), EPERM),  # raw means datagrams here (unix(7))
    *((name, (0, 1, 0), ALLOW) for name in SCHEDULING),
    *((name, (4711, 1, 0), EPERM) for name in SCHEDULING),
    ("prlimit64", (0, 7, 0, 0), ALLOW),
    ("prlimit64", (4711, 7, 0, 0), EPERM),
    ("setpriority", (0, 0, 5), ALLOW),
    ("setpriority", (0, 4711, 5), EPERM),
    ("setpriority", (2, 0, 5), EPERM),  # every process of the user
    ("ioprio_set", (1, 0, 0), ALLOW),
    ("ioprio_set", (1, 4711, 0), EPERM),
    ("ioprio_set", (3, 0, 0), EPERM),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("network", ["host", "none"])
def test_without_namespaces_less_is_allowed(machine: str, network: str) -> None:
    """Named sockets, other processes' limits and, without a network, all Internet sockets are refused."""
    program = seccomp.program(machine, namespaces=False, network=network)
    for name, arguments, expected in SHARED_ARGUMENTS:
        assert judged(program, machine, number(machine, name), *arguments) == expected, (name, arguments)
    for family in (I4, I6, NL):
        answer = judged(program, machine, number(machine, "socket"), family, 2, 0)
        assert (answer == ALLOW) == (network == "host"), family
    own = seccomp.program(machine, network=network)  # with a network namespace its loopback works
    assert judged(own, machine, number(machine, "socket"), I4, 1, 0) == ALLOW


def test_an_unknown_architecture_is_refused() -> None:
    """An unknown architecture is refused, as a filter with another machine's numbers would be wrong."""
    with pytest.raises(Refusal) as caught:
        seccomp.program("riscv64")
    assert caught.value.reason == "sandbox-unavailable"
    assert "riscv64" in caught.value.message


# What follows makes the calls. The child gets (name, number, arguments) and answers with errno, 0 for success.
CALLER = r"""
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(nr, *args):
    ctypes.set_errno(0)
    words = [ctypes.c_void_p(a & (1 << 64) - 1) if isinstance(a, int) else a for a in args]
    answer = libc.syscall(ctypes.c_long(nr), *words)
    return ctypes.get_errno() if answer == -1 else 0
"""
EACH = (
    CALLER
    + r"""
answers = {}
for name, nr in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.write(writer, str(call(nr, -1, -1, -1, -1, -1, -1)).encode())
        os._exit(0)
    os.close(writer)
    answers[name] = int(os.read(reader, 9) or -1)
    os.waitpid(child, 0)
print(json.dumps(answers))
"""
)
LOADED = f"import sys, os; sys.path.insert(0, {SOURCE!r}); from omac.adapters.sandbox import seccomp; " + (
    "seccomp.load(seccomp.program(os.uname().machine)); exec(sys.argv.pop(1))"
)
HOW = ("bare", "bwrap", "load")


def confined(how: str, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python source as it is, under bubblewrap with the filter and no other protection, or under `load`."""
    python = [sys.executable, "-I", "-S", "-c"]
    if how == "load":
        return subprocess.run([*python, LOADED, source, *arguments], capture_output=True, text=True, timeout=60)
    if how == "bare":
        return subprocess.run([*python, source, *arguments], capture_output=True, text=True, timeout=60)
    return filtered([*python, source, *arguments])


def filtered(line: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in bubblewrap with nothing but the filter."""
    descriptor = os.memfd_create("filter", 0)
    try:
        os.write(descriptor, seccomp.program(MACHINE))
        os.lseek(descriptor, 0, os.SEEK_SET)
        head = ["bwrap", "--dev-bind", "/", "/", "--seccomp", str(descriptor), "--"]
        return subprocess.run([*head, *line], pass_fds=[descriptor], capture_output=True, text=True, timeout=60)
    finally:
        os.close(descriptor)


@functools.cache
def answers(how: str) -> dict[str, int]:
    """Return the errno of each refused call, made with senseless arguments."""
    column = COLUMN[MACHINE] - 1
    calls = [(row[0], row[1:][column]) for row in (*seccomp.REFUSED, *seccomp.ABSENT) if row[1:][column] >= 0]
    done = confined(how, EACH, json.dumps(calls))
    assert done.returncode == 0, done.stderr
    errnos: dict[str, int] = json.loads(done.stdout)
    return errnos


@pytest.mark.skipif(os.geteuid() != 0, reason="without root most of these are refused by themselves")
@pytest.mark.parametrize("name", [*NEVER, *NOT_THERE])
def test_a_refused_call_is_refused_for_real(name: str) -> None:
    """A refused call fails by the filter and not by its arguments: without the filter even root gets another answer."""
    if name not in answers("bare"):
        pytest.skip("not a call of this machine")
    expected = ENOSYS if name in NOT_THERE else EPERM
    assert answers("bwrap")[name] == expected
    assert answers("load")[name] == expected
    assert answers("bare")[name] != expected


SCENES = {
    "chmod": "os.chmod(path, 0o4755)",
    "chmod set-gid": "os.chmod(path, 0o2755)",
    "fchmod": "os.fchmod(os.open(path, os.O_RDONLY), 0o6755)",
    "fchmodat": "os.chmod('file', 0o4755, dir_fd=os.open(folder, os.O_RDONLY))",
    "open": "os.open(path + '1', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "tmpfile": "os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o4755)",
    "mknod": "os.mknod(path + '2', 0o104755)",
    "unshare user": "check(libc.unshare(0x10000000))",
    "unshare mount": "check(libc.unshare(0x20000))",
    "unshare time": "check(libc.unshare(0x80))",
    "setns": "check(libc.setns(os.open('/proc/self/ns/uts', os.O_RDONLY), 0))",
    "raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "old packet socket": "socket.socket(socket.AF_INET, 10, 3)",
    "mptcp": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
    "vsock": "socket.socket(40, socket.SOCK_STREAM)",
    "fast open": "socket.socket().sendto(b'x', 0x20000000, server.getsockname())",
    "fast open message": "socket.socket().sendmsg([b'x'], [], 0x20000000, server.getsockname())",
    "fast open option": "socket.socket().setsockopt(6, 30, 1)",
    "upper layer": "s = socket.create_connection(server.getsockname()); s.setsockopt(6, 31, b'espintcp')",
    "inject": "terminal(); inject(0x5412)",
    "inject, high bits": "terminal(); inject(0xdeadbeef00005412)",
    "console": "terminal(); inject(0x541c)",
    "ring": "check(call(number['io_uring_setup'], 1, ctypes.create_string_buffer(120)))",
    "lease": "fcntl.fcntl(os.open(path, os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    "lease for reading": "fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)",
    "faults": "check(call(number['userfaultfd'], 1))",
    "keyring": "check(call(number['keyctl'], 0, -5, 1))",
    "chroot": "os.chroot('/')",
    "other's memory": "check(call(number['process_vm_readv'], os.getppid(), 0, 0, 0, 0, 0))",
}
TWINS = {
    "chmod": "os.chmod(path, 0o1777)",
    "open": "os.open(path + '1', os.O_CREAT | os.O_WRONLY, 0o755)",
    "tmpfile": "os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)",
    "mknod": "os.mknod(path + '2', 0o100755)",
    "fifo": "os.mkfifo(path + '3')",
    "folder": "os.mkdir(path + '4', 0o6755); assert not os.stat(path + '4').st_mode & 0o6000",
    "unshare files": "check(libc.unshare(0x600))",
    "tcp": "socket.create_connection(server.getsockname()).sendall(b'x')",
    "tcp option": "socket.socket().setsockopt(6, 1, 1)",
    "lock": "f = os.open(path, os.O_RDWR); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX)",
    "udp": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "unix": "socket.socket(socket.AF_UNIX).bind('\\0omac-test-%d' % os.getpid())",
    "netlink": "socket.if_nameindex(); socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).bind((0, 0))",
    "terminal": "terminal(); os.tcsetpgrp(0, os.getpgrp()); assert os.get_terminal_size(0)",
    "pidfd": "signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)",
    "no such call": "assert call(-1) == 38",
}
SCENE = (
    CALLER
    + r"""
import fcntl, pty, signal, socket, termios
what, folder, number = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
path = folder + "/file"
open(path, "w").close()
server = socket.create_server(("127.0.0.1", 0))
def check(code):
    code = ctypes.get_errno() if code == -1 else code
    if code:
        raise OSError(code, os.strerror(code))
def terminal():
    master, slave = pty.openpty()
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.dup2(slave, 0)
def inject(code):
    check(libc.syscall(ctypes.c_long(number["ioctl"]), 0, ctypes.c_ulong(code), b"x"))
try:
    exec(what)
except OSError as failure:
    print(failure.errno)
else:
    print(0)
"""
)
_NUMBERS = {row[0]: row[1:][COLUMN[MACHINE] - 1] for row in seccomp.REFUSED} | {
    row[0]: row[1:][COLUMN[MACHINE] - 1] for row, _ in seccomp._checked(True, "host", 0)
}
REFUSED_WITH = {
    "packet socket": EAFNOSUPPORT,
    "vsock": EAFNOSUPPORT,
    "mptcp": EPROTONOSUPPORT,
    "fast open": EOPNOTSUPP,
    "fast open message": EOPNOTSUPP,
    "fast open option": ENOPROTOOPT,
    "upper layer": ENOPROTOOPT,
}


def scene(how: str, what: str, folder: Path) -> int:
    """Return the errno that a line of Python ends with; 0 if it succeeds."""
    (folder / how).mkdir()
    done = confined(how, SCENE, what, str(folder / how), json.dumps(_NUMBERS))
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="without root some of these are refused by themselves")
@pytest.mark.parametrize("name", SCENES)
def test_what_would_work_is_refused(name: str, tmp_path: Path) -> None:
    """An act of root's that works without the filter, or fails for another reason, is refused under the filter."""
    expected = REFUSED_WITH.get(name, EPERM)
    if scene("bare", SCENES[name], tmp_path) == expected:
        pytest.skip("this kernel refuses it by itself")
    assert scene("bwrap", SCENES[name], tmp_path) == expected
    assert scene("load", SCENES[name], tmp_path) == expected


@pytest.mark.parametrize("name", TWINS)
def test_its_twin_works_under_the_filter(name: str, tmp_path: Path) -> None:
    """Ordinary acts of programs, close to refused ones, work under the filter."""
    assert scene("bwrap", TWINS[name], tmp_path) == 0


FOREIGN = (
    CALLER
    + r"""
import mmap
if sys.argv[1] == "x32":
    call(0x40000000 + 39)
else:  # mov eax, 20 (getpid of i386); int 0x80; ret
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    assert ctypes.CFUNCTYPE(ctypes.c_int)(at)() == os.getpid()
print("alive")
"""
)


@pytest.mark.skipif(MACHINE != "x86_64", reason="x86-64's own")
@pytest.mark.parametrize("how", ["bwrap", "load"])
@pytest.mark.parametrize("kind", ["x32", "i386"])
def test_foreign_calls_end_the_process_for_real(kind: str, how: str) -> None:
    """A getpid of x32 or i386 ends a process under the filter; without the filter the process lives on."""
    bare = confined("bare", FOREIGN, kind)
    if bare.returncode == -signal.SIGSEGV:
        pytest.skip("this kernel has no i386 calls")
    assert bare.stdout == "alive\n"
    done = confined(how, FOREIGN, kind)
    assert done.returncode in (-signal.SIGSYS, 128 + signal.SIGSYS)
    assert done.stdout == ""


ORDINARY = {  # program: a script, run as `sh -c`
    "python3": """python3 -c '
import asyncio, multiprocessing.pool, shutil, subprocess, tempfile, urllib.request
assert multiprocessing.pool.ThreadPool(2).map(abs, [-1, -2]) == [1, 2]
subprocess.run(["true"], check=True, start_new_session=True)
async def main(): return await (await asyncio.create_subprocess_exec("true")).wait()
assert asyncio.run(main()) == 0
f = tempfile.NamedTemporaryFile(); shutil.copy2(f.name, f.name + "2")
'""",
    "bash": "bash -c 'set -m; sleep 0.01 & jobs; wait; diff <(echo a) <(echo a); umask 027; mkdir a; chmod 1777 a'",
    "git": """
git init -q r && cd r && echo a >a && git add a && git -c user.name=a -c user.email=a@b commit -qm m &&
git gc -q && git worktree add -q ../w && git fsck""",
    "tar": "mkdir d && echo a >d/f && ln -s f d/l && tar cf a.tar d && rm -r d && tar xpf a.tar && cat d/l",
    "gcc": "echo 'int main(void){return 0;}' >a.c && gcc -O2 -pthread a.c -o a && ./a",
    "node": """node -e '
require("fs").writeFileSync("a", "b"); require("net").createServer().listen(0, function () { this.close() });
require("child_process").execFileSync("true"); new (require("worker_threads").Worker)("1", { eval: true });
require("os").networkInterfaces()'""",
    "npm": "npm init -y && mkdir p && (cd p && npm init -y) && npm install --no-audit --no-fund --offline ./p",
    "cargo": "cargo init -q --name a --vcs none && cargo run -q --offline",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_programs_work(name: str, tmp_path: Path) -> None:
    """Interpreters, shells with jobs, git, compilers and build tools work under the filter as without it."""
    if not shutil.which(name):
        pytest.skip(f"no {name} here")
    script = ["sh", "-c", 'mkdir "$0" && cd "$0" && eval "$1"']
    done = filtered([*script, str(tmp_path / "filtered"), ORDINARY[name]])
    if done.returncode != 0:  # a cargo without a toolchain fails wherever it runs
        bare = subprocess.run([*script, str(tmp_path / "bare"), ORDINARY[name]], capture_output=True, text=True)
        assert bare.returncode != 0, done.stderr
        pytest.skip(f"{name} does not work here: {bare.stderr}")


def test_what_it_costs_is_bounded() -> None:
    """The filter judges a call in at most 24 instructions if its arguments do not matter, so builds stay fast."""
    for machine in MACHINES:
        program = seccomp.program(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 512
        depth = 0
        code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
        for nr in range(470):
            at, steps, held = 0, 0, 0
            while code[at][0] != 0x06 and steps < 100 and (code[at][0] != 0x20 or code[at][3] < 16):
                operation, yes, no, constant = code[at]
                at += 1
                steps += 1
                if operation == 0x20:
                    held = AUDIT[machine] if constant == 4 else nr
                elif operation == 0x05:
                    at += constant
                else:
                    at += yes if (held == constant if operation == 0x15 else held >= constant) else no
            depth = max(depth, steps)
        assert depth <= 24
