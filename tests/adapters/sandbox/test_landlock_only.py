"""The sandbox without namespaces: acts of a confined process on the host, as root and as nobody."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from real_sandbox import NOBODY, SYSTEM_PYTHON, readable_package

from omac.adapters.sandbox import landlock, landlock_only
from omac.domain.sandbox.confinement import COPY, DENY, LINK, PRIVATE, READ, WRITE, Entry, Policy, ordered

EPERM, ENOENT, EACCES, EXDEV, EAFNOSUPPORT = 1, 2, 13, 18, 97

needs_landlock = pytest.mark.skipif(landlock.abi() < landlock_only.ABI_MIN, reason="needs Linux 6.12 (Landlock ABI 6)")

# argv: the package, the policy (entries, network, ports, fence), confine or not, the program.
ENTER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from omac.adapters.sandbox import landlock, landlock_only
from omac.domain.sandbox.confinement import Entry, Policy, ordered
from omac.domain.kernel.refusal import Refusal
asked = json.loads(sys.argv[2])
entries = ordered(Entry(path, access, "") for path, access in asked["entries"])
ports, fence = tuple(asked["ports"]), tuple(asked["fence"])
policy = Policy(asked["workdir"], entries, {}, network=asked["network"], ports=ports, fence=fence)
if sys.argv[3] == "confined":
    try:
        exec(asked.get("before", ""))
        landlock_only.enter(policy)
    except Refusal as refusal:
        print(refusal.reason, refusal.message)
        sys.exit(7)
os.chdir(asked["workdir"])
os.execv(sys.argv[4], sys.argv[4:])
"""
TRY = """
import array, ctypes, os, resource, signal, socket, sys, traceback
H, OUT = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
def check(answer):
    if answer == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def attempt(what):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 255
    try:
        exec(what)
        status = 0
    except OSError as failure:
        status = failure.errno
    except BaseException:
        traceback.print_exc()
    os._exit(status)
print(*map(attempt, sys.argv[3:]))
"""


class World:
    """A project (writable), a tool (readable), a private temporary folder, and the user's other things (not named)."""

    def __init__(self, top: Path, uid: int) -> None:
        self.top = top
        self.uid = uid
        self.project, self.tool, self.temporary, self.other = (
            top / name for name in ("project", "tool", "temp", "other")
        )
        for folder in (self.project, self.tool, self.temporary, self.other):
            folder.mkdir()
        (self.tool / "file").write_text("tool")
        (self.other / "secret").write_text("secret")
        (self.project / "file").write_text("mine")
        subprocess.run(["chown", "-R", f"{uid}:{uid}", top], check=True)

    def entries(self) -> list[tuple[str, str]]:
        """Return the paths that such a policy names on every machine, and this world's folders."""
        usual = [
            path
            for path in ("/usr", "/bin", "/lib", "/lib64", "/etc")
            if not os.path.islink(path) and os.path.exists(path)
        ]
        return [
            *((path, READ) for path in usual),
            (str(self.tool), READ),
            (str(self.project), WRITE),
            (str(self.temporary), WRITE),
        ]

    def run(self, *program: str, how: str = "confined", **asked: object) -> subprocess.CompletedProcess[str]:
        """Run a program in the sandbox, or bare."""
        policy = {
            "workdir": str(self.project),
            "entries": self.entries(),
            "network": "host",
            "ports": [],
            "fence": [],
        } | asked
        drop = ["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups"] if self.uid else []
        line = [*drop, SYSTEM_PYTHON, "-I", "-S", "-c", ENTER, readable_package(), json.dumps(policy), how, *program]
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.temporary),
            "TMPDIR": str(self.temporary),
            "LANG": "C.UTF-8",
        }
        return subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment)

    def tries(self, what: str, how: str = "confined", **asked: object) -> int:
        """Return the errno that a line of Python ends with; 0 if it succeeds."""
        return self.tries_each([what], how, **asked)[0]

    def tries_each(self, lines: Sequence[str], how: str = "confined", **asked: object) -> list[int]:
        """Return the errno that each line of Python ends with, in a process of its own in one sandbox."""
        program = (SYSTEM_PYTHON, "-I", "-S", "-c", TRY, str(self.top), str(self.other))
        done = self.run(*program, *lines, how=how, **asked)
        assert done.returncode == 0, done.stderr + done.stdout
        errnos = [int(word) for word in done.stdout.split()]
        assert 255 not in errnos, done.stderr
        return errnos


