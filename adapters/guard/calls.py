"""What an agent's settings say of omac's hook: to find it there, to add it, and to take it out again.

All agents with a hook keep it in the same form: `hooks.PreToolUse` is a list of groups, each with a `matcher` for the
names of tools and a list of handlers, which are commands.
"""

import json
import os
import shlex
from collections.abc import Iterator
from typing import Any

from omac.adapters.files.json_text import JsonNode, JsonText
from omac.domain.kernel import PlainData

EVENT = "PreToolUse"
WORDS = ("hook", "pre-tool-use")
ELSE = ("||", "exit", "2")  # where omac does not even start, an agent would take that for consent
ANY_TOOL = (None, "", "*")


def command(program: str) -> str:
    """The command that calls omac, which is at the absolute path `program`."""
    return shlex.join((program, *WORDS)) + " " + " ".join(ELSE)


def with_call(text: str, matcher: str, command: str) -> str:
    """The settings with one call of omac for the tools that `matcher` names; the same text if it is there already.
    Raises ValueError for settings of another form."""
    calls = list(_calls(JsonText(text)))
    if len(calls) == 1 and _is_current(calls[0], matcher, command):
        return text
    text = without_calls(text)
    group = {"matcher": matcher, "hooks": [{"type": "command", "command": command}]}
    whole = JsonText(text)
    hooks = whole.member(whole.root, "hooks")
    if hooks is None:
        return whole.with_member(whole.root, "hooks", {EVENT: [group]})
    groups = whole.member(hooks, EVENT)
    if groups is None:
        return whole.with_member(hooks, EVENT, [group])
    return whole.with_item(groups, group)


def without_calls(text: str) -> str:
    """The settings without any call of omac, and without the groups and lists that are empty for that."""
    while True:
        whole = JsonText(text)
        call = next(_calls(whole), None)
        if call is None:
            return text
        text = call.removed()


def are_off(text: str, off_switch: str) -> bool:
    """Return whether the settings turn all hooks off, by the member `off_switch`."""
    settings = json.loads(text)
    return bool(off_switch and settings.get(off_switch))


class _HookCall(PlainData):
    """A handler that is omac's: the `index`th of a group, which is the `place`th of the groups of hooks."""

    whole: JsonText
    hooks: JsonNode
    groups: JsonNode
    place: int
    index: int

    @property
    def group(self) -> dict[str, Any]:
        value: dict[str, Any] = self.whole.value(self.groups.children[self.place])
        return value

    def removed(self) -> str:
        """The text without it, and without what it leaves empty."""
        whole = self.whole
        handlers = whole.member(self.groups.children[self.place], "hooks")
        assert handlers is not None
        if len(handlers.children) > 1:
            return whole.without(handlers, self.index)
        if len(self.groups.children) > 1:
            return whole.without(self.groups, self.place)
        if len(self.hooks.children) > 1:
            return whole.without(self.hooks, self.hooks.keys.index(EVENT))
        return whole.without(whole.root, whole.root.keys.index("hooks"))


def _calls(whole: JsonText) -> Iterator[_HookCall]:
    """Every call of omac. Raises ValueError for settings of another form, and where a key is said twice."""
    settings = whole.value(whole.root)
    _require(settings, dict, "the settings")
    hooks = whole.member(whole.root, "hooks")
    if hooks is None:
        return
    _require(settings["hooks"], dict, "hooks")
    groups = whole.member(hooks, EVENT)
    if groups is None:
        return
    _require(settings["hooks"][EVENT], list, f"hooks.{EVENT}")
    for place, group in enumerate(settings["hooks"][EVENT]):
        _require(group, dict, f"a group of hooks.{EVENT}")
        handlers = group.get("hooks", [])
        _require(handlers, list, f"the hooks of a group of hooks.{EVENT}")
        whole.member(groups.children[place], "hooks")
        for index, handler in enumerate(handlers):
            if isinstance(handler, dict) and _is_omac(handler.get("command")):
                yield _HookCall(whole, hooks, groups, place, index)


def _is_current(call: _HookCall, matcher: str, command: str) -> bool:
    handler = call.group["hooks"][call.index]
    tools = call.group.get("matcher")
    return (
        handler.get("type") == "command"
        and handler["command"] == command
        and not handler.get("async")  # an answer that nobody waits for denies nothing
        and (tools == matcher or tools in ANY_TOOL)
    )


def _is_omac(command: object) -> bool:
    if not isinstance(command, str):
        return False
    try:
        program, *words = shlex.split(command)
    except ValueError:
        return False
    return os.path.basename(program) == "omac" and tuple(words) in (WORDS, WORDS + ELSE)


def _require(value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{what} must be {'an object' if kind is dict else 'a list'}")
