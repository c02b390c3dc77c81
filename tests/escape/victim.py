"""The targets of the attacks: a file, a process, sockets and shared memory of the host's, all of one user."""

import contextlib
import ctypes
import os
import pty
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from real_sandbox import Box

from omac.adapters.caches.tree import identity_of

LIBC = ctypes.CDLL(None, use_errno=True)
SHARED_BYTES = 4096
DATAGRAM_WITHIN_S = 0.3


class Victim:
    """The targets. `values` are an attacker's, as in `attacks.PRELUDE`; `token` is the secret that the targets hold."""

    def __init__(self, world: Box, token: str) -> None:
        self.world = world
        self.token = token
        self.file = world.give(world.top / "victim", "precious", 0o600)
        world.top.chmod(0o755)
        self._before = self._seen()
        world.give(world.home / ".ssh" / "id", self.token)
        world.give(world.state / "journal.db", self.token)
        world.give(world.state / "spool" / "keep", "")
        for planted in (world.state / "spool" / "keep", world.state / "spool" / "planted.json"):
            planted.unlink(missing_ok=True)
        (world.state / "spool").chmod(0o700)
        self.other_cache = world.home / ".cache" / "omac" / identity_of(f"{world.home}/other") / "tools"
        world.give(self.other_cache / "wheel", "other")
        (self.other_cache / "planted").unlink(missing_ok=True)
        for folder in (
            world.home / ".cache",
            world.home / ".cache" / "omac",
            self.other_cache.parent,
            self.other_cache,
        ):
            folder.chmod(0o700)
        self._ends = contextlib.ExitStack()
        self._start()

    def _start(self) -> None:
        line = ["sleep", "600"]
        self.process = subprocess.Popen(
            line, env={"TOKEN": self.token}, start_new_session=True, user=self.world.uid, group=self.world.uid
        )
        self._ends.callback(self._end_process)
        self.name = f"omac-{secrets.token_hex(4)}"
        path = str(self.world.top / f"{self.name}.sock")
        for address in (f"\0{self.name}", path):
            server = self._ends.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen(50)
        os.chmod(path, 0o777)
        self.socket = path
        tcp = self._ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = int(tcp.getsockname()[1])
        self._udp = self._ends.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", self.port))
        self.key = secrets.randbelow(1 << 30) + 1
        shared = LIBC.shmget(self.key, SHARED_BYTES, 0o1666)
        self._ends.callback(LIBC.shmctl, shared, 0, None)
        posix = Path("/dev/shm") / self.name
        posix.write_text(self.token)
        posix.chmod(0o644)
        self._ends.callback(posix.unlink)
        controller, terminal = pty.openpty()
        self._ends.callback(os.close, controller)
        self._ends.callback(os.close, terminal)
        self.pts = os.ttyname(terminal)
        os.chown(self.pts, self.world.uid, self.world.uid)
        self.folder = os.open(self.world.top, os.O_RDONLY)
        self._ends.callback(os.close, self.folder)
        self.open_file = os.open(self.file, os.O_RDWR)
        self._ends.callback(os.close, self.open_file)

    @property
    def values(self) -> tuple[object, ...]:
        """VICTIM, HOME, TOP, PID, NAME, PORT, SOCKET, TOKEN, STATE, OTHER, KEY, PTS, FD."""
        world = self.world
        return (
            str(self.file), str(world.home), str(world.top), self.process.pid, self.name, self.port, self.socket,
            self.token, str(world.state), str(self.other_cache), self.key, self.pts, self.folder,
        )  # fmt: skip

    def changed(self) -> bool:
        """Return whether the file has another content, mode or times, or is gone."""
        return self._seen() != self._before

    def _seen(self) -> tuple[object, ...]:
        try:
            status = self.file.lstat()
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_mode, status.st_mtime_ns, status.st_size, self.file.read_text()

    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self.process.poll() is None

    def limits_as_before(self) -> bool:
        """Return whether the process may still open as many files as at first."""
        text = Path(f"/proc/{self.process.pid}/limits").read_text()
        return "Max open files            3 " not in text

    def got_datagram(self) -> bool:
        """Return whether a datagram arrived by UDP."""
        self._udp.settimeout(DATAGRAM_WITHIN_S)
        try:
            return bool(self._udp.recv(64))
        except TimeoutError:
            return False

    def close(self) -> None:
        """End and remove every target but the files."""
        self._ends.close()

    def _end_process(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def victim(world: Box, token: str) -> Iterator[Victim]:
    """Yield a victim in a user's world, and close it."""
    made = Victim(world, token)
    try:
        yield made
    finally:
        made.close()
