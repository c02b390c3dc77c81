"""OpenAI's responses: `POST /v1/responses`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clients.model.chat import CREATED, openai_error
from clients.model.interface import Body, Event, Refused, Turn, halves, invalid, objects, text_field, text_of, unique
from clients.model.steps import Call, Conversation, Entry, Prompt, Result

USAGE = {
    "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
}  # fmt: skip
ROLES = ("user", "assistant", "developer", "system")


class Responses:
    """A request brings the whole conversation; each output of a function belongs to a call before it."""

    def authorized(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization", "").startswith("Bearer ")

    def conversation(self, body: Body, headers: Mapping[str, str]) -> Conversation:
        text_field(body, "model")
        content = body.get("input")
        items = [{"role": "user", "content": content}] if isinstance(content, str) else objects(body, "input")
        if not items:
            raise invalid("input: at least one item is required")
        entries: list[Entry] = []
        open_calls: set[str] = set()
        for at, item in enumerate(items):
            kind = item.get("type", "message")
            if kind in ("function_call", "custom_tool_call"):
                open_calls.add(str(item.get("call_id")))
            elif kind in ("function_call_output", "custom_tool_call_output"):
                if item.get("call_id") not in open_calls:
                    raise invalid(f"No tool call found for function call output with call_id {item.get('call_id')}.")
                open_calls.discard(str(item.get("call_id")))
                entries.append(Result(text_of(item.get("output"))))
            elif kind == "message":
                if item.get("role") not in ROLES:
                    raise invalid(f"input[{at}].role: unexpected {item.get('role')!r}")
                if item["role"] == "user":
                    entries.append(Prompt(text_of(item.get("content"))))
        if open_calls:
            raise invalid(f"No tool output found for function call {sorted(open_calls)[0]}.")
        tools = objects(body, "tools")
        return Conversation(entries, unique(str(tool.get("name") or tool.get("type")) for tool in tools))

    def document(self, turn: Turn) -> Mapping[str, Any]:
        return _response(turn) | {"status": "completed", "output": [_item(turn)], "usage": USAGE}

    def events(self, turn: Turn, body: Body) -> Iterator[Event]:
        for number, (kind, data) in enumerate(self._events(turn)):
            yield kind, {"type": kind, "sequence_number": number, **data}

    def _events(self, turn: Turn) -> Iterator[Event]:
        item = _item(turn)
        position = {"item_id": item["id"], "output_index": 0}
        yield "response.created", {"response": _response(turn)}
        yield "response.in_progress", {"response": _response(turn)}
        if isinstance(turn.said, Call):
            begun = item | {"arguments": "", "status": "in_progress"}
            yield "response.output_item.added", {"output_index": 0, "item": begun}
            for piece in halves(item["arguments"]):
                yield "response.function_call_arguments.delta", position | {"delta": piece}
            yield "response.function_call_arguments.done", position | {"arguments": item["arguments"]}
        else:
            begun = item | {"content": [], "status": "in_progress"}
            position |= {"content_index": 0}
            yield "response.output_item.added", {"output_index": 0, "item": begun}
            yield "response.content_part.added", position | {"part": item["content"][0] | {"text": ""}}
            for piece in halves(turn.said.text):
                yield "response.output_text.delta", position | {"delta": piece}
            yield "response.output_text.done", position | {"text": turn.said.text}
            yield "response.content_part.done", position | {"part": item["content"][0]}
        yield "response.output_item.done", {"output_index": 0, "item": item}
        yield "response.completed", {"response": self.document(turn)}

    def end(self) -> str | None:
        return None

    def error(self, refused: Refused) -> Mapping[str, Any]:
        return openai_error(refused)


def _response(turn: Turn) -> dict[str, Any]:
    return {
        "id": f"resp_{turn.number:08}", "object": "response", "created_at": CREATED, "status": "in_progress",
        "model": turn.model, "output": [], "error": None, "usage": None,
    }  # fmt: skip


def _item(turn: Turn) -> dict[str, Any]:
    if isinstance(turn.said, Call):
        function = {"name": turn.said.tool, "arguments": json.dumps(turn.said.arguments)}
        identity = {"id": f"fc_{turn.number:08}", "call_id": f"call_{turn.number:08}"}
        return {"type": "function_call", "status": "completed", **identity, **function}
    content = [{"type": "output_text", "text": turn.said.text, "annotations": []}]
    message = {"id": f"msg_{turn.number:08}", "role": "assistant", "content": content}
    return {"type": "message", "status": "completed", **message}
