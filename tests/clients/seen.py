"""Texts that the model saw, for any interface: the results of tools, and all other text of a request."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clients.model.interface import text_of

RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")
FIELDS = ("system", "instructions", "messages", "input")


def results(requests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the results of tools in the longest conversation, in order."""
    conversations = [[text for text, is_result in texts(request["body"]) if is_result] for request in requests]
    return max(conversations, key=len, default=[])


def context(requests: Sequence[Mapping[str, Any]]) -> str:
    """Return all other text that the model saw in conversations, including prompts."""
    return "\n".join(
        text for request in requests if _tools(request) for text, is_result in texts(request["body"]) if not is_result
    )


def tools(requests: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of all tools that clients offered."""
    return {name for request in requests for name in _tools(request)}


def texts(body: object) -> Iterator[tuple[str, bool]]:
    """Yield each text of a request's body, and whether it is a tool's result."""
    if not isinstance(body, dict):
        return
    for field in FIELDS:
        parts = body.get(field) or []
        for part in [parts] if isinstance(parts, str) else parts:
            yield from _texts(part)


def _texts(part: object) -> Iterator[tuple[str, bool]]:
    if isinstance(part, str):
        yield part, False
    elif isinstance(part, dict):
        if part.get("type") in RESULTS or part.get("role") == "tool":
            yield text_of(part.get("output") or part.get("content")), True
        elif isinstance(part.get("content"), list):
            for inner in part["content"]:
                yield from _texts(inner)
        elif text := text_of(part):
            yield text, False


def _tools(request: Mapping[str, Any]) -> list[str]:
    body = request["body"]
    offered = body.get("tools") or [] if isinstance(body, dict) else []
    return [str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type")) for tool in offered]


def lines_of_json(out: str) -> list[dict[str, Any]]:
    """Return a client's output, all of whose lines are JSON objects."""
    documents = [json.loads(line) for line in out.splitlines()]
    assert all(isinstance(document, dict) for document in documents), out
    return documents
