"""Any user of the machine may connect to omac's TCP ports: that neither ends omac nor keeps its own user out."""

import contextlib
import os
import re
import resource
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from machine import cpu_s
from polling import eventually, stays
from real_omac import Omac, Serving, curl
from streaming_skill import META, PROGRAM

from omac.adapters.http.slots import RESERVE_MIN
from omac.adapters.http.wire import AHEAD_BYTES_MAX
from omac.tools.compose.run_folder import POLL_S

DESCRIPTORS_MAX = 512  # of the server: fewer than the connections that are made
FACADE_SHARE = 0.65  # of what is not the reserve, for the facade's two listeners
BURST = 32  # callers at once: fewer than a listener has places
EMPTY_LINES = 50_000
HEADROOM = 7 << 20  # of its address space: less than the stack of a thread takes
KEPT = tuple("abcdef")  # skills that serve many requests on a connection
KEEPING = """\
import os, socket, threading
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), backlog=512)
def serve(connection):
    while connection.recv(65536):
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


class Scene:
    """A server with few descriptors, and a project whose skill is ready."""

    def __init__(self, omac: Omac) -> None:
        self.omac = omac
        self.project = omac.root / "p"
        omac.skill(self.project, "own", META.format(name="own"), PROGRAM)
        omac.approve(self.project, "own")
        limit = ("prlimit", f"--nofile={DESCRIPTORS_MAX}:{DESCRIPTORS_MAX}")
        serve = ("serve", "--no-inner", "--json", "--root", str(omac.root))
        extra = {"GLIBC_TUNABLES": "glibc.pthread.stack_cache_size=0"}  # a thread's stack is gone when it has ended
        self.server: Serving = omac.start(*serve, within=limit, extra=extra).await_ready()
        self.skill = self.server.skill(self.project, "own")["base"]
        self.bearer = f"Authorization: Bearer {self.server.token}"

    def port(self, listener: str) -> tuple[str, int]:
        host, _, port = self.server.ready[f"{listener}_base"].removeprefix("http://").partition(":")
        return host, int(port)

    def works(self) -> None:
        """Require that the private socket, the bearer of the token and the skill's caller are all served."""
        assert self.server.call("dirs").status == 200
        assert self.server.call_tcp("dirs", "-H", self.bearer).status == 200
        assert curl(f"{self.skill}/x").status == 200


@pytest.fixture(scope="module")
def scene(house: Omac) -> Scene:
    return Scene(house)


@pytest.mark.parametrize("listener", ["control", "facade"])
def test_idle_connections_block_no_caller(scene: Scene, listener: str) -> None:
    """Idle connections, more than omac has descriptors, get a share of these; omac closes the oldest for the next."""
    with ExitStack() as held:
        for _ in range(DESCRIPTORS_MAX):
            held.enter_context(socket.create_connection(scene.port(listener), timeout=10))
        assert scene.server.descriptors() < DESCRIPTORS_MAX / 2
        scene.works()
    assert scene.server.said() == ""


@pytest.mark.full
@pytest.mark.parametrize("listener", ["control", "facade"])
def test_half_heads_block_no_caller(scene: Scene, listener: str) -> None:
    """Connections with heads that never end keep no caller out either, on all listeners."""
    with ExitStack() as held:
        for _ in range(DESCRIPTORS_MAX):
            sock = held.enter_context(socket.create_connection(scene.port(listener), timeout=10))
            sock.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        scene.works()
    assert scene.server.said() == ""


@pytest.mark.parametrize("listener", ["control", "facade"])
def test_a_burst_of_callers_is_served(scene: Scene, listener: str) -> None:
    """Requests that come all at once, almost as many as a listener has places, are all answered: a later one takes no
    place of an earlier one that omac has not read yet."""
    path, pid = {"control": "__omac__/dirs", "facade": scene.skill.split("/", 3)[3]}[listener], scene.server.process.pid
    request = f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n{scene.bearer}\r\nConnection: close\r\n\r\n".encode()
    for _ in range(5):
        with ExitStack() as held:
            os.kill(pid, signal.SIGSTOP)
            try:
                callers = [
                    held.enter_context(socket.create_connection(scene.port(listener), timeout=10)) for _ in range(BURST)
                ]
                for sock in callers:
                    sock.sendall(request)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert [sock.recv(12) for sock in callers] == [b"HTTP/1.1 200"] * BURST


def test_empty_lines_hold_up_no_caller(scene: Scene) -> None:
    """Callers that send empty lines without end are refused as soon as a head could not be longer, and cost omac no
    more time than others."""
    pid, lines = scene.server.process.pid, b"\r\n" * EMPTY_LINES
    before = cpu_s(pid)
    for listener in ("control", "facade") * 10:
        with socket.create_connection(scene.port(listener), timeout=5) as sock:
            sock.sendall(lines)
            assert sock.recv(12) == b"HTTP/1.1 400"
    assert cpu_s(pid) - before < 1.0
    scene.works()


