"""A client's connection and its skill, step by step: a script has the messages of both, and each step waits until the
facade has nothing left to do. So two facades that serve the same script must give the same result."""

import array
import contextlib
import re
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import trio
import trio.testing

from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.server import Facade, FacadeListener
from omac.adapters.http.slots import SlotLimits
from omac.adapters.linux import listen
from omac.domain.kernel.refusal import Refusal

End = Literal["stays", "finishes", "closes", "resets"]

Gate = Literal["ready", "slow", "full", "revoking"]

CUSHION_S = 0.001
WAITS_MAX = 10  # steps in which nothing can be done but to wait for the other side
RESET = struct.pack("ii", 1, 0)
CHUNK = re.compile(rb"([0-9a-fA-F]+)[^\r]*\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Part(NamedTuple):
    """A side's message in a step, with a descriptor where `rights` (Unix sockets), and how its connection ends."""

    data: bytes
    end: End = "stays"
    rights: bool = False

    def __repr__(self) -> str:
        return f"Part({brief(self.data)}, {self.end!r}{', True' * self.rights})"


class Script(NamedTuple):
    """A script. `turns` has for each step whether the skill goes first, where both have one. Answers are those to
    requests `/0`, `/1` and so on; one that is `early` does not wait for the body. `lazy`: the client reads at the end
    only. `gate` has the recorder's behaviour from a step on; one that is slow has recorded nothing before."""

    unix: bool
    client: Sequence[Part]
    answers: Sequence[tuple[bool, Sequence[Part]]]
    turns: Sequence[bool]
    lazy: bool
    gate: tuple[int, Gate] = (0, "ready")


class Result(NamedTuple):
    """The bytes that the client got and the end of its connection, the requests that the skill got, each with whether
    it was cancelled, and the record."""

    client: bytes
    client_end: str
    skill: list[tuple[bytes, str]]
    record: list[tuple[Any, ...]]

    def __repr__(self) -> str:
        skill = ", ".join(f"({brief(data)}, {end!r})" for data, end in self.skill)
        return f"Result({brief(self.client)}, {self.client_end!r}, [{skill}], {self.record})"


def brief(data: bytes) -> str:
    """Return an expression for `data`."""
    parts = [part for part in re.split(rb"((?:x{50,}|y{50,}|d{50,}|z{50,}))", data) if part]
    return (
        " + ".join(
            f"{part[:1]!r} * {len(part)}" if part == part[:1] * 50 + part[50:] else f"{part!r}" for part in parts
        )
        or "b''"
    )


class Side:
    """A socket that sends as much as it can, and keeps the rest."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.came = b""
        self.end = "open"
        self._unsent = b""
        self._ends: End = "stays"

    def send(self, part: Part) -> None:
        if part.rights and part.data and not self._unsent and self.sock.family == socket.AF_UNIX:
            with contextlib.suppress(OSError):
                self.sock.sendmsg([part.data[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
                part = part._replace(data=part.data[1:])
        self._unsent += part.data
        self._ends = part.end
        self.flush()

    def flush(self) -> bool:
        """Send as much as the socket takes, and end the connection after the rest; return whether all is sent."""
        if self.sock.fileno() < 0:
            return True
        try:
            while self._unsent:
                self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = b""
        ends, self._ends = self._ends, "stays"
        if ends == "finishes":
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)
        elif ends != "stays":
            if ends == "resets" and self.sock.family == socket.AF_INET:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.sock.close()
            self.end = "left"
        return True

    def receive(self) -> bytes:
        before = len(self.came)
        while self.end == "open":
            try:
                data = self.sock.recv(1 << 20)
            except BlockingIOError:
                break
            except OSError:
                self.end = "reset"
                break
            if not data:
                self.end = "ended"
            self.came += data
        return self.came[before:]


class SkillSide(Side):
    """A connection to the skill, with the request that it answers."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.request: list[Any] | None = None  # what came, what became of it
        self.answer: list[Part] | None = None
        self.switched = False


class Play:
    """A script with a facade of its own."""

    def __init__(self, script: Script, gate: Any, back: socket.socket, client: socket.socket) -> None:
        self.script = script
        self.gate = gate
        self._back = back
        self._client = Side(client)
        self._parts = list(script.client)
        self._skills: list[SkillSide] = []
        self._requests: list[list[Any]] = []
        self._turns = iter(script.turns)
        self._steps = self._waits = 0
        self._slow = trio.Event()
        if script.gate[1] == "slow":
            gate.durable = self._slow

    def step(self) -> bool:
        """Make one step; return whether there was one."""
        self.look()
        if self._end_answers():
            return True
        self._steps += 1
        if self._steps >= self.script.gate[0]:
            self._gate_acts()
        flushed = [side.flush() for side in (self._client, *self._skills)]
        skill = next((side for side in self._skills if side.answer), None)
        is_client = bool(self._parts) and self._client.end != "left"
        if skill is not None and (next(self._turns, True) or not is_client):
            assert skill.answer
            skill.send(skill.answer.pop(0))
        elif is_client:
            self._client.send(self._parts.pop(0))
        else:
            self._waits += 1
            is_blocked = not all(flushed) and not self.script.lazy and self._waits < WAITS_MAX
            return is_blocked or self._steps < self.script.gate[0]
        return True

    def _end_answers(self) -> bool:
        """End connections behind answers; return whether there was one. That takes no turn, for a connection that
        serves the next request does not end."""
        ending = [side for side in self._skills if side.answer and not any(part.data for part in side.answer)]
        for side in ending:
            assert side.answer
            side.send(side.answer.pop(0))
        return bool(ending)

    def _gate_acts(self) -> None:
        match self.script.gate[1]:
            case "slow":
                self._slow.set()
            case "full":
                self.gate.admit_error = Refusal("journal-unavailable", "its disk is full")
            case "revoking":
                refusal = Refusal("revoked", "its token ended")
                for cut in tuple(self.gate.cuts):
                    cut(refusal)
                self.gate.watch = lambda route, cut: cut(refusal)  # a task that goes on is told the same
            case "ready":
                pass

    def look(self, *, last: bool = False) -> None:
        """Read the bytes that have come to both sides."""
        if last or not self.script.lazy:
            self._client.receive()
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._back.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a reset takes what waits to be sent
                self._skills.append(SkillSide(sock))
        for side in self._skills:
            self._look_at(side)

    def _look_at(self, side: SkillSide) -> None:
        data = side.receive()
        is_next = side.request is None or (is_whole(side.request[0]) and not side.switched)
        if data.startswith(METHODS) and is_next:
            side.request, side.answer = [b"", "open"], None
            self._requests.append(side.request)
        if side.request is None:
            return
        side.request[0] += data
        head, is_head, _ = side.request[0].partition(b"\r\n\r\n")
        if side.answer is None and is_head:
            number = int(re.findall(rb" /(\d+)", head)[0])
            early, parts = self.script.answers[number]
            if early or is_whole(side.request[0]):
                side.answer = list(parts)
                side.switched = b"".join(part.data for part in parts).startswith(b"HTTP/1.1 101 ")
        if side.end in ("ended", "reset") and (side.answer is None or any(part.data for part in side.answer)):
            side.request[1] = "cancelled"

    def result(self) -> Result:
        self.look(last=True)
        port = b":%d\r\n" % self._back.getsockname()[1]
        received = [(plain(data.replace(port, b":PORT\r\n")), end) for data, end in self._requests]
        end = self._client.end
        if end == "reset" and (self.script.unix or self.gate.transcript[-1][-1] == "client-gone"):
            end = "ended"  # that bytes were unread is all that a reset of a Unix socket says, and to one that has left
        return Result(joined(self._client.came), end, received, self.gate.transcript)

    def close(self) -> None:
        for sock in (self._back, self._client.sock, *(side.sock for side in self._skills)):
            sock.close()


METHODS = (b"GET /", b"HEAD /", b"POST /", b"PUT /", b"OPTIONS /", b"DELETE /")


def is_whole(request: bytes) -> bool:
    head, _, body = request.partition(b"\r\n\r\n")
    if b"\r\nTransfer-Encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    length = LENGTH.search(head + b"\r\n")
    return len(body) >= (int(length[1]) if length else 0)


def joined(answers: bytes) -> bytes:
    """Return answers whose chunks are joined where reads ended them."""
    return re.sub(rb"(?<=\r\n\r\n)[0-9a-f]{3,}(?=\r\nd)", b"*", re.sub(rb"(?<=d)\r\n[0-9a-f]+\r\n(?=d)", b"", answers))


def plain(message: bytes) -> bytes:
    """Return a request with its chunks joined: they are those of the reads."""
    head, end, body = message.partition(b"\r\n\r\n")
    if b"\r\nTransfer-Encoding: chunked" not in head:
        return message
    content = b""
    while (size := CHUNK.match(body)) and (count := int(size[1], 16)):
        content += body[size.end() :][:count]
        body = body[size.end() + count + 2 :]
    return head + end + content + b" | " + body


async def play_all(
    make_gate: Callable[[int], Any],
    scripts: Sequence[Script],
    folder: Path,
    *,
    polling: bool,
    cushion_s: float,
    pause: tuple[int, float] = (0, 0.0),
) -> list[Result]:
    """Serve all scripts at once, and return their results. `pause`: a step, and the seconds of rest behind it."""
    plays: list[Play] = []
    async with trio.open_nursery() as nursery:
        for number, script in enumerate(scripts):
            back = socket.create_server(("127.0.0.1", 0))
            back.setblocking(False)
            gate = make_gate(back.getsockname()[1])
            path = str(folder / f"{number}.sock")
            front = listen.unix(path) if script.unix else listen.tcp("127.0.0.1", 0, "")
            client = socket.socket(socket.AF_UNIX if script.unix else socket.AF_INET)
            await nursery.start(
                Facade(gate, FacadeLimits(), polling=polling).serve,
                [FacadeListener(front, SlotLimits(), unix=script.unix)],
            )
            client.connect(path if script.unix else front.getsockname())
            if not script.unix:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plays.append(Play(script, gate, back, client))
        await trio.testing.wait_all_tasks_blocked(cushion_s)
        steps = 0
        while [play for play in plays if play.step()]:
            await trio.testing.wait_all_tasks_blocked(cushion_s)
            steps += 1
            if steps == pause[0]:
                await trio.sleep(pause[1])
        for _ in range(3):
            for play in plays:
                play.look(last=True)
            await trio.testing.wait_all_tasks_blocked(max(cushion_s, 0.01))
        results = [play.result() for play in plays]
        nursery.cancel_scope.cancel()
        results = [result._replace(record=list(result.record)) for result in results]
    for play in plays:
        play.close()
    return results
