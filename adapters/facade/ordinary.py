"""What is ordinary: a request of HTTP/1.1 without a body, whole at once and alone on its way, to a skill of which a
connection rests; and an answer with a length that is small and soon whole."""

from omac.adapters.facade.forward import upgrade_of
from omac.adapters.http.http1 import RequestHead, ResponseHead

ANSWER_MAX = 65_536  # bytes of its body


class Unusual(Exception):
    """Something for a task."""


def require_ordinary(head: RequestHead) -> None:
    """Raise Unusual for a request that is not."""
    if head.minor == 0 or head.framing.has_body or upgrade_of(head):
        raise Unusual


def ordinary_answer_length(response: ResponseHead) -> int:
    """Return the length of an ordinary answer's body in bytes. Raises Unusual."""
    length = response.framing.content_length
    if response.status < 200 or length is None or length > ANSWER_MAX:
        raise Unusual
    return length