@pytest.mark.full
def test_callers_with_a_token_leave_the_reserve(scene: Scene) -> None:
    """A call under way takes a third descriptor where its caller has sent all that omac reads ahead, or has finished
    sending. As many such calls as there can be leave the reserve to sidecars and journal."""
    path = scene.skill.split("/", 3)[3]
    request = f"GET /{path}/silent HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    before = scene.server.descriptors()
    with ExitStack() as held:
        for _ in range(DESCRIPTORS_MAX // 5):
            sock = held.enter_context(socket.create_connection(scene.port("facade"), timeout=10))
            sock.sendall(request + bytes(AHEAD_BYTES_MAX))
            private = held.enter_context(socket.socket(socket.AF_UNIX))
            private.settimeout(10)
            private.connect(scene.server.ready["facade_socket"])
            private.sendall(request)
            private.shutdown(socket.SHUT_WR)
        eventually(lambda: scene.server.descriptors() > DESCRIPTORS_MAX / 3, 20.0, "many calls under way")
        most = before + int((DESCRIPTORS_MAX - RESERVE_MIN) * FACADE_SHARE) + 3  # two wait for a place, one is a probe
        stays(lambda: scene.server.descriptors() <= most, 2.0, "the reserve")
    scene.works()


def ask(sock: socket.socket, path: str) -> None:
    sock.sendall(f"GET /{path}/x HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


@pytest.mark.full
def test_connections_at_rest_leave_the_reserve(scene: Scene) -> None:
    """Clients that call one skill after the other leave connections at rest to all of them: these leave the reserve,
    too."""
    project = scene.omac.root / "kept"
    for name in KEPT:
        scene.omac.skill(project, name, META.format(name=name), KEEPING)
    scene.omac.approve(project, *KEPT)
    paths = [scene.server.skill(project, name)["base"].split("/", 3)[3] for name in KEPT]
    before, seen = scene.server.descriptors(), 0
    with ExitStack() as held:
        clients = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(DESCRIPTORS_MAX // 24)]
        clients += [held.enter_context(socket.socket()) for _ in range(DESCRIPTORS_MAX // 15)]
        for sock in clients:  # each shows a token at once: it is no stranger that makes room for others
            is_unix = sock.family == socket.AF_UNIX
            sock.connect(scene.server.ready["facade_socket"] if is_unix else scene.port("facade"))
            sock.settimeout(10)
            ask(sock, paths[0])
            assert sock.recv(999).endswith(b"ok")
        for path in paths * 2:
            for sock in clients:
                ask(sock, path)
            for sock in clients:
                assert sock.recv(999).endswith(b"ok")
            seen = max(seen, scene.server.descriptors())
    assert seen <= before + int((DESCRIPTORS_MAX - RESERVE_MIN) * FACADE_SHARE) + 3
    scene.works()
    scene.server.call("deactivate", {"dir": str(project)})


@pytest.mark.full
def test_a_polite_caller_holds_nothing(scene: Scene) -> None:
    """A connection that its caller closes costs no descriptor from then on, whether it was served or refused."""
    before = scene.server.descriptors()
    for number in range(100):
        assert scene.server.call_tcp("dirs", *(("-H", scene.bearer) if number % 2 else ())).status in (200, 401)
    eventually(lambda: scene.server.descriptors() <= before + 2, 20.0, f"at most {before + 2} descriptors")


@pytest.mark.full
def test_without_a_descriptor_omac_keeps_trying(scene: Scene) -> None:
    """A server without any descriptor for two seconds, while a sidecar ends, reports that in a few lines and goes on.
    Afterwards it answers and the sidecar is back."""
    pid = scene.server.process.pid
    (sidecar,) = scene.server.call("status").json()["sidecars"]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(scene.server.ready["control_socket"])
            os.kill(sidecar["pid"], signal.SIGKILL)
            stays(lambda: scene.server.process.poll() is None, 2.0, "omac")
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    eventually(lambda: curl(f"{scene.skill}/x").status == 200, 10.0, "the sidecar's return")
    scene.works()
    stderr = scene.server.said()
    assert "Too many open files" in stderr
    assert "Traceback" not in stderr
    assert len(stderr.splitlines()) < 12, stderr


@pytest.mark.full
@pytest.mark.parametrize("name", ["control.sock", "facade.sock", "control.token"])
def test_without_a_descriptor_omac_restores_its_folder_later(scene: Scene, name: str) -> None:
    """A server that has no descriptor to make a removed file again goes on, and makes it as soon as it has one."""
    path = Path(scene.server.ready["control_socket"]).with_name(name)
    pid = scene.server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    for spare in range(3):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (scene.server.descriptors() + spare, before[1]))
        try:
            path.unlink(missing_ok=True)
            stays(lambda: scene.server.process.poll() is None, POLL_S + 1.0, "omac")
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    eventually(path.exists, 10.0, name)
    scene.works()


@pytest.mark.full
def test_without_a_descriptor_from_the_beginning(omac: Omac) -> None:
    """A server that loses its descriptors while it loads what it needs later goes on."""
    serving = omac.serve()
    pid = serving.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    stays(lambda: serving.process.poll() is None, 1.0, "omac")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    eventually(lambda: serving.call("status").status == 200, 10.0, "the control plane")


@pytest.mark.full
def test_threads_that_run_out_are_waited_for(scene: Scene) -> None:
    """A system that starts one thread at a time for omac lets calls pass; work that needs a thread is done later."""
    pid = scene.server.process.pid
    eventually(lambda: not idle_threads(pid), 20.0, "the end of its idle threads")
    projects = [scene.omac.project(f"q{number}") for number in range(8)]
    assert curl(f"{scene.skill}/x").status == 200  # what a call needs is loaded
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (address_space(pid) + HEADROOM, before[1]))
    try:
        with ThreadPoolExecutor(len(projects)) as pool:
            activated = list(pool.map(lambda at: scene.server.call("activate", {"dir": str(at)}).status, projects))
        assert activated == [200] * len(projects)
        assert curl(f"{scene.skill}/x").status == 200
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)
    scene.works()
    stderr = scene.server.said()
    assert "waits for threads" in stderr
    assert "Traceback" not in stderr


def idle_threads(pid: int) -> list[str]:
    """Return the names of a process's threads that wait for work, or do some."""
    names: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            names.append((task / "comm").read_text().strip())
    return [name for name in names if name.startswith("Trio thread")]


def address_space(pid: int) -> int:
    """Return how many bytes of address space a process has."""
    (size,) = re.findall(r"^VmSize:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(size) * 1024
