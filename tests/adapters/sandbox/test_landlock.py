"""Landlock before bubblewrap (network, scopes) and inside it (the fence), tried out by real processes."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import free_port
from real_sandbox import NOBODY, SYSTEM_PYTHON, readable_package

import omac
from omac.adapters.sandbox import landlock

SOURCE = str(Path(omac.__file__).parent.parent)
EPERM, EACCES, EXDEV = 1, 13, 18

pytestmark = pytest.mark.skipif(landlock.abi() < landlock.SCOPE_ABI, reason="needs Linux 6.12 (Landlock ABI 6)")

# Confine, then do what the last argument says; print errno, or 0.
CHILD = """
import os, signal, socket, sys
sys.path.insert(0, sys.argv[1])
from omac.adapters.sandbox import landlock
exec(sys.argv[2])
try:
    exec(sys.argv[3])
except OSError as failure:
    print(failure.errno)
else:
    print(0)
"""
CONFINED = "landlock.confine_network_and_scope(bind_ports=(PORT,))"


def outcome(confine: str, what: str, *, inside: list[str] | None = None) -> int:
    """Return the errno of `what` in a process that did `confine` first, in bubblewrap with the arguments `inside` if
    given."""
    if inside is None:
        line = [sys.executable, "-I", "-S", "-c", CHILD, SOURCE, confine, what]
    else:
        head = (
            f"import sys, os; sys.path.insert(0, {SOURCE!r}); from omac.adapters.sandbox import landlock; {confine}; "
        )
        tail = "os.execvp(sys.argv[1], sys.argv[1:])"
        inner = [sys.executable, "-I", "-S", "-c", CHILD, SOURCE, "0", what]
        line = [sys.executable, "-I", "-S", "-c", head + tail, "bwrap", *inside, "--", *inner]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


BWRAP = ["--dev-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--unshare-pid", "--cap-drop", "ALL"]
PLACES = {"by itself": None, "in bubblewrap": BWRAP}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("address", [("socket.AF_INET", "127.0.0.1"), ("socket.AF_INET6", "::1")])
def test_only_named_ports_and_dealt_out_ones_are_bound(place: str, address: tuple[str, str]) -> None:
    """A process can bind ports that are named or that the system chooses; any other free port is refused."""
    family, host = address
    bind = f"s = socket.socket({family}); s.bind(({host!r}, %d)); s.listen()"
    named_port, other_port = free_port(), free_port()
    confine = CONFINED.replace("PORT", str(named_port))
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip(f"no {host} here")
    assert outcome(confine, bind % named_port, inside=PLACES[place]) == 0
    assert outcome(confine, bind % 0, inside=PLACES[place]) == 0
    assert outcome(confine, bind % other_port, inside=PLACES[place]) == EACCES
    assert outcome("0", bind % other_port, inside=PLACES[place]) == 0


def test_connections_go_anywhere() -> None:
    """Landlock restricts the binding of TCP ports, but neither connections nor datagrams."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        assert outcome(CONFINED.replace("PORT", "1"), connect) == 0
    assert outcome(CONFINED.replace("PORT", "1"), "socket.socket(type=socket.SOCK_DGRAM).bind(('127.0.0.1', 0))") == 0


def test_without_ports_binding_is_not_bounded() -> None:
    """None restricts no port, as a network of its own needs no such rule; an empty list refuses every port."""
    free = f"socket.socket().bind(('127.0.0.1', {free_port()}))"
    assert outcome("landlock.confine_network_and_scope(bind_ports=None)", free) == 0
    assert outcome("landlock.confine_network_and_scope(bind_ports=())", free) == EACCES


@pytest.mark.parametrize("place", PLACES)
def test_abstract_sockets_of_the_host_are_out_of_reach(place: str) -> None:
    """Abstract sockets of programs outside refuse connections; a socket that was made inside accepts them."""
    name = f"\\0omac-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(name.replace("\\0", "\0"))
        outside.listen()
        connect = f"socket.socket(socket.AF_UNIX).connect('{name}')"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(name.replace("\\0", "\0") + "d")
            send = f"socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '{name}d')"
            assert outcome("0", send, inside=PLACES[place]) == 0
            assert outcome("landlock.confine_network_and_scope(bind_ports=None)", send, inside=PLACES[place]) == EPERM
        own = f"s = socket.socket(socket.AF_UNIX); s.bind('{name}2'); s.listen(); " + connect.replace(name, name + "2")
        confine = "landlock.confine_network_and_scope(bind_ports=None)"
        assert outcome("0", connect, inside=PLACES[place]) == 0
        assert outcome(confine, connect, inside=PLACES[place]) == EPERM
        assert outcome(confine, own, inside=PLACES[place]) == 0
        assert outcome(f"landlock.SCOPE_ABI = 99; {confine}", connect, inside=PLACES[place]) == 0


