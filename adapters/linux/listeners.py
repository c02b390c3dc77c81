"""TCP sockets in this network namespace: those that listen, which could answer at a port, and the one that does.

The kernel is asked by sock_diag(7), which looks through listening sockets alone. Where it has none of that, they are
read from /proc/net/tcp, for which it looks through its whole table of connections: that takes milliseconds where there
are few (proc_net_tcp.rst).
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
REQUEST, DUMP, INTERRUPTED = 0x1, 0x300, 0x10  # flags of a message (netlink(7))
ERROR, DONE = 2, 3
ESTABLISHED, CLOSE_WAIT, LISTEN = 1, 8, 10  # states of a socket (TCP_LISTEN)
WITHIN_S = 1.0
_ANSWER_BYTES = 65_536
_HEAD = struct.Struct("=IHHII")  # struct nlmsghdr
_QUESTION = struct.Struct("=BBBxI")  # struct inet_diag_req_v2, before its idiag_id
_SOCKET = struct.Struct("=2s2s16s16sI8s")  # struct inet_diag_sockid
_ANSWER = struct.Struct("=xB2x2s2x16s28x16xI")  # struct inet_diag_msg: state, port, address, inode


class Listener(NamedTuple):
    """A TCP socket in LISTEN: the address as text ("127.0.0.1", "::"), and the inode that /proc/PID/fd shows."""

    address: str
    port: int
    inode: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def listeners() -> list[Listener]:
    """The TCP sockets in LISTEN, IPv4 and IPv6."""
    return [*_listening(socket.AF_INET), *_listening(socket.AF_INET6)]


def answering(port: int) -> list[Listener]:
    """The sockets that a connection to 127.0.0.1:`port` can reach.

    An IPv6 socket is reached only when no IPv4 socket is there: the kernel scores the closer one higher. So the second
    table is read only then.
    """
    near = ("127.0.0.1", "0.0.0.0")  # noqa: S104 - compared, not bound
    if reached := [entry for entry in _listening(socket.AF_INET, port) if entry.address in near]:
        return reached
    others = _listening(socket.AF_INET6, port)
    return [entry for entry in others if entry.address in near] or [entry for entry in others if entry.address == "::"]


def accepted_by(connection: socket.socket) -> int:
    """Return the inode of the other end of a connection to 127.0.0.1; 0 where no process has accepted it, or the kernel
    has no sock_diag."""
    (address, port), (own_address, own_port) = connection.getpeername(), connection.getsockname()
    wanted = _socket_id(port, own_port, socket.inet_aton(address), socket.inet_aton(own_address))
    try:
        inodes = [inode for state, _, _, inode in _query(socket.AF_INET, wanted, REQUEST) if state != LISTEN]
    except (OSError, struct.error):
        return 0
    return inodes[0] if inodes else 0


def connected(port: int) -> set[int]:
    """The inodes of sockets of connections that were accepted at a port; none where the kernel has no sock_diag."""
    states = 1 << ESTABLISHED | 1 << CLOSE_WAIT
    try:
        return {
            inode
            for family in (socket.AF_INET, socket.AF_INET6)
            for _, _, _, inode in _query(family, _socket_id(port), REQUEST | DUMP, states)
        }
    except (OSError, struct.error):
        return set()


def _listening(family: socket.AddressFamily, port: int = 0) -> list[Listener]:
    """Return the listeners of one family, at a port or, without one, at any."""
    size = 4 if family == socket.AF_INET else 16
    try:
        answers = list(_query(family, _socket_id(port), REQUEST | DUMP))
        return [Listener(_text(address[:size]), int.from_bytes(at, "big"), inode) for _, at, address, inode in answers]
    except (OSError, struct.error):
        there = _listed("/proc/net/tcp" if family == socket.AF_INET else "/proc/net/tcp6")
        return [entry for entry in there if port in (0, entry.port)]


def _socket_id(port: int, other_port: int = 0, address: bytes = b"", other_address: bytes = b"") -> bytes:
    ports = (number.to_bytes(2, "big") for number in (port, other_port))
    return _SOCKET.pack(*ports, address, other_address, 0, b"\xff" * 8)


def _query(
    family: socket.AddressFamily, wanted: bytes, flags: int, states: int = 1 << LISTEN
) -> Iterator[tuple[int, bytes, bytes, int]]:
    """Yield the state, port, address and inode of sockets, as sock_diag reports them: of the one with the wanted ports
    and addresses, or (DUMP) of those in these states at the first port, or at any where that is 0. Raises OSError or
    struct.error if sock_diag answers otherwise."""
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, states) + wanted
    head = _HEAD.pack(_HEAD.size + len(question), SOCK_DIAG_BY_FAMILY, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(WITHIN_S)
        kernel.send(head + question)
        while True:
            answer, at = kernel.recv(_ANSWER_BYTES), 0
            while at < len(answer):
                length, kind, signs, _, _ = _HEAD.unpack_from(answer, at)
                if kind == DONE:
                    return
                if kind == ERROR or signs & INTERRUPTED or length < _HEAD.size:
                    raise OSError("sock_diag has no whole answer")
                yield _ANSWER.unpack_from(answer, at + _HEAD.size)
                at += (length + 3) & ~3
            if flags & DUMP != DUMP:
                return


def _listed(path: str) -> Iterator[Listener]:
    """Yield the listening sockets in a table in /proc; none if the table does not exist."""
    try:
        file = open(path, encoding="ascii")  # noqa: SIM115 - closed below; IPv6 may be switched off
    except FileNotFoundError:
        return
    with file:
        next(file, None)
        for line in file:
            fields = line.split()
            # Listening sockets are listed first (proc_net_tcp.rst); the connections after them may be many thousand.
            if fields[3] != "0A":
                break
            address, _, port = fields[1].partition(":")
            yield Listener(_address(address), int(port, 16), int(fields[9]))


def _address(digits: str) -> str:
    """The kernel prints each 32-bit word of the address in the host's own byte order."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return _text(struct.pack(f"={len(words)}I", *words))


def _text(packed: bytes) -> str:
    if len(packed) == 16 and packed.startswith(b"\0" * 10 + b"\xff\xff"):
        packed = packed[12:]
    return socket.inet_ntop(socket.AF_INET6 if len(packed) == 16 else socket.AF_INET, packed)
