"""The hooks of omac in the text of an agent's settings: finding them, adding them and removing them.

All agents with hooks use the same form: `hooks` has a list of groups for each event. Each group has a list of handlers,
which are commands, and, for an event of tools, a `matcher` for their names.
"""

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from omac.adapters.files.json_text import Cut, Insertion, JsonNode, JsonText, without
from omac.domain.harness.names import BEGUN, ENDED, GUARDED, INSTALLED
from omac.domain.kernel import PlainData

VERBS = {GUARDED: "pre-tool-use", BEGUN: "session-start", ENDED: "session-end"}
ANY_TOOL = (None, "", "*")
COMMAND_CHARS_MAX = 4 * 4096  # a longer one is not omac's
_PROGRAM = r"""(?P<program>(?:'[^']*'|"'"|[^\s'"])+)"""
_VERB = rf"(?P<verb>{'|'.join(VERBS.values())})"
_CALL = re.compile(rf"(?:^|\s){_PROGRAM} hook {_VERB}(?: {INSTALLED})?(?: \|\| exit [02])?$")


def commands(program: str) -> dict[str, str]:
    """Return the command of each event, which calls the omac at the absolute path `program`.

    Where omac does not even start, an agent would take that for consent, so the guard denies; except in a sandbox that
    does not show omac, where the sandbox is what holds. A session goes on without omac.
    """
    quoted = shlex.quote(program)
    guard = f"""[ ! -e {quoted} -a "$OMAC_SANDBOX" = 1 ] || {quoted} hook {VERBS[GUARDED]} {INSTALLED} || exit 2"""
    return {
        GUARDED: guard,
        **{event: f"{quoted} hook {VERBS[event]} {INSTALLED} || exit 0" for event in (BEGUN, ENDED)},
    }


def hook_command(program: str) -> str:
    """Return the command that a verb follows, for a plugin that calls the omac at this path."""
    return f"{shlex.quote(program)} hook"


def with_hooks(text: str, wanted: Mapping[str, str], matcher: str) -> list[Insertion]:
    """Return what to insert into settings without omac's hooks, so that they have a command for each event of `wanted`;
    `matcher` is for the names of tools. Raises ValueError for settings of another form."""
    whole = JsonText(text)
    for _ in _calls(whole):
        raise ValueError("they have hooks of omac")
    groups = {event: _group(event, command, matcher) for event, command in wanted.items()}
    hooks = whole.member(whole.root, "hooks")
    if hooks is None:
        return whole.new_members(whole.root, {"hooks": {event: [group] for event, group in groups.items()}})
    insertions = whole.new_members(hooks, {event: [groups[event]] for event in groups if event not in hooks.keys})
    for event, group in groups.items():
        if (listed := whole.member(hooks, event)) is not None:
            insertions += whole.new_item(listed, group)
    return sorted(insertions)


def _group(event: str, command: str, matcher: str) -> dict[str, object]:
    handlers = [{"type": "command", "command": command}]
    return {"matcher": matcher, "hooks": handlers} if event == GUARDED else {"hooks": handlers}


def without_hooks(text: str, parts: Sequence[str] = ()) -> str:
    """Return the settings without any hook of omac. `parts` are what omac inserted, if that is known: where they are as
    they were, they are what goes; else each handler does, with the groups and lists that are empty for that, unless
    others made them or left a comment there. Raises ValueError."""
    for before, part in zip(("", *parts), parts, strict=False):
        is_whole = "," not in (before, part)  # a comma alone could be anybody's
        if is_whole and text.count(part) == 1 and is_same(text, rest := text.replace(part, "", 1)):
            text = rest
    made = frozenset(key for key in ("hooks", *VERBS) if not parts or any(f'"{key}": ' in part for part in parts))
    while True:
        whole = JsonText(text)
        call = next(_calls(whole), None)
        if call is None:
            return text
        text = without(text, call.cuts(made))


def states(text: str, wanted: Mapping[str, str], matcher: str) -> dict[str, str]:
    """Return how the settings have each hook of omac that they have, by event: "current", "outdated" (of another omac)
    or "changed" by hand. Raises ValueError."""
    by_event: dict[str, str] = {}
    for call in _calls(JsonText(text)):
        if call.event in by_event or not _is_effective(call, matcher):
            by_event[call.event] = "changed"
        elif call.handler["command"] == wanted.get(call.event):
            by_event[call.event] = "current"
        else:
            by_event[call.event] = "outdated"
    return by_event


