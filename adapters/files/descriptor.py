"""Descriptors that are open for a block."""

from __future__ import annotations

import os

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # of one to list, which is no link


class Descriptor:
    """An open descriptor, closed at the end of the block."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> int:
        return self._number

    def __exit__(self, *_: object) -> None:
        os.close(self._number)
