"""The bounds of one listener: how many connections it holds, and how often it answers callers who may not be there.

Rules

1. A *stranger* is a caller who has not shown yet that it may be here: a token, the bearer, or a private socket.
2. A stranger's connection may be closed once it has had PATIENCE_S to speak; a known caller's only while it rests
   between two requests. One that has spoken, and was not read yet, has PATIENCE_S more, once until it rests again, and
   TURNS turns of the loop, which may be late.
3. When a bound is reached, the connection that has waited longest among those that may be closed makes room. Where
   none may be closed, the new one waits, and the kernel's queue holds back the others.
4. Strangers are answered at a bounded rate; who comes too far above it is cut without an answer.
5. A few large heads are read in a turn of the loop.
"""

import contextlib
import math
import socket
from collections.abc import Callable

import msgspec
import trio

from omac.adapters.http.pacing import Pace

CONNECTIONS_MAX = 1024
RESERVE_SHARE = 0.25  # of all descriptors, for what is not a connection: sidecars, journal, spool, files in work
RESERVE_MIN = 128
PATIENCE_S = 0.1  # what a burst brings is read by then, and a bound of strangers is not held up for long
TURNS = 4  # in which what has come is read and judged: by the poller, or by a task that it begins
TURN_WAIT_S = 1.0  # how long a stranger's answer may be put off


class SlotLimits(msgspec.Struct, frozen=True):
    """Bounds of one listener. `strangers_max` 0: every caller that can connect is known."""

    connections_max: int = CONNECTIONS_MAX
    strangers_max: int = CONNECTIONS_MAX // 2
    refusals_per_s: float = 100.0
    refusals_burst: int = 500


class ListenerLimits(msgspec.Struct, frozen=True):
    """Bounds of the six listeners of a server."""

    facade_tcp: SlotLimits
    facade_unix: SlotLimits
    control_tcp: SlotLimits
    control_unix: SlotLimits
    bridge_tcp: SlotLimits
    bridge_unix: SlotLimits


