"""adapters/linux/listeners.py: both ways to list listening sockets give the same, and find the one that is reached."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from omac.adapters.linux import listeners
from omac.adapters.linux.listeners import Listener, accepted_by, answering


@pytest.fixture(params=["sock_diag", "/proc"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Select the way to ask the kernel; without sock_diag, the query fails."""

    def refuse(*_: object) -> Iterator[Listener]:
        raise FileNotFoundError

    if request.param == "/proc":
        monkeypatch.setattr(listeners, "_query", refuse)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_a_listener_that_is_reached(address: str) -> None:
    """A listener is found by its port, with the inode that its process has."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as server:
        port = server.getsockname()[1]
        canonical = address.removeprefix("::ffff:")
        assert answering(port) == [Listener(canonical, port, os.fstat(server.fileno()).st_ino)]
    assert answering(port) == []


@pytest.mark.usefixtures("_way")
def test_a_closer_stranger_wins_over_a_wildcard() -> None:
    """A listener on 127.0.0.1 wins over one on [::] at the same port, for the connection goes to 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as near:
        port = near.getsockname()[1]
        with socket.create_server(("::", port), family=socket.AF_INET6):
            assert [listener.address for listener in answering(port)] == ["127.0.0.1"]


@pytest.mark.usefixtures("_way")
def test_a_connection_is_no_listener() -> None:
    """Neither a connection nor a socket that is only bound counts as a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert answering(bound.getsockname()[1]) == []
        with socket.create_connection(server.getsockname()) as client:
            assert answering(client.getsockname()[1]) == []
            assert len(answering(server.getsockname()[1])) == 1


@pytest.mark.usefixtures("_way")
def test_many_sockets_at_one_port() -> None:
    """Sockets that share a port by SO_REUSEPORT all count, however many messages the answer takes."""
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server(("127.0.0.1", 0), reuse_port=True))
        port = first.getsockname()[1]
        more = [stack.enter_context(socket.create_server(("127.0.0.1", port), reuse_port=True)) for _ in range(300)]
        inodes = {os.fstat(server.fileno()).st_ino for server in (first, *more)}
        assert {server.inode for server in answering(port)} == inodes
        assert inodes <= {server.inode for server in listeners.listeners()}


@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_who_has_accepted_a_connection(address: str) -> None:
    """The other end of a connection has the inode that its process has, also behind a listener that is closed; nobody
    has one that waits to be accepted."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as server,
        socket.create_connection(("127.0.0.1", server.getsockname()[1])) as client,
    ):
        assert accepted_by(client) == 0
        accepted, _ = server.accept()
        with accepted:
            server.close()
            assert accepted_by(client) == os.fstat(accepted.fileno()).st_ino
        assert accepted_by(client) == 0


def test_sock_diag_is_there() -> None:
    """The kernel of this machine has sock_diag; without it the tests above would ask /proc alone."""
    wanted = listeners._socket_id(1)
    assert list(listeners._query(socket.AF_INET, wanted, listeners.REQUEST | listeners.DUMP)) == []
