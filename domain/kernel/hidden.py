"""A value that must not be seen: it is carried about, and shown to nobody by accident."""

import hmac
from typing import NoReturn


class Hidden:
    """The value of a secret. Printing, formatting or logging it shows "<hidden>"; `reveal` gives the text.

    It cannot be pickled, hashed or put into a message; two compare in constant time.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The value itself: to hand to a store or to a sidecar's environment, and to nothing else."""
        return self._text

    def __repr__(self) -> str:
        return "<hidden>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hidden):
            return NotImplemented
        return hmac.compare_digest(_bytes(self._text), _bytes(other._text))

    __hash__ = None  # type: ignore[assignment]  # a hash in a log would let guesses be checked

    def __reduce__(self) -> NoReturn:
        raise TypeError("a hidden value is not written down")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