@pytest.fixture(params=[0, NOBODY], ids=["root", "nobody"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Yield the same world for root and for a user without any privilege."""
    if os.geteuid() != 0 and request.param != os.geteuid():
        pytest.skip("only root can be somebody else")
    top = Path(tempfile.mkdtemp(prefix="omac-world-"))
    top.chmod(0o755)
    yield World(top, request.param)
    shutil.rmtree(top)


ELSEWHERE = [
    ("open(OUT + '/secret').read()", EACCES),
    ("os.listdir(OUT)", EACCES),
    ("os.listdir(H)", EACCES),
    ("os.symlink(OUT, 'in'); open('in/secret').read()", EACCES),
    ("os.chdir(OUT); open('secret').read()", EACCES),
    ("open('../other/secret').read()", EACCES),
    ("open(OUT + '/secret', 'a').write('x')", EACCES),
    ("os.truncate(OUT + '/secret', 0)", EACCES),
    ("open(OUT + '/new', 'w')", EACCES),
    ("os.mkdir(OUT + '/new')", EACCES),
    ("os.symlink('x', OUT + '/new')", EACCES),
    ("os.mkfifo(OUT + '/new')", EACCES),
    ("os.unlink(OUT + '/secret')", EACCES),
    ("os.rename(OUT + '/secret', 'stolen')", EXDEV),
    ("os.rename('file', OUT + '/new')", EXDEV),
    ("os.link(OUT + '/secret', 'stolen'); open('stolen').read()", EXDEV),
    ("os.link('file', OUT + '/new')", EXDEV),
    ("os.execv(OUT + '/secret', ['x'])", EACCES),
    ("os.rmdir(H + '/temp')", EACCES),
    ("os.rename(H + '/project', H + '/moved')", EACCES),
    ("open(H + '/tool/file', 'a').write('x')", EACCES),
    ("open(H + '/tool/new', 'w')", EACCES),
    ("os.unlink(H + '/tool/file')", EACCES),
    ("os.open('/dev/shm', os.O_RDONLY)", EACCES),
    ("os.open('/dev/kmsg', os.O_RDONLY)", EACCES),
    ("os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)", EACCES),
]


@needs_landlock
def test_nothing_else_is_read_or_changed(world: World) -> None:
    """Content, names and entries outside the policy can be neither read nor changed; readable ones stay unchanged."""
    errnos = world.tries_each([line for line, _ in ELSEWHERE])
    strange = [
        (line, errno)
        for (line, expected), errno in zip(ELSEWHERE, errnos, strict=True)
        if errno not in ((EXDEV, EACCES) if expected == EXDEV else (expected,))
    ]
    assert strange == []
    assert (world.other / "secret").read_text() == "secret"
    assert (world.tool / "file").read_text() == "tool"


@needs_landlock
@pytest.mark.parametrize(
    "what",
    [
        "open(H + '/tool/file').read(); os.listdir(H + '/tool')",
        "open('file', 'a').write('x'); os.truncate('file', 0); os.rename('file', 'd'); os.unlink('d')",
        "os.mkdir('d'); os.mkdir('e'); open('d/f', 'w'); os.rename('d/f', 'e/f'); os.link('e/f', 'd/g')",
        "os.mkdir('d'); os.mkdir('e'); os.rename('d', 'e/d'); os.rmdir('e/d')",
        "os.symlink('x', 'l'); os.mkfifo('p'); os.chmod('file', 0o755); os.utime('file')",
        "open(H + '/temp/a', 'w'); os.rename(H + '/temp/a', 'a')",
        "open('/dev/null', 'w').write('x'); open('/dev/urandom', 'rb').read(9); os.open('/dev/zero', os.O_RDWR)",
        "os.listdir('/proc/self/fd'); open('/proc/meminfo').read(); open('/proc/self/environ').read()",
        "import subprocess, tempfile; subprocess.run(['/bin/true'], check=True); tempfile.TemporaryFile()",
        "p = os.fork() or os._exit(0); os.waitpid(p, 0); p = os.fork() or signal.pause(); os.kill(p, 9); os.wait()",
        "a, b = socket.socketpair(); a.send(b'x'); resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.nice(1)",
    ],
)
def test_what_is_named_works(what: str, world: World) -> None:
    """A process uses its policy's files and folders, devices that every program needs, and its own processes."""
    assert world.tries(what) == 0


@needs_landlock
def test_ordinary_programs_work(world: World) -> None:
    """A shell with redirections, git, and an interpreter with subprocesses work in the sandbox."""
    script = (
        "set -e; echo a >a; cat <a >/dev/null; git init -q . 2>/dev/null; git add a;"
        " git -c user.name=a -c user.email=a@b commit -qm m; git gc -q; git log --oneline;"
        " bash -c 'diff <(echo a) <(echo a)'; python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'"
    )
    done = world.run("/bin/sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" m\n")


@pytest.fixture
def bystander(world: World) -> Iterator[int]:
    """Yield the pid of a process of the same user outside, with a secret in its environment."""
    process = subprocess.Popen(
        ["/bin/sleep", "60"], env={"SECRET": "s"}, cwd="/", user=world.uid or None, group=world.uid or None,
        extra_groups=[] if world.uid != os.geteuid() else None,
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


OF_ANOTHER = [
    *(f"open('/proc/%d/{name}', 'rb').read()" for name in ("environ", "maps", "smaps", "auxv", "io", "personality")),
    "open('/proc/%d/mem', 'rb')",
    "open('/proc/%d/mem', 'r+b')",
    *(f"os.readlink('/proc/%d/{name}')" for name in ("cwd", "root", "exe", "ns/mnt", "fd/0")),
    "open('/proc/%d/fd/0')",
    "os.listdir('/proc/%d/root/')",
    "os.kill(%d, 0)",
    "signal.pidfd_send_signal(os.pidfd_open(%d), 0)",
    "resource.prlimit(%d, resource.RLIMIT_CORE, (0, 0))",
    "os.setpriority(os.PRIO_PROCESS, %d, 19)",
    "os.sched_setscheduler(%d, os.SCHED_IDLE, os.sched_param(0))",
    "os.sched_setaffinity(%d, {0})",
    "check(libc.ptrace(16, %d, 0, 0))",
]


@needs_landlock
def test_other_processes_are_left_alone(world: World, bystander: int) -> None:
    """Another process of the user keeps its secrets, and no signal or limit reaches it; a bare process can do all."""
    lines = [line % bystander for line in OF_ANOTHER]
    assert dict(zip(lines, world.tries_each(lines, how="bare"), strict=True)) == dict.fromkeys(lines, 0)
    refused = zip(lines, world.tries_each(lines), strict=True)
    assert [(line, errno) for line, errno in refused if errno not in (EPERM, EACCES)] == []


@needs_landlock
def test_of_other_processes_this_can_be_read(world: World, bystander: int) -> None:
    """Command line, name, state, limits, mounts and descriptor numbers are not hidden, as there is only one /proc."""
    for name in ("cmdline", "comm", "stat", "status", "statm", "limits", "cgroup", "mountinfo"):
        assert world.tries(f"assert open('/proc/{bystander}/{name}').read()") == 0
    assert world.tries(f"assert os.listdir('/proc/{bystander}/fd')") == 0


@needs_landlock
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_sockets_with_names_are_out_of_reach(kind: str, world: World) -> None:
    """Named sockets (session bus, agents, Docker) are out of reach by path, by abstract name and through a pair."""
    path = str(world.project / "socket")
    for name in (path, f"\\0omac-{os.getpid()}-{time.monotonic_ns()}"):
        with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as server:
            server.bind(name.replace("\\0", "\0"))
            if kind == "SOCK_STREAM":
                server.listen()
            if name == path:
                os.chmod(path, 0o777)
            connect = f"socket.socket(socket.AF_UNIX, socket.{kind}).connect('{name}')"
            pair = f"a, b = socket.socketpair(socket.AF_UNIX, socket.{kind}); b.close(); a.connect('{name}')"
            assert world.tries(connect, how="bare") == 0
            assert world.tries(connect) == EPERM
            assert world.tries(pair) in (EPERM, 106)  # a pair of streams stays connected


@needs_landlock
def test_network_host_and_none(world: World) -> None:
    """Network `host` allows connections and the named port; `none` no Internet socket at all, loopback included."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as reserved:
        connect = f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        port = reserved.getsockname()[1]
        reserved.close()
        bind = f"s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('127.0.0.1', {port}))"
        assert world.tries(connect) == 0
        assert world.tries(connect, network="none") == EAFNOSUPPORT
        assert world.tries(bind) == EACCES
        assert world.tries(bind, ports=[port]) == 0
    udp = "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))"
    assert world.tries(udp) == 0
    assert world.tries(udp, network="none") == EAFNOSUPPORT
    assert world.tries("socket.socket(socket.AF_INET6)", network="none") == EAFNOSUPPORT
    assert world.tries("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", network="none") == EPERM
    assert world.tries("socket.socketpair()", network="none") == 0


@needs_landlock
@pytest.mark.parametrize(
    "what",
    [
        "check(libc.shmget(0, 4096, 0o1600))",
        "check(libc.semget(0, 1, 0o1600))",
        "check(libc.msgget(0, 0o1600))",
        "check(libc.mq_open(b'/omac-test-%d' % os.getpid(), 0o102, 0o600, None)); "
        "check(libc.mq_unlink(b'/omac-test-%d' % os.getpid()))",
        "os.chown(OUT + '/secret', os.getuid(), os.getgid())",
        "os.setxattr(OUT + '/secret', 'user.a', b'x')",
        "os.chmod(OUT + '/secret', 0o4755)",
    ],
)
def test_what_landlock_does_not_know_the_filter_refuses(what: str, world: World) -> None:
    """The filter refuses IPC without a namespace, and new owners, attributes and set-uid bits of files outside."""
    assert world.tries(what, how="bare") == 0
    assert world.tries(what) == EPERM


@needs_landlock
def test_what_it_does_not_keep(world: World) -> None:
    """Existence, size, mode and times of known paths stay exposed, as declared; no terminal can be made."""
    assert world.tries("assert os.stat(OUT + '/secret').st_size == 6") == 0
    assert world.tries("os.chmod(OUT + '/secret', 0o640); os.utime(OUT + '/secret')") == 0
    assert world.tries("os.openpty()", how="bare") == 0
    assert world.tries("os.openpty()") in (EACCES, ENOENT)


@needs_landlock
def test_no_capability_is_left(world: World) -> None:
    """A confined process has no capability, even as root, and executing another program brings none back."""
    script = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | sort"
    lines = world.run("/bin/sh", "-c", script).stdout.split("\n")
    kinds = ("Amb", "Bnd", "Eff", "Inh", "Prm") if world.uid == 0 else ("Amb", "Eff", "Inh", "Prm")
    assert {f"Cap{kind}:\t{0:016x}" for kind in kinds} <= set(lines)
    assert "NoNewPrivs:\t1" in lines
    assert "Seccomp:\t2" in lines
    for call in ("os.setuid(4711)", "check(libc.sethostname(b'x', 1))", "os.nice(-5)", "os.chroot('/')"):
        assert world.tries(call) in (EPERM, EACCES)
    assert world.tries("os.mknod('d', 0o20600, os.makedev(1, 3))") == EACCES


@needs_landlock
def test_no_descriptor_comes_along(world: World) -> None:
    """A folder with a secret that was open outside is not open inside; the standard three descriptors are."""
    before = f"os.dup2(os.open({str(world.other)!r}, os.O_RDONLY), 9); os.set_inheritable(9, True)"
    assert world.tries("os.open('secret', os.O_RDONLY, dir_fd=9)", how="confined", before=before) == 9  # EBADF
    assert world.tries("os.fstat(2)", before=before) == 0


@needs_landlock
def test_a_fence_holds_for_what_is_writable_behind_it(world: World) -> None:
    """The fence refuses links among git's own files also where these have an entry of their own."""
    admin = world.other / "admin"
    admin.mkdir(mode=0o777)
    admin.chmod(0o777)
    entries = [*world.entries(), (str(admin), WRITE)]
    for line, expected in (("os.symlink('x', OUT + '/admin/l')", EACCES), ("open(OUT + '/admin/f', 'w')", 0)):
        assert world.tries(line, entries=entries, fence=[str(world.other)]) == expected
    assert world.tries("os.symlink('x', OUT + '/admin/l'); os.symlink('x', 'l')", entries=entries) == 0


def test_the_fence_holds_nothing_else_back(world: World) -> None:
    """A link can be made in the project when the fence is elsewhere."""
    if landlock.abi() < landlock_only.ABI_MIN:
        pytest.skip("needs Linux 6.12")
    assert world.tries("os.symlink('x', 'l')", fence=[str(world.other)]) == 0


@needs_landlock
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"before": "landlock.abi = lambda: 5"}, "needs Landlock ABI 6 (Linux 6.12), and this kernel has ABI 5"),
        ({"before": "landlock.abi = lambda: 0"}, "this kernel has none"),
        ({"entries": [("/nowhere", READ)]}, "/nowhere is in the sandbox policy, but does not exist"),
        ({"entries": [("/proc/self/root/etc", READ)]}, "is now a symbolic link"),
        ({"entries": [("/dev/fd", READ)]}, "is now a symbolic link"),
        ({"entries": [("/usr", WRITE), ("/usr/bin", READ)]}, "/usr/bin: read-only, but /usr above it may be changed"),
    ],
)
def test_what_cannot_be_enforced_does_not_start(asked: dict[str, Any], words: str, world: World) -> None:
    """omac refuses, and explains, an old kernel, a missing path, a link, and a policy that Landlock cannot express."""
    done = world.run("/bin/true", **asked)
    assert done.returncode == 7
    assert done.stdout.startswith("sandbox-unavailable ")
    assert words in done.stdout


