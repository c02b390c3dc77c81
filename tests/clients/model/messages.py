"""Anthropic's messages: `POST /v1/messages`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clients.model.interface import (
    Body,
    Event,
    Refused,
    Turn,
    halves,
    invalid,
    objects,
    text_field,
    text_of,
    unique,
)
from clients.model.steps import Call, Conversation, Entry, Prompt, Result

USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


class Messages:
    """A conversation alternates between user and assistant; each tool's call has its result in the next message."""

    def authorized(self, headers: Mapping[str, str]) -> bool:
        return bool(headers.get("x-api-key") or headers.get("authorization", "").startswith("Bearer "))

    def conversation(self, body: Body, headers: Mapping[str, str]) -> Conversation:
        if "anthropic-version" not in headers:
            raise invalid("anthropic-version: header is required")
        text_field(body, "model")
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            raise invalid("max_tokens: a number of at least 1 is required")
        messages = objects(body, "messages")
        if not messages or messages[0].get("role") != "user":
            raise invalid("messages: the first message must have the role user")
        entries: list[Entry] = []
        called: set[str] = set()
        for at, message in enumerate(messages):
            called = _read(at, message, called, entries)
        if called:
            raise invalid(f"messages: tool_use without a tool_result: {sorted(called)}")
        return Conversation(entries, unique(str(tool.get("name")) for tool in objects(body, "tools")))

    def document(self, turn: Turn) -> Mapping[str, Any]:
        reason = "tool_use" if isinstance(turn.said, Call) else "end_turn"
        return _message(turn) | {"content": [_block(turn)], "stop_reason": reason}

    def events(self, turn: Turn, body: Body) -> Iterator[Event]:
        block = _block(turn)
        yield _event("message_start", message=_message(turn))
        if isinstance(turn.said, Call):
            empty, pieces = block | {"input": {}}, halves(json.dumps(turn.said.arguments))
            kind, field, reason = "input_json_delta", "partial_json", "tool_use"
        else:
            empty, pieces = block | {"text": ""}, halves(turn.said.text)
            kind, field, reason = "text_delta", "text", "end_turn"
        yield _event("content_block_start", index=0, content_block=empty)
        yield _event("ping")
        for piece in pieces:
            yield _event("content_block_delta", index=0, delta={"type": kind, field: piece})
        yield _event("content_block_stop", index=0)
        yield _event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=USAGE)
        yield _event("message_stop")

    def end(self) -> str | None:
        return None

    def error(self, refused: Refused) -> Mapping[str, Any]:
        return {"type": "error", "error": {"type": refused.kind, "message": refused.message}, "request_id": "req_0"}


def _read(at: int, message: Mapping[str, Any], called: set[str], entries: list[Entry]) -> set[str]:
    """Add a message's entries; return the calls that the next message has to answer. Raises Refused."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(f"messages.{at}.role: unexpected {role!r}")
    if not content:
        raise invalid(f"messages.{at}: content must not be empty")
    if role == "system":
        return called  # newer models take such a message anywhere but at the beginning
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if role == "assistant":
        if called:
            raise invalid(f"messages.{at}: tool_use without a tool_result: {sorted(called)}")
        return {block["id"] for block in blocks if block.get("type") == "tool_use"}
    results = [block for block in blocks if block.get("type") == "tool_result"]
    answered = {block.get("tool_use_id") for block in results}
    if answered != called:
        raise invalid(f"messages.{at}: tool_result for {sorted(map(str, answered))}, called were {sorted(called)}")
    entries.extend(Result(text_of(block.get("content"))) for block in results)
    entries.extend(Prompt(text_of(block)) for block in blocks if block.get("type") == "text")
    return set()


def _message(turn: Turn) -> dict[str, Any]:
    return {
        "id": f"msg_{turn.number:08}", "type": "message", "role": "assistant", "model": turn.model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": USAGE,
    }  # fmt: skip


def _block(turn: Turn) -> dict[str, Any]:
    if isinstance(turn.said, Call):
        call = {"type": "tool_use", "id": f"toolu_{turn.number:08}", "name": turn.said.tool}
        return call | {"input": dict(turn.said.arguments)}
    return {"type": "text", "text": turn.said.text}


def _event(kind: str, **data: Any) -> Event:
    return kind, {"type": kind, **data}
