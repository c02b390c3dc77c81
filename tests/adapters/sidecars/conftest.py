"""Skills whose sidecars are small real programs, and hosts that end the processes that a test leaves running."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from adapters.sidecars.fixtures import MakeSpec, Members, Printed, Spawn
from msgspec.structs import replace

from omac.adapters.linux import process
from omac.adapters.sidecars.host import LinuxSidecarHost
from omac.adapters.sidecars.process import LinuxSidecarProcess
from omac.domain.sidecars.sidecar import SidecarSpec

SERVER = """\
import os, signal, socket, sys
answer = sys.argv[1].encode() if len(sys.argv) > 1 else b"HTTP/1.1 204 No Content"
port = int(os.environ["SIDECAR_PORT"]) if len(sys.argv) < 3 else int(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"goodbye\\n"), os._exit(0)))
server = socket.create_server(("127.0.0.1", port))
print("listening on", server.getsockname()[1], flush=True)
while True:
    peer, _ = server.accept()
    with peer:
        peer.recv(8192)
        peer.sendall(answer + b"\\r\\nContent-Length: 0\\r\\n\\r\\n")
"""


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """Return a skill's folder with server.py, which answers every request with its first argument, a status line."""
    folder = tmp_path / "skills" / "demo"
    folder.mkdir(parents=True)
    (folder / "server.py").write_text(SERVER)
    return folder


@pytest.fixture
def spec(skill: Path) -> MakeSpec:
    """Return a maker of specs of sidecars that run the given command in the skill's folder."""

    def make(*command: str, **fields: Any) -> SidecarSpec:
        source = str(skill)
        plain = SidecarSpec("demo", "demo", "/w", source, str(skill.parent), "sha256:0", True, command)
        return replace(plain, **fields)

    return make


@pytest.fixture(params=["isolated", "plain"])
async def spawn(request: pytest.FixtureRequest, tmp_path: Path, spec: MakeSpec) -> AsyncIterator[Spawn]:
    """Yield a function that spawns a command as a sidecar, once with and once without a namespace; end all sidecars
    after the test."""
    host = LinuxSidecarHost(str(tmp_path / "logs"), os.environ, isolate=request.param == "isolated")
    assert await host.isolation_available() == (request.param == "isolated")
    started: list[LinuxSidecarProcess] = []

    async def start(*command: str, **fields: object) -> LinuxSidecarProcess:
        sidecar_spec = spec(*command, **fields)
        started.append(await host.spawn("demo", sidecar_spec, sidecar_spec.source, {}))
        return started[-1]

    yield start
    with trio.CancelScope(shield=True):
        for each in started:
            await each.stop(0)


@pytest.fixture
def members() -> Members:
    """Return a function that lists all living processes of a sidecar, bubblewrap's included."""

    def find(sidecar: LinuxSidecarProcess) -> list[process.Stat]:
        pid = sidecar.birth.pid
        entries = {entry.pid: entry for entry in [*process.session_members(pid), *process.descendants(pid)]}
        return list(entries.values())

    return find


@pytest.fixture
def printed(tmp_path: Path) -> Printed:
    """Return a function that tests whether the sidecar's log holds a line."""
    return lambda line: line in (tmp_path / "logs" / "demo.log").read_text().splitlines()
