"""Message bodies as bytes: where each one ends (RFC 9112 sections 6 and 7.1), without a socket."""

import re
import sys
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from omac.domain.kernel.refusal import Refusal

LINE_BYTES_MAX = 4096
EXTENSION_BYTES_MAX = 16384
TRAILER_BYTES_MAX = 8192

_TEXT = rb"[\t\x20-\x7e\x80-\xff]*"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;(" + _TEXT + rb"))?")
_TRAILER_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:" + _TEXT)


class UpstreamError(Exception):
    """The upstream broke HTTP or the connection; the message says how, without anything of the request."""


class Framing(msgspec.Struct, frozen=True):
    """The end of a body: after a length in bytes, after the last chunk, or at the end of the connection.

    A request with none of the three has no body (RFC 9112 section 6.3).
    """

    content_length: int | None = None
    chunked: bool = False
    until_close: bool = False

    @property
    def has_body(self) -> bool:
        """Return whether at least one byte of framing or body follows the head."""
        return self.chunked or self.until_close or bool(self.content_length)


def bad_request(detail: str) -> Refusal:
    """A request that cannot be understood one way only; the connection it came on is not read further."""
    return Refusal("bad-request", f"the request is malformed: {detail}")


class Decoder(Protocol):
    """Takes what arrives on a connection and gives back the body; `leftover` is what came behind its end."""

    finished: bool
    leftover: bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The body bytes in `data`, in order."""

    def feed_eof(self) -> bool:
        """The connection ended; whether the body is whole."""


def decoder_for(framing: Framing, fault: Callable[[str], Exception]) -> Decoder:
    """The decoder of a body; `fault` makes the exception that a malformed body raises."""
    if framing.chunked:
        return ChunkedDecoder(fault)
    if framing.until_close:
        return UntilCloseDecoder()
    return LengthDecoder(framing.content_length or 0)


class LengthDecoder:
    """A body of a known number of bytes (RFC 9112 section 6.2)."""

    def __init__(self, length: int) -> None:
        self._missing = length
        self.finished = length == 0
        self.leftover = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The part of `data` that belongs to the body."""
        body = data[: self._missing]
        self._missing -= len(body)
        self.finished = self._missing == 0
        if len(body) < len(data):
            self.leftover += data[len(body) :]
        return [body] if body else []

    def feed_eof(self) -> bool:
        """Return whether the body was complete when the connection ended."""
        return self.finished


class UntilCloseDecoder:
    """A body that the end of the connection ends; only an upstream may send one (RFC 9112 section 6.3, rule 8)."""

    def __init__(self) -> None:
        self.finished = False
        self.leftover = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bytes as they are: all that come belong to the body."""
        return [data] if data else []

    def feed_eof(self) -> bool:
        """Complete the body: its end is that of the connection."""
        self.finished = True
        return True


class ChunkedDecoder:
    """The chunked coding (RFC 9112 section 7.1), strictly; chunk extensions and trailers are bounded and dropped.

    `feed` raises what `fault` makes, by default Refusal bad-request, and the decoder is of no use afterwards.
    """

    def __init__(self, fault: Callable[[str], Exception] = bad_request) -> None:
        self._fault = fault
        self._step: Literal["size", "data", "data-end", "trailer"] = "size"
        self._missing = 0
        self._pending = b""
        self._extension_bytes = 0
        self._trailer_bytes = 0
        self.finished = False
        self.leftover = b""

    def feed(self, data: bytes, pieces_max: int = sys.maxsize) -> list[bytes]:
        """The body bytes in `data`, one item for each chunk or part of one. Where there are `pieces_max`, the rest of
        `data` waits for the next call."""
        buffer = self._pending + data if self._pending else data
        body: list[bytes] = []
        at = 0
        while not self.finished and len(body) < pieces_max:
            if self._step == "data":
                piece = buffer[at : at + self._missing]
                if not piece:
                    break
                body.append(piece)
                at += len(piece)
                self._missing -= len(piece)
                if self._missing == 0:
                    self._step = "data-end"
            elif self._step == "data-end":
                end = buffer[at : at + 2]
                if not b"\r\n".startswith(end):
                    raise self._fault("a chunk is longer than its size")
                if len(end) < 2:
                    break
                at += 2
                self._step = "size"
            else:
                line = self._line(buffer, at)
                if line is None:
                    break
                at += len(line) + 2
                self._take_size(line) if self._step == "size" else self._take_trailer(line)
        if self.finished:
            self.leftover += buffer[at:]
            self._pending = b""
        else:
            self._pending = buffer[at:]
        return body

    def feed_eof(self) -> bool:
        """Return whether the last chunk and the trailers had arrived when the connection ended."""
        return self.finished

    def _line(self, buffer: bytes, at: int) -> bytes | None:
        end = buffer.find(b"\r\n", at)
        if end < 0 and len(buffer) - at <= LINE_BYTES_MAX + 1:
            return None
        if end < 0 or end - at > LINE_BYTES_MAX:
            raise self._fault("a line of the chunked body is too long")
        return buffer[at:end]

    def _take_size(self, line: bytes) -> None:
        size = _SIZE_LINE.fullmatch(line)
        if size is None:
            raise self._fault("a chunk size is not hexadecimal")
        self._extension_bytes += len(size[2] or b"")
        if self._extension_bytes > EXTENSION_BYTES_MAX:
            raise self._fault("the chunk extensions are too long")
        self._missing = int(size[1], 16)
        self._step = "data" if self._missing else "trailer"

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.finished = True
            return
        self._trailer_bytes += len(line)
        if self._trailer_bytes > TRAILER_BYTES_MAX or not _TRAILER_LINE.fullmatch(line):
            raise self._fault("a trailer is malformed or too long")
