"""Where the facade listens: loopback TCP, and a Unix socket that only its owner may connect to."""

import trio

from omac.adapters.linux import listen


def open_tcp(host: str, port: int) -> trio.SocketListener:
    """Listen on a loopback address; `port` 0 takes a free one.

    Raises Refusal: misuse when `host` is not loopback, port-taken, state-unusable for what else the system says.
    """
    return listen.listener(listen.tcp(host, port, "--facade-addr"))


def open_unix(path: str) -> trio.SocketListener:
    """Listen on a Unix socket of mode 0600; one that nobody listens on any more is replaced.

    Raises Refusal state-unusable: the path is too long, in use, not a socket, or not ours to write.
    """
    return listen.listener(listen.unix(path))
