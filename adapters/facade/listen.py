"""Where the facade listens: loopback TCP, and a Unix socket that only its owner may connect to."""

import errno
import ipaddress
import os
import socket
import stat

import trio

from omac.domain.refusal import Refusal

BACKLOG = 1024
UNIX_PATH_BYTES_MAX = 107  # sun_path of Linux, without its final NUL (unix(7))


def open_tcp(host: str, port: int) -> trio.SocketListener:
    """Listen on a loopback address; `port` 0 takes a free one.

    Raises Refusal: misuse when `host` is not loopback, port-taken, state-unusable for what else the system says.
    """
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise Refusal("misuse", f"The facade listens on a loopback address, and {host!r} is no address.") from None
    if not address.is_loopback or not 0 <= port <= 65535:
        raise Refusal("misuse", f"The facade listens on loopback only, not on {host}:{port}.")
    shown = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((str(address), port))
        return _listen(sock)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise Refusal(
                "port-taken",
                f"Another process listens on {shown}.",
                fix=[f"ss -ltnp 'sport = :{port}'", "omac serve --facade-addr 127.0.0.1:0"],
            ) from None
        raise Refusal("state-unusable", f"Cannot listen on {shown}: {error.strerror}.") from error
    except BaseException:
        sock.close()
        raise


def open_unix(path: str) -> trio.SocketListener:
    """Listen on a Unix socket of mode 0600; a socket that nobody listens on any more is replaced.

    Raises Refusal state-unusable: the path is too long, in use, not a socket, or not ours to write.
    """
    length = len(os.fsencode(path))
    if length > UNIX_PATH_BYTES_MAX:
        raise Refusal(
            "state-unusable",
            f"The path of the facade's socket has {length} bytes, and the system takes {UNIX_PATH_BYTES_MAX}: {path}",
            fix=["export OMAC_STATE_DIR=/tmp/omac-$(id -u)  # or any other shorter path"],
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # Linux makes the file with the mode of the socket, so that it is private from birth; where fchmod on a
        # socket is refused, chmod comes before listen, and nobody can have connected
        try:
            os.fchmod(sock.fileno(), 0o600)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        sock.bind(path)
        os.chmod(path, 0o600)
        return _listen(sock)
    except OSError as error:
        sock.close()
        raise Refusal("state-unusable", f"Cannot listen on {path}: {error.strerror}.") from error
    except BaseException:
        sock.close()
        raise


def _listen(sock: socket.socket) -> trio.SocketListener:
    sock.listen(BACKLOG)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refusal("state-unusable", f"Something that is not a socket stands at {path}; it is left as it is.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise Refusal("state-unusable", f"Another process listens on {path}.")
