"""The arguments and variables by which omac serves an agent's sessions: hooks by the command line, a plugin by a
variable or an option.

omac writes nothing into the project or the agent's own folders. Codex runs a hook only if its hash is trusted; omac
trusts its own hooks for the launch, and no others. Codex computes that hash over the hook's JSON with sorted keys. It
names hooks of the command line by a path that does not exist (codex-rs: `hooks/src/engine/discovery.rs`).

A project's settings, which an agent can write, may turn all hooks off. So omac turns hooks on at the command line,
which takes precedence. A person's own settings that turn them off stay in force.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from omac.domain.harness.names import BEGUN, CONTROL_VARIABLES, ENDED, GUARDED
from omac.domain.kernel.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omac.domain.harness.harness import Harness, Hook

TIMEOUT_S = 60  # of one call of a hook
_FLAGS_FILE = "/<session-flags>/config.toml"  # as Codex names the settings of its command line
_LABELS = {GUARDED: "pre_tool_use", BEGUN: "session_start"}  # the events that Codex has


class HookCommands(NamedTuple):
    """The shell commands that an agent's hooks run."""

    guard: str
    session_start: str
    session_end: str


def bridged(
    harness: Harness, commands: HookCommands, words: Sequence[str], stated: str = "{}", *, hooks_off: bool = False
) -> tuple[str, ...]:
    """Return the `words` of a person with omac's: hooks of sessions, and of tools that write. `stated` are the settings
    to which the words' own option for them leads; they are kept, with their hooks. `hooks_off`: the person's own
    settings turn hooks off. Raises ValueError for settings of another form."""
    bridge, hook = harness.bridge, harness.hook
    if bridge is None or hook is None:
        return tuple(words)
    if bridge.settings_option:
        handlers = {GUARDED: commands.guard, BEGUN: commands.session_start, ENDED: commands.session_end}
        hooks = {event: _group(event, command, hook.matcher) for event, command in handlers.items()}
        settings = _with_hooks(json.loads(stated), hooks)
        if hook.off_switch and not hooks_off:
            settings.setdefault(hook.off_switch, False)
        merged = json.dumps(settings, separators=(",", ":"))
        return (bridge.settings_option, merged, *without_option(bridge.settings_option, words))
    if bridge.override_option:
        groups = {
            GUARDED: _group(GUARDED, commands.guard, hook.matcher),
            BEGUN: _group(BEGUN, commands.session_start, ""),
        }
        overrides = [f"hooks.{event}=[{_toml(group)}]" for event, group in groups.items()]
        trusted = {
            f"{_FLAGS_FILE}:{_LABELS[event]}:0:0": {"trusted_hash": _trusted_hash(_LABELS[event], group)}
            for event, group in groups.items()
        }
        overrides.append(f"hooks.state={_toml(trusted)}")
        overrides += [f"{hook.on_switch}=true"] if hook.on_switch and not hooks_off else []
        overrides += [f"shell_environment_policy.set.{name}={_toml('')}" for name in CONTROL_VARIABLES]
        return (*(word for setting in overrides for word in (bridge.override_option, setting)), *words)
    return tuple(words)


def are_hooks_off(hook: Hook, stated: str) -> bool:
    """Return whether settings turn all hooks off, which are those of a person; ones that are not valid do not."""
    try:
        if hook.off_switch:
            settings = json.loads(stated)
            return isinstance(settings, dict) and bool(settings.get(hook.off_switch))
        value: object = tomllib.loads(stated) if hook.on_switch else None
        for name in hook.on_switch.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value is False
    except (ValueError, RecursionError):
        return False


def untrusted(harness: Harness, stated: str, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments by which an agent takes a folder for untrusted, its settings and hooks unread, unless the
    file `stated` says of one of `folders`, which are the project's, whether it is trusted. Where the file is not valid
    the agent reports that itself."""
    if harness.bridge is None or not harness.bridge.folders_file:
        return ()
    try:
        known = tomllib.loads(stated).get("projects", {})
    except ValueError:
        return ()
    if not isinstance(known, dict) or any(folder in known for folder in folders):
        return ()
    return harness.bridge.override_option, f"projects={_toml({folders[0]: {'trust_level': 'untrusted'}})}"


def with_variables(settings: str, variables: Mapping[str, str]) -> str:
    """Return an agent's settings, as `bridged` made them, with these variables for its hooks: those of a project's
    settings do not replace them."""
    document = json.loads(settings)
    theirs = document.get("env", {})
    if not isinstance(theirs, dict):  # the agent reports that
        return settings
    return json.dumps({**document, "env": {**theirs, **variables}}, separators=(",", ":"))


def bridge_variables(harness: Harness, plugin_url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which an agent loads omac's plugin, beside what the person's variable holds. Raises
    Refusal (settings-invalid): that is no JSON object, or its plugins are no list."""
    if harness.bridge is None or not harness.bridge.plugin_variable:
        return {}
    name = harness.bridge.plugin_variable
    try:
        settings = json.loads(environment.get(name) or "{}")
        plugins = settings.get("plugin", [])
        return {name: json.dumps({**settings, "plugin": [*plugins, plugin_url]}, separators=(",", ":"))}
    except (ValueError, AttributeError, TypeError, RecursionError):
        message = f"{name} is no JSON object whose plugins are a list, so omac cannot add its plugin"
        raise Refusal("settings-invalid", message, fix=[f"unset {name}"]) from None


def stated_value(option: str, words: Sequence[str]) -> str | None:
    """Return the value that the words of a command line state for an option, the last if there are several; None:
    they state none."""
    value, own = None, list(words[: list(words).index("--")] if "--" in words else words)
    for word, following in zip_longest(own, own[1:]):
        if word == option and following is not None:
            value = following
        elif word.startswith(option + "="):
            value = word.removeprefix(option + "=")
    return value


def without_option(option: str, words: Sequence[str]) -> list[str]:
    """Return the words without an option and its value, as often as they are there."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            return [*kept, word, *left]
        if word == option:
            next(left, None)
        elif not word.startswith(option + "="):
            kept.append(word)
    return kept


def _with_hooks(settings: object, hooks: Mapping[str, dict[str, object]]) -> dict[str, object]:
    """The settings with one more group of hooks for each event. Raises ValueError."""
    if not isinstance(settings, dict):
        raise ValueError("the settings are no JSON object")
    theirs = settings.get("hooks", {})
    if not isinstance(theirs, dict) or not all(isinstance(groups, list) for groups in theirs.values()):
        raise ValueError("the hooks of the settings are no lists by event")
    return {**settings, "hooks": theirs | {event: [*theirs.get(event, []), group] for event, group in hooks.items()}}


def _group(event: str, command: str, matcher: str) -> dict[str, object]:
    handler: dict[str, object] = {"type": "command", "command": command, "timeout": TIMEOUT_S, "async": False}
    return {"matcher": matcher, "hooks": [handler]} if event == GUARDED else {"hooks": [handler]}


def _trusted_hash(label: str, group: dict[str, object]) -> str:
    text = json.dumps({**group, "event_name": label}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _toml(value: object) -> str:
    """The value as TOML has it within a line (TOML 1.0)."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}={_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_toml, value)) + "]"
    return json.dumps(value)
