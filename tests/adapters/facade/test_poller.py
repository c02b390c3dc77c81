"""The order in which the poller notifies the owners of sockets, and what a fault of one of them ends."""

import socket
from collections.abc import Iterator
from functools import partial

import pytest
import trio

from omac.adapters.facade.poller import Poller

PAIRS = 4


class Owner:
    """The owner of a socket, which puts off one thing at each event and notes all."""

    def __init__(self, poller: Poller, name: str, log: list[str], *, begins: bool, fails: bool = False) -> None:
        self._poller = poller
        self._name = name
        self._log = log
        self._fails = fails
        self.begins = begins

    def ready(self, _events: int) -> None:
        self._log.append(f"{self._name} is ready")
        self._poller.put_off(self, self.send)

    def send(self) -> None:
        self._log.append(f"{self._name} sends")
        if self._fails:
            raise ValueError(self._name)

    def fail(self) -> None:
        self._log.append(f"{self._name} fails")


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Yield pairs of sockets that are connected."""
    made = [socket.socketpair() for _ in range(PAIRS)]
    yield made
    for pair in made:
        for sock in pair:
            sock.close()


async def test_what_ends_comes_first_and_what_was_put_off_last(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    """Of one poll, answers are relayed before requests are judged, whatever came first; then what was put off happens
    in a row. A fault in that ends its own connection."""
    poller, log = Poller.of_loop(), list[str]()
    owners = [
        Owner(poller, "request 1", log, begins=True),
        Owner(poller, "answer 1", log, begins=False),
        Owner(poller, "request 2", log, begins=True, fails=True),
        Owner(poller, "answer 2", log, begins=False),
    ]
    for (watched, peer), owner in zip(pairs, owners, strict=True):
        poller.watch(watched, owner)
        peer.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        with trio.fail_after(5):
            while len(log) < 2 * PAIRS + 1:
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    poller.close()
    in_turn = ["answer 1", "answer 2", "request 1", "request 2"]
    assert log == [
        *(f"{name} is ready" for name in in_turn),
        *(f"{name} sends" for name in in_turn),
        "request 2 fails",
    ]


async def test_nothing_is_put_off_when_nothing_is_at_hand() -> None:
    """Outside of a poll, as when a record has become durable, things happen at once."""
    poller, log = Poller.of_loop(), list[str]()
    owner = Owner(poller, "request", log, begins=True, fails=True)
    poller.put_off(owner, owner.send)
    assert log == ["request sends", "request fails"]
    poller.put_off(owner, partial(log.append, "next"))
    assert log[-1] == "next"
    poller.close()
