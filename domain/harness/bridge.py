"""What an agent is launched with so that omac serves its sessions: hooks by its command line, a plugin by a variable.

Nothing is written into the project or the agent's own folders. Codex runs a hook only if its hash is trusted; omac
trusts its own ones for the launch, and no others. Codex computes that hash over the hook's JSON with sorted keys, and
names hooks of the command line by a path that is none (codex-rs: `hooks/src/engine/discovery.rs`).
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

from omac.domain.kernel.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omac.domain.harness.harness import Harness

CONTROL_VARIABLES = ("OMAC_CONTROL_BASE", "OMAC_CONTROL_SOCKET", "OMAC_CONTROL_TOKEN_FILE")  # not for tools' shells
TIMEOUT_S = 60  # of one call of a hook
GUARDED, BEGUN, ENDED = "PreToolUse", "SessionStart", "SessionEnd"
_FLAGS_FILE = "/<session-flags>/config.toml"  # as Codex names the settings of its command line
_LABELS = {GUARDED: "pre_tool_use", BEGUN: "session_start"}  # the events that Codex has


class HookCommands(NamedTuple):
    """The shell commands that an agent's hooks run."""

    guard: str
    session_start: str
    session_end: str


def bridge_arguments(harness: Harness, commands: HookCommands, words: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments before the `words` of a person: hooks of sessions, and of tools that write. None where the
    words state the same option themselves, or the agent has no such option."""
    bridge, hook = harness.bridge, harness.hook
    if bridge is None or hook is None:
        return ()
    if bridge.settings_option:
        if is_stated(bridge.settings_option, words):
            return ()
        handlers = {GUARDED: commands.guard, BEGUN: commands.session_start, ENDED: commands.session_end}
        hooks = {event: [_group(event, command, hook.matcher)] for event, command in handlers.items()}
        return bridge.settings_option, json.dumps({"hooks": hooks}, separators=(",", ":"))
    if bridge.override_option:
        groups = {
            GUARDED: _group(GUARDED, commands.guard, hook.matcher),
            BEGUN: _group(BEGUN, commands.session_start, ""),
        }
        settings = [f"hooks.{event}=[{_toml(group)}]" for event, group in groups.items()]
        trusted = {
            f"{_FLAGS_FILE}:{_LABELS[event]}:0:0": {"trusted_hash": _trusted_hash(_LABELS[event], group)}
            for event, group in groups.items()
        }
        settings.append(f"hooks.state={_toml(trusted)}")
        settings += [f"shell_environment_policy.set.{name}={_toml('')}" for name in CONTROL_VARIABLES]
        return tuple(word for setting in settings for word in (bridge.override_option, setting))
    return ()


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


def is_stated(option: str, words: Sequence[str]) -> bool:
    """Return whether the words of a command line state an option."""
    own = words[: list(words).index("--")] if "--" in words else words
    return any(word == option or word.startswith(option + "=") for word in own)


def _group(event: str, command: str, matcher: str) -> dict[str, object]:
    handler: dict[str, object] = {"type": "command", "command": command, "timeout": TIMEOUT_S, "async": False}
    return {"matcher": matcher, "hooks": [handler]} if event == GUARDED else {"hooks": [handler]}


def _trusted_hash(label: str, group: dict[str, object]) -> str:
    text = json.dumps({**group, "event_name": label}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _toml(value: object) -> str:
    """The value as TOML has it within a line (TOML 1.0)."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}={_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_toml, value)) + "]"
    return json.dumps(value)
