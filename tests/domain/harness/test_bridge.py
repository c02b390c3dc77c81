"""domain/harness/bridge.py: omac's additions to an agent's command line and environment."""

import json
import tomllib

import pytest

from omac.domain.harness.bridge import (
    HookCommands,
    are_hooks_off,
    bridge_variables,
    bridged,
    stated_value,
    untrusted,
    with_variables,
    without_option,
)
from omac.domain.harness.harness import Harness
from omac.domain.harness.names import CONTROL_VARIABLES
from omac.domain.harness.table import HARNESSES, harness_named
from omac.domain.kernel.refusal import Refusal

COMMANDS = HookCommands("/o/omac hook pre-tool-use || exit 2", "/o/omac hook session-start", "/o/omac hook session-end")


def test_claude_gets_hooks_as_settings() -> None:
    """Claude Code gets a hook for the start of its sessions, one for their end, and the write guard for the tools that
    write."""
    option, settings, *words = bridged(harness_named("claude"), COMMANDS, ("-p", "x"))
    assert (option, words) == ("--settings", ["-p", "x"])
    hooks = json.loads(settings)["hooks"]
    commands = {
        event: [hook["command"] for group in groups for hook in group["hooks"]] for event, groups in hooks.items()
    }
    assert commands == {
        "PreToolUse": [COMMANDS.guard],
        "SessionStart": [COMMANDS.session_start],
        "SessionEnd": [COMMANDS.session_end],
    }
    assert "Write" in hooks["PreToolUse"][0]["matcher"]


def test_a_project_cannot_turn_hooks_off() -> None:
    """The command line, which comes before a project's settings, turns hooks on, unless the user's own settings turn
    them off."""
    claude, codex = harness_named("claude"), harness_named("codex")
    assert json.loads(bridged(claude, COMMANDS, ())[1])["disableAllHooks"] is False
    assert "disableAllHooks" not in json.loads(bridged(claude, COMMANDS, (), hooks_off=True)[1])
    assert json.loads(bridged(claude, COMMANDS, (), '{"disableAllHooks":true}')[1])["disableAllHooks"] is True
    assert "features.hooks=true" in bridged(codex, COMMANDS, ())
    assert "features.hooks=true" not in bridged(codex, COMMANDS, (), hooks_off=True)


@pytest.mark.parametrize(
    ("name", "stated", "off"),
    [
        ("claude", '{"disableAllHooks":true}', True),
        ("claude", '{"disableAllHooks":false}', False),
        ("claude", "[]", False),
        ("claude", "", False),
        ("claude", "[" * 100_000, False),
        ("codex", "[features]\nhooks = false", True),
        ("codex", "[features]\nhooks = true", False),
        ("codex", "features = 1", False),
        ("codex", "features = [", False),
        ("codex", "", False),
    ],
)
def test_what_a_person_turned_off(name: str, stated: str, off: bool) -> None:
    """Settings that are not valid turn nothing off; the agent reports them."""
    hook = harness_named(name).hook
    assert hook is not None
    assert are_hooks_off(hook, stated) is off


def test_variables_are_added_to_settings() -> None:
    """The user's other variables stay; settings of another form are left to the agent."""
    assert json.loads(with_variables('{"env":{"A":"1","B":"2"},"m":1}', {"B": "3"})) == {
        "env": {"A": "1", "B": "3"},
        "m": 1,
    }
    assert json.loads(with_variables("{}", {"B": "3"})) == {"env": {"B": "3"}}
    assert with_variables('{"env":[]}', {"B": "3"}) == '{"env":[]}'


def test_settings_of_a_person_stay() -> None:
    """Claude Code takes only the last --settings, so omac's hooks join those of the user's, wherever the option
    stands."""
    stated = {"model": "m", "hooks": {"PreToolUse": [{"hooks": []}], "Stop": []}}
    for words in (("-p", "--settings", "x.json", "--", "--settings"), ("--settings=x.json", "-p", "--", "--settings")):
        option, settings, *rest = bridged(harness_named("claude"), COMMANDS, words, json.dumps(stated))
        assert (option, rest) == ("--settings", ["-p", "--", "--settings"])
        merged = json.loads(settings)
        assert merged["model"] == "m"
        assert [len(groups) for groups in merged["hooks"].values()] == [2, 0, 1, 1]
        assert stated_value("--settings", words) == "x.json"
    assert stated_value("--settings", ("--", "--settings", "x")) is None
    assert without_option("--settings", ("--settings",)) == []


