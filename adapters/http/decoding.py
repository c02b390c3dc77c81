"""Decoding what arrives of a body, in steps that hold up nobody else in the event loop."""

import trio

from omac.adapters.http.bodies import ChunkedDecoder, Decoder

STEP_BYTES = 4096  # the shortest chunk has six, and takes as long as a long one
PIECES_AT_ONCE = 300


async def decode(decoder: Decoder, data: bytes) -> bytes:
    """Return the bytes of the body in `data`. Raises as `Decoder.feed`.

    Others have their turn meanwhile where the sender makes many small chunks of it, but not once the body has ended:
    then what is behind it is in `leftover` before anybody else can see that it has.
    """
    if not isinstance(decoder, ChunkedDecoder):
        return b"".join(decoder.feed(data))
    pieces: list[bytes] = []
    due = PIECES_AT_ONCE
    for start in range(0, len(data), STEP_BYTES):
        if decoder.finished:
            decoder.feed(data[start:])
            break
        if len(pieces) >= due:
            due = len(pieces) + PIECES_AT_ONCE
            await trio.lowlevel.checkpoint()
        pieces += decoder.feed(data[start : start + STEP_BYTES])
    return b"".join(pieces)