def test_no_signal_leaves() -> None:
    """A confined process can signal its own child, but not the process that started it."""
    confine = "landlock.confine_network_and_scope(bind_ports=None)"
    assert outcome("0", f"os.kill({os.getpid()}, 0)") == 0
    assert outcome(confine, f"os.kill({os.getpid()}, 0)") == EPERM
    assert outcome(confine, f"signal.pidfd_send_signal(os.pidfd_open({os.getpid()}), 0)") == EPERM
    assert outcome(confine, "p = os.fork() or signal.pause(); os.kill(p, 9); os.wait()") == 0


@pytest.mark.parametrize(
    ("known", "ports"), [(7, (80,)), (6, (80,)), (6, None), (5, (80,)), (4, None), (3, (80,)), (0, ())]
)
def test_an_older_kernel_bounds_what_it_can(known: int, ports: tuple[int, ...] | None) -> None:
    """An older kernel enforces every rule that it knows; the others are left out."""
    confine = f"landlock.abi = lambda: {known}; landlock.confine_network_and_scope(bind_ports={ports})"
    bind = f"socket.socket().bind(('127.0.0.1', {free_port()}))"
    assert outcome(confine, bind) == (EACCES if known >= 4 and ports is not None else 0)
    assert outcome(confine, f"os.kill({os.getpid()}, 0)") == (EPERM if known >= 6 else 0)


# The fence: a repository with a linked worktree beside it, as bubblewrap would show it.
LINK, FIFO, SOCKET = "os.symlink('x', P)", "os.mkfifo(P)", "socket.socket(socket.AF_UNIX).bind(P)"


@pytest.fixture(params=[0, NOBODY], ids=["root", "nobody"])
def user(request: pytest.FixtureRequest) -> int:
    """Return the user who tries: root, and a user without any privilege."""
    if request.param != os.geteuid() and os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    uid: int = request.param
    return uid


@pytest.fixture
def tree(user: int) -> Iterator[Path]:
    """Yield a folder that `user` owns, with a repository and a worktree in it."""
    top = Path(f"/tmp/omac-fence-{os.getpid()}-{time.monotonic_ns()}")
    top.mkdir()
    for folder in (
        "home/repo/.git/worktrees/one",
        "home/repo/.git/objects",
        "home/repo/src",
        "home/one/src",
        "home/other",
    ):
        (top / folder).mkdir(parents=True)
    subprocess.run(["chown", "-R", str(user), str(top)], check=True)
    yield top
    shutil.rmtree(top)


