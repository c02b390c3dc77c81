"""clients/model: the server takes its steps through each interface, streaming or not, and refuses as real ones do."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from clients.model.server import ModelServer
from clients.model.steps import Step, prompt

KEYS = {"authorization": "Bearer k", "x-api-key": "k", "anthropic-version": "2023-06-01"}
STEPS = ({"sh": "git status"}, {"tool": "Write", "args": {"path": "a"}}, {"text": "Done."})
PATHS = ("/v1/messages", "/v1/chat/completions", "/v1/responses")


class Model:
    """A server and the requests that tests send to it."""

    def __init__(self, server: ModelServer, record: Path) -> None:
        self.port = server.server_address[1]
        self.record = record

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Return status and body."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request("POST", path, json.dumps(body), KEYS if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def ask(self, path: str, body: dict[str, Any], stream: bool) -> str:
        """Return the answer to a valid request."""
        status, text = self.post(path, body | {"stream": stream})
        assert status == 200, text
        return text

    def recorded(self) -> list[dict[str, Any]]:
        """Return the record."""
        return [json.loads(line) for line in self.record.read_text().splitlines()]


@contextmanager
def serving(record: Path, steps: Sequence[Step] = ()) -> Iterator[Model]:
    """Yield a server that ends with the block."""
    with ModelServer(record, steps) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield Model(server, record)
        server.shutdown()


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    """Yield a server of this test's own, whose steps come with the prompts."""
    with serving(tmp_path / "record") as made:
        yield made


def begun(path: str) -> dict[str, Any]:
    """Return a request with the steps and two tools on offer."""
    messages = [{"role": "user", "content": prompt(*STEPS)}]
    match path:
        case "/v1/messages":
            return {"model": "m", "max_tokens": 9, "messages": messages, "tools": [{"name": "Bash"}, {"name": "Write"}]}
        case "/v1/responses":
            return {"model": "m", "input": messages, "tools": [{"name": "exec_command"}, {"name": "Write"}]}
        case _:
            tools = [{"type": "function", "function": {"name": name}} for name in ("bash", "Write")]
            return {"model": "m", "messages": [{"role": "system", "content": "Be good."}, *messages], "tools": tools}


def answered(path: str, body: dict[str, Any], answer: str) -> dict[str, Any]:
    """Return the next request: the answer's call with a result."""
    document = json.loads(answer)
    match path:
        case "/v1/messages":
            call = document["content"][0]
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}
            messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
            return body | {"messages": [*body["messages"], *messages]}
        case "/v1/responses":
            call = document["output"][0]
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
            return body | {"input": [*body["input"], call, output]}
        case _:
            message = document["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "ok"}
            return body | {"messages": [*body["messages"], message, result]}


@pytest.mark.parametrize("path", PATHS)
def test_steps_follow_each_other(model: Model, path: str) -> None:
    """The answers are the shell's tool as the client names it, the named tool, the text, and then the last words."""
    body = begun(path)
    answers = []
    for _ in range(2):
        answer = model.ask(path, body, stream=False)
        answers.append(answer)
        body = answered(path, body, answer)
    assert "git status" in answers[0]
    assert "Write" in answers[1]
    assert "Done." in model.ask(path, body, stream=False)
    assert [entry["status"] for entry in model.recorded()] == [200, 200, 200]
    assert model.recorded()[-1]["body"] == body | {"stream": False}


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_has_the_answer_in_pieces(model: Model, path: str) -> None:
    """Each event is JSON, with its type where the interface names it; chat ends with a line of its own."""
    events = [block.split("\n") for block in model.ask(path, begun(path), stream=True).split("\n\n")[:-1]]
    if path == PATHS[1]:
        assert events.pop() == ["data: [DONE]"]
    documents = [json.loads(lines[-1].removeprefix("data: ")) for lines in events]
    assert len(documents) > 4
    if path != PATHS[1]:
        assert [lines[0] for lines in events] == [f"event: {document['type']}" for document in documents]


@pytest.mark.parametrize("path", PATHS)
def test_a_request_without_tools_gets_a_text(model: Model, path: str) -> None:
    """A client that asks for a title does not use up a step."""
    assert "git status" not in model.ask(path, begun(path) | {"tools": []}, stream=False)


def test_steps_come_from_a_file_as_well(tmp_path: Path) -> None:
    """A prompt without steps gets the server's steps."""
    body = begun(PATHS[0]) | {"messages": [{"role": "user", "content": "Hello."}]}
    with serving(tmp_path / "record", [{"text": "From the file."}]) as model:
        assert "From the file." in model.ask(PATHS[0], body, stream=False)


def test_a_system_message_in_a_conversation_is_taken(tmp_path: Path) -> None:
    """A system message between the others, as newer models take it, is no result of a step."""
    body = begun(PATHS[0])
    body["messages"].append({"role": "system", "content": "Be good."})
    with serving(tmp_path / "record") as model:
        assert "tool_use" in model.ask(PATHS[0], body, stream=False)


ANTHROPIC = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (PATHS[1], {"messages": [{"role": "system", "content": "a"}] * 2}, "System message must be at the beginning"),
        (PATHS[1], {"messages": [*CHAT["messages"], {"role": "system", "content": "a"}]}, "System message must be"),
        (PATHS[1], {"messages": [*CHAT["messages"], {"role": "tool", "tool_call_id": "x"}]}, "must follow"),
        (PATHS[0], {"messages": [{"role": "system", "content": "a"}]}, "first message"),
        (PATHS[0], {"max_tokens": 0}, "max_tokens"),
        (PATHS[0], {"tools": [{"name": "Bash"}, {"name": "Bash"}]}, "unique"),
        (PATHS[2], {"input": []}, "input"),
        (PATHS[2], {"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "No tool call found"),
        (PATHS[2], {"input": prompt({"dance": 1}), "tools": [{"name": "shell"}]}, "unexpected step"),
    ],
)
def test_what_a_real_server_refuses_is_refused(model: Model, path: str, body: dict[str, Any], reason: str) -> None:
    """A refusal has status 400 and the interface's own form, and is in the record."""
    status, text = model.post(path, (ANTHROPIC if path == PATHS[0] else CHAT) | body)
    error = json.loads(text)["error"]
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert reason in error["message"]
    assert model.recorded()[-1]["status"] == 400


@pytest.mark.parametrize("path", PATHS)
def test_a_key_is_required(model: Model, path: str) -> None:
    assert model.post(path, begun(path), {"anthropic-version": "2023-06-01"})[0] == 401


@pytest.mark.parametrize(("path", "form"), [("/v1/messages/batches", "error"), ("/v1/embeddings", None)])
def test_an_unknown_endpoint_is_refused_in_the_form_of_its_interface(model: Model, path: str, form: str | None) -> None:
    """Anthropic's errors have a type around them, OpenAI's have not."""
    status, text = model.post(path, {}, {} if form is None else KEYS)
    assert status == 404
    assert json.loads(text).get("type") == form
