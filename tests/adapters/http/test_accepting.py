"""adapters/http/accepting.py: how many connections are accepted at once, and the log of a shortage of descriptors."""

import errno
import logging
import os
import socket
from contextlib import ExitStack

import pytest
import trio
import trio.testing

from omac.adapters.http.accepting import ACCEPTS, CALM_S, RETRY_S, accept_connections
from omac.adapters.http.slots import Slot, SlotLimits
from omac.adapters.linux import listen

LOG = logging.getLogger("omac.test")


class Scarce(socket.socket):
    """A listening socket whose system accepts or refuses as `script` says, and then has no connection to accept."""

    script: list[bool]

    def accept(self) -> tuple[socket.socket, None]:
        if not self.script:
            super().accept()[0].close()  # from here on no more is there, and nothing to read
            raise BlockingIOError
        if not self.script.pop(0):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours, None


@pytest.mark.parametrize("between", [[], [True]])
async def test_a_shortage_is_logged_twice(
    autojump_clock: trio.testing.MockClock,
    nursery: trio.Nursery,
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
        listening = Scarce(fileno=real.detach())
    client = socket.create_connection(listening.getsockname())  # is there all the time
    listening.setblocking(False)
    listening.script = [False, *between] * 20
    nursery.start_soon(accept_connections, listening, SlotLimits(), begin, LOG)
    await trio.sleep(20 * RETRY_S + CALM_S / 2)
    beginning = "cannot accept a connection: Too many open files; omac goes on trying"
    assert caplog.messages == [beginning]
    await trio.sleep(CALM_S)
    assert caplog.messages == [beginning, "connections are accepted again: 20 tries within 2.0 s had failed"]
    assert accepted == 20 * len(between)
    await trio.sleep(10 * CALM_S)
    assert len(caplog.messages) == 2
    nursery.cancel_scope.cancel()
    client.close()


async def test_others_have_one_turn_for_many_connections(nursery: trio.Nursery) -> None:
    """Connections that wait are accepted together, so that none of them waits for as many turns of the busy ones as
    there are connections before it."""
    accepted = turns = 0
    are_accepted = trio.Event()

    def begin(sock: socket.socket, slot: Slot) -> None:
        nonlocal accepted
        assert sock.gettimeout() == 0
        sock.close()
        slot.leave()
        accepted += 1
        if accepted == 4 * ACCEPTS:
            are_accepted.set()

    listening = listen.tcp("127.0.0.1", 0, "")
    with ExitStack() as clients:
        for _ in range(4 * ACCEPTS):
            clients.enter_context(socket.create_connection(listening.getsockname()))
        nursery.start_soon(accept_connections, listening, SlotLimits(), begin, LOG)
        with trio.fail_after(10):
            while not are_accepted.is_set():
                await trio.lowlevel.checkpoint()
                turns += 1
    assert turns <= 8
    nursery.cancel_scope.cancel()
