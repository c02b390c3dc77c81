"""Decoding what arrives of a body, in steps that hold up nobody else in the event loop."""

from omac.adapters.http.bodies import ChunkedDecoder, Decoder
from omac.adapters.http.pacing import pace_of_relays

STEP_BYTES = 4096  # with hundreds of the shortest chunks, each of which takes as long as a long one
PIECES_AT_ONCE = 16  # of one body, before it waits for its turn


async def decode(decoder: Decoder, data: bytes) -> bytes:
    """Return the bytes of the body in `data`. Raises as `Decoder.feed`.

    Others have their turn meanwhile where senders make many small chunks of their bodies, but not once the body has
    ended: then what is behind it is in `leftover` before anybody else can see that it has.
    """
    if not isinstance(decoder, ChunkedDecoder):
        return b"".join(decoder.feed(data))
    pieces: list[bytes] = []
    room = PIECES_AT_ONCE
    for start in range(0, len(data), STEP_BYTES):
        if decoder.finished:
            decoder.feed(data[start:])
            break
        more = decoder.feed(data[start : start + STEP_BYTES], room)
        pieces += more
        room -= len(more)
        while not room and not decoder.finished:
            await pace_of_relays().begin()
            more = decoder.feed(b"", PIECES_AT_ONCE)
            pieces += more
            room = PIECES_AT_ONCE - len(more)
    return b"".join(pieces)
