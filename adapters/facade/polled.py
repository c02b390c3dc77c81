"""A client's connection without a task: what is ordinary is relayed in the poller's callbacks, all else in a task.

Rules

1. The poller has a connection in one of `RESTING`, `ADMITTING` and `WAITING`. Whatever it does not expect
   there it leaves to a task (`FacadeConnection`), with every byte that came and how far the request got: nothing is
   judged, limited or answered by two. Behind the request, the task gives the connection back.
2. A request goes to the skill when its record is durable, as everywhere. If the client has left meanwhile, or omac
   stops, it does not go, and is aborted.
3. What takes longer than `PATIENCE_S` is a task's: the limits of time are kept there.
4. A request that a resting connection did not take, or that ended it without a byte of an answer, is sent once more on
   a new one, if the skill cannot have begun with it or repeating it is safe (RFC 9110 section 9.2.2).
"""

import logging
import socket
from collections.abc import Callable
from contextlib import closing
from enum import Enum, auto
from functools import partial
from typing import Protocol

from omac.adapters.facade.addressing import AddressedRequest, address
from omac.adapters.facade.connection import BegunRequest, Surroundings, journal_slow
from omac.adapters.facade.forward import client_head, upstream_head
from omac.adapters.facade.ordinary import Unusual, require_ordinary
from omac.adapters.facade.poller import READ_BYTES, Polled, read, read_message
from omac.adapters.facade.pool import SkillConnection
from omac.adapters.facade.proxy import Forwarded
from omac.adapters.http.accepting import log_failure
from omac.adapters.http.bodies import UpstreamError
from omac.adapters.http.http1 import head_end, parse_request_head
from omac.adapters.http.pacing import LARGE_HEAD_BYTES
from omac.adapters.http.slots import Slot
from omac.adapters.http.wire import UNUSUAL, ClientGone, Wire, drain, leaving
from omac.domain.kernel.refusal import Refusal
from omac.services.access.port import Answer

PATIENCE_S = 0.7  # with the time between two looks at what is late, less than the shortest limit, a second
REPEATED = frozenset(("GET", "HEAD", "OPTIONS"))

_log = logging.getLogger("omac.facade")


class Phase(Enum):
    """The phase of a connection that the poller has."""

    RESTING = auto()  # it owes the head of a request
    ADMITTING = auto()  # the journal has the record
    WAITING = auto()  # the skill has the request
    LEFT = auto()  # it is closed, or a task has it


RESTING, ADMITTING, WAITING, LEFT = Phase  # a member of a class is looked up more slowly


class Keeper(Protocol):
    """The owner of the poller and of the tasks: it has connections watched, and continues them in tasks."""

    def promote(self, connection: "PolledConnection", client: Wire, begun: BegunRequest | None) -> None:
        """Continue a connection in a task, with the bytes that came ahead and the request that was begun."""

    def forget(self, connection: "PolledConnection") -> None:
        """Stop watching a connection."""

    def put_off(self, owner: Polled, happens: Callable[[], None]) -> None:
        """Let something happen behind all events at hand; see Poller."""


