"""adapters/http/decoding.py: bodies in many small chunks hold up nobody."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.http.bodies import ChunkedDecoder, Decoder, LengthDecoder, UntilCloseDecoder, UpstreamError
from omac.adapters.http.decoding import PIECES_AT_ONCE, STEP_BYTES, decode

# From one turn of others to the next; Trio may give one task two turns in a row.
PIECES_MAX = 2 * (PIECES_AT_ONCE + STEP_BYTES // 6)


class Counting(ChunkedDecoder):
    """One that keeps how many chunks it has met since `others` had a turn, at most."""

    def __init__(self) -> None:
        super().__init__(UpstreamError)
        self.most = self._pieces = 0

    def feed(self, data: bytes) -> list[bytes]:
        """As of any decoder."""
        pieces = super().feed(data)
        self._pieces += len(pieces)
        self.most = max(self.most, self._pieces)
        return pieces

    async def others(self) -> None:
        """Take every turn."""
        while True:
            self._pieces = 0
            await trio.lowlevel.checkpoint()


async def counted(data: bytes) -> tuple[bytes, Counting]:
    """Decode beside a task that takes every turn."""
    decoder = Counting()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decoder.others)
        body = await decode(decoder, data)
        nursery.cancel_scope.cancel()
    return body, decoder


async def test_small_chunks_let_others_have_their_turn() -> None:
    """The chunks from one turn to the next are bounded, however many arrive at once; the body is what it is."""
    body, decoder = await counted(b"1\r\nx\r\n" * 50_000)
    assert body == b"x" * 50_000
    assert decoder.most <= PIECES_MAX


async def test_nobody_sees_an_end_without_what_is_behind_it() -> None:
    """Behind the last chunk there is no turn of others, whatever follows it."""
    tail = b"GET / HTTP/1.1\r\n" * 5_000
    seen: list[tuple[bool, int]] = []
    decoder = ChunkedDecoder()

    async def others() -> None:
        while True:
            seen.append((decoder.finished, len(decoder.leftover)))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        body = await decode(decoder, b"1\r\nx\r\n" * 3_000 + b"0\r\n\r\n" + tail)
        before = len(seen)
        while len(seen) == before:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert body == b"x" * 3_000
    assert decoder.leftover == tail
    assert len(seen) > 3
    assert set(seen) == {(False, 0), (True, len(tail))}


@given(st.lists(st.binary(min_size=1, max_size=9000), max_size=4), st.binary(max_size=9000))
def test_steps_change_nothing(chunks: list[bytes], tail: bytes) -> None:
    """Chunks of any size, over the borders of steps, and what follows them."""
    coded = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    decoder = ChunkedDecoder()
    assert trio.run(decode, decoder, coded + tail) == b"".join(chunks)
    assert (decoder.finished, decoder.leftover) == (True, tail)


@pytest.mark.parametrize("decoder", [LengthDecoder(5), UntilCloseDecoder()])
async def test_other_bodies(decoder: Decoder) -> None:
    """Those without chunks are as they come."""
    assert await decode(decoder, b"hello") == b"hello"
    assert decoder.feed_eof()
