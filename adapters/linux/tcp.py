"""The options of omac's TCP sockets, which are all on loopback."""

import contextlib
import socket


def hasten(sock: socket.socket) -> None:
    """Have a socket send at once, as fast as the other end takes it; what a listening one accepts does so, too. Raises
    OSError.

    Nothing is lost or congested on loopback. A congestion control that paces what is sent, such as BBR, sets timers
    there; Reno, which every Linux has and every user may choose, sets none (tcp(7), TCP_CONGESTION).
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # what has no choice of them is as good
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