class PolledConnection:
    """One connection, from its acceptance on and from each rest on until something unusual happens."""

    __slots__ = (
        "_access", "_addressed", "_answer", "_client_gone", "_is_watching", "_keeper", "_leaving", "_more", "_skill",
        "_started", "_stopped", "_unsent", "_unsure", "deadline", "phase", "slot", "socket", "surroundings",
    )  # fmt: skip
    begins = True

    def __init__(self, sock: socket.socket, slot: Slot, surroundings: Surroundings, keeper: Keeper) -> None:
        self.socket = sock
        self.slot = slot
        self.phase, self.deadline = LEFT, 0.0
        self.surroundings = surroundings
        self._keeper = keeper
        self._leaving = leaving(sock)
        self._stopped = False
        self._unsure = False  # no event tells of all that there is to read
        self._forget_request()

    def rest(self, until: float) -> None:
        """Expect the head of a request until a moment of Trio's clock."""
        self.phase, self.deadline = RESTING, until
        self._forget_request()

    def _forget_request(self) -> None:
        self._unsent, self._answer, self._started, self._access = b"", b"", 0.0, 0
        self._client_gone = self._is_watching = False
        self._more = self._unsure
        self._addressed: AddressedRequest | None = None
        self._skill: SkillConnection | None = None

    def ready(self, events: int) -> None:
        """Implement Polled: read a request, or note that the client has sent more or has gone."""
        if events & UNUSUAL:
            self._unsure = self._more = True  # an end comes once, and a read ends at the mark of urgent data
            self._client_gone = bool(events & self._leaving)
        if self.phase is RESTING:
            self._receive()
        elif not self._client_gone:
            self._more = True  # the next request: its turn comes
        elif self.phase is WAITING:
            self._abort("client-gone")

    def fail(self) -> None:
        """Implement Polled: abort the request under way, and close the connection."""
        self._abort("upstream-error")

    def stop(self) -> None:
        """Abort what is under way, as omac stops."""
        self._stopped = True
        self._abort("stopping")

    def close(self) -> None:
        """Close a connection that has nothing under way. May be called twice."""
        if self.phase is not LEFT:
            self._leave()
            self.socket.close()
            self.slot.leave()

    def late(self) -> None:
        """Handle a passed deadline: close a connection at rest, and leave any other to a task."""
        match self.phase:
            case Phase.RESTING:
                self.close()
            case Phase.ADMITTING:
                self._hand_over(b"", self._begun(refused=journal_slow(self.surroundings.limits)))
            case Phase.WAITING:
                self._hand_over_forwarded()
            case Phase.LEFT:
                pass

    # a request

    def _receive(self) -> None:
        try:
            if self.surroundings.unix:
                data, is_cut = read_message(self.socket)
                self._more |= is_cut
            else:
                data = read(self.socket)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.take(data)
        else:
            self.close()

    def take(self, received: bytes) -> None:
        """Judge what the client has sent: an ordinary request, or something for a task."""
        surroundings = self.surroundings
        try:
            if len(received) > LARGE_HEAD_BYTES or not received.endswith(b"\r\n\r\n"):
                raise Unusual
            self._started = surroundings.clock()
            bytes_max = surroundings.limits.head_bytes_max
            head = parse_request_head(received, bytes_max=bytes_max, any_host=surroundings.unix)
            require_ordinary(head)
            addressed = address(head, surroundings.recorder, flat=surroundings.flat)
            if not self.slot.serve():
                raise Unusual
        except (Refusal, Unusual):
            self.slot.spare()  # the request is not judged yet
            self._hand_over(received)
            return
        self.slot.recognize()
        self._addressed = addressed
        self._admit(addressed)

    def _admit(self, addressed: AddressedRequest) -> None:
        """Have the request recorded."""
        surroundings = self.surroundings
        self.phase = ADMITTING
        self.deadline = self._started + surroundings.limits.record_timeout_s
        try:
            surroundings.recorder.admit_then(addressed.route, addressed.request, partial(self._admitted, addressed))
        except Refusal as refusal:
            self._hand_over(b"", self._begun(refused=refusal))

    def _admitted(self, addressed: AddressedRequest, recorded: int | Exception) -> None:
        """Forward the request once its record is durable, or leave it to a task if the record cannot be made. This must
        not fail."""
        try:
            if self.phase is not ADMITTING or self._addressed is not addressed:
                if isinstance(recorded, int):
                    self._abort_late(addressed, recorded)
            elif isinstance(recorded, int):
                self._access = recorded
                self._forward(addressed)
            elif isinstance(recorded, Refusal):
                self._hand_over(b"", self._begun(refused=recorded))
            else:
                raise recorded
        except Exception as error:
            log_failure(_log, error)
            self.fail()

    def _forward(self, addressed: AddressedRequest) -> None:
        """Send a request that is recorded to its skill."""
        surroundings, route, head = self.surroundings, addressed.route, addressed.head
        self.phase = WAITING
        self.deadline = surroundings.clock() + PATIENCE_S
        if self._client_gone:
            self._abort("client-gone")
            return
        self._is_watching = True
        surroundings.recorder.watch(route, self._cut)
        if self.phase is not WAITING:
            return
        assert surroundings.connections is not None
        connections = surroundings.connections
        skill = connections.take(route.port, repeatable=head.method in REPEATED) or connections.make(route.port)
        if skill is None:
            self._hand_over(b"", self._begun())
            return
        self._unsent = upstream_head(head, addressed.path, port=route.port, mount=route.mount, token=addressed.token)
        self._skill, skill.answered = skill, self._skill_ready
        self._keeper.put_off(self, self._send_request)

    def _send_request(self) -> None:
        """Send the request, unless it has ended meanwhile."""
        if self._skill is None or not self._unsent:
            return
        try:
            self._unsent = self._skill.send(self._unsent)
        except OSError:
            self._send_again(repeated=False)  # none of it has reached the skill
            return
        if self._unsent:
            self._hand_over_forwarded()

    def _cut(self, ended: Refusal) -> None:
        """Leave the connection to a task, which ends the call: its route, though ended, may be open again by then."""
        if self._skill is None:
            self._hand_over(b"", self._begun(ended=ended))
        else:
            self._hand_over_forwarded(ended=ended)

    # its answer

    def _skill_ready(self, events: int) -> None:
        """Handle an event on the connection to the skill. A fault here is one of this exchange."""
        skill = self._skill
        assert skill is not None
        try:
            try:
                data = read(skill.socket)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._answer += data
            if not self._answer and self._is_repeatable():
                self._send_again(repeated=True)
            elif not data or (not self._relay_answer(skill, events) and (events & UNUSUAL or len(data) == READ_BYTES)):
                self._hand_over_forwarded()
            elif self.phase is WAITING:
                skill.acknowledge()
        except Exception as error:
            log_failure(_log, error)
            self.fail()

    def _is_repeatable(self) -> bool:
        """Return whether the request may go to the skill once more: a connection at rest may have ended meanwhile."""
        assert self._addressed is not None
        assert self._skill is not None
        return self._addressed.head.method in REPEATED and not self._skill.is_new

    def _send_again(self, *, repeated: bool) -> None:
        """Leave it to a task to send the request on a new connection."""
        self._drop_skill()
        self._hand_over(b"", self._begun(repeated=repeated))

    def _relay_answer(self, skill: SkillConnection, events: int) -> bool:
        """Send an ordinary answer, the end of which came with `events`, to the client; False when it is not whole
        yet."""
        answer, addressed, answers = self._answer, self._addressed, self.surroundings.answers
        assert addressed is not None
        assert answers is not None
        end = answer.find(b"\r\n\r\n") + 4
        if end < 4 and len(answer) <= LARGE_HEAD_BYTES and head_end(answer) < 0:
            return False
        head, route = addressed.head, addressed.route
        try:
            if not 4 <= end <= LARGE_HEAD_BYTES:
                raise Unusual
            response, length, fields = answers.read(answer[:end], head)
        except (UpstreamError, Unusual):
            self._hand_over_forwarded()
            return True
        missing = end + length - len(answer)
        if missing > 0:
            return False
        if fields is None:
            fields, _ = client_head(
                response, head, addressed.path, mount=route.mount, prefix=addressed.prefix, port=route.port
            )
        skill.sent_more = missing < 0
        rests = response.keep_alive and not missing and not events & UNUSUAL
        data = fields + answer[end : end + length]
        self._send(skill, data, response.status, length, rests=rests, keeps=head.keep_alive)
        return True

    def _send(self, skill: SkillConnection, data: bytes, status: int, length: int, *, rests: bool, keeps: bool) -> None:
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._abort("client-gone", status)
            return
        if sent < len(data):
            self._hand_over_forwarded(gone_ahead=sent)
            return
        surroundings = self.surroundings
        self._end_watch()
        now = surroundings.clock()
        if rests and surroundings.connections is not None:
            surroundings.connections.rest(skill, now)
        else:
            self._drop_skill()
        duration_us = round((now - self._started) * 1_000_000)
        surroundings.recorder.completed(self._access, Answer(status, 0, length, duration_us))
        if not keeps:
            drain(self.socket)
            self.close()
            return
        more = self._more
        self.slot.rest()
        self.rest(now + surroundings.limits.idle_timeout_s)
        if more:
            self._receive()

    # its end here

    def _abort(self, reason: str, status: int | None = None) -> None:
        """Close the connection, whatever it is doing. What is being recorded is aborted when the record is there."""
        with closing(self):
            if self.phase is WAITING:
                self._end_watch()
                self._drop_skill()
                duration_us = round((self.surroundings.clock() - self._started) * 1_000_000)
                self.surroundings.recorder.aborted(self._access, Answer(status, 0, 0, duration_us), reason)

    def _abort_late(self, addressed: AddressedRequest, access: int) -> None:
        """Abort an access whose record came too late: a task has answered, or the connection was closed meanwhile."""
        is_answered = self._addressed is not addressed
        reason = "journal-slow" if is_answered else "stopping" if self._stopped else "upstream-error"
        self.surroundings.recorder.aborted(access, Answer(503 if is_answered else None, 0, 0, 0), reason)

    def _begun(
        self, *, refused: Refusal | None = None, forwarded: Forwarded | None = None, repeated: bool = False,
        ended: Refusal | None = None,
    ) -> BegunRequest:  # fmt: skip
        assert self._addressed is not None
        return BegunRequest(self._addressed, self._started, self._access, refused, forwarded, repeated, ended)

    def _hand_over_forwarded(self, gone_ahead: int = 0, *, ended: Refusal | None = None) -> None:
        """Leave the rest of a request to a task, with the connection to the skill and what came of its answer."""
        assert self._skill is not None
        assert self.surroundings.connections is not None
        upstream = Wire(self.surroundings.connections.hand_over(self._skill), UpstreamError, self._answer)
        self._skill = None
        waited_s = PATIENCE_S - (self.deadline - self.surroundings.clock())  # less what is left
        forwarded = Forwarded(upstream, self._unsent, waited_s)
        self._hand_over(b"", self._begun(forwarded=forwarded, ended=ended), gone_ahead)

    def _hand_over(self, ahead: bytes, begun: BegunRequest | None = None, gone_ahead: int = 0) -> None:
        """Leave the connection to a task."""
        self._end_watch()
        self._leave()
        client = Wire(self.socket, ClientGone, ahead)
        client.gone_ahead = gone_ahead
        self._keeper.promote(self, client, begun)
        self._forget_request()

    def _leave(self) -> None:
        self.phase = LEFT
        self._keeper.forget(self)

    def _end_watch(self) -> None:
        if self._is_watching:
            self.surroundings.recorder.unwatch(self._cut)
            self._is_watching = False

    def _drop_skill(self) -> None:
        if self._skill is not None and self.surroundings.connections is not None:
            self.surroundings.connections.drop(self._skill)
            self._skill = None
