"""A whole omac in the test's own process: real server, real journal, real sidecars, driven over its real sockets."""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from omac.adapters.sidecars.interpreters import HostInterpreters
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.domain.harness.table import DEFAULT_HARNESS
from omac.domain.sidecars.sidecar import RestartPolicy
from omac.journal.opening import open_journal
from omac.services.credentials.values import Credentials
from omac.services.kernel.opened import OpenedJournal
from omac.services.skills.registration import Registering
from omac.services.skills.resolution import SkillSearch, find
from omac.tools.compose.endpoints import Ready
from omac.tools.compose.serve_options import ServeOptions
from omac.tools.compose.serving import Server

OMAC = [sys.executable, "-c", "from omac.tools.entry import main; main()"]
MARK = "SIMULATION_MARK"
EAGER = RestartPolicy(base_ms=20, max_ms=100, limit=4, stable_ms=1_000)

# Dependency-free and quick to start, so that a test can afford fifty of them.
SIDECAR = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), backlog=64)
while True:
    connection, _ = listener.accept()
    head = connection.recv(65536)
    if head.startswith(b"GET /crash"):
        os._exit(7)
    body = os.environ["OMAC_WORKDIR"].encode()
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(body) + body)
    connection.close()
"""


class World:
    """A running server and the folder it serves."""

    def __init__(self, folder: Path, mark: str, server: Server, ready: Ready) -> None:
        self.folder = folder
        self.mark = mark
        self.server = server
        self.ready = ready
        self.environment = {**os.environ, "OMAC_STATE_DIR": str(folder / "state"), "HOME": str(folder)}

    def project(self, name: str, *skills: str) -> Path:
        """Make a project directory with these skills."""
        directory = self.folder / "projects" / name
        for skill in skills:
            write_skill(directory / ".agents" / "skills" / skill, skill)
        return directory

    async def control(self, action: str, directory: Path) -> tuple[int, dict[str, Any]]:
        """Make one control call over the private socket; return its status and document."""
        body = json.dumps({"dir": str(directory)}).encode()
        stream = await trio.open_unix_socket(self.ready.control_socket)
        status, content = await _exchange(stream, f"POST /__omac__/{action} HTTP/1.1", body)
        return status, json.loads(content)

    async def get(self, url: str) -> tuple[int, bytes]:
        """Make a GET request through the facade."""
        host, _, path = url.removeprefix("http://").partition("/")
        address, _, port = host.partition(":")
        stream = await trio.open_tcp_stream(address, int(port))
        return await _exchange(stream, f"GET /{path} HTTP/1.1", b"")

    async def omac(self, *arguments: str) -> bytes:
        """Return the output of a real command in a process of its own, which must succeed."""
        done = await trio.run_process([*OMAC, *arguments], env=self.environment, capture_stdout=True, check=True)
        return done.stdout

    async def approve_in_place(self, project: Path, skill: str) -> None:
        """Approve a skill as `omac approve` does, without a process of its own: fifty of them would take too long."""
        candidate = await find(DiskSkillFolders(), SkillSearch(str(project), DEFAULT_HARNESS), skill, "omac approve")
        journal = open_journal(self.ready.journal, "approver", time.time_ns)
        try:
            execution = OpenedJournal(journal, self.server.engine.host)
            credentials = Credentials(execution, self.server.secrets, bytes(32))
            frozen = DiskFrozenSkills(self.server.state.frozen(journal.store.path, journal.store.journal_id()))
            await Registering(execution, frozen, HostInterpreters(os.environ), credentials).approve(candidate)
        finally:
            journal.close()

    async def crash(self, base: str) -> None:
        """Have a skill's sidecar die while it answers."""
        with suppress(trio.BrokenResourceError, OSError, ValueError):
            await self.get(f"{base}/crash")

    def processes(self) -> set[int]:
        """Return the host pids of this world's sidecar programs that exist right now (not of their wrappers)."""
        mark = f"{MARK}={self.mark}".encode()
        pids = set()
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with suppress(OSError):
                    environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                    command = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                    if mark in environment and b"sidecar.py" in command and b"bwrap" not in command[0]:
                        pids.add(int(entry))
        return pids


@asynccontextmanager
async def world(restarts: RestartPolicy = EAGER) -> AsyncIterator[World]:
    """Yield a world that begins empty and ends in order; nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ow", dir="/tmp"))
    (folder / "projects").mkdir()
    mark = f"{random.getrandbits(64):016x}"
    environment = {"PATH": os.environ["PATH"], MARK: mark, "OMAC_STATE_DIR": str(folder / "state")}
    options = ServeOptions(DEFAULT_HARNESS, (str(folder / "projects"),), restarts=restarts)
    try:
        server = Server(options, environment, None)
        async with trio.open_nursery() as nursery:
            sent, received = trio.open_memory_channel[Ready](1)
            nursery.start_soon(server.run, sent.send_nowait)
            yield World(folder, mark, server, await received.receive())
            server.ending.ask("the test is over")
    finally:
        shutil.rmtree(folder)


def write_skill(target: Path, name: str) -> None:
    """Write a skill that answers with its directory and can be crashed, with the world's mark in its environment."""
    target.mkdir(parents=True)
    (target / "SKILL.md").write_text(f"---\nname: {name}\ndescription: answers\n---\n")
    (target / "omac.yaml").write_text(
        f"name: {name}\nsidecar:\n  command: [python3, -S, -E, sidecar.py]\n  env_passthrough: [{MARK}]\n"
        "  health: {timeout_ms: 60000}\n"  # however many start at once
    )
    (target / "sidecar.py").write_text(SIDECAR)


async def _exchange(stream: trio.SocketStream, line: str, body: bytes) -> tuple[int, bytes]:
    async with stream:
        head = f"{line}\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        await stream.send_all(head.encode() + body)
        answer = b"".join([piece async for piece in stream])
    head_bytes, _, content = answer.partition(b"\r\n\r\n")
    return int(head_bytes.split(b" ", 2)[1]), content


def kill(pid: int) -> None:
    """Send SIGKILL to a process, if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