def fenced(tree: Path, user: int, folders: list[str], what: str, place: str) -> int:
    """Return the errno of `what` at the path `place` below the tree, with a fence around `folders`, if any."""
    paths = tuple(str(tree / folder) for folder in folders)
    do = f"H = {str(tree / 'home')!r}; P = {str(tree / place)!r}; {what}"
    line = [SYSTEM_PYTHON, "-I", "-S", "-c", CHILD, readable_package(), f"landlock.fence({paths!r})", do]
    drop = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] if user else []
    done = subprocess.run([*drop, *line], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


GIT = ["home/repo/.git"]


@pytest.mark.parametrize("what", [LINK, FIFO, SOCKET])
def test_no_special_file_is_made_behind_the_fence(what: str, tree: Path, user: int) -> None:
    """The fence refuses links, FIFOs and sockets below git's folder; elsewhere, and without a fence, they work."""
    assert fenced(tree, user, GIT, what, "home/repo/.git/worktrees/one/COMMIT_EDITMSG") == EACCES
    assert fenced(tree, user, GIT, what, "home/repo/.git/HEAD") == EACCES
    assert fenced(tree, user, GIT, what, "home/one/link") == 0
    assert fenced(tree, user, GIT, what, "home/one/src/link") == 0
    assert fenced(tree, user, GIT, what, "home/repo/src/link") == 0
    assert fenced(tree, user, [], what, "home/repo/.git/worktrees/one/COMMIT_EDITMSG") == 0


@pytest.mark.parametrize(
    "how",
    [
        "os.rename(H + '/one/made', P)",
        "os.link(H + '/one/made', P, follow_symlinks=False)",
        "os.chdir(H + '/repo/.git'); os.symlink('x', 'HEAD')",
        "f = os.open(H + '/repo/.git', os.O_RDONLY); os.symlink('x', 'HEAD', dir_fd=f)",
        "os.mkdir(H + '/repo/.git/new'); os.symlink('x', H + '/repo/.git/new/l')",
        "os.symlink(H + '/repo/.git', H + '/one/in'); os.symlink('x', H + '/one/in/l')",
    ],
)
def test_no_link_comes_behind_the_fence_by_another_way(how: str, tree: Path, user: int) -> None:
    """No link gets behind the fence by a rename, a hard link, an open folder, a link, or a folder made there."""
    make = "os.symlink('x', H + '/one/made'); "
    assert fenced(tree, user, GIT, make + how, "home/repo/.git/HEAD") in (EACCES, EXDEV)


@pytest.mark.parametrize(
    "how",
    [
        "open(P, 'w').close()",
        "os.mkdir(P); os.rmdir(P)",
        "open(P + '.lock', 'w').close(); os.rename(P + '.lock', P)",
        "open(P + '1', 'w').close(); os.link(P + '1', P); os.unlink(P + '1')",
        "open(H + '/repo/.git/objects/tmp', 'w').close(); os.rename(H + '/repo/.git/objects/tmp', P)",
        "open(H + '/one/a', 'w').close(); os.rename(H + '/one/a', H + '/one/src/a'); os.rename(H + '/one/src/a', P)",
        "open(P, 'w').close(); os.rename(P, H + '/other/a'); os.link(H + '/other/a', H + '/one/src/a')",
        "os.mkdir(H + '/one/d'); os.rename(H + '/one/d', H + '/other/d')",
        "os.symlink('x', H + '/one/a'); os.rename(H + '/one/a', H + '/other/a'); os.unlink(H + '/other/a')",
    ],
)
def test_all_else_works_on_both_sides_of_the_fence(how: str, tree: Path, user: int) -> None:
    """Files, folders, renames and hard links work within and across the fence, as git and build tools use them."""
    assert fenced(tree, user, GIT, how, "home/repo/.git/worktrees/one/HEAD") == 0


def test_where_the_fence_is_wider_than_asked(tree: Path, user: int) -> None:
    """Links cannot be made directly in a folder that holds a fenced one, nor in folders that appear there later."""
    assert fenced(tree, user, GIT, LINK, "home/repo/link") == EACCES
    assert fenced(tree, user, GIT, LINK, "home/link") == EACCES
    assert fenced(tree, user, GIT, "os.mkdir(H + '/new'); os.symlink('x', H + '/new/l')", "home") == EACCES
    assert fenced(tree, user, GIT, "os.mkdir(H + '/one/new'); os.symlink('x', H + '/one/new/l')", "home") == 0


def test_several_fences_and_one_that_is_not_there(tree: Path, user: int) -> None:
    """Fences within and beside each other hold together; one around a missing folder holds when it appears."""
    folders = [
        "home/repo/.git/worktrees/one",
        "home/repo/.git/objects",
        "home/repo/.git",
        "home/other",
        "home/later/git",
    ]
    for path in ("home/repo/.git/worktrees/one/l", "home/repo/.git/l", "home/other/l"):
        assert fenced(tree, user, folders, LINK, path) == EACCES
    assert (
        fenced(tree, user, folders, "os.makedirs(H + '/later/git'); os.symlink('x', P)", "home/later/git/l") == EACCES
    )
    assert fenced(tree, user, folders, LINK, "home/one/l") == 0


def test_a_folder_that_cannot_be_listed_is_no_obstacle(tree: Path, user: int) -> None:
    """Mounts below a folder that cannot be listed accept links; the fence below it still refuses them."""
    home, odd = str(tree / "home"), "one\\ two\u00fc"
    (tree / "home" / odd).mkdir()
    os.chown(tree / "home" / odd, user, user)
    inside = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--perms", "0111", "--tmpfs", home]
    for folder in ("one", odd, "repo/.git", "repo/src"):
        inside += ["--bind", f"{home}/{folder}", f"{home}/{folder}"]
    do = (
        f"H = {home!r}\n"
        "try: os.listdir(H)\n"
        "except PermissionError: pass\n"
        "else: assert False\n"
        "try:\n"
        f"    for name in ('one', {odd!r}, 'repo/src'): os.symlink('x', H + '/' + name + '/l')\n"
        "except OSError as failure: sys.exit(f'{name}: {failure}')\n"
        "os.symlink('x', H + '/repo/.git/l')\n"
    )
    assert in_bubblewrap(tree, user, inside, do) == EACCES


def test_folders_in_bubblewrap_do_not_pass_the_fence(tree: Path, user: int) -> None:
    """A moved folder keeps its rights, but git's folders are mounts there, and nothing moves across a mount."""
    home = str(tree / "home")
    inside = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-pid"]
    for folder in ("one", "repo/.git", "repo/src"):
        inside += ["--bind", f"{home}/{folder}", f"{home}/{folder}"]
    do = (
        f"H = {home!r}; os.symlink('x', H + '/repo/src/l')\n"
        "try: os.rename(H + '/repo/src', H + '/repo/.git/src')\n"
        "except OSError as failure: assert failure.errno in (16, 18), failure\n"
        "else: assert False\n"
        "os.mkdir(H + '/one/d'); os.rename(H + '/one/d', H + '/one/e'); os.symlink('x', H + '/one/e/l')\n"
        "os.rename(H + '/one/e', H + '/repo/.git/e')\n"
    )
    assert in_bubblewrap(tree, user, inside, do) == EXDEV


def in_bubblewrap(tree: Path, user: int, inside: list[str], do: str) -> int:
    """Return the errno of `do` in bubblewrap, with a fence around the repository's git folder."""
    drop = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"] if user else []
    line = [*drop, "bwrap", *inside, "--unshare-user", "--cap-drop", "ALL", "--"]
    line += [
        SYSTEM_PYTHON,
        "-I",
        "-S",
        "-c",
        CHILD,
        readable_package(),
        f"landlock.fence(({str(tree / GIT[0])!r},))",
        do,
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
