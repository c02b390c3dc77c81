"""The pace of what takes long: a few begin in each turn of the loop, in the order in which they came.

A call of the control plane, or a head of 64 KB, takes as much of the loop's time as ten requests of the facade. If
those of hundreds of callers began in the same turn, everybody else would wait for all of them.
"""

import trio

BEGUN_AT_ONCE = 4
LARGE_HEAD_BYTES = 4_096  # what is larger takes long enough to read that it waits for its turn


class Pace:
    """A pace at which a few begin in each turn: calls, large heads or pieces of bodies; made where Trio runs."""

    def __init__(self) -> None:
        self._trio = trio.lowlevel.current_trio_token()
        self._waiting = trio.lowlevel.ParkingLot()
        self._room = BEGUN_AT_ONCE  # in this turn

    async def begin(self) -> None:
        """Return when one more may begin: at once, unless many came before it."""
        if not self._room:
            await self._waiting.park()
            return
        if self._room == BEGUN_AT_ONCE:
            self._trio.run_sync_soon(self._next_turn)
        self._room -= 1

    def _next_turn(self) -> None:
        begun = self._waiting.unpark(count=BEGUN_AT_ONCE)
        self._room = BEGUN_AT_ONCE - len(begun)
        if begun:
            self._trio.run_sync_soon(self._next_turn)


_of_relays: trio.lowlevel.RunVar[Pace] = trio.lowlevel.RunVar("pace_of_relays")


def pace_of_relays() -> Pace:
    """Return the pace of what is long to relay: bodies in small chunks, and large heads of answers."""
    try:
        return _of_relays.get()
    except LookupError:
        _of_relays.set(Pace())
        return _of_relays.get()
