"""Ordinary requests and answers, which need no task.

An ordinary request is one of HTTP/1.1 without a body, whole at once and alone on its way, and its head is not large. It
goes to a skill with a connection at rest, or to which one can be made at once. An ordinary answer has a length that is
small, as is its head, and is soon whole.
"""

from typing import NamedTuple

from omac.adapters.facade.forward import client_head, is_same_for_all, upgrade_of
from omac.adapters.http.http1 import UNFRAMED, RequestHead, ResponseHead, parse_response_head

ANSWER_MAX = 65_536  # bytes of its body
REMEMBERED_MAX = 256  # heads of answers
REMEMBERED_BYTES_MAX = 1_024  # of one


class Unusual(Exception):
    """A request or an answer that only a task can handle."""


class OrdinaryAnswer(NamedTuple):
    """The head of an ordinary answer, and how many bytes of its body follow. `for_clients` is the head that clients
    get; None: it depends on what they asked for."""

    response: ResponseHead
    length: int
    for_clients: bytes | None


def require_ordinary(head: RequestHead) -> None:
    """Raise Unusual for a request that is not ordinary."""
    has_body = head.framing is not UNFRAMED and head.framing.has_body
    if head.minor == 0 or has_body or (b"upgrade" in head.values and upgrade_of(head)):
        raise Unusual


class OrdinaryAnswers:
    """Reads the heads of answers. A skill that is called often gives the same head again and again, for as long as its
    Date stays the same: it is parsed once."""

    def __init__(self, head_bytes_max: int) -> None:
        self._head_bytes_max = head_bytes_max
        self._remembered: dict[tuple[bytes, bool, bool], OrdinaryAnswer] = {}

    def read(self, head: bytes, request: RequestHead) -> OrdinaryAnswer:
        """Return what the head of an answer to `request` says. Raises Unusual, and what `parse_response_head`
        raises."""
        key = head, request.method == "HEAD", request.keep_alive
        answer = self._remembered.get(key)
        if answer is None:
            answer = self._read(head, request)
            if answer.for_clients is not None and len(head) <= REMEMBERED_BYTES_MAX:
                if len(self._remembered) >= REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[key] = answer
        return answer

    def _read(self, head: bytes, request: RequestHead) -> OrdinaryAnswer:
        response = parse_response_head(head, request.method, bytes_max=self._head_bytes_max)
        length = response.framing.content_length
        if response.status < 200 or length is None or length > ANSWER_MAX:
            raise Unusual
        for_clients = None
        if is_same_for_all(response):
            for_clients, _ = client_head(response, request, "/", mount="", prefix="", port=0)
        return OrdinaryAnswer(response, length, for_clients)
