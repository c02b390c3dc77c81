"""A text that is collected for a stream: what is written fits the terminal that the stream is, if it is one."""

import io
from typing import TextIO


class Collected(io.StringIO):
    """The text so far, which asks `stream` what it is."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
