"""adapters/http/accepting.py: the log of a shortage of descriptors."""

import errno
import logging
import os
import socket

import pytest
import trio
import trio.testing

from omac.adapters.http.accepting import CALM_S, RETRY_S, accept_connections
from omac.adapters.http.slots import Slot, SlotLimits

LOG = logging.getLogger("omac.test")


class Scarce:
    """The socket of a listener whose system accepts or refuses as `script` says, and then accepts nothing more."""

    def __init__(self, script: list[bool]) -> None:
        self._script = script

    async def accept(self) -> tuple[trio.socket.SocketType, None]:
        await trio.lowlevel.checkpoint()
        if not self._script:
            await trio.sleep_forever()
        if not self._script.pop(0):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ours, theirs = socket.socketpair()
        theirs.close()
        return trio.socket.from_stdlib_socket(ours), None

    def close(self) -> None:
        """Do nothing: the socket holds no descriptor."""


@pytest.mark.parametrize("between", [[], [True]])
async def test_a_shortage_is_logged_twice(
    autojump_clock: trio.testing.MockClock,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    between: list[bool],
) -> None:
    """A shortage is logged when it begins and when it is over, even if some connections are accepted meanwhile, or none
    comes behind it."""
    accepted = 0

    def begin(sock: socket.socket, slot: Slot) -> None:
        nonlocal accepted
        accepted += 1
        sock.close()
        slot.leave()

    with socket.create_server(("127.0.0.1", 0)) as real:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(real))
    monkeypatch.setattr(listener, "socket", Scarce([False, *between] * 20))
    nursery.start_soon(accept_connections, listener, SlotLimits(), begin, LOG)
    await trio.sleep(20 * RETRY_S + CALM_S / 2)
    beginning = "cannot accept a connection: Too many open files; omac goes on trying"
    assert caplog.messages == [beginning]
    await trio.sleep(CALM_S)
    assert caplog.messages == [beginning, "connections are accepted again: 20 tries within 2.0 s had failed"]
    assert accepted == 20 * len(between)
    await trio.sleep(10 * CALM_S)
    assert len(caplog.messages) == 2
    nursery.cancel_scope.cancel()