@pytest.mark.parametrize(
    ("entries", "options", "words"),
    [
        ([Entry("/w", WRITE, "")], {}, []),
        ([Entry("/w", READ, ""), Entry("/w/out", WRITE, "")], {}, []),
        ([Entry("/w", WRITE, ""), Entry("/w/in", WRITE, "")], {}, []),
        ([Entry("/", DENY, ""), Entry("/w", WRITE, "")], {}, []),
        ([Entry("/h", DENY, ""), Entry("/h/w", READ, ""), Entry("/bin", LINK, "", target="usr/bin")], {}, []),
        ([Entry("/w", WRITE, ""), Entry("/wide", DENY, "")], {}, []),
        ([Entry("/w", WRITE, ""), Entry("/w/.env", DENY, "")], {}, ["/w/.env: denied, but /w above it may be changed"]),
        ([Entry("/w", READ, ""), Entry("/w/.env", DENY, "")], {}, ["/w/.env: denied, but /w above it may be read"]),
        (
            [Entry("/w", WRITE, ""), Entry("/w/.git", READ, "")],
            {},
            ["/w/.git: read-only, but /w above it may be changed"],
        ),
        ([Entry("/", READ, ""), Entry("/w", WRITE, ""), Entry("/w/a/b", READ, "")], {}, ["/w/a/b: read-only"]),
        ([Entry("/tmp", PRIVATE, "")], {}, ["/tmp: a private folder needs"]),
        ([Entry("/h/.gitconfig", COPY, "")], {}, ["/h/.gitconfig: a private copy needs"]),
        ([Entry("/h/a", READ, "", source="/h/b")], {}, ["/h/a: showing /h/b there needs"]),
        (
            [Entry("/w", WRITE, ""), Entry("/w/c", READ, "", made="file")],
            {},
            ["/w/c: a path that omac makes and pins"],
        ),
        ([Entry("/h", READ, "")], {"hidden": ("/h/state",)}, ["/h/state: omac's own, but /h may be read"]),
        (
            [Entry("/h/state/x", WRITE, "")],
            {"hidden": ("/h/state",)},
            ["/h/state: omac's own, but /h/state/x may be changed"],
        ),
        ([Entry("/h/w", WRITE, "")], {"hidden": ("/h/state",)}, []),
        ([Entry("/r", WRITE, "")], {"fence": ("/r/.git",)}, ["/r/.git: links may not be made there, but /r above it"]),
        ([Entry("/r/.git/objects", WRITE, "")], {"fence": ("/r/.git",)}, []),
        ([Entry("/w", WRITE, ""), Entry("/w/a", DENY, ""), Entry("/t", PRIVATE, "")], {}, ["/t:", "/w/a:"]),
    ],
)
def test_what_landlock_cannot_express_is_listed(
    entries: list[Entry], options: dict[str, tuple[str, ...]], words: list[str]
) -> None:
    """Refusals list each entry that revokes an access allowed above it or needs a mount, and no other entry."""
    policy = Policy("/w", ordered(entries), {}, hidden=options.get("hidden", ()), fence=options.get("fence", ()))
    refusals = landlock_only.refusals(policy)
    assert len(refusals) == len(words), refusals
    for line, word in zip(refusals, words, strict=True):
        assert line.startswith(word)
