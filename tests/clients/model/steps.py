"""The steps that a scripted model takes, and the step that a conversation has come to.

A step is a shell command (`{"sh": "git status"}`), a call of a named tool (`{"tool": "Write", "args": {...}}`), a text
(`{"text": "done"}`), which ends the turn, or a stall (`{"stall": 5}`, seconds), after which the turn ends with a text.

Steps travel in a prompt (`prompt`; in base64, as clients quote their input), or a server has them from a file. A
conversation is at the step whose number is the count of tool results after the message that holds the steps. A request
that offers no tools gets a plain text, as clients request a title so.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

Step = Mapping[str, Any]
_OPEN, _CLOSE = "<steps>", "</steps>"
EMBEDDED = re.compile(f"{_OPEN}(.*?){_CLOSE}")
LAST_WORDS = "The script is at its end."
TITLE = "A scripted conversation"


class _Named(TypedDict):
    command: str
    description: str


def _named(command: str) -> _Named:
    return {"command": command, "description": "Take a scripted step"}


SHELLS: Mapping[str, Callable[[str], Mapping[str, Any]]] = {  # tools of clients, and their arguments for a command
    "Bash": _named,
    "bash": _named,
    "exec_command": lambda command: {"cmd": command, "yield_time_ms": 30_000},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-lc", command]},
}


class Text(NamedTuple):
    """A model's last words in a turn; `after` are seconds of silence before them."""

    text: str
    after: float = 0.0


class Call(NamedTuple):
    """A model's call of a tool."""

    tool: str
    arguments: Mapping[str, Any]


class Prompt(NamedTuple):
    """A message of the user's."""

    text: str


class Result(NamedTuple):
    """A tool's result."""

    text: str


Entry = Prompt | Result


class Conversation(NamedTuple):
    """The parts of a request that determine the answer, for any interface: entries in order, names of tools."""

    entries: Sequence[Entry]
    tools: Sequence[str]


def prompt(*steps: Step, words: str = "Do as the script says.") -> str:
    """Return a prompt that carries these steps."""
    return f"{words} {_OPEN}{b64encode(json.dumps(steps).encode()).decode()}{_CLOSE}"


def answer(conversation: Conversation, loaded: Sequence[Step] = ()) -> Text | Call:
    """Return the model's next answer. Raises ValueError for steps that are no JSON or that name no shell on offer."""
    if not conversation.tools:
        return Text(TITLE)
    steps, position = loaded, 0
    for entry in conversation.entries:
        if isinstance(entry, Result):
            position += 1
        elif embedded := EMBEDDED.findall(entry.text):
            steps, position = json.loads(b64decode(embedded[-1])), 0
    if position >= len(steps):
        return Text(LAST_WORDS)
    return _answer_of(steps[position], conversation.tools)


def _answer_of(step: Step, tools: Sequence[str]) -> Text | Call:
    match step:
        case {"sh": str(command)}:
            shell = next((name for name in SHELLS if name in tools), None)
            if shell is None:
                raise ValueError(f"no shell is among the tools {', '.join(tools)}")
            return Call(shell, SHELLS[shell](command))
        case {"tool": str(tool), "args": dict(arguments)}:
            return Call(tool, arguments)
        case {"text": str(text)}:
            return Text(text)
        case {"stall": int(seconds) | float(seconds)}:
            return Text(LAST_WORDS, float(seconds))
        case _:
            raise ValueError(f"unexpected step: {step}")