@pytest.mark.parametrize("stated", ["", "{", "[]", '{"hooks":[]}', '{"hooks":{"PreToolUse":{}}}', "[" * 100_000])
def test_settings_of_another_form_are_refused(stated: str) -> None:
    """Settings of another form raise an error. The caller leaves them to the agent, which reports the problem."""
    with pytest.raises((ValueError, RecursionError)):
        bridged(harness_named("claude"), COMMANDS, (), stated)


def test_codex_gets_hooks_it_trusts() -> None:
    """Each override is one setting in TOML; the hooks have the hashes that Codex 0.169.0 computes for them."""
    words = bridged(harness_named("codex"), COMMANDS, ())
    assert set(words[::2]) == {"-c"}
    settings = tomllib.loads("\n".join(words[1::2]))
    hooks = settings["hooks"]
    assert [hook["command"] for hook in hooks["SessionStart"][0]["hooks"]] == [COMMANDS.session_start]
    assert [hook["command"] for hook in hooks["PreToolUse"][0]["hooks"]] == [COMMANDS.guard]
    assert settings["shell_environment_policy"]["set"] == dict.fromkeys(CONTROL_VARIABLES, "")
    assert set(hooks["state"]) == {
        "/<session-flags>/config.toml:session_start:0:0",
        "/<session-flags>/config.toml:pre_tool_use:0:0",
    }


def test_the_hashes_are_those_that_codex_computes() -> None:
    """The trusted hashes are those with which Codex 0.169.0 ran these two hooks without asking the user."""
    commands = HookCommands("/tmp/cl/hook.sh guard", "/tmp/cl/hook.sh start", "")
    words = bridged(harness_named("codex"), commands, ())
    state = tomllib.loads("\n".join(words[1::2]))["hooks"]["state"]
    assert [entry["trusted_hash"] for entry in state.values()] == [
        "sha256:1dc09c666a2d5f6e8ab4c8c4f87c43a128cb6173c19607441dc04e2efdb3b837",
        "sha256:217e7cce865b0a49ef9ce3b7cf79343e7115360ef0e1d416b9c14522358dc729",
    ]


def test_a_plugin_joins_those_of_the_person() -> None:
    """The plugin of omac joins the user's OPENCODE_CONFIG_CONTENT, which is kept with its plugins."""
    harness, url = harness_named("opencode"), "file:///o/bridge.ts"
    assert bridge_variables(harness, url, {}) == {"OPENCODE_CONFIG_CONTENT": '{"plugin":["file:///o/bridge.ts"]}'}
    variables = {"OPENCODE_CONFIG_CONTENT": '{"model":"x/y","plugin":["mine"]}'}
    (settings,) = bridge_variables(harness, url, variables).values()
    assert json.loads(settings) == {"model": "x/y", "plugin": ["mine", url]}
    assert bridge_variables(harness_named("claude"), url, {}) == {}


@pytest.mark.parametrize("content", ["{", "[]", '"x"', '{"plugin":3}', "[" * 100_000])
def test_a_configuration_of_another_form_is_refused(content: str) -> None:
    """A configuration of another form is refused, so that none of the user's settings is dropped silently."""
    with pytest.raises(Refusal) as refused:
        bridge_variables(harness_named("opencode"), "file:///x", {"OPENCODE_CONFIG_CONTENT": content})
    assert refused.value.reason == "settings-invalid"


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_no_agent_gets_arguments_it_has_no_option_for(harness: Harness) -> None:
    """Each agent gets its own option before each value, and an agent without an option gets no arguments."""
    words = bridged(harness, COMMANDS, ())
    bridge = harness.bridge
    option = (bridge.settings_option or bridge.override_option) if bridge else ""
    assert words == tuple(word for value in words[1::2] for word in (option, value))
    assert bool(words) == bool(option)


def test_a_folder_without_an_answer_is_untrusted() -> None:
    """A folder without an answer of the user's is untrusted: Codex would ask, and could not save the answer in its
    pinned settings. An earlier answer counts, for the folder or for the clone that it is a worktree of."""
    codex, folders = harness_named("codex"), ["/p/tree", "/p/main"]
    option, setting = untrusted(codex, "", folders)
    assert (option, tomllib.loads(setting)) == ("-c", {"projects": {"/p/tree": {"trust_level": "untrusted"}}})
    for folder in folders:
        assert untrusted(codex, f'[projects."{folder}"]\ntrust_level = "trusted"', folders) == ()
    assert untrusted(codex, '[projects."/p"]\ntrust_level = "trusted"', folders)
    assert untrusted(codex, "[projects", folders) == untrusted(codex, "projects = 3", folders) == ()
    assert untrusted(harness_named("claude"), "", folders) == ()