def is_off(text: str, off_switch: str) -> bool:
    """Return whether the settings turn all hooks off, by the member `off_switch`. Raises ValueError."""
    whole = JsonText(text)
    return bool(off_switch and whole.value(whole.root).get(off_switch))


class _HookCall(PlainData):
    """A handler that is omac's: the `index`th of a group, which is the `place`th of the groups of an event."""

    whole: JsonText
    hooks: JsonNode
    event: str
    place: int
    index: int

    @property
    def groups(self) -> JsonNode:
        groups = self.whole.member(self.hooks, self.event)
        assert groups is not None
        return groups

    @property
    def group(self) -> dict[str, Any]:
        value: dict[str, Any] = self.whole.value(self.groups.children[self.place])
        return value

    @property
    def handler(self) -> dict[str, Any]:
        value: dict[str, Any] = self.group["hooks"][self.index]
        return value

    def cuts(self, made: Collection[str]) -> list[Cut]:
        """Return the cuts that remove this handler, together with the group, list and keys that would be empty without
        it. A key is removed only if `made`, the keys that omac made, has it. Anything that holds a comment stays."""
        whole, groups = self.whole, self.groups
        group = groups.children[self.place]
        handlers = whole.member(group, "hooks")
        assert handlers is not None
        if len(handlers.children) > 1 or whole.has_comment(group):
            return whole.cuts(handlers, self.index)
        if len(groups.children) > 1 or self.event not in made or whole.has_comment(groups):
            return whole.cuts(groups, self.place)
        if len(self.hooks.children) > 1 or "hooks" not in made or whole.has_comment(self.hooks):
            return whole.cuts(self.hooks, self.hooks.keys.index(self.event))
        return whole.cuts(whole.root, whole.root.keys.index("hooks"))


def _calls(whole: JsonText) -> Iterator[_HookCall]:
    """Every call of omac. Raises ValueError for settings of another form, and where a key is said twice."""
    settings = whole.value(whole.root)
    _require(settings, dict, "the settings")
    hooks = whole.member(whole.root, "hooks")
    if hooks is None:
        return
    _require(settings["hooks"], dict, "hooks")
    for event in VERBS:
        groups = whole.member(hooks, event)
        if groups is None:
            continue
        _require(settings["hooks"][event], list, f"hooks.{event}")
        for position, group in enumerate(settings["hooks"][event]):
            _require(group, dict, f"a group of hooks.{event}")
            handlers = group.get("hooks", [])
            _require(handlers, list, f"the hooks of a group of hooks.{event}")
            whole.member(groups.children[position], "hooks")
            for index, handler in enumerate(handlers):
                if _verb(handler) == VERBS[event]:
                    yield _HookCall(whole, hooks, event, position, index)


def is_same(text: str, rest: str) -> bool:
    """Return whether two settings differ in nothing but hooks of omac, and in what these leave empty."""
    try:
        before, after = JsonText(text), JsonText(rest)
        return _others(before) == _others(after) and after.additions <= before.additions
    except (ValueError, RecursionError):
        return False


def _others(whole: JsonText) -> object:
    settings = whole.value(whole.root)
    for event in VERBS:
        groups = settings.get("hooks", {}).get(event, [])
        for group in groups:
            handlers = group.get("hooks", [])
            kept = [handler for handler in handlers if _verb(handler) != VERBS[event]]
            group["hooks"] = kept if kept or not handlers else None
        if kept_groups := [group for group in groups if group.get("hooks") is not None]:
            settings["hooks"][event] = kept_groups
        else:
            settings.get("hooks", {}).pop(event, None)
    if not settings.get("hooks"):
        settings.pop("hooks", None)
    return settings


def _is_effective(call: _HookCall, matcher: str) -> bool:
    """Return whether the agent waits for the hook, and calls it for all tools that the hook is for."""
    handler, tools = call.handler, call.group.get("matcher")
    return (
        handler.get("type") == "command"
        and not handler.get("async")
        and (tools in ANY_TOOL or (call.event == GUARDED and tools == matcher))
    )


def _verb(handler: object) -> str | None:
    """Return the verb with which a handler calls `omac hook`; None if it does not call omac."""
    command = handler.get("command") if isinstance(handler, dict) else None
    match = _CALL.search(command) if isinstance(command, str) and len(command) <= COMMAND_CHARS_MAX else None
    if match is None:
        return None
    try:
        (program,) = shlex.split(match["program"])
    except ValueError:
        return None
    return match["verb"] if os.path.basename(program) == "omac" else None


def _require(value: object, kind: type, label: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{label} must be {'an object' if kind is dict else 'a list'}")
