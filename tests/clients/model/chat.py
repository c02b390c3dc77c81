"""OpenAI's chat completions: `POST /v1/chat/completions`."""

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

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
CREATED = 1_700_000_000


class Chat:
    """A conversation has at most one system message, at its beginning, as many servers of open models demand."""

    def authorized(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization", "").startswith("Bearer ")

    def conversation(self, body: Body, headers: Mapping[str, str]) -> Conversation:
        text_field(body, "model")
        messages = objects(body, "messages")
        if not messages:
            raise invalid("messages: at least one message is required")
        entries: list[Entry] = []
        open_calls: set[str] = set()
        for at, message in enumerate(messages):
            role = message.get("role")
            if role in ("system", "developer") and at:
                raise invalid(f"messages[{at}]: System message must be at the beginning.")
            if role == "tool":
                if message.get("tool_call_id") not in open_calls:
                    raise invalid(f"messages[{at}]: role tool must follow a message with its tool_calls")
                open_calls.discard(str(message.get("tool_call_id")))
                entries.append(Result(text_of(message.get("content"))))
            elif open_calls:
                raise invalid(f"messages[{at}]: tool_calls without an answer: {sorted(open_calls)}")
            elif role == "user":
                entries.append(Prompt(text_of(message.get("content"))))
            elif role == "assistant":
                open_calls = {str(call["id"]) for call in objects(message, "tool_calls")}
            elif role not in ("system", "developer"):
                raise invalid(f"messages[{at}].role: unexpected {role!r}")
        return Conversation(entries, unique(str(tool["function"]["name"]) for tool in objects(body, "tools")))

    def document(self, turn: Turn) -> Mapping[str, Any]:
        if isinstance(turn.said, Call):
            message = {"role": "assistant", "content": None, "tool_calls": [_call(turn, turn.said)]}
        else:
            message = {"role": "assistant", "content": turn.said.text}
        choice = {"index": 0, "message": message, "finish_reason": _reason(turn)}
        return _completion(turn, "chat.completion") | {"choices": [choice], "usage": USAGE}

    def events(self, turn: Turn, body: Body) -> Iterator[Event]:
        def chunk(delta: Mapping[str, Any], reason: str | None = None) -> Event:
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            return "", _completion(turn, "chat.completion.chunk") | {"choices": choices}

        yield chunk({"role": "assistant", "content": None if isinstance(turn.said, Call) else ""})
        if isinstance(turn.said, Call):
            call = _call(turn, turn.said)
            arguments = call["function"]["arguments"]
            begun = call | {"index": 0, "function": {"name": turn.said.tool, "arguments": ""}}
            yield chunk({"tool_calls": [begun]})
            for piece in halves(arguments):
                yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        else:
            for piece in halves(turn.said.text):
                yield chunk({"content": piece})
        yield chunk({}, _reason(turn))
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            yield "", _completion(turn, "chat.completion.chunk") | {"choices": [], "usage": USAGE}

    def end(self) -> str | None:
        return "[DONE]"

    def error(self, refused: Refused) -> Mapping[str, Any]:
        return openai_error(refused)


def openai_error(refused: Refused) -> Mapping[str, Any]:
    """Return the body of a refusal by OpenAI's interfaces."""
    return {"error": {"message": refused.message, "type": refused.kind, "param": None, "code": None}}


def _completion(turn: Turn, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn.number:08}", "object": kind, "created": CREATED, "model": turn.model}


def _call(turn: Turn, call: Call) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
    return {"id": f"call_{turn.number:08}", "type": "function", "function": function}


def _reason(turn: Turn) -> str:
    return "tool_calls" if isinstance(turn.said, Call) else "stop"
