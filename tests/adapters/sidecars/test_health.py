"""adapters/sidecars/health.py: sidecars that are ready, late, wrong, mute, or replaced by another process."""

import os
import socket
import sys
from pathlib import Path

import pytest
import trio
import trio.testing
from adapters.sidecars.fixtures import Printed, Spawn

from omac.adapters.sidecars import health as health_check
from omac.domain.skills.meta import Health
from omac.services.ports import ProbeFailed

PYTHON = (sys.executable, "-I", "-S")
SERVER = (*PYTHON, "server.py")


async def serve(nursery: trio.Nursery, answer: bytes, port: int = 0) -> int:
    """Start a listener in this process that gives every connection the same answer; return its port."""

    async def handle(stream: trio.SocketStream) -> None:
        with trio.CancelScope(), stream.socket:
            if answer and await stream.receive_some(8192):
                await stream.send_all(answer)
            else:
                await trio.sleep_forever()

    listeners = await nursery.start(trio.serve_tcp, handle, port)  # every interface: ::ffff:127.0.0.1 too
    port_number: int = listeners[0].socket.getsockname()[1]
    return port_number


async def failure(health: Health, port: int, own: tuple[int, ...] = ()) -> str:
    with pytest.raises(ProbeFailed) as caught:
        await health_check.probe(health, port, lambda: own)
    return str(caught.value)


async def test_ready_at_once_is_seen_at_once(spawn: Spawn) -> None:
    """The probe returns as soon as the sidecar listens, even with an interval of a minute."""
    sidecar = await spawn(*SERVER)
    with trio.fail_after(5):
        await sidecar.probe(Health(interval_ms=60_000, timeout_ms=60_000))


async def test_a_sidecar_whose_first_thread_has_ended_is_healthy(spawn: Spawn) -> None:
    """A server goes on in another thread when its first one has ended (pthread_exit(3)), and owns its port."""
    ends = "import ctypes, os, runpy, signal, threading\n"
    ends += "signal.signal = lambda *_: None  # works in the first thread alone\n"
    ends += "threading.Thread(target=runpy.run_path, args=('server.py',)).start()\n"
    ends += "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)"
    sidecar = await spawn(*PYTHON, "-c", ends)
    with trio.fail_after(10):
        await sidecar.probe(Health(timeout_ms=5_000))
    assert sidecar.listens()


async def test_the_initial_delay_is_waited(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    """The probe sends no request before initial_delay_ms. The failure names a delay beyond the time-out."""
    text = await failure(Health(initial_delay_ms=3_000, timeout_ms=2_000), 9)
    assert text.startswith("initial_delay_ms 3000 leaves no time within timeout_ms 2000")
    assert trio.current_time() == pytest.approx(2)


async def test_never_healthy(spawn: Spawn) -> None:
    """The failure reports the last status, and no other fault of a sidecar that answers."""
    sidecar = await spawn(*SERVER, "HTTP/1.1 503 Not Yet")
    with pytest.raises(ProbeFailed) as caught:
        await sidecar.probe(Health(path="/ready?x=1", timeout_ms=400, interval_ms=20))
    why = "GET /ready?x=1 (sidecar.health.path) answered 503, not 2xx, for 400 ms (sidecar.health.timeout_ms)"
    assert str(caught.value) == why


async def test_wrong_port(spawn: Spawn, printed: Printed, tmp_path: Path) -> None:
    """The failure of a sidecar that ignores SIDECAR_PORT reports where it listens and where it should."""
    sidecar = await spawn(*SERVER, "HTTP/1.1 200 OK", "0")
    with pytest.raises(ProbeFailed) as caught:
        await sidecar.probe(Health(timeout_ms=500))
    port = (tmp_path / "logs" / "demo.log").read_text().split()[-1]
    assert f"nothing listens on 127.0.0.1:{sidecar.birth.port}" in str(caught.value)
    assert f"it listens on 127.0.0.1:{port} instead" in str(caught.value)
    assert "the port in SIDECAR_PORT" in str(caught.value)


@pytest.mark.parametrize("status", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 Oops\r\n\r\n"])
async def test_stolen_port(spawn: Spawn, nursery: trio.Nursery, status: bytes) -> None:
    """Another process on the port never counts as the sidecar, whatever its answer."""
    sidecar = await spawn("sleep", "60")
    await serve(nursery, status, sidecar.birth.port)
    with pytest.raises(ProbeFailed, match=f"port {sidecar.birth.port} is held by another process.*, not a daemon"):
        await sidecar.probe(Health(timeout_ms=300, interval_ms=50))
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 200 OK\n\n", "did not speak HTTP"),
        (b"HTTP/1.1  200 OK\r\n\r\n", "did not speak HTTP"),
        (b"HTTP/2 200\r\n\r\n", "did not speak HTTP"),
        (b"SSH-2.0-x\r\n", "did not speak HTTP"),
        (b"HTTP/1.1 200" + b" " * 9000, "did not speak HTTP"),
        (b"HTTP/1.1 302 Found\r\n\r\n", "GET /status (sidecar.health.path) answered 302, not 2xx"),
        (b"", "no answer"),
    ],
)
async def test_strange_answers(nursery: trio.Nursery, answer: bytes, says: str) -> None:
    """Only a strict status line with 2xx counts as healthy. The failure describes any other answer."""
    port = await serve(nursery, answer)
    text = await failure(Health(timeout_ms=150, interval_ms=50), port, (os.getpid(),))
    assert says in text
    nursery.cancel_scope.cancel()


async def test_a_mute_listener_costs_a_second_a_try(autojump_clock: trio.testing.MockClock) -> None:
    """A listener that accepts and sends nothing holds up a try for 1 s, not for the whole time-out."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert "no answer to GET /status within 1 s" in await failure(Health(timeout_ms=3_500), port)
        assert trio.current_time() == pytest.approx(3.5)


async def test_nothing_listens() -> None:
    """The probe reports that nothing listens, and the port that the sidecar must use."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        text = await failure(Health(timeout_ms=60), free.getsockname()[1])
    assert text.startswith("nothing listens on 127.0.0.1:")
    assert text.endswith("the sidecar must listen on 127.0.0.1 and the port in SIDECAR_PORT")


async def test_no_connection_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that connects to itself counts as no listener, and frees the port at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def bound(*args: int) -> trio.socket.SocketType:
        new = socket.socket(*args)
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        new.bind(("127.0.0.1", port))
        return trio.socket.from_stdlib_socket(new)

    monkeypatch.setattr(trio.socket, "socket", bound)
    assert "nothing listens" in await failure(Health(timeout_ms=30), port)
    with socket.socket() as successor:
        successor.bind(("127.0.0.1", port))  # without SO_REUSEADDR: not even TIME_WAIT is left


@pytest.mark.parametrize("path", ["status", "/a b", "/a\r\nX: y", "", "/ü"])
async def test_a_path_is_a_path(path: str) -> None:
    """A health path that would make another request is refused."""
    assert "is not a path" in await failure(Health(path=path), 9)
