"""adapters/http/pacing.py: calls that come together begin a few in each turn, in their order, and all of them."""

import json
import socket
from contextlib import ExitStack
from typing import Any

import trio

from omac.adapters.control.limits import ControlLimits
from omac.adapters.control.server import ControlListener, serve_control
from omac.adapters.http.pacing import BEGUN_AT_ONCE, Pace
from omac.adapters.http.slots import SlotLimits
from omac.adapters.linux import listen
from omac.domain.access.control import Listener

CALLERS = 200
REQUEST = b"GET /__omac__/dirs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def test_many_callers_leave_others_their_turns(nursery: trio.Nursery) -> None:
    """Of the calls of 200 callers, as many as a sandbox can make, only a few begin from one turn of others to the
    next, and all are answered."""
    begun = most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun
        begun += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps({}).encode()})

    async def refused(listener: Listener, path: str, reason: str) -> None:
        raise AssertionError(f"{path} was refused: {reason}")

    listening = listen.tcp("127.0.0.1", 0, "")
    with ExitStack() as ends:
        callers = [ends.enter_context(socket.create_connection(listening.getsockname())) for _ in range(CALLERS)]
        for sock in callers:
            sock.sendall(REQUEST)
        listener = ControlListener("socket", listening, None, SlotLimits(strangers_max=0))
        await nursery.start(serve_control, app, [listener], refused, ControlLimits())
        with trio.fail_after(10):
            while begun < CALLERS:
                before = begun
                await trio.lowlevel.checkpoint()
                most = max(most, begun - before)
        assert most <= 2 * BEGUN_AT_ONCE  # Trio may give one task two turns in a row
        for sock in callers:
            sock.settimeout(10)
            assert await trio.to_thread.run_sync(sock.recv, 12) == b"HTTP/1.1 200"
    nursery.cancel_scope.cancel()


async def test_calls_begin_in_their_order(nursery: trio.Nursery) -> None:
    """Calls begin in the order in which they came, as many in each turn. Those whose callers have gone hold nobody
    up."""
    pace = Pace()
    asked: list[int] = []
    begun: list[int] = []

    async def call(number: int) -> None:
        with trio.CancelScope() as scope:
            if number % 3 == 0:
                scope.cancel()  # it has gone, and leaves as soon as it has to wait
            else:
                asked.append(number)
            await pace.begin()
            if number % 3:
                begun.append(number)

    for number in range(CALLERS):
        nursery.start_soon(call, number)
    with trio.fail_after(5):
        while len(asked) < CALLERS * 2 // 3 or len(begun) < len(asked):
            await trio.lowlevel.checkpoint()
    assert all(abs(asked.index(number) - at) < BEGUN_AT_ONCE for at, number in enumerate(begun))
