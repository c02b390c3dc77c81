"""adapters/http/decoding.py: bodies in many small chunks do not hold up other tasks."""

import sys

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.http.bodies import ChunkedDecoder, Decoder, LengthDecoder, UntilCloseDecoder, UpstreamError
from omac.adapters.http.decoding import PIECES_AT_ONCE, STEP_BYTES, decode
from omac.adapters.http.pacing import BEGUN_AT_ONCE

PIECES_MAX = 3 * BEGUN_AT_ONCE * PIECES_AT_ONCE  # in one turn of others; Trio may give one task two turns in a row
SIZES = [1, 16, 100, 1000, STEP_BYTES]  # of chunks


class Counting(ChunkedDecoder):
    """A decoder that keeps the largest number of chunks that it has met between two turns of `others`."""

    def __init__(self) -> None:
        super().__init__(UpstreamError)
        self.most = self._pieces = 0

    def feed(self, data: bytes, pieces_max: int = sys.maxsize) -> list[bytes]:
        """Decode like any decoder, and count the pieces."""
        pieces = super().feed(data, pieces_max)
        self._pieces += len(pieces)
        self.most = max(self.most, self._pieces)
        return pieces

    async def others(self) -> None:
        """Take every turn."""
        while True:
            self._pieces = 0
            await trio.lowlevel.checkpoint()


async def counted(data: bytes) -> tuple[bytes, Counting]:
    """Decode beside a task that takes every turn; return the body and the decoder."""
    decoder = Counting()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decoder.others)
        body = await decode(decoder, data)
        nursery.cancel_scope.cancel()
    return body, decoder


@pytest.mark.parametrize("size", SIZES)
async def test_small_chunks_let_others_have_their_turn(size: int) -> None:
    """The number of chunks between two turns is bounded, however many arrive at once, and the body is unchanged."""
    chunks = 300_000 // (size + 5)
    body, decoder = await counted((b"%x\r\n" % size + b"x" * size + b"\r\n") * chunks)
    assert body == b"x" * size * chunks
    assert decoder.most <= PIECES_MAX


async def test_small_chunks_of_many_bodies_let_others_have_their_turn() -> None:
    """The number of chunks between two turns is bounded, of however many bodies they are."""
    counts = [0]  # of each turn
    body = b"1\r\nx\r\n" * 600 + b"0\r\n\r\n"

    class Counted(ChunkedDecoder):
        def feed(self, data: bytes, pieces_max: int = sys.maxsize) -> list[bytes]:
            pieces = super().feed(data, pieces_max)
            counts[-1] += len(pieces)
            return pieces

    async def others() -> None:
        while True:
            counts.append(0)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        async with trio.open_nursery() as bodies:
            for _ in range(50):
                bodies.start_soon(decode, Counted(), body)
        nursery.cancel_scope.cancel()
    assert sum(counts) == 50 * 600
    assert max(counts[4:]) <= PIECES_MAX  # before, each has begun


async def test_nobody_sees_an_end_without_what_is_behind_it() -> None:
    """Other tasks get no turn between the last chunk and the bytes behind it."""
    tail = b"GET / HTTP/1.1\r\n" * 5_000
    states: list[tuple[bool, int]] = []
    decoder = ChunkedDecoder()

    async def others() -> None:
        while True:
            states.append((decoder.finished, len(decoder.leftover)))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        body = await decode(decoder, b"1\r\nx\r\n" * 3_000 + b"0\r\n\r\n" + tail)
        before = len(states)
        while len(states) == before:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert body == b"x" * 3_000
    assert decoder.leftover == tail
    assert len(states) > 3
    assert set(states) == {(False, 0), (True, len(tail))}


@given(st.lists(st.binary(min_size=1, max_size=9000), max_size=4), st.binary(max_size=9000))
def test_steps_change_nothing(chunks: list[bytes], tail: bytes) -> None:
    """Chunks of any size, across the borders of steps, give the same body, and the bytes behind them are left over."""
    coded = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    decoder = ChunkedDecoder()
    assert trio.run(decode, decoder, coded + tail) == b"".join(chunks)
    assert (decoder.finished, decoder.leftover) == (True, tail)


@pytest.mark.parametrize("decoder", [LengthDecoder(5), UntilCloseDecoder()])
async def test_other_bodies(decoder: Decoder) -> None:
    """Bodies without chunks stay as they are."""
    assert await decode(decoder, b"hello") == b"hello"
    assert decoder.feed_eof()
