"""The sockets that omac listens on: loopback TCP, and Unix sockets that only their owner may connect to."""

import errno
import os
import socket
import stat

from omac.adapters.linux.tcp import hasten
from omac.domain.kernel.loopback import loopback_address
from omac.domain.kernel.refusal import Refusal
from omac.journal.folders import write_command

BACKLOG = 1024
UNSENT_BYTES_MAX = 262_144  # in the kernel, as long as it reports room for more
UNIX_PATH_BYTES_MAX = 107  # sun_path of Linux, without its final NUL (unix(7))


def tcp(host: str, port: int, flag: str) -> socket.socket:
    """A socket that listens on a loopback address and does not block; `port` 0 takes a free one, `flag` is what a
    person set it with. What it accepts has its options. Raises Refusal: misuse when `host` is not loopback,
    port-taken, state-unusable for what else the system says."""
    address = loopback_address(host, port, flag)
    shown = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hasten(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
        sock.bind((str(address), port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
        return sock
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            message = f"another process listens on {shown} ({flag})"
            fix = [f"ss -ltnp 'sport = :{port}'", f"{flag} 127.0.0.1:0"]
            raise Refusal("port-taken", message, fix=fix) from None
        raise Refusal("state-unusable", f"cannot listen on {shown}: {error.strerror}") from error
    except BaseException:
        sock.close()
        raise


def http_base(sock: socket.socket) -> str:
    """The "http://HOST:PORT" at which a TCP socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if sock.family == socket.AF_INET6 else f"http://{host}:{port}"


def unix(path: str) -> socket.socket:
    """A listening Unix socket of mode 0600 that does not block; one that nobody listens on any more is replaced. Raises
    Refusal state-unusable: the path is too long, in use, not a socket, or not ours to write."""
    length = len(os.fsencode(path))
    if length > UNIX_PATH_BYTES_MAX:
        message = f"a socket's path has {length} bytes, and the system takes {UNIX_PATH_BYTES_MAX}: {path}"
        fix = ["export OMAC_STATE_DIR=/tmp/omac-$(id -u)  # or any other shorter path"]
        raise Refusal("state-unusable", message, fix=fix)
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
        sock.listen(BACKLOG)
        sock.setblocking(False)
        return sock
    except OSError as error:
        sock.close()
        fix = [write_command(error, os.path.dirname(path))]
        raise Refusal("state-unusable", f"cannot listen on {path}: {error.strerror}", fix=fix) from error
    except BaseException:
        sock.close()
        raise


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refusal("state-unusable", f"{path} exists and is not a socket; omac left it unchanged")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            pass  # its queue is full: somebody has it
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise Refusal("state-unusable", f"another process listens on {path}")
