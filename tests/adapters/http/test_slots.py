"""adapters/http/slots.py: a connection that left holds no place, and none is closed for it."""

import socket
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from omac.adapters.http.slots import Slot, SlotLimits, Slots

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yield two ends of a connection on which nothing is said."""
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


async def served(slots: Slots, pair: Pair) -> Slot:
    """Return the place of a known caller whose request is being served: it may not be closed."""
    slot = await slots.enter(pair[0])
    slot.recognize()
    assert slot.serve()
    return slot


async def test_a_place_is_free_once_its_connection_leaves(autojump_clock: MockClock, pair: Pair) -> None:
    slots = Slots(SlotLimits(connections_max=1, strangers_max=1))
    first = await served(slots, pair)
    entered = trio.Event()

    async def enter() -> None:
        await slots.enter(pair[0])
        entered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(enter)
        with trio.move_on_after(10):
            await entered.wait()
        assert not entered.is_set()
        first.leave()
        with trio.fail_after(1):
            await entered.wait()


async def test_a_stranger_that_left_is_waited_for_no_longer(autojump_clock: MockClock, pair: Pair) -> None:
    slots = Slots(SlotLimits(connections_max=2, strangers_max=1))
    (await slots.enter(pair[0])).leave()
    began = trio.current_time()
    await slots.enter(pair[0])
    assert trio.current_time() == began


async def test_one_that_rested_and_left_is_not_closed_in_the_place_of_another(
    autojump_clock: MockClock, pair: Pair
) -> None:
    slots = Slots(SlotLimits(connections_max=2, strangers_max=2))
    gone = await served(slots, pair)
    gone.rest()
    gone.leave()
    resting, busy = await served(slots, pair), await served(slots, pair)
    resting.evict_by(resting.leave)
    resting.rest()
    with trio.fail_after(1):
        await slots.enter(pair[0])
    assert (gone.evicted, resting.evicted, busy.evicted) == (False, True, False)
