"""Setups of the clients, as a person has them: variables, settings files, and the arguments of a start.

All clients talk to the scripted model's server. Telemetry, updates and all else that needs a network are off by the
clients' own switches. `passed` are variables that the person hands on by name (`--env`).
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from clients.registry import CLAUDE, CODEX, OPENCODE, PI, Client

MODEL = "scripted"
CLAUDE_MODEL = "claude-opus-5-5"  # a name that Claude Code knows
OFFLINE_CODEX = f"""\
model = "{MODEL}"
model_provider = "tests"
check_for_update_on_startup = false
analytics.enabled = false
features.apps = false
features.plugins = false

[model_providers.tests]
name = "Tests"
base_url = "{{base}}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


class Agent(NamedTuple):
    """A client as a person has it: `files` are below the home, `environment` has the exports of the person's shell."""

    client: Client
    environment: Mapping[str, str]
    passed: tuple[str, ...] = ()
    files: Mapping[str, str] = {}

    @property
    def handed_on(self) -> list[str]:
        """Return the options of omac that hand variables on."""
        return [word for name in self.passed for word in ("--env", name)]


def claude(base: str) -> Agent:
    """Return Claude Code with a key; `base` is the address of the model's server, without a path."""
    switches = {
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    } | ({"IS_SANDBOX": "1"} if os.geteuid() == 0 else {})  # without it, root may not skip its questions
    key = {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "sk-ant-tests"}
    return Agent(CLAUDE, key | switches, tuple(switches))


def claude_words(prompt: str, *more: str) -> list[str]:
    """Return arguments for one prompt without a terminal; each line of its output is JSON."""
    form = ("--output-format", "stream-json", "--verbose", "--model", CLAUDE_MODEL, "--dangerously-skip-permissions")
    return ["-p", prompt, *form, *more]


def codex(base: str) -> Agent:
    """Return Codex with a provider in the person's own settings."""
    return Agent(CODEX, {"OPENAI_API_KEY": "sk-tests"}, files={".codex/config.toml": OFFLINE_CODEX.format(base=base)})


def codex_words(prompt: str, *before: str) -> list[str]:
    """Return arguments for one prompt without a terminal; each line of its output is JSON."""
    return [*before, "exec", "--json", prompt]


def opencode(base: str) -> Agent:
    """Return OpenCode with a provider in OPENCODE_CONFIG_CONTENT, which also turns off all questions."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",  # it has that within itself
        "name": "Tests",
        "options": {"baseURL": f"{base}/v1", "apiKey": "sk-tests"},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    model = f"tests/{MODEL}"
    settings = {"provider": {"tests": provider}, "model": model, "small_model": model, "permission": {"*": "allow"}}
    switches = {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "npm_config_offline": "true",  # else its first session waits for a registry that is not there
    }
    environment = {"OPENCODE_CONFIG_CONTENT": json.dumps(settings | {"autoupdate": False, "share": "disabled"})}
    return Agent(OPENCODE, environment | switches, tuple(switches))


def opencode_words(prompt: str) -> list[str]:
    """Return arguments for one prompt without a terminal; each line of its output is JSON."""
    return ["run", "--format", "json", prompt]


def pi(base: str) -> Agent:
    """Return Pi with a provider in the person's own settings."""
    provider = {"baseUrl": f"{base}/v1", "api": "openai-completions", "apiKey": "sk-tests", "models": [{"id": MODEL}]}
    files = {".pi/agent/models.json": json.dumps({"providers": {"tests": provider}})}
    return Agent(PI, {"PI_OFFLINE": "1"}, files=files)


def pi_words(prompt: str) -> list[str]:
    """Return arguments for one prompt without a terminal; each line of its output is JSON."""
    return ["--provider", "tests", "--model", MODEL, "--mode", "json", "-p", prompt]


# By name: what makes an agent for the address of a model, and the words of a command line for a prompt.
CLIENTS: dict[str, tuple[Callable[[str], Agent], Callable[[str], list[str]]]] = {
    "claude": (claude, claude_words),
    "codex": (codex, codex_words),
    "opencode": (opencode, opencode_words),
    "pi": (pi, pi_words),
}
