"""The common form of a model's HTTP interfaces: each reads a request, refuses it as the real one does, and answers.

`Reader` takes a decoded body apart and refuses values of a wrong type, so that no interface trusts a client.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from clients.model.steps import Call, Conversation, Text

Body = Mapping[str, Any]
Event = tuple[str, Mapping[str, Any]]  # its name, or "" where the interface names none, and its data


class Refused(Exception):
    """A request that a real server refuses; `kind` is the interface's own word."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message


class Turn(NamedTuple):
    """An answer and its identity; `number` grows with each request of a server."""

    number: int
    model: str
    said: Text | Call


class Interface(Protocol):
    """An HTTP interface of a model's server."""

    def authorized(self, headers: Mapping[str, str]) -> bool:
        """Return whether the headers, whose names are in lower case, hold a key."""
        ...

    def conversation(self, body: Body, headers: Mapping[str, str]) -> Conversation:
        """Return the conversation of a request. Raises Refused."""
        ...

    def document(self, turn: Turn) -> Mapping[str, Any]:
        """Return the answer in one piece."""
        ...

    def events(self, turn: Turn, body: Body) -> Iterator[Event]:
        """Return the answer as server-sent events."""
        ...

    def end(self) -> str | None:
        """Return the data of a last event that is no JSON, if the interface has one."""
        ...

    def error(self, refused: Refused) -> Mapping[str, Any]:
        """Return the body of a refusal."""
        ...


def invalid(message: str) -> Refused:
    """Return the refusal of a request that the interface does not allow."""
    return Refused(400, "invalid_request_error", message)


def text_field(body: Body, name: str) -> str:
    """Return a field that must be a text. Raises Refused."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise invalid(f"{name}: a text is required")
    return value


def objects(body: Body, name: str) -> list[Mapping[str, Any]]:
    """Return a field that is a list of objects; an empty list where it is missing. Raises Refused."""
    value = body.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise invalid(f"{name}: a list of objects is required")
    return value


def unique(names: Iterable[str]) -> list[str]:
    """Return names of tools. Raises Refused for a name that occurs twice."""
    tool_names = list(names)
    if len(set(tool_names)) != len(tool_names):
        raise invalid("tools: names must be unique")
    return tool_names


def text_of(content: object) -> str:
    """Return all text of a message's content, whose parts have it as `text` or, nested, as `content`."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(text_of, content)))
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content"))
    return ""


def halves(text: str) -> Iterator[str]:
    """Cut a text in two, as a stream brings it in pieces."""
    middle = len(text) // 2
    yield from filter(None, (text[:middle], text[middle:]))