def share_descriptors(descriptors_max: int) -> ListenerLimits:
    """Divide the descriptors of this process among its listeners, with a reserve for everything else.

    A connection of the facade takes four: its own, that to the skill, one to see its client leave where nothing more is
    read (`Wire.left`), and one to a skill that rests behind an earlier call (`SkillConnections`); one of the control
    plane takes the first and the third of these. No listener can take what another one needs.
    """
    spare = max(0, descriptors_max - max(RESERVE_MIN, int(descriptors_max * RESERVE_SHARE)))

    def limits(share: float, each: int, *, strangers: bool = True) -> SlotLimits:
        most = max(4, min(CONNECTIONS_MAX, int(spare * share) // each))
        return SlotLimits(most, most // 2 if strangers else 0)

    return ListenerLimits(
        facade_tcp=limits(0.4, 4),
        facade_unix=limits(0.25, 4),
        control_tcp=limits(0.1, 2),
        control_unix=limits(0.1, 2, strangers=False),
        bridge_tcp=limits(0.1, 2),
        bridge_unix=limits(0.05, 2),
    )


class Slots:
    """The connections of one listener; made where Trio runs."""

    def __init__(self, limits: SlotLimits) -> None:
        self._limits = limits
        self._open = 0
        self._strangers: dict[Slot, None] = {}  # the oldest first
        self._resting: dict[Slot, None] = {}  # known callers between two requests, the longest at rest first
        self._room = trio.lowlevel.ParkingLot()
        self._next_turn = -float("inf")
        self.pace = Pace()

    async def enter(self, sock: socket.socket) -> "Slot":
        """A place for one more connection, which does not block; waits while nobody may be closed for it."""
        limits = self._limits
        known = limits.strangers_max == 0
        while not known and len(self._strangers) >= limits.strangers_max:
            await self._displace(self._strangers)
        while self._open >= limits.connections_max:
            if await self._displace(self._resting or self._strangers) and self._open >= limits.connections_max:
                await self._room.park()  # it is still being closed
        self._open += 1
        return Slot(self, sock, known=known)

    async def turn(self) -> bool:
        """Wait until one more stranger may be answered; False when too many are before it."""
        pace_s = 1 / self._limits.refusals_per_s
        now = trio.current_time()
        turn = max(self._next_turn, now - self._limits.refusals_burst * pace_s) + pace_s
        if turn - now > TURN_WAIT_S:
            return False
        self._next_turn = turn
        await trio.sleep_until(turn)
        return True

    async def _displace(self, slots: "dict[Slot, None]") -> bool:
        """Close the connection that has waited longest of those that may be closed, and return True; where none may,
        wait until that may have changed."""
        now = trio.current_time()
        longest = next((slot for slot in slots if slot.closable_at <= now), None)
        if longest is None:
            with trio.move_on_at(min((slot.closable_at for slot in slots), default=math.inf)):
                await self._room.park()
            return False
        if longest.has_spoken():
            longest.spare()
            return False
        if longest.is_owed_turns:
            for _ in range(TURNS):
                await trio.lowlevel.checkpoint()
            for slot in slots:
                slot.is_owed_turns &= slot.closable_at > now
            return False
        del slots[longest]
        longest.evicted = True
        longest.evict()
        return True


class Slot:
    """The place of one connection, from `Slots.enter` to `leave`. Who serves it says in `evict` how it is closed."""

    def __init__(self, slots: Slots, sock: socket.socket, *, known: bool) -> None:
        self._slots = slots
        self._socket = sock
        self._is_spared = False
        self.is_owed_turns = False
        self.evict: Callable[[], object] = bool  # does nothing
        self.evicted = False
        self.known = known
        self.closable_at = trio.current_time() + PATIENCE_S
        (slots._resting if known else slots._strangers)[self] = None

    def evict_by(self, close: Callable[[], object]) -> None:
        """Have `close` called when the place is needed; at once where it was before anybody could say how."""
        self.evict = close
        if self.evicted:
            close()

    def has_spoken(self) -> bool:
        """Return whether bytes have come that are not read yet, but not a second time until the connection rests."""
        if self._is_spared:
            return False
        with contextlib.suppress(OSError):
            self._is_spared = bool(self._socket.recv(1, socket.MSG_PEEK))
        return self._is_spared

    def spare(self) -> None:
        """Leave the connection PATIENCE_S, and TURNS turns of the loop, for what has come: it is not closed before."""
        self.closable_at = trio.current_time() + PATIENCE_S
        self.is_owed_turns = True

    def recognize(self) -> None:
        """The caller has shown that it may be here, and is served until it rests."""
        if not self.known:
            self.known = True
            self._slots._strangers.pop(self, None)
            self._slots._room.unpark()

    def rest(self) -> None:
        """The connection waits for its next request."""
        if self.known:
            self.closable_at = -math.inf
            self._is_spared = self.is_owed_turns = False
            self._slots._resting[self] = None
            if self._slots._room:
                self._slots._room.unpark()

    def serve(self) -> bool:
        """A request has come; False when the connection was closed for another one meanwhile."""
        self._slots._resting.pop(self, None)
        return not self.evicted

    async def turn_for_large_head(self) -> None:
        """Wait until one more large head may be read; the connection is not closed meanwhile."""
        self.closable_at = math.inf
        try:
            await self._slots.pace.begin()
        finally:
            self.spare()

    async def may_refuse(self) -> bool:
        """Return whether the caller gets a refusal as an answer: a known caller always, a stranger at a bounded
        rate."""
        return self.known or await self._slots.turn()

    def leave(self) -> None:
        self._slots._strangers.pop(self, None)
        self._slots._resting.pop(self, None)
        self._slots._open -= 1
        self._slots._room.unpark()
