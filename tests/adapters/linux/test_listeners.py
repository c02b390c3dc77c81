"""adapters/linux/listeners.py: both ways to list sockets that listen give the same, and know which one is reached."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from omac.adapters.linux import listeners
from omac.adapters.linux.listeners import Listener, answering


@pytest.fixture(params=["sock_diag", "/proc"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the kernel is asked; a kernel without sock_diag refuses the question."""

    def refuse(*_: object) -> Iterator[Listener]:
        raise FileNotFoundError

    if request.param == "/proc":
        monkeypatch.setattr(listeners, "_query", refuse)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_a_listener_that_is_reached(address: str) -> None:
    """It is found by its port, with the inode that its process has."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as server:
        port = server.getsockname()[1]
        shown = address.removeprefix("::ffff:")
        assert answering(port) == [Listener(shown, port, os.fstat(server.fileno()).st_ino)]
    assert answering(port) == []


@pytest.mark.usefixtures("_way")
def test_a_closer_stranger_wins_over_a_wildcard() -> None:
    """[::] and 127.0.0.1 can be bound side by side; the connection goes to 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as near:
        port = near.getsockname()[1]
        with socket.create_server(("::", port), family=socket.AF_INET6):
            assert [listener.address for listener in answering(port)] == ["127.0.0.1"]


@pytest.mark.usefixtures("_way")
def test_a_connection_is_no_listener() -> None:
    """Nor is a socket that is bound and does not listen."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert answering(bound.getsockname()[1]) == []
        with socket.create_connection(server.getsockname()) as client:
            assert answering(client.getsockname()[1]) == []
            assert len(answering(server.getsockname()[1])) == 1


@pytest.mark.usefixtures("_way")
def test_many_sockets_at_one_port() -> None:
    """With SO_REUSEPORT all of them count, however many messages the answer takes."""
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server(("127.0.0.1", 0), reuse_port=True))
        port = first.getsockname()[1]
        more = [stack.enter_context(socket.create_server(("127.0.0.1", port), reuse_port=True)) for _ in range(300)]
        inodes = {os.fstat(one.fileno()).st_ino for one in (first, *more)}
        assert {one.inode for one in answering(port)} == inodes
        assert inodes <= {one.inode for one in listeners.listeners()}


def test_sock_diag_is_there() -> None:
    """Else the tests above asked /proc alone."""
    assert list(listeners._query(socket.AF_INET, 1)) == []
